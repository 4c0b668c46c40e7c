"""Models of long-term memory: entry kinds, relations, drafts, filters and reports."""

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
    """Kind of a long-term entry. Any other string is a kind, too."""

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
"""Default importance of an entry by its kind. Other kinds have ``DEFAULT_IMPORTANCE``."""
DEFAULT_IMPORTANCE = 0.5


class RelationKind(StrEnum):
    """Kind of a relation between two entries. Any other string is a kind, too."""

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
    """A long-term entry before it is stored.

    Args:
        content: Text to remember.
        kind: An ``EntryKind`` or any other name. Default: ``fact``.
        category: Subject of the entry. Entries of different categories never contradict each other.
        tags: Names to filter by.
        importance: Importance from 0 to 1. Default: depends on the kind.
        source: Origin of the information.
        session: Session that the information comes from.
        valid_from: Start of the validity. Default: the time of storing.
        valid_until: End of the validity. None if it is unknown.
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
            raise InvalidInputError(f"an entry must contain text, got {content!r}: pass it as text")
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
            raise InvalidInputError(f"a source must be a str, got {type(source).__name__}: name it as text")
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
    """A relation from the entry ``source`` to the entry ``target``."""

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
                f"the entry {self.source!r} cannot be related to itself: pass another entry as the target"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Related(Displayable):
    """An entry that was reached over relations."""

    entry: Entry
    depth: int
    """Number of relations on the path."""
    strength: float
    """Product of the strengths on the path."""
    path: tuple[Relation, ...]
    """Relations on the path, from the start entry on."""

    def _to_row(self) -> dict[str, object]:
        by = " → ".join(relation.kind for relation in self.path)
        return {"depth": self.depth, "strength": self.strength, "by": by, **to_display_row(self.entry)}


class Outcome(StrEnum):
    """Outcome of storing an entry."""

    STORED = "stored"
    """Stored as a valid entry."""
    DUPLICATE = "duplicate"
    """Not stored: an existing entry says the same. This counts as a use of that entry."""
    SUPERSEDES = "supersedes"
    """Stored as a valid entry. Entries that it contradicts have ended."""
    PAST = "past"
    """Stored in the history only: it was valid before an entry that is valid now."""
    QUARANTINED = "quarantined"
    """Quarantined: neither valid nor recalled until it is promoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Displayable):
    """Outcome of storing an entry, with its reason."""

    outcome: Outcome
    reason: str
    entry: Entry | None = None
    """The entry that contains the information now. None if it is quarantined."""
    duplicate_of: str | None = None
    """Id of the existing entry that says the same."""
    supersedes: tuple[str, ...] = ()
    """Ids of entries that ended because of the new one."""
    superseded_by: str | None = None
    """Id of the entry that was valid after the new one."""
    fact: str | None = None
    """Id of the extracted fact that it was made from, or as which it is quarantined."""

    @property
    def is_stored(self) -> bool:
        """True if a new entry was stored."""
        return self.outcome in (Outcome.STORED, Outcome.SUPERSEDES, Outcome.PAST)

    def _to_row(self) -> dict[str, object]:
        text = None if self.entry is None else self.entry.content
        return {"outcome": self.outcome, "reason": self.reason, "text": text}

    def _to_line(self) -> str:
        return f"{self.outcome}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilters:
    """Filters for entries. A filter that is not set allows all entries.

    Args:
        kinds: Kinds to include.
        categories: Categories to include.
        tags: Include entries with at least one of these tags.
        valid_at: Include entries that were valid at this time. None: entries of any time.
        overlaps: Include entries that were valid at some time in this interval. None as its end: no end.
        since: Include entries created at this time or later.
        until: Include entries created before this time.
        min_importance: Minimum importance.
        sessions: Sessions to include.
        archived: True includes archived entries. Default: False.
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
    """Result of a consolidation."""

    memories_archived: int = 0
    memories_merged: int = 0
    tokens_reclaimed: int = 0
    """Tokens that the archived and merged entries would take in a context."""
    looked_at: int = 0
    is_complete: bool = True
    """True if the consolidation has finished. If not, the next one continues where it stopped."""
    is_elsewhere: bool = False
    """True if another process runs a consolidation, so nothing was done here."""
