"""Configuration of scoring: the signal and pattern tables of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.scorer import Scorer
from langmem_tiers.episodes.patterns import MOMENT_PATTERNS, MomentPattern
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.facts.patterns import EXTRA_PATTERNS, EXTRACTION_PATTERNS, ExtractionPattern
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER, RELEVANCE_SCORER
from langmem_tiers.text.facts import FactPattern, find_key_facts
from langmem_tiers.text.patterns import FACT_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Signal and pattern tables of an engine. Each table can be extended or replaced.

    Args:
        relevance: Scorer for an entry's relevance to the current work.
        importance: Scorer for an entry's long-term importance.
        facts: Patterns of text that must survive compression verbatim.
        key_facts: Function that names the facts in a text that justify its promotion.
        statements: Patterns that extract facts, decisions, preferences and so on from a message.
        moments: Patterns that detect episodes in a conversation.
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
                    f"{name} must be a Scorer, got {type(scorer).__name__}. Use Scorer((*RELEVANCE_SIGNALS, mine))."
                )
        if not all(isinstance(pattern, FactPattern) for pattern in self.facts):
            raise InvalidConfigError(
                "facts must contain only FactPattern objects. Use (*FACT_PATTERNS, FactPattern(...))."
            )
        for name, kind in (("statements", ExtractionPattern), ("moments", MomentPattern)):
            if not all(isinstance(row, kind) for row in getattr(self, name)):
                raise InvalidConfigError(
                    f"{name} must contain only {kind.__name__} objects. Wrap each row in {kind.__name__}(...)."
                )
        if not callable(self.key_facts):
            raise InvalidConfigError(
                f"key_facts must be a function, got {type(self.key_facts).__name__}. Pass a function of one text."
            )
