"""Recall: a query in, ranked entries with reasons out."""

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
    """What may be recalled. Everything that is left out allows all.

    Args:
        tiers: Only entries of these tiers.
        kinds: Only entries of these kinds: ``message``, or the kinds of long-term entries.
        roles: Only what these said.
        sessions: Only from these sessions.
        categories: Only knowledge and long-term entries of these categories.
        tags: Only entries with one of these tags.
        since: Only what was said at that time or later.
        until: Only what was said before that time.
        min_importance: Only what matters as much.
        messages: Whether messages as they were said may come.
        episodic: Whether moments may come.
        chunks: Whether summaries of older messages may come.
        valid_at: As it was at that time: what was in force then, and what had been said by then. What is in force
            now, if left out.
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
                f"until {self.until.isoformat()!r} must lie after since {self.since.isoformat()!r}: "
                "swap them or leave one out"
            )
        check_score(self.min_importance, "min_importance")


_CIRCUMSTANCE_SIGNALS = {"form", "speaker", "time", "session", "standing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Displayable):
    """A memory that answers a query, and why."""

    entry: Entry
    score: float
    """Higher is better; comparable within one recall only."""
    signals: Mapping[str, float]
    """What each signal gave to the score, by its name."""
    found_by: str
    """What gave most: ``message``, ``neighbours``, ``session``, ``meaning``, or a signal of a preset."""
    message: Message | None = None
    knowledge: Knowledge | None = None

    @property
    def relevance(self) -> float:
        """What words and meaning gave, without what speaks for any memory of that form, speaker, time or session."""
        return sum(value for name, value in self.signals.items() if name not in _CIRCUMSTANCE_SIGNALS)

    @property
    def session(self) -> str | None:
        """The session that it comes from."""
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
        best = sorted(self.signals.items(), key=lambda one: -abs(one[1]))
        signals = Table(("signal", "gave"), tuple((to_cell(name), value) for name, value in best))
        return DisplayContent(f"Hit: {self.score:.3f}, found by {self.found_by}", self._to_row(), (signals,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Displayable):
    """What a query brought back, best first."""

    query: str
    hits: tuple[Hit, ...]
    strategy: Strategy
    candidates: int
    """How many memories were looked at in the end."""
    embedder: str | None = None
    """Whose vectors were compared; None where words alone decided."""
    problems: tuple[str, ...] = field(default=())
    """What did not work this time, such as an embedder that failed."""

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
    assert callable(check)  # noqa: S101 - of this module
    return frozenset(check(value) for value in values)


def _check_tier(tier: object) -> Tier:
    try:
        return Tier(tier)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(tier.value for tier in Tier)
        raise InvalidInputError(f"unknown tier {tier!r}: use one of {known}") from None


def _check_filter_name(word: object) -> str:
    if not isinstance(word, str) or not word:
        raise InvalidInputError(f"a filter takes names, got {word!r}: use non-empty strings")
    return word
