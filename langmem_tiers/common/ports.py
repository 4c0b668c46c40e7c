"""The contracts between the engine and what it stands on.

The stores have conformance suites in :mod:`tests.contract.storage`; run them over your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.entries import EntryOverride, ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.knowledge.models import Knowledge, KnowledgeHit, KnowledgeUpdate, PastKnowledge
    from langmem_tiers.sessions.models import (
        AppendResult,
        DeleteReport,
        ListChange,
        Listing,
        LocatedItem,
        RollUp,
        Savings,
        SessionAppendResult,
        SessionBatch,
        SessionInfo,
        StoredView,
        VersionedMessages,
    )
    from langmem_tiers.tuning.models import StoredSnapshot, TuningSnapshot, TuningState


class TokenCounter(Protocol):
    """Counts tokens. Same text, same count, on every machine that has the same counter."""

    @property
    def name(self) -> str:
        """A short name that is stored beside each count."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text; 0 only for the empty one."""
        ...


class Embedder(Protocol):
    """Turns text into vectors. Queries and documents may be embedded differently."""

    @property
    def identity(self) -> str:
        """Names the model: vectors of two identities are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """The length of each vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """One vector."""
        ...


class LanguageModel(Protocol):
    """Writes text. It may raise, hang or answer nonsense; callers are ready for it."""

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """The model's answer."""
        ...


