"""The tables that decide what matters, as one value to hand in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.scoring.importance import IMPORTANCE
from langmem_tiers.scoring.key_facts import key_facts
from langmem_tiers.scoring.patterns import FACT_PATTERNS
from langmem_tiers.scoring.relevance import RELEVANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.scoring.facts import FactPattern
    from langmem_tiers.scoring.signals import Scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """What the engine goes by. Each table can be extended or replaced.

    Args:
        relevance: How much an entry matters to the work at hand.
        importance: How much it matters beyond that.
        facts: What must survive compression word for word.
        key_facts: Names what in a text makes it worth promoting.
    """

    relevance: Scorer = RELEVANCE
    importance: Scorer = IMPORTANCE
    facts: Sequence[FactPattern] = FACT_PATTERNS
    key_facts: Callable[[str], Sequence[str]] = key_facts
