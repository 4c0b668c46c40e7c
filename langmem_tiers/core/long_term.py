"""Long-term entries: their kinds, how they relate to each other, and what a write makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.core.entries import check_score
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.names import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from langmem_tiers.core.entries import Entry


class EntryKind(StrEnum):
    """What a long-term entry says. A kind of your own is a name of your own."""

    FACT = "fact"
    DECISION = "decision"
    PREFERENCE = "preference"
    ENTITY = "entity"
    PROCEDURE = "procedure"
    CONSTRAINT = "constraint"
    GOAL = "goal"


IMPORTANCE: Mapping[str, float] = {
    EntryKind.FACT: 0.5,
    EntryKind.DECISION: 0.7,
    EntryKind.PREFERENCE: 0.6,
    EntryKind.ENTITY: 0.5,
    EntryKind.PROCEDURE: 0.5,
    EntryKind.CONSTRAINT: 0.6,
    EntryKind.GOAL: 0.8,
}
"""How important an entry of each kind is, unless the caller says otherwise; 0.5 for kinds of your own."""
USUAL_IMPORTANCE = 0.5


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
class Relation:
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
class Related:
    """An entry that was reached over relations."""

    entry: Entry
    depth: int
    """How many relations lie between."""
    strength: float
    """The strengths on the way, multiplied."""
    path: tuple[Relation, ...]
    """The relations on the way, from where the walk began."""


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
class Receipt:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilters:
    """Which entries are meant. Everything that is left out allows all.

    Args:
        kinds: Only of these kinds.
        categories: Only of these categories.
        tags: Only with one of these tags.
        valid_at: Only those that held at that time; None takes them whenever they held.
        since: Only those created at that time or later.
        until: Only those created before that time.
        min_importance: Only those that matter as much.
        session: Only from this session.
        archived: Whether those that were archived come too.
    """

    kinds: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    valid_at: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_importance: float = 0.0
    session: str | None = None
    archived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport:
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