class SessionStore(Protocol):
    """Namespaces and their sessions."""

    def get_or_create(self, namespace: NamespacePath, name: str, now: datetime) -> SessionInfo:
        """Get the session, or create it. Safe when many do so at once."""
        ...

    def get(self, namespace: NamespacePath, name: str) -> SessionInfo | None:
        """The session, if there is one."""
        ...

    def get_revision(self, key: int) -> int | None:
        """The session's revision; None if it is gone. Costs one look-up by key."""
        ...

    def list_sessions(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """The namespace's sessions, newest first, those made before the session key ``before``."""
        ...

    def list_changed(
        self, namespace: NamespacePath, *, since: datetime | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """The sessions that changed at or after that time, latest change first."""
        ...

    def list_by_name(self, namespace: NamespacePath, names: Sequence[str]) -> tuple[SessionInfo, ...]:
        """Those of the sessions that are there, in any order."""
        ...

    def list_namespaces(
        self, prefix: NamespacePath, *, after: NamespacePath | None, limit: int
    ) -> tuple[NamespacePath, ...]:
        """Namespaces that begin with the prefix's whole labels, in a fixed order."""
        ...

    def rename(self, key: int, name: str) -> bool:
        """Give the session another name; False, with nothing written, if that name is taken.

        Raises:
            SessionNotFoundError: The session is gone.
        """
        ...

    def delete(self, key: int) -> DeleteReport:
        """Erase the session with its messages."""
        ...

    def delete_namespace(self, namespace: NamespacePath) -> DeleteReport:
        """Erase exactly this namespace with its sessions; longer ones stay."""
        ...


class MessageStore(Protocol):
    """The append-only record of each session."""

    def append(
        self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False
    ) -> AppendResult:
        """Store the batch whole or not at all, in order; messages known by id are left as they are.

        Args:
            key: The session.
            batch: The messages.
            now: When.
            new_ids: All ids are believed to be new, so looking them up first can be spared.

        Raises:
            MessageConflictError: An id is taken by a message that says something else.
            SessionNotFoundError: The session is gone.
        """
        ...

    def list_latest(self, key: int, limit: int) -> VersionedMessages:
        """The newest ``limit`` messages of the record."""
        ...

    def list_after(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Messages of the record behind the message ``after``, oldest first."""
        ...

    def list_before(self, key: int, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """The newest of the messages of the record before the message ``before``, oldest first."""
        ...

    def list_visible(self, key: int, limit: int) -> tuple[Message, ...]:
        """What is shown, as of one moment, oldest first.

        That is the summary in force, however old, and the newest ``limit`` of the messages
        that are not behind it.
        """
        ...

    def get(self, key: int, message_id: str) -> Message | None:
        """One message, if the session holds it."""
        ...

    def find_known_ids(self, key: int, ids: Sequence[str]) -> AbstractSet[str]:
        """Those of the ids that the record has."""
        ...

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Put ``summary`` in front of the message ``before`` and everything older behind it.

        Args:
            key: The session.
            summary: The ``[CONTEXT SUMMARY]`` message.
            before: The first message that stays in sight.
            hidden: How many messages the summary newly stands for.
            was_hidden: How many were hidden when the caller looked.

        Returns:
            False, with nothing written, if somebody else compressed in between.
        """
        ...


class BatchStore(Protocol):
    """Appends to the records of many sessions at once."""

    def append_all(
        self, batches: Sequence[SessionBatch], now: datetime, *, new_ids: bool = False
    ) -> tuple[SessionAppendResult, ...]:
        """Store all batches in one transaction, or nothing; in order, and each as ``MessageStore.append`` does.

        Namespaces and sessions that are not there are made. Safe when many do so at once, in any order of sessions.

        Args:
            batches: For each session one.
            now: When.
            new_ids: All ids are believed to be new, so looking them up first can be spared.

        Raises:
            MessageConflictError: An id is taken by a message that says something else.
        """
        ...


class TranscriptStore(Protocol):
    """The list that a framework keeps of a session, beside the record, which stays as it is.

    Summaries that the engine wrote are no part of it. What is ``REPLACED`` or ``REMOVED`` is not in view any more.
    What is ``REMOVED`` is no row of the index either, and whoever removes it or brings it back counts that as
    something erased, so that who holds the rows reads them anew.
    """

    def list_messages(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> VersionedMessages:
        """The messages that stand so in the list, oldest first, and the session's revision.

        Raises:
            SessionNotFoundError: The session is gone.
        """
        ...

    def list_latest(self, key: int, listings: Sequence[Listing], limit: int) -> VersionedMessages:
        """The newest of these, oldest first; what it costs does not depend on how long the list is.

        Raises:
            SessionNotFoundError: The session is gone.
        """
        ...

    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """How many messages stand so in the list.

        Raises:
            SessionNotFoundError: The session is gone.
        """
        ...

    def apply_change(
        self, key: int, change: ListChange, now: datetime, *, revision: int | None
    ) -> int | None:
        """Carry a change out in one transaction; the session's revision after it.

        Args:
            key: The session.
            change: What to do.
            now: When.
            revision: Of the session when the caller looked; None if that does not matter.

        Returns:
            None, with nothing written, if somebody else wrote to the session in between.

        Raises:
            MessageConflictError: An id of an added message is taken; nothing was written.
            SessionNotFoundError: The session is gone.
        """
        ...

    def apply_locked_change(
        self,
        key: int,
        listings: Sequence[Listing],
        make: Callable[[VersionedMessages], ListChange | None],
        now: datetime,
        *,
        limit: int | None = None,
    ) -> bool:
        """The same for who was outrun too often: others wait until what is made of the list is carried out.

        Args:
            key: The session.
            listings: What ``make`` gets to see, as ``read()`` gives it.
            make: What to do; it must use no store.
            now: When.
            limit: The most messages that ``make`` gets to see.

        Returns:
            False, with nothing written, if there is nothing to be done.
        """
        ...


class EntryStore(Protocol):
    """What happened to messages as memories: marks beside the record, which stays as it is."""

    def get_view(self, key: int, limit: int, *, held: StoredView | None = None) -> StoredView:
        """The view of a session with its marks: the summary, and the newest ``limit`` messages behind it.

        Args:
            key: The session.
            limit: The most messages.
            held: An earlier view with the same limit. What is new is read and added to it; if anything
                in it has changed, the view is read anew.
        """
        ...

    def get(self, key: int, message_id: str) -> ViewItem | None:
        """One message of the record with its mark."""
        ...

    def apply(
        self,
        key: int,
        marks: Mapping[int, EntryOverride | None],
        *,
        roll_up: RollUp | None,
        was_hidden: int,
        seen: Mapping[int, EntryOverride | None] | None = None,
    ) -> bool:
        """Write all marks and the summary in one transaction.

        Args:
            key: The session.
            marks: By the message's key; None takes a mark away.
            roll_up: A new summary.
            was_hidden: How many messages were hidden when the caller looked.
            seen: The marks that the caller saw on the same messages; not compared, if left out.

        Returns:
            False, with nothing written, if somebody else compressed the session or marked one of the
            messages in between.

        Raises:
            MessageNotFoundError: A key is not of a message of this session; nothing was written.
        """
        ...

    def list_promoted(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[LocatedItem, ...]:
        """The long-term entries of a namespace, newest message first, those before the message ``before``."""
        ...

    def list_by_message_id(
        self, namespace: NamespacePath, message_id: str, *, limit: int
    ) -> tuple[LocatedItem, ...]:
        """The messages of that id in any session of a namespace. Costs one look-up for each session."""
        ...


class KnowledgeStore(Protocol):
    """Key and value across sessions, one value at a time for each category and key."""

    def update(
        self,
        namespace: NamespacePath,
        names: Sequence[tuple[str, str]],
        decide: Callable[[Knowledge | None], KnowledgeUpdate],
        now: datetime,
    ) -> tuple[KnowledgeUpdate, ...]:
        """Replace what is known under each category and key by what ``decide`` makes of it.

        All in one transaction, each name once; ``decide`` may be asked again if somebody else was faster.
        """
        ...

    def get(self, namespace: NamespacePath, category: str, key: str) -> Knowledge | None:
        """What is known under a key."""
        ...

    def list_page(
        self, namespace: NamespacePath, category: str | None, *, after: tuple[str, str] | None, limit: int
    ) -> tuple[Knowledge, ...]:
        """What is known, by category and key, behind the category and key ``after``."""
        ...

    def search(
        self, namespace: NamespacePath, terms: Sequence[str], *, category: str | None, limit: int
    ) -> tuple[KnowledgeHit, ...]:
        """What holds any of the terms in its key or value, best first.

        What other namespaces hold changes neither what is found nor its order. Of two that are as
        good, the surer comes first, then the one whose key does.

        Args:
            namespace: Whose.
            terms: As ``scoring.terms.terms_of`` makes them of a text: keys and values hold what it makes of them.
            category: Of this category only.
            limit: How many at most.
        """
        ...

    def list_stale(
        self, namespace: NamespacePath, *, before: datetime, below: float, limit: int
    ) -> tuple[Knowledge, ...]:
        """What was not used since then, or has a confidence below that."""
        ...

    def list_history(self, namespace: NamespacePath, category: str, key: str) -> tuple[PastKnowledge, ...]:
        """Former values, oldest first."""
        ...

    def list_past_at(
        self, namespace: NamespacePath, moment: datetime, *, limit: int
    ) -> tuple[PastKnowledge, ...]:
        """Former values that held at a time, by category and key."""
        ...


class TuningStore(Protocol):
    """The optimizer's memory: parameters, snapshots, and who may run."""

    def load(self, namespace: NamespacePath) -> TuningState | None:
        """What the last run left, if there was one."""
        ...

    def save(
        self,
        namespace: NamespacePath,
        state: TuningState,
        snapshot: TuningSnapshot,
        *,
        keep: int,
        lease: tuple[str, str] | None = None,
    ) -> bool:
        """Write state and snapshot in one transaction and leave the newest ``keep`` snapshots.

        Args:
            namespace: Whose.
            state: What to remember.
            snapshot: What was done.
            keep: How many snapshots stay.
            lease: A lease and who must hold it for anything to be written.

        Returns:
            False, with nothing written, if a lease was named and somebody else holds it or the
            namespace is gone.
        """
        ...

    def add_savings(self, namespace: NamespacePath, savings: Savings, now: datetime) -> None:
        """Add what was saved between two runs."""
        ...

    def take_savings(self, namespace: NamespacePath) -> Savings:
        """What was added since the last time."""
        ...

    def list_snapshots(self, namespace: NamespacePath, limit: int) -> tuple[TuningSnapshot, ...]:
        """The newest snapshots, newest first."""
        ...

    def list_snapshot_page(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[StoredSnapshot, ...]:
        """The same with the store's own handles, those before the handle ``before``."""
        ...

    def acquire_lease(self, lease: str, holder: str, now: datetime, until: datetime) -> bool:
        """Take a lease that nobody holds, that ran out or that is the holder's own."""
        ...

    def release_lease(self, lease: str, holder: str) -> None:
        """Give a lease back; nothing happens if it is somebody else's."""
        ...

    def list_leases(self, start: str) -> Mapping[str, datetime]:
        """The leases whose names begin so, also those that ran out, and when each does."""
        ...
