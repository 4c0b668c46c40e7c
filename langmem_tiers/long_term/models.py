"""Long-term entries: their kinds, how they relate to each other, and what a write makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import build_interval_error, check_score
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.display.displayable import Displayable, to_display_row
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.entries import Entry


class EntryKind(StrEnum):
    """What a long-term entry says. A kind of your own is a name of your own."""

    FACT = "fact"
    DECISION = "decision"
    PREFERENCE = "preference"
    ENTITY = "entity"
    PROCEDURE = "procedure"
    CONSTRAINT = "constraint"
    GOAL = "goal"


DEFAULT_IMPORTANCE_BY_KIND: Mapping[str, float] = {
    EntryKind.FACT: 0.5,
    EntryKind.DECISION: 0.7,
    EntryKind.PREFERENCE: 0.6,
    EntryKind.ENTITY: 0.5,
    EntryKind.PROCEDURE: 0.5,
    EntryKind.CONSTRAINT: 0.6,
    EntryKind.GOAL: 0.8,
}
"""How important an entry of each kind is, unless the caller says otherwise; 0.5 for kinds of your own."""
DEFAULT_IMPORTANCE = 0.5


class RelationKind(StrEnum):
    """How one entry relates to another. A relation of your own is a name of your own."""

    RELATED_TO = "related_to"
    DEPENDS_ON = "depends_on"
    CONTRADICTS = "contradicts"
    SUPERSEDES = "supersedes"
    PART_OF = "part_of"
    CAUSED_BY = "caused_by"
    SUPPORTS = "supports"
    DERIVED_FROM = "derived_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """Something to be remembered for long, before it is stored.

    Args:
        content: What is to be remembered.
        kind: An ``EntryKind`` or a name of your own.
        category: What it is about. Entries of two categories never contradict each other.
        tags: Words to filter by.
        importance: From 0 to 1; by its kind, if left out.
        source: Where it comes from.
        session: The session that it was said in.
        valid_from: Since when it holds; since now, if left out.
        valid_until: When it ceases to hold; None while nobody knows of an end.
    """

    content: str
    kind: str = EntryKind.FACT
    category: str | None = None
    tags: AbstractSet[str] = frozenset()
    importance: float | None = None
    source: str | None = None
    session: str | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    def __post_init__(self) -> None:
        content: object = self.content
        if not isinstance(content, str) or not content.strip():
            raise InvalidInputError(f"an entry must say something, got {content!r}: pass it as text")
        check_name(self.kind, "kind")
        tags: object = self.tags
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise InvalidInputError(f"tags must be a set of names, got {tags!r}: use {{...}}")
        object.__setattr__(self, "tags", frozenset(check_name(tag, "tag") for tag in tags))
        for name in ("category", "session"):
            if getattr(self, name) is not None:
                check_name(getattr(self, name), name)
        source: object = self.source
        if source is not None and not isinstance(source, str):
            raise InvalidInputError(f"a source must be a str, got a {type(source).__name__}: name it as text")
        if self.importance is not None:
            check_score(self.importance, "importance")
        for name in ("valid_from", "valid_until"):
            moment = getattr(self, name)
            object.__setattr__(self, name, None if moment is None else check_time(moment))
        if (
            self.valid_from is not None
            and self.valid_until is not None
            and self.valid_until <= self.valid_from
        ):
            raise build_interval_error(self.valid_from, self.valid_until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation(Displayable):
    """One entry's relation to another, from ``source`` to ``target``."""

    source: str
    target: str
    kind: str
    strength: float = 1.0
    created_at: datetime

    def __post_init__(self) -> None:
        check_name(self.source, "entry id")
        check_name(self.target, "entry id")
        check_name(self.kind, "relation")
        check_score(self.strength, "strength")
        if self.source == self.target:
            raise InvalidInputError(
                f"the entry {self.source!r} cannot be related to itself: name another as the target"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Related(Displayable):
    """An entry that was reached over relations."""

    entry: Entry
    depth: int
    """How many relations lie between."""
    strength: float
    """The strengths on the way, multiplied."""
    path: tuple[Relation, ...]
    """The relations on the way, from where the walk began."""

    def _to_row(self) -> dict[str, object]:
        by = " → ".join(relation.kind for relation in self.path)
        return {"depth": self.depth, "strength": self.strength, "by": by, **to_display_row(self.entry)}


class Outcome(StrEnum):
    """What became of something that was to be stored."""

    STORED = "stored"
    """It is in force."""
    DUPLICATE = "duplicate"
    """An entry says so already; that one counts as used."""
    SUPERSEDES = "supersedes"
    """It is in force, and entries that it contradicts are not any more."""
    PAST = "past"
    """It held before one that is in force: it is in the history."""
    QUARANTINED = "quarantined"
    """It is kept aside, is not in force and is not recalled, until somebody promotes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Displayable):
    """What became of something that was to be stored, and why."""

    outcome: Outcome
    reason: str
    entry: Entry | None = None
    """The entry that says it now; None where it is quarantined."""
    duplicate_of: str | None = None
    """Id of the entry that said it already."""
    supersedes: tuple[str, ...] = ()
    """Ids of entries that are no longer in force because of it."""
    superseded_by: str | None = None
    """Id of the entry that was in force after it."""
    fact: str | None = None
    """Id of the extracted fact that it came from, or as which it is quarantined."""

    @property
    def is_stored(self) -> bool:
        """Whether there is a new entry."""
        return self.outcome in (Outcome.STORED, Outcome.SUPERSEDES, Outcome.PAST)

    def _to_row(self) -> dict[str, object]:
        text = None if self.entry is None else self.entry.content
        return {"outcome": self.outcome, "reason": self.reason, "text": text}

    def _to_line(self) -> str:
        return f"{self.outcome}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilters:
    """Which entries are meant. Everything that is left out allows all.

    Args:
        kinds: Only of these kinds.
        categories: Only of these categories.
        tags: Only with one of these tags.
        valid_at: Only those that held at that time; None takes them whenever they held.
        meets: Only those that held at some time between these two; None as the second is no end.
        since: Only those created at that time or later.
        until: Only those created before that time.
        min_importance: Only those that matter as much.
        sessions: Only from these sessions.
        archived: Whether those that were archived come too.
    """

    kinds: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    valid_at: datetime | None = None
    overlaps: tuple[datetime, datetime | None] | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_importance: float = 0.0
    sessions: frozenset[str] | None = None
    archived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport(Displayable):
    """What a consolidation did."""

    memories_archived: int = 0
    memories_merged: int = 0
    tokens_reclaimed: int = 0
    """What the archived and merged ones would take in a context."""
    looked_at: int = 0
    is_complete: bool = True
    """Whether it came to its end; if not, the next one goes on where it stopped."""
    is_elsewhere: bool = False
    """Whether another process is at it, so that nothing was done here."""
