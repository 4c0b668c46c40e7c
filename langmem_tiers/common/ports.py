"""Interfaces between the engine and its components: token counters, models and stores.

Contract tests for the stores are in :mod:`tests.contract.storage`; run them over your own implementation.
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
    """Counts tokens. The same counter returns the same count for a text on every machine."""

    @property
    def name(self) -> str:
        """Short name that is stored with each count."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens in the text; 0 only for the empty text."""
        ...


class Embedder(Protocol):
    """Turns text into vectors. Queries and documents may be embedded differently."""

    @property
    def identity(self) -> str:
        """Name of the model. Vectors of different identities are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return one vector."""
        ...


class LanguageModel(Protocol):
    """Generates text. It may raise, hang or return invalid output; callers handle that."""

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """Return the model's answer."""
        ...


class SessionStore(Protocol):
    """Namespaces and their sessions."""

    def get_or_create(self, namespace: NamespacePath, name: str, now: datetime) -> SessionInfo:
        """Return the session; create it if it does not exist. Safe under concurrent calls."""
        ...

    def get(self, namespace: NamespacePath, name: str) -> SessionInfo | None:
        """Return the session, or None if it does not exist."""
        ...

    def get_revision(self, key: int) -> int | None:
        """Return the session's revision, or None if it does not exist. Costs one look-up by key."""
        ...

    def list_sessions(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """Return the namespace's sessions, newest first, starting before the session key ``before``."""
        ...

    def list_changed(
        self, namespace: NamespacePath, *, since: datetime | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """Return the sessions changed at or after ``since``, latest change first."""
        ...

    def list_by_name(self, namespace: NamespacePath, names: Sequence[str]) -> tuple[SessionInfo, ...]:
        """Return the sessions of these names that exist, in any order."""
        ...

    def list_namespaces(
        self, prefix: NamespacePath, *, after: NamespacePath | None, limit: int
    ) -> tuple[NamespacePath, ...]:
        """Return the namespaces that start with the whole labels of ``prefix``, in a stable order."""
        ...

    def rename(self, key: int, name: str) -> bool:
        """Rename the session. Return False, with nothing written, if the name is taken.

        Raises:
            SessionNotFoundError: The session does not exist.
        """
        ...

    def delete(self, key: int) -> DeleteReport:
        """Delete the session with its messages."""
        ...

    def delete_namespace(self, namespace: NamespacePath) -> DeleteReport:
        """Delete exactly this namespace with its sessions; namespaces below it are not deleted."""
        ...


class MessageStore(Protocol):
    """Append-only record of each session."""

    def append(
        self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False
    ) -> AppendResult:
        """Store the whole batch in order, or nothing; messages whose ids are already stored are left unchanged.

        Args:
            key: Key of the session.
            batch: The messages.
            now: Current time.
            new_ids: True if all ids are assumed to be new, so that looking them up first can be skipped.

        Raises:
            MessageConflictError: An id belongs to a message with other content.
            SessionNotFoundError: The session does not exist.
        """
        ...

    def list_latest(self, key: int, limit: int) -> VersionedMessages:
        """Return the newest ``limit`` messages of the record."""
        ...

    def list_after(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Return messages of the record that follow the message ``after``, oldest first."""
        ...

    def list_before(self, key: int, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """Return the newest messages of the record that precede the message ``before``, oldest first."""
        ...

    def list_visible(self, key: int, limit: int) -> tuple[Message, ...]:
        """Return the visible messages, oldest first, in one consistent read.

        Visible are the active summary, however old, and the newest ``limit`` messages that it does not cover.
        """
        ...

    def get(self, key: int, message_id: str) -> Message | None:
        """Return one message, or None if the session does not contain it."""
        ...

    def find_known_ids(self, key: int, ids: Sequence[str]) -> AbstractSet[str]:
        """Return the ids that the record contains."""
        ...

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Insert ``summary`` before the message ``before`` and hide all older messages behind it.

        Args:
            key: Key of the session.
            summary: The ``[CONTEXT SUMMARY]`` message.
            before: First message that stays visible.
            hidden: Number of messages that the summary newly covers.
            was_hidden: Number of hidden messages when the caller read the session.

        Returns:
            False, with nothing written, if the session was compressed concurrently.
        """
        ...


class BatchStore(Protocol):
    """Appends to the records of many sessions at once."""

    def append_all(
        self, batches: Sequence[SessionBatch], now: datetime, *, new_ids: bool = False
    ) -> tuple[SessionAppendResult, ...]:
        """Store all batches in one transaction, or nothing; each one in order, as ``MessageStore.append`` does.

        Missing namespaces and sessions are created. Safe under concurrent calls, in any order of sessions.

        Args:
            batches: One batch per session.
            now: Current time.
            new_ids: True if all ids are assumed to be new, so that looking them up first can be skipped.

        Raises:
            MessageConflictError: An id belongs to a message with other content.
        """
        ...


class TranscriptStore(Protocol):
    """A framework's own message list of a session, stored beside the record, which does not change.

    Summaries written by the engine are not part of the list. Messages that are ``REPLACED`` or ``REMOVED`` are no
    longer visible. ``REMOVED`` messages are also excluded from the index. Removing or restoring one counts as an
    erasure, so that caches of index rows are rebuilt.
    """

    def list_messages(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> VersionedMessages:
        """Return the messages with one of the given listings, oldest first, and the session's revision.

        Raises:
            SessionNotFoundError: The session does not exist.
        """
        ...

    def list_latest(self, key: int, listings: Sequence[Listing], limit: int) -> VersionedMessages:
        """Return the newest of these messages, oldest first; the cost is independent of the list's length.

        Raises:
            SessionNotFoundError: The session does not exist.
        """
        ...

    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """Return the number of messages with one of the given listings.

        Raises:
            SessionNotFoundError: The session does not exist.
        """
        ...

    def apply_change(
        self, key: int, change: ListChange, now: datetime, *, revision: int | None
    ) -> int | None:
        """Apply a change in one transaction and return the session's new revision.

        Args:
            key: Key of the session.
            change: Change to apply.
            now: Current time.
            revision: Revision of the session that the caller read; None skips the comparison.

        Returns:
            None, with nothing written, if the session was changed concurrently.

        Raises:
            MessageConflictError: The id of an added message is taken; nothing was written.
            SessionNotFoundError: The session does not exist.
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
        """Compute and apply a change while holding the write lock, for callers that lost too many races.

        Args:
            key: Key of the session.
            listings: Listings of the messages passed to ``make``, as for ``list_messages()``.
            make: Returns the change, or None for no change; it must not use a store.
            now: Current time.
            limit: Maximum number of messages passed to ``make``.

        Returns:
            False, with nothing written, if ``make`` returned no change.
        """
        ...


class EntryStore(Protocol):
    """Overrides of messages as memories, stored beside the record, which does not change."""

    def get_view(self, key: int, limit: int, *, held: StoredView | None = None) -> StoredView:
        """Return the session's view with overrides: the summary, and the newest ``limit`` messages after it.

        Args:
            key: Key of the session.
            limit: Maximum number of messages.
            held: Earlier view with the same limit. Only new messages are read and appended to it; if anything
                in it has changed, the whole view is read again.
        """
        ...

    def get(self, key: int, message_id: str) -> ViewItem | None:
        """Return one message of the record with its override, or None."""
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
        """Write all overrides and the summary in one transaction.

        Args:
            key: Key of the session.
            marks: Overrides by message key; None removes an override.
            roll_up: New summary, if any.
            was_hidden: Number of hidden messages when the caller read the session.
            seen: Overrides that the caller read for the same messages. Default: not compared.

        Returns:
            False, with nothing written, if the session was compressed or one of the messages got another
            override concurrently.

        Raises:
            MessageNotFoundError: A key is not of a message of this session; nothing was written.
        """
        ...

    def list_promoted(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[LocatedItem, ...]:
        """Return a namespace's long-term entries, newest message first, before the message key ``before``."""
        ...

    def list_by_message_id(
        self, namespace: NamespacePath, message_id: str, *, limit: int
    ) -> tuple[LocatedItem, ...]:
        """Return messages with this id in any session of a namespace. Costs one look-up per session."""
        ...


class KnowledgeStore(Protocol):
    """Keys and values across sessions, with one current value per category and key."""

    def update(
        self,
        namespace: NamespacePath,
        names: Sequence[tuple[str, str]],
        decide: Callable[[Knowledge | None], KnowledgeUpdate],
        now: datetime,
    ) -> tuple[KnowledgeUpdate, ...]:
        """Replace the value under each category and key with the result of ``decide``.

        Runs in one transaction; each name may occur once. ``decide`` may be called again after a concurrent write.
        """
        ...

    def get(self, namespace: NamespacePath, category: str, key: str) -> Knowledge | None:
        """Return the current value under a key, or None."""
        ...

    def list_page(
        self, namespace: NamespacePath, category: str | None, *, after: tuple[str, str] | None, limit: int
    ) -> tuple[Knowledge, ...]:
        """Return current values ordered by category and key, after the category and key ``after``."""
        ...

    def search(
        self, namespace: NamespacePath, terms: Sequence[str], *, category: str | None, limit: int
    ) -> tuple[KnowledgeHit, ...]:
        """Return values that contain any of the terms in the key or the value, best first.

        Data of other namespaces affects neither the results nor their order. Ties are broken by confidence, then
        by key.

        Args:
            namespace: Namespace to search.
            terms: Terms as produced by the tokenizer that also indexed the keys and values.
            category: Only this category. Default: all.
            limit: Maximum number of results.
        """
        ...

    def list_stale(
        self, namespace: NamespacePath, *, before: datetime, below: float, limit: int
    ) -> tuple[Knowledge, ...]:
        """Return values last used before ``before``, or with a confidence lower than ``below``."""
        ...

    def list_history(self, namespace: NamespacePath, category: str, key: str) -> tuple[PastKnowledge, ...]:
        """Return former values, oldest first."""
        ...

    def list_past_at(
        self, namespace: NamespacePath, moment: datetime, *, limit: int
    ) -> tuple[PastKnowledge, ...]:
        """Return former values that were valid at ``moment``, ordered by category and key."""
        ...


class TuningStore(Protocol):
    """State of the optimizer: parameters, snapshots and leases."""

    def load(self, namespace: NamespacePath) -> TuningState | None:
        """Return the state saved by the last run, or None."""
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
        """Write state and snapshot in one transaction and keep only the newest ``keep`` snapshots.

        Args:
            namespace: Namespace of the run.
            state: State to save.
            snapshot: Report of the run.
            keep: Number of snapshots to keep.
            lease: Name of a lease and its required holder. Default: no lease is required.

        Returns:
            False, with nothing written, if another holder has the lease or the namespace does not exist.
        """
        ...

    def add_savings(self, namespace: NamespacePath, savings: Savings, now: datetime) -> None:
        """Add tokens that were saved between two runs."""
        ...

    def take_savings(self, namespace: NamespacePath) -> Savings:
        """Return the savings added since the last call and reset them."""
        ...

    def list_snapshots(self, namespace: NamespacePath, limit: int) -> tuple[TuningSnapshot, ...]:
        """Return the newest snapshots, newest first."""
        ...

    def list_snapshot_page(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[StoredSnapshot, ...]:
        """Return snapshots with the store's own handles, newest first, before the handle ``before``."""
        ...

    def acquire_lease(self, lease: str, holder: str, now: datetime, until: datetime) -> bool:
        """Acquire a lease that is free, expired or already held by ``holder``; return True on success."""
        ...

    def release_lease(self, lease: str, holder: str) -> None:
        """Release a lease; does nothing if another holder has it."""
        ...

    def list_leases(self, start: str) -> Mapping[str, datetime]:
        """Return the leases whose names start with ``start``, including expired ones, with their expiry times."""
        ...
