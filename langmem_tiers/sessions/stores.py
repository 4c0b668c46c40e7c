"""Interfaces of a session's messages and of its transcript: stored in SQL, optionally cached in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.sessions.models import AppendResult, ListChange, Listing, VersionedMessages


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
