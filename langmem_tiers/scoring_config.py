"""The tables that decide what matters, as one value to hand in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.scorer import Scorer
from langmem_tiers.episodes.patterns import MOMENT_PATTERNS, MomentPattern
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.facts.patterns import EXTRA_PATTERNS, EXTRACTION_PATTERNS, ExtractionPattern
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER, RELEVANCE_SCORER
from langmem_tiers.text.facts import FactPattern
from langmem_tiers.text.key_facts import find_key_facts
from langmem_tiers.text.patterns import FACT_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """What the engine goes by. Each table can be extended or replaced.

    Args:
        relevance: How much an entry matters to the work at hand.
        importance: How much it matters beyond that.
        facts: What must survive compression word for word.
        key_facts: Names what in a text makes it worth promoting.
        statements: What in a message is a fact, a decision, a preference and so on.
        moments: What in a conversation is an episode.
    """

    relevance: Scorer = RELEVANCE_SCORER
    importance: Scorer = IMPORTANCE_SCORER
    facts: Sequence[FactPattern] = FACT_PATTERNS
    key_facts: Callable[[str], Sequence[str]] = find_key_facts
    statements: Sequence[ExtractionPattern] = (*EXTRACTION_PATTERNS, *EXTRA_PATTERNS)
    moments: Sequence[MomentPattern] = MOMENT_PATTERNS

    def __post_init__(self) -> None:
        for name in ("relevance", "importance"):
            if not isinstance(scorer := getattr(self, name), Scorer):
                raise InvalidConfigError(
                    f"{name} must be a Scorer, got a {type(scorer).__name__}: use Scorer((*RELEVANCE_SIGNALS, mine))"
                )
        if not all(isinstance(pattern, FactPattern) for pattern in self.facts):
            raise InvalidConfigError("facts must be FactPattern rows: use (*FACT_PATTERNS, FactPattern(...))")
        for name, kind in (("statements", ExtractionPattern), ("moments", MomentPattern)):
            if not all(isinstance(row, kind) for row in getattr(self, name)):
                raise InvalidConfigError(f"{name} must be {kind.__name__} rows: wrap each of yours as one")
        if not callable(self.key_facts):
            raise InvalidConfigError(f"key_facts must be a function, got a {type(self.key_facts).__name__}")
