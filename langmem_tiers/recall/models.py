"""Filters and results of recall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Tier, check_score
from langmem_tiers.common.messages import check_role, check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.display.displayable import Displayable, build_table
from langmem_tiers.display.tables import DisplayContent, Table, to_cell
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.messages import Message, Role
    from langmem_tiers.common.recall_strategy import Strategy
    from langmem_tiers.knowledge.models import Knowledge


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallFilters:
    """Restrictions on recall. A filter that is left out allows everything.

    Args:
        tiers: Only entries of these tiers.
        kinds: Only entries of these kinds: ``message``, or the kinds of long-term entries.
        roles: Only messages of these roles.
        sessions: Only entries of these sessions.
        categories: Only knowledge and long-term entries of these categories.
        tags: Only entries with at least one of these tags.
        since: Only entries created at this time or later.
        until: Only entries created before this time.
        min_importance: Only entries of at least this importance, from 0 to 1. Default: 0.
        messages: True if original messages may be recalled. Default: True.
        episodic: True if episodes may be recalled. Default: True.
        chunks: True if summaries of older messages may be recalled. Default: True.
        valid_at: The state of memory at this time: entries valid then and messages created by then. Default: now.
    """

    tiers: AbstractSet[Tier | str] | None = None
    kinds: AbstractSet[str] | None = None
    roles: AbstractSet[Role | str] | None = None
    sessions: AbstractSet[str] | None = None
    categories: AbstractSet[str] | None = None
    tags: AbstractSet[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_importance: float = 0.0
    messages: bool = True
    episodic: bool = True
    chunks: bool = True
    valid_at: datetime | None = None

    def __post_init__(self) -> None:
        # The class is frozen: normalized values can only be set past its own __setattr__.
        put = object.__setattr__
        put(self, "tiers", _to_set(self.tiers, "tiers", _check_tier))
        put(self, "roles", _to_set(self.roles, "roles", check_role))
        put(self, "sessions", _to_set(self.sessions, "sessions", check_name))
        for name in ("kinds", "categories", "tags"):
            put(self, name, _to_set(getattr(self, name), name, _check_filter_name))
        for name in ("since", "until", "valid_at"):
            moment = getattr(self, name)
            put(self, name, None if moment is None else check_time(moment))
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise InvalidInputError(
                f"until {self.until.isoformat()!r} must be later than since {self.since.isoformat()!r}: "
                "swap them or leave one out"
            )
        check_score(self.min_importance, "min_importance")


# Signals of how, when and by whom something was said. They favor any such memory, whatever the query is.
_CIRCUMSTANCE_SIGNALS = {"form", "speaker", "time", "session", "standing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Displayable):
    """A recalled memory with its score and the score breakdown."""

    entry: Entry
    score: float
    """Score of this memory. Higher is better. Comparable only within one recall."""
    signals: Mapping[str, float]
    """Score breakdown: the contribution of each signal, by name."""
    found_by: str
    """Largest signal: ``message``, ``neighbors``, ``session``, ``meaning``, or a signal of a preset.

    If these are zero: ``speaker`` or ``time``, or ``form`` if nothing matched the query.
    """
    message: Message | None = None
    knowledge: Knowledge | None = None

    @property
    def relevance(self) -> float:
        """Part of the score from words and meaning, without form, speaker, time and session."""
        return sum(value for name, value in self.signals.items() if name not in _CIRCUMSTANCE_SIGNALS)

    @property
    def session(self) -> str | None:
        """Session of the memory."""
        return self.entry.session

    def _to_row(self) -> dict[str, object]:
        entry = self.entry
        return {
            "score": self.score,
            "found by": self.found_by,
            "tier": entry.tier,
            "session": entry.session,
            "role": entry.role,
            "time": entry.created_at,
            "text": entry.content if self.knowledge is None else self.knowledge.text,
        }

    def _to_line(self) -> str:
        return f"{self.score:.2f} {self._to_row()['text']}"

    def _to_display(self) -> DisplayContent:
        best = sorted(self.signals.items(), key=lambda signal: -abs(signal[1]))
        signals = Table(("signal", "contribution"), tuple((to_cell(name), value) for name, value in best))
        return DisplayContent(f"Hit: {self.score:.3f}, found by {self.found_by}", self._to_row(), (signals,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Displayable):
    """Result of a recall: the hits, best first."""

    query: str
    hits: tuple[Hit, ...]
    strategy: Strategy
    candidates: int
    """Number of memories that passed the filters and were compared."""
    embedder: str | None = None
    """Identity of the embedder whose vectors were compared. None if only words were compared."""
    problems: tuple[str, ...] = field(default=())
    """Problems of this recall, for example an embedder that failed."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def _to_display(self) -> DisplayContent:
        facts: dict[str, object] = {
            "query": self.query,
            "strategy": self.strategy,
            "candidates": self.candidates,
            "embedder": self.embedder,
        }
        if self.problems:
            facts["problems"] = self.problems
        return DisplayContent(
            f"Recall: {len(self):,} hits", facts, (build_table(self.hits),) if self.hits else ()
        )


def _to_set(values: object, what: str, check: object) -> frozenset[object] | None:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{what} must be a set, got {type(values).__name__}: use {{...}}")
    assert callable(check)  # noqa: S101 - callers are in this module
    return frozenset(check(value) for value in values)


def _check_tier(tier: object) -> Tier:
    try:
        return Tier(tier)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(tier.value for tier in Tier)
        raise InvalidInputError(f"unknown tier {tier!r}: use one of {known}") from None


def _check_filter_name(word: object) -> str:
    if not isinstance(word, str) or not word:
        raise InvalidInputError(f"filter values must be non-empty strings, got {word!r}: correct or omit it")
    return word
