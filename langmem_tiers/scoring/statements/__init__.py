"""Two statements of long-term memory: does the new one say the same, contradict the old one, or neither?"""

from __future__ import annotations

from langmem_tiers.scoring.statements.comparing import compare
from langmem_tiers.scoring.statements.reading import Statement, read_statement
from langmem_tiers.scoring.statements.verdicts import Comparison, Verdict

__all__ = ["Comparison", "Statement", "Verdict", "compare", "read_statement"]
