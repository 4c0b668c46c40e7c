"""The contract of what erases: it says what a request touches, and takes away what is decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.messages import Message, ToolCall
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedCounts
    from langmem_tiers.facts.models import ExtractedFact
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import KeptEntry, NewEntry


class SessionName(NamedTuple):
    """A session by its key, and by its names."""

    key: int
    namespace: NamespacePath
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """As much of a message as it takes to tell what goes with it."""

    key: int
    id: str
    number: int
    """Its turn; of a summary that of the message before which it stands."""
    is_summary: bool
    is_old: bool = False
    is_promoted: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What a session shows, as far as an erasure must know it."""

    session: SessionName
    view_number: int
    """The number of the first message in sight; 1 if all are."""
    view_key: int
    """The summary in force; 0 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What an erasure may have to take away or tell anew, as of one moment."""

    namespace: NamespacePath
    stamp: tuple[int, ...]
    """Numbers that are others after any change of it."""
    sessions: tuple[SessionName, ...] = ()
    """Those that are gone whole."""
    state: SessionState | None = None
    """Of the session whose messages are erased, if it stays itself."""
    messages: tuple[Place, ...] = ()
    """Those that are erased."""
    following: Mapping[int, int] = field(default_factory=dict)
    """By the number of an erased message, that of the second behind it: so far reaches what an episode quotes."""
    told: tuple[KeptEntry, ...] = ()
    """Chunks and episodes of that session, archived or not."""
    entries: tuple[KeptEntry, ...] = ()
    """Long-term entries that come from what is erased, or say so."""
    facts: tuple[ExtractedFact, ...] = ()
    """Those that were extracted from what is erased."""
    others: Mapping[str, tuple[ExtractedFact, ...]] = field(default_factory=dict)
    """Facts from elsewhere, by the entry that says the same."""
    versions: frozenset[str] = frozenset()
    """Ids among ``entries`` of those that held before one that is to be erased."""
    derived: tuple[Relation, ...] = ()
    """What was derived from entries, itself or by way of others."""
    linking: tuple[KeptEntry, ...] = ()
    """Episodes of the namespace that are linked with entries."""
    knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of what is known from it."""
    sources: tuple[str, ...] = ()
    """How past knowledge names it as its source."""
    known_before: tuple[tuple[str, str], ...] = ()
    """Category and key of that past knowledge."""
    procedures: tuple[str, ...] = ()
    """Ids of what was learned from its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What is taken away and what comes in its place, in one transaction."""

    namespace: NamespacePath
    stamp: tuple[int, ...]
    sessions: tuple[SessionName, ...] = ()
    names: tuple[str, ...] = ()
    """Names of sessions whose contexts go."""
    state: SessionState | None = None
    messages: tuple[Place, ...] = ()
    summary: Message | None = None
    """Takes the place of the summary in force, if that tells of what is erased."""
    digest: dict[str, Any] | None = None
    """What it is made of."""
    memories: tuple[str, ...] = ()
    """Ids of long-term entries, episodes and chunks."""
    versions: frozenset[str] = frozenset()
    """Those among them that held before."""
    put: tuple[NewEntry, ...] = ()
    """Told anew; one whose id is there already takes the place of the one before."""
    facts: tuple[str, ...] = ()
    knowledge: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    """Sources of past knowledge; what is known under the same key now, from elsewhere, stays."""
    known_before: tuple[tuple[str, str], ...] = ()
    """Category and key of that past knowledge, of which copies elsewhere go: nobody knows of which value they are."""
    drops_queries: bool = True
    """Whether the vectors of questions go too, one of which may say the same."""


class ErasureStore(Protocol):
    """Finds and erases what belongs together."""

    def namespaces_of(self, user: str) -> tuple[NamespacePath, ...]:
        """Every namespace with that label, exactly: also of items, and of those who only share something in pools."""
        ...

    def sessions_of(self, namespace: NamespacePath, starts: Sequence[str]) -> tuple[SessionName, ...]:
        """The sessions whose names begin with one of these."""
        ...

    def erase_namespace(self, namespace: NamespacePath) -> ErasedCounts:
        """Erase exactly this namespace with its sessions, memories, contexts, items and leases; longer ones stay."""
        ...

    def places(
        self, session: SessionName, ids: Sequence[str] | None, older_than: datetime | None = None
    ) -> tuple[Place, ...]:
        """Messages of a session by their place, and all that have to do with tools.

        Args:
            session: Whose.
            ids: Those that are asked for, or None for the old ones.
            older_than: What is old.
        """
        ...

    def touched_by_sessions(
        self, namespace: NamespacePath, sessions: Sequence[SessionName], names: Sequence[str]
    ) -> Touched:
        """What comes from sessions that are erased whole, there or only named."""
        ...

    def touched_by_messages(
        self, session: SessionName, messages: Sequence[Place], *, lasting: bool
    ) -> Touched | None:
        """What comes from some messages of a session; None if the session is gone.

        Args:
            session: Which.
            messages: Those that are erased.
            lasting: Whether long-term entries and knowledge are looked for too.
        """
        ...

    def touched_by_entry(self, namespace: NamespacePath, entry_id: str) -> Touched:
        """What an entry, an episode, a chunk, a fact or something known takes along."""
        ...

    def behind(self, state: SessionState, limit: int) -> tuple[Message, ...]:
        """The newest of the messages behind the summary in force, oldest first, without summaries."""
        ...

    def remove(self, removal: Removal) -> ErasedCounts | None:
        """Take it away in one transaction; None, with nothing changed, if something else changed meanwhile."""
        ...

    def old_sessions(self, older_than: datetime, *, after: int, limit: int) -> tuple[SessionName, ...]:
        """Sessions that hold messages from before then, and empty ones not changed since, behind a key."""
        ...

    def drop_empty(self, session: SessionName, older_than: datetime) -> bool:
        """Erase the session if it holds no message and was not changed since; whether it did."""
        ...
