"""Stored records of long-term entries, episodes and chunks, and the interface of their store."""

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
    """An entry to store, with additional data of its tier."""

    entry: Entry
    terms: str
    """Search terms of the text, separated by spaces, as built by ``build_search_terms``."""
    session_key: int | None = None
    """Key of the session that the entry belongs to. The entry is deleted with it."""
    turn: int | None = None
    """Number of the last message that the entry is made of."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Additional data of the tier, as JSON values."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is stored."""

    key: int
    """Row key."""
    entry: Entry
    details: Mapping[str, Any]
    archived_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LearningCursor:
    """Progress of processing a session's messages, in turns."""

    learned_turn: int = 0
    chunked_turn: int = 0
    erasure_count: int | None = field(default=None, compare=False)
    """Number of erasures in the namespace when the messages were read. If it has changed since, results of them must
    not be stored. None skips the check."""


@dataclass(frozen=True, slots=True)
class CursorMove:
    """Advance of a session's cursor, if it has not been moved by another process."""

    session_key: int
    before: LearningCursor
    after: LearningCursor


@dataclass(frozen=True, slots=True)
class FactMove:
    """State change of an extracted fact."""

    id: str
    from_states: frozenset[FactState]
    """Allowed present states of the fact."""
    state: FactState
    reason: str
    entry_id: str | None = None
    confidence: float | None = None
    """New confidence. None keeps the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWrite:
    """Changes that are committed together, or not at all."""

    put: tuple[NewEntry, ...] = ()
    """Entries to insert. If the id exists, the entry is replaced and keeps its access counts and archived state."""
    close: Mapping[str, datetime] = field(default_factory=dict)
    """End of validity by entry id. It cannot be later than the present end."""
    relate: tuple[Relation, ...] = ()
    """Relations to insert. A relation of the same kind between the same entries is replaced."""
    archive: tuple[str, ...] = ()
    """Ids of entries to hide."""
    restore: tuple[str, ...] = ()
    """Ids of archived entries to make visible again."""
    facts: tuple[ExtractedFact, ...] = ()
    """Extracted facts to insert."""
    fact_moves: tuple[FactMove, ...] = ()
    cursor: CursorMove | None = None
    revision: int | None = None
    """Expected revision of the namespace's memory. None skips the check."""


@dataclass(frozen=True, slots=True)
class Access:
    """Uses of an entry that are not written yet."""

    count: int
    last_at: datetime


class DecayCandidate(NamedTuple):
    """The columns of an entry that decide whether it is archived."""

    key: int
    importance: float
    access_count: int
    last_access_at: datetime
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedMessage:
    """A message with its number in the session."""

    number: int
    """Number of the message, starting at 1."""
    message: Message


class MemoryStore(Protocol):
    """Store of long-term entries, episodes, chunks and extracted facts by namespace."""

    def commit(self, namespace: NamespacePath, write: MemoryWrite, now: datetime) -> bool:
        """Apply all changes in one transaction.

        Returns:
            False, with nothing changed, if another process changed the data first: the revision, a cursor or the
                state of a fact is not the expected one.

        Raises:
            EntryNotFoundError: A changed entry does not exist; nothing was changed.
            SessionNotFoundError: The session of an entry does not exist; nothing was changed.
            InvalidInputError: An entry would end before its start, or supersede an entry that supersedes it;
                nothing was changed.
        """
        ...

    def get_revision(self, namespace: NamespacePath) -> int:
        """Return the number of the last commit, or 0."""
        ...

    def get_change_stamp(self, namespace: NamespacePath) -> tuple[int, ...]:
        """Return numbers that differ after any change, also of archived states and access counts."""
        ...

    def get(self, namespace: NamespacePath, ids: Sequence[str]) -> Mapping[str, StoredEntry]:
        """Return the existing entries by id, of any tier, archived or not."""
        ...

    def get_by_keys(
        self, namespace: NamespacePath, keys: Sequence[int], tiers: frozenset[Tier], filters: EntryFilters
    ) -> Mapping[int, StoredEntry]:
        """Return the existing entries that match the tiers and filters, by row key."""
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
        """Return entries of a tier, newest first.

        Args:
            namespace: Namespace of the entries.
            tier: Tier of the entries.
            filters: Restrictions on the entries.
            before: Row key of the last entry of the previous page.
            limit: Maximum number of entries.
        """
        ...

    def list_session_entries(
        self, namespace: NamespacePath, session_key: int, tier: Tier, *, limit: int
    ) -> tuple[StoredEntry, ...]:
        """Return the newest visible entries of a session and tier, sorted by turn."""
        ...

    def count(self, namespace: NamespacePath, tier: Tier) -> int:
        """Return the number of entries of a tier that are not archived."""
        ...

    def list_relations(self, namespace: NamespacePath, ids: Sequence[str]) -> tuple[Relation, ...]:
        """Return the relations that start or end at the given entries, oldest first."""
        ...

    def list_connected(self, namespace: NamespacePath, entry_id: str, kind: str) -> tuple[StoredEntry, ...]:
        """Return an entry and all entries connected to it by relations of a kind, in either direction."""
        ...

    def touch(self, namespace: NamespacePath, accesses: Mapping[int, Access]) -> None:
        """Add uses to the access counts of entries, by row key. Entries that do not exist are ignored."""
        ...

    def restore(self, namespace: NamespacePath, entry_id: str) -> bool:
        """Make an archived entry visible again. Return True if it was archived."""
        ...

    def delete(self, namespace: NamespacePath, ids: Sequence[str]) -> int:
        """Delete entries with their relations, and return their number."""
        ...

    def list_decay_candidates(
        self, namespace: NamespacePath, *, created_before: datetime, after: int, limit: int
    ) -> tuple[DecayCandidate, ...]:
        """Return long-term entries that are not archived and were created before a time, sorted by row key.

        Args:
            namespace: Namespace of the entries.
            created_before: Maximum creation time.
            after: Row key of the last candidate of the previous page.
            limit: Maximum number of entries.
        """
        ...

    def archive(self, namespace: NamespacePath, keys: Sequence[int], now: datetime) -> tuple[int, int]:
        """Archive entries by row key. Return the number of newly archived entries, and their tokens."""
        ...

    def get_consolidation_state(self, namespace: NamespacePath) -> Mapping[str, Any] | None:
        """Return the progress of an interrupted consolidation, or None."""
        ...

    def save_consolidation_state(self, namespace: NamespacePath, state: Mapping[str, Any] | None) -> None:
        """Store the progress of a consolidation. None removes it."""
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
        """Return extracted facts in the given states, oldest first.

        Args:
            namespace: Namespace of the facts.
            states: States to include. None means all.
            session_key: Include only facts of this session.
            after: Id of the last fact of the previous page.
            limit: Maximum number of facts.
        """
        ...

    def get_fact(self, namespace: NamespacePath, fact_id: str) -> ExtractedFact | None:
        """Return an extracted fact, or None."""
        ...

    def get_cursor(self, session_key: int) -> LearningCursor:
        """Return how far a session's messages have been processed."""
        ...

    def list_turns(self, session_key: int, *, after: int, limit: int) -> tuple[NumberedMessage, ...]:
        """Return messages of a session after a turn, oldest first, without summaries and removed messages."""
        ...

    def get_turn_numbers(self, session_key: int, message_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the turn numbers of messages by id. Ids that the session does not contain are omitted."""
        ...

    def get_last_turn(self, session_key: int) -> int:
        """Return the number of a session's newest message, or 0."""
        ...
