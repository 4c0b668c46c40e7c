"""What is made of messages, as it is kept: long-term entries, episodes and chunks, and the contract of their store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Entry, Tier
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.facts.models import ExtractedFact, FactState
    from langmem_tiers.long_term.models import EntryFilters, Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to be kept, with what its tier needs to know of it."""

    entry: Entry
    terms: str
    """As ``scoring.terms.terms_of`` makes them of its text, with spaces between: what it is found by."""
    session_key: int | None = None
    """The session that it goes with, if it is erased with it."""
    turn: int | None = None
    """Number of the last message that it is made of."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is kept now."""

    key: int
    """The store's own handle."""
    entry: Entry
    details: Mapping[str, Any]
    archived_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LearningCursor:
    """How far the messages of a session were worked through, as turns."""

    learned_turn: int = 0
    chunked_turn: int = 0
    erasure_count: int | None = field(default=None, compare=False)
    """A number that is another once something was erased: what was read before that must not be kept. None does not
    look."""


@dataclass(frozen=True, slots=True)
class CursorMove:
    """How far a session is worked through after a write, if nobody else was faster."""

    session_key: int
    before: LearningCursor
    after: LearningCursor


@dataclass(frozen=True, slots=True)
class FactMove:
    """What becomes of an extracted fact."""

    id: str
    from_states: frozenset[FactState]
    """It must be in one of these states still."""
    state: FactState
    reason: str
    entry_id: str | None = None
    confidence: float | None = None
    """The one that it has from now on; None leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWrite:
    """Changes that are made together, or not at all."""

    put: tuple[NewEntry, ...] = ()
    """New entries; one whose id is there already takes the place of the one before, which keeps how often it was used
    and whether it is archived."""
    close: Mapping[str, datetime] = field(default_factory=dict)
    """Ids of entries, and when each ceases to hold: never later than it does already."""
    relate: tuple[Relation, ...] = ()
    """One between the same two, of the same kind, takes the place of the one before."""
    archive: tuple[str, ...] = ()
    """Ids of entries that are no longer shown."""
    restore: tuple[str, ...] = ()
    """Ids of entries that are shown again."""
    facts: tuple[ExtractedFact, ...] = ()
    """New ones."""
    fact_moves: tuple[FactMove, ...] = ()
    cursor: CursorMove | None = None
    revision: int | None = None
    """What the namespace's revision must be still; None does not look."""


@dataclass(frozen=True, slots=True)
class Access:
    """Uses of an entry."""

    count: int
    last_at: datetime


class DecayCandidate(NamedTuple):
    """As much of an entry as it takes to tell whether it is still worth showing."""

    key: int
    importance: float
    access_count: int
    last_access_at: datetime
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedMessage:
    """A message with its place in its session."""

    number: int
    """From 1."""
    message: Message


