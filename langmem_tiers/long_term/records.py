"""Stored records of long-term entries, episodes and chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.messages import Message
    from langmem_tiers.facts.models import ExtractedFact, FactState
    from langmem_tiers.long_term.models import Relation


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
