"""Comparing two statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.scoring.statements.contradictions import contradiction
from langmem_tiers.scoring.statements.differences import difference
from langmem_tiers.scoring.statements.sameness import why_not_same
from langmem_tiers.scoring.statements.verdicts import Comparison, Verdict

if TYPE_CHECKING:
    from langmem_tiers.scoring.statements.reading import Statement


def compare(old: Statement, new: Statement) -> Comparison:
    """What the new statement is to the old one.

    Args:
        old: What is in memory.
        new: What may be stored.
    """
    if old.plain == new.plain:
        return Comparison(Verdict.SAME, "word for word the same", 1.0)
    if not old.atoms or not new.atoms:
        return Comparison(Verdict.DIFFERENT, "nothing to compare", 0.0)
    found = difference(old, new)
    if not (why_not := why_not_same(old, new, found)):
        return Comparison(Verdict.SAME, "the same in other words", 1.0)
    if why := contradiction(old, new, found):
        return Comparison(Verdict.CONTRADICTS, why, found.similarity)
    return Comparison(Verdict.DIFFERENT, why_not, found.similarity)