class MemoryStore(Protocol):
    """Keeps what was made of messages, apart for each namespace."""

    def commit(self, namespace: NamespacePath, write: MemoryWrite, now: datetime) -> bool:
        """Make all changes in one transaction.

        Returns:
            False, with nothing changed, if somebody else was faster: the revision, a cursor or the state of a fact is
            not what it was.

        Raises:
            EntryNotFoundError: A change names an entry that is not there; nothing was changed.
            SessionNotFoundError: A session that an entry goes with is not there; nothing was changed.
            InvalidInputError: An entry would end before it began to hold, or supersede what supersedes it; nothing was
                changed.
        """
        ...

    def get_revision(self, namespace: NamespacePath) -> int:
        """The number of the last commit; 0 if there was none."""
        ...

    def get_change_stamp(self, namespace: NamespacePath) -> tuple[int, ...]:
        """Numbers that are others after any change, also of what is archived or used."""
        ...

    def get(self, namespace: NamespacePath, ids: Sequence[str]) -> Mapping[str, StoredEntry]:
        """Those of some entries that are there, of any tier, archived or not."""
        ...

    def get_by_keys(
        self, namespace: NamespacePath, keys: Sequence[int], tiers: frozenset[Tier], filters: EntryFilters
    ) -> Mapping[int, StoredEntry]:
        """Those of some entries that are there and meant, by their keys."""
        ...

    def list_entries(
        self,
        namespace: NamespacePath,
        tier: Tier,
        filters: EntryFilters,
        *,
        before: int | None = None,
        limit: int,
    ) -> tuple[StoredEntry, ...]:
        """Entries of a tier, the last stored first.

        Args:
            namespace: Whose.
            tier: Which.
            filters: Which of them.
            before: Key of the last one of the page before.
            limit: How many at most.
        """
        ...

    def list_session_entries(
        self, namespace: NamespacePath, session_key: int, tier: Tier, *, limit: int
    ) -> tuple[StoredEntry, ...]:
        """The entries of a tier that go with a session and are not archived, by their turns; the newest of too many."""
        ...

    def count(self, namespace: NamespacePath, tier: Tier) -> int:
        """How many entries of a tier are not archived."""
        ...

    def list_relations(self, namespace: NamespacePath, ids: Sequence[str]) -> tuple[Relation, ...]:
        """The relations that begin or end at some entries, oldest first."""
        ...

    def list_connected(self, namespace: NamespacePath, entry_id: str, kind: str) -> tuple[StoredEntry, ...]:
        """The entry with all that are reached from it over relations of one kind, either way, in one read."""
        ...

    def touch(self, namespace: NamespacePath, accesses: Mapping[int, Access]) -> None:
        """Count uses of entries, by their keys; those that are gone are passed over."""
        ...

    def restore(self, namespace: NamespacePath, entry_id: str) -> bool:
        """Show an archived entry again; whether it was archived."""
        ...

    def delete(self, namespace: NamespacePath, ids: Sequence[str]) -> int:
        """Erase entries with their relations; how many there were."""
        ...

    def list_decay_candidates(
        self, namespace: NamespacePath, *, created_before: datetime, after: int, limit: int
    ) -> tuple[DecayCandidate, ...]:
        """Long-term entries that are not archived and older than that, by their keys.

        Args:
            namespace: Whose.
            created_before: How old.
            after: Behind this key.
            limit: How many at most.
        """
        ...

    def archive(self, namespace: NamespacePath, keys: Sequence[int], now: datetime) -> tuple[int, int]:
        """Archive entries by their keys; how many were not archived yet, and their tokens."""
        ...

    def get_consolidation_state(self, namespace: NamespacePath) -> Mapping[str, Any] | None:
        """Where a consolidation stopped that did not come to its end."""
        ...

    def save_consolidation_state(self, namespace: NamespacePath, state: Mapping[str, Any] | None) -> None:
        """Note where a consolidation is; None when it came to its end."""
        ...

    def list_facts(
        self,
        namespace: NamespacePath,
        states: frozenset[FactState] | None,
        *,
        session_key: int | None = None,
        after: str | None = None,
        limit: int,
    ) -> tuple[ExtractedFact, ...]:
        """Extracted facts in one of these states, oldest first.

        Args:
            namespace: Whose.
            states: In which states; None for all.
            session_key: Of this session only.
            after: Behind this fact.
            limit: How many at most.
        """
        ...

    def get_fact(self, namespace: NamespacePath, fact_id: str) -> ExtractedFact | None:
        """One extracted fact."""
        ...

    def get_cursor(self, session_key: int) -> LearningCursor:
        """How far a session was worked through."""
        ...

    def list_turns(self, session_key: int, *, after: int, limit: int) -> tuple[NumberedMessage, ...]:
        """Messages of a session behind a turn, oldest first, without summaries and what was taken out of its list."""
        ...

    def get_turn_numbers(self, session_key: int, message_ids: Sequence[str]) -> Mapping[str, int]:
        """The numbers of those of some messages that the session has."""
        ...

    def get_last_turn(self, session_key: int) -> int:
        """The number of a session's newest message; 0 if there is none."""
        ...
