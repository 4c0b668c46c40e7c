"""SQL store for the message lists of sessions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, update

from langmem_tiers.common.namespaces import escape
from langmem_tiers.errors import MessageConflictError
from langmem_tiers.sessions.message_repository import build_session_not_found_error, split_by_query_limit
from langmem_tiers.sessions.message_sql import COUNT_LIST, SELECT_LIST, SELECT_LIST_END
from langmem_tiers.sessions.models import Listing
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import listings, messages, namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, ScalarSelect

    from langmem_tiers.sessions.message_repository import MessageRepository
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.sessions.models import ListChange, VersionedMessages
    from langmem_tiers.storage.database import Database

_NO_LIMIT = 2**62


class TranscriptRepository:
    """Transcripts of sessions in SQL.

    Args:
        database: The database.
        messages: Message store of the same database.
    """

    def __init__(self, database: Database, messages: MessageRepository) -> None:
        self._database = database
        self._messages = messages

    def list_messages(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> VersionedMessages:
        """List the messages in these states, oldest first."""
        return self._messages.query(SELECT_LIST, _build_parameters(key, listings, limit, offset))

    def list_latest(self, key: int, listings: Sequence[Listing], limit: int) -> VersionedMessages:
        """Return the newest messages in these states, oldest first."""
        values = {"key": key, "listings": [listing.value for listing in listings], "limit": limit}
        return self._messages.query(SELECT_LIST_END, values)

    @retry_on_disconnect
    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """Return the number of messages in these states."""
        values = {"key": key, "listings": [listing.value for listing in listings]}
        with self._database.read() as connection:
            count: int | None = connection.execute(COUNT_LIST, values).scalar()
        if count is None:
            raise build_session_not_found_error()
        return count

    def apply_change(
        self, key: int, change: ListChange, now: datetime, *, revision: int | None
    ) -> int | None:
        """Apply a change in one transaction.

        Args:
            key: Key of the session.
            change: The change.
            now: Time of the write.
            revision: Revision at which the caller read the list; None to apply the change in any case.

        Returns:
            The revision after the change; None, with nothing changed, if the session has another revision.

        Raises:
            MessageConflictError: An added message has an id that exists already.
        """
        try:
            with self._database.write() as connection:
                # Only changes of states may write to the namespace. Plain appends do not need its lock.
                if change.listing_by_id or change.added_listing is not Listing.ACTIVE:
                    _lock_namespace(connection, key)
                current_revision = _lock_session(connection, key)
                if revision is not None and current_revision != revision:
                    return None
                return self._apply_change(connection, key, change, now, current_revision)
        except ConcurrentWriteError:
            raise self._build_conflict_error(key, change) from None

    def apply_locked_change(
        self,
        key: int,
        listings: Sequence[Listing],
        make: Callable[[VersionedMessages], ListChange | None],
        now: datetime,
        *,
        limit: int | None = None,
    ) -> bool:
        """Compute and apply a change while the session is locked; return False for no change.

        ``make`` receives the current list inside the transaction, so it must not call any store.
        """
        change: ListChange | None = None
        try:
            with self._database.write() as connection:
                _lock_namespace(connection, key)
                revision = _lock_session(connection, key)
                change = make(
                    self._messages.query_in_transaction(
                        connection, SELECT_LIST, _build_parameters(key, listings, limit, 0)
                    )
                )
                if change is not None:
                    self._apply_change(connection, key, change, now, revision)
        except ConcurrentWriteError:
            raise self._build_conflict_error(key, change) from None
        return change is not None

    def _apply_change(
        self, connection: Connection, key: int, change: ListChange, now: datetime, revision: int
    ) -> int:
        if change.added:
            revision = self._messages.append_in_transaction(connection, key, change.added, now)
        listing_by_id = dict(change.listing_by_id)
        # Active messages have no row in the table of states.
        if change.added_listing is not Listing.ACTIVE:
            listing_by_id |= dict.fromkeys((message.id for message in change.added), change.added_listing)
        return _update_listings(connection, key, listing_by_id, now) or revision

    def _build_conflict_error(self, key: int, change: ListChange | None) -> MessageConflictError:
        # The session was locked, so no other writer interfered: a new message has an id that exists already, in
        # the record or twice in the change itself.
        id_counts = Counter(message.id for message in change.added) if change is not None else Counter[str]()
        stored_ids = self._messages.find_known_ids(key, list(id_counts))
        taken = next((name for name, count in id_counts.items() if name in stored_ids or count > 1), None)
        return MessageConflictError(
            f"the session already has a message with the id {taken!r}: new messages, and messages that move within "
            "the list, need new ids; leave out the id to have one generated; nothing was changed"
        )


def _build_parameters(
    key: int, listings: Sequence[Listing], limit: int | None, offset: int
) -> dict[str, Any]:
    return {
        "key": key,
        "listings": [listing.value for listing in listings],
        "limit": _NO_LIMIT if limit is None else limit,
        "offset": offset,
    }


def _lock_namespace(connection: Connection, key: int) -> None:
    # Before the session, like all code that erases: transactions that lock in different orders would deadlock.
    is_own = namespaces.c.pk == _select_namespace(key)
    connection.execute(select(namespaces.c.pk).where(is_own).with_for_update(key_share=True))


def _select_namespace(key: int) -> ScalarSelect[int]:
    return select(sessions.c.namespace_pk).where(sessions.c.pk == key).scalar_subquery()


def _lock_session(connection: Connection, key: int) -> int:
    # The session's row is the lock of its list and of its record. Returns the current revision.
    revision = connection.execute(
        select(sessions.c.revision).where(sessions.c.pk == key).with_for_update()
    ).scalar()
    if revision is None:
        raise build_session_not_found_error()
    return int(revision)


def _update_listings(
    connection: Connection, key: int, listing_by_id: Mapping[str, Listing], now: datetime
) -> int | None:
    # Returns the new revision of the session, or None if all messages are in the requested state already.
    by_id = {escape(message_id): listing for message_id, listing in listing_by_id.items()}
    changed: list[AnyRow] = []
    for ids in split_by_query_limit(list(by_id)):
        query = (
            select(messages.c.pk, messages.c.id, listings.c.listing)
            .select_from(messages.outerjoin(listings, listings.c.message_pk == messages.c.pk))
            .where(messages.c.session_pk == key, messages.c.id.in_(ids))
        )
        rows = [row for row in connection.execute(query) if by_id[row.id] != (row.listing or Listing.ACTIVE)]
        connection.execute(delete(listings).where(listings.c.message_pk.in_([row.pk for row in rows])))
        changed += rows
    if not changed:
        return None
    new = [
        {"message_pk": row.pk, "listing": by_id[row.id].value}
        for row in changed
        if by_id[row.id] is not Listing.ACTIVE
    ]
    if new:
        connection.execute(insert(listings), new)
    # Recall finds all messages except removed ones.
    if any(Listing.REMOVED in (by_id[row.id], row.listing) for row in changed):
        _invalidate_recall_index(connection, key)
    return _advance_revision(connection, key, now)


def _invalidate_recall_index(connection: Connection, key: int) -> None:
    # Processes that cache an index of the namespace rebuild it when this number has changed.
    is_own = namespaces.c.pk == _select_namespace(key)
    connection.execute(update(namespaces).where(is_own).values(erasure_epoch=namespaces.c.erasure_epoch + 1))


def _advance_revision(connection: Connection, key: int, now: datetime) -> int:
    # Processes that cache the view reload it when its revision has changed.
    changed = (
        update(sessions)
        .where(sessions.c.pk == key)
        .values(
            revision=sessions.c.revision + 1,
            view_revision=sessions.c.view_revision + 1,
            updated_at=now,
        )
        .returning(sessions.c.revision)
    )
    return int(connection.execute(changed).scalar_one())
