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
    from langmem_tiers.long_term.records import NewEntry, StoredEntry


class SessionRef(NamedTuple):
    """A session by its key, and by its names."""

    key: int
    namespace: NamespacePath
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRef:
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
class SessionViewState:
    """What a session shows, as far as an erasure must know it."""

    session: SessionRef
    view_number: int
    """The number of the first message in sight; 1 if all are."""
    view_key: int
    """The summary in force; 0 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureImpact:
    """What an erasure may have to take away or tell anew, as of one moment."""

    namespace: NamespacePath
    stamp: tuple[int, ...]
    """Numbers that are others after any change of it."""
    sessions: tuple[SessionRef, ...] = ()
    """Those that are gone whole."""
    state: SessionViewState | None = None
    """Of the session whose messages are erased, if it stays itself."""
    messages: tuple[MessageRef, ...] = ()
    """Those that are erased."""
    following_turns: Mapping[int, int] = field(default_factory=dict)
    """By the number of an erased message, that of the second behind it: so far reaches what an episode quotes."""
    chunks_and_episodes: tuple[StoredEntry, ...] = ()
    """Chunks and episodes of that session, archived or not."""
    entries: tuple[StoredEntry, ...] = ()
    """Long-term entries that come from what is erased, or say so."""
    facts: tuple[ExtractedFact, ...] = ()
    """Those that were extracted from what is erased."""
    facts_from_elsewhere: Mapping[str, tuple[ExtractedFact, ...]] = field(default_factory=dict)
    """Facts from elsewhere, by the entry that says the same."""
    versions: frozenset[str] = frozenset()
    """Ids among ``entries`` of those that held before one that is to be erased."""
    derivations: tuple[Relation, ...] = ()
    """What was derived from entries, itself or by way of others."""
    linking_episodes: tuple[StoredEntry, ...] = ()
    """Episodes of the namespace that are linked with entries."""
    knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of what is known from it."""
    sources: tuple[str, ...] = ()
    """How past knowledge names it as its source."""
    past_knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of that past knowledge."""
    procedures: tuple[str, ...] = ()
    """Ids of what was learned from its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasurePlan:
    """What is taken away and what comes in its place, in one transaction."""

    namespace: NamespacePath
    stamp: tuple[int, ...]
    sessions: tuple[SessionRef, ...] = ()
    context_names: tuple[str, ...] = ()
    """Names of sessions whose contexts go."""
    state: SessionViewState | None = None
    messages: tuple[MessageRef, ...] = ()
    summary: Message | None = None
    """Takes the place of the summary in force, if that tells of what is erased."""
    digest: dict[str, Any] | None = None
    """What it is made of."""
    memories: tuple[str, ...] = ()
    """Ids of long-term entries, episodes and chunks."""
    versions: frozenset[str] = frozenset()
    """Those among them that held before."""
    rewritten_entries: tuple[NewEntry, ...] = ()
    """Told anew; one whose id is there already takes the place of the one before."""
    facts: tuple[str, ...] = ()
    knowledge: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    """Sources of past knowledge; what is known under the same key now, from elsewhere, stays."""
    past_knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of that past knowledge, of which copies elsewhere go: nobody knows of which value they are."""
    is_clearing_query_vectors: bool = True
    """Whether the vectors of questions go too, one of which may say the same."""


class ErasureStore(Protocol):
    """Finds and erases what belongs together."""

    def find_user_namespaces(self, user: str) -> tuple[NamespacePath, ...]:
        """Every namespace with that label, exactly: also of items, and of those who only share something in pools."""
        ...

    def find_sessions(self, namespace: NamespacePath, starts: Sequence[str]) -> tuple[SessionRef, ...]:
        """The sessions whose names begin with one of these."""
        ...

    def delete_namespace(self, namespace: NamespacePath) -> ErasedCounts:
        """Erase exactly this namespace with its sessions, memories, contexts, items and leases; longer ones stay."""
        ...

    def find_messages(
        self, session: SessionRef, ids: Sequence[str] | None, older_than: datetime | None = None
    ) -> tuple[MessageRef, ...]:
        """Messages of a session by their place, and all that have to do with tools.

        Args:
            session: Whose.
            ids: Those that are asked for, or None for the old ones.
            older_than: What is old.
        """
        ...

    def find_session_impact(
        self, namespace: NamespacePath, sessions: Sequence[SessionRef], names: Sequence[str]
    ) -> ErasureImpact:
        """What comes from sessions that are erased whole, there or only named."""
        ...

    def find_message_impact(
        self, session: SessionRef, messages: Sequence[MessageRef], *, lasting: bool
    ) -> ErasureImpact | None:
        """What comes from some messages of a session; None if the session is gone.

        Args:
            session: Which.
            messages: Those that are erased.
            lasting: Whether long-term entries and knowledge are looked for too.
        """
        ...

    def find_entry_impact(self, namespace: NamespacePath, entry_id: str) -> ErasureImpact:
        """What an entry, an episode, a chunk, a fact or something known takes along."""
        ...

    def list_summarized_messages(self, state: SessionViewState, limit: int) -> tuple[Message, ...]:
        """The newest of the messages behind the summary in force, oldest first, without summaries."""
        ...

    def delete(self, removal: ErasurePlan) -> ErasedCounts | None:
        """Take it away in one transaction; None, with nothing changed, if something else changed meanwhile."""
        ...

    def list_old_sessions(self, older_than: datetime, *, after: int, limit: int) -> tuple[SessionRef, ...]:
        """Sessions that hold messages from before then, and empty ones not changed since, behind a key."""
        ...

    def delete_if_empty(self, session: SessionRef, older_than: datetime) -> bool:
        """Erase the session if it holds no message and was not changed since; whether it did."""
        ...
