"""Lists of messages on SQL."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, update

from langmem_tiers.common.namespaces import escape
from langmem_tiers.errors import MessageConflictError
from langmem_tiers.sessions.message_repository import build_session_not_found_error, split_by_query_limit
from langmem_tiers.sessions.message_sql import COUNT_LIST, SELECT_LIST, SELECT_LIST_END
from langmem_tiers.sessions.models import Listing
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import listings, messages, namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, ScalarSelect

    from langmem_tiers.sessions.message_repository import SqlMessageStore
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.sessions.models import ListChange, VersionedMessages
    from langmem_tiers.storage.database import Database

_NO_LIMIT = 2**62


class SqlTranscriptStore:
    """Serves the ``TranscriptStore`` port.

    Args:
        database: Where.
        messages: The record on the same database.
    """

    def __init__(self, database: Database, messages: SqlMessageStore) -> None:
        self._database = database
        self._messages = messages

    def list_messages(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> VersionedMessages:
        """The messages that stand so in the list, oldest first."""
        return self._messages.query(SELECT_LIST, _build_parameters(key, listings, limit, offset))

    def list_latest(self, key: int, listings: Sequence[Listing], limit: int) -> VersionedMessages:
        """The newest of these, oldest first."""
        values = {"key": key, "listings": [one.value for one in listings], "limit": limit}
        return self._messages.query(SELECT_LIST_END, values)

    @retry_on_disconnect
    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """How many messages stand so in the list."""
        values = {"key": key, "listings": [one.value for one in listings]}
        with self._database.read() as connection:
            found: int | None = connection.execute(COUNT_LIST, values).scalar()
        if found is None:
            raise build_session_not_found_error()
        return found

    def apply_change(
        self, key: int, change: ListChange, now: datetime, *, revision: int | None
    ) -> int | None:
        """Carry a change out in one transaction."""
        try:
            with self._database.write() as connection:
                if change.listing_by_id or change.added_listing is not Listing.ACTIVE:
                    _lock_namespace(connection, key)
                there = _lock_session(connection, key)
                if revision is not None and there != revision:
                    return None
                return self._apply_change(connection, key, change, now, there)
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
        """Carry out what is made of the list while nobody else writes to the session."""
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
        listed = dict(change.listing_by_id)
        if change.added_listing is not Listing.ACTIVE:
            listed |= dict.fromkeys((one.id for one in change.added), change.added_listing)
        return _update_listings(connection, key, listed, now) or revision

    def _build_conflict_error(self, key: int, change: ListChange | None) -> MessageConflictError:
        # Whoever holds the session's lock is outrun by nobody: an id of a new message is taken.
        times = Counter(one.id for one in change.added) if change is not None else Counter[str]()
        held = self._messages.find_known_ids(key, list(times))
        taken = next((one for one, count in times.items() if one in held or count > 1), None)
        return MessageConflictError(
            f"the session holds a message with the id {taken!r} already: a message that comes anew, or to another "
            "place of the list, needs an id of its own, so leave it out; nothing was changed"
        )


def _build_parameters(
    key: int, listings: Sequence[Listing], limit: int | None, offset: int
) -> dict[str, Any]:
    return {
        "key": key,
        "listings": [one.value for one in listings],
        "limit": _NO_LIMIT if limit is None else limit,
        "offset": offset,
    }


def _lock_namespace(connection: Connection, key: int) -> None:
    # Before the session's, as for all who erase: two that lock in another order wait for ever.
    ours = namespaces.c.pk == _select_namespace(key)
    connection.execute(select(namespaces.c.pk).where(ours).with_for_update(key_share=True))


def _select_namespace(key: int) -> ScalarSelect[int]:
    return select(sessions.c.namespace_pk).where(sessions.c.pk == key).scalar_subquery()


def _lock_session(connection: Connection, key: int) -> int:
    # The row of the session is the lock of its list, as of its record.
    revision = connection.execute(
        select(sessions.c.revision).where(sessions.c.pk == key).with_for_update()
    ).scalar()
    if revision is None:
        raise build_session_not_found_error()
    return int(revision)


def _update_listings(
    connection: Connection, key: int, listed: Mapping[str, Listing], now: datetime
) -> int | None:
    by_id = {escape(one): listing for one, listing in listed.items()}
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
    if any(Listing.REMOVED in (by_id[row.id], row.listing) for row in changed):
        _invalidate_recall_index(connection, key)
    return _advance_revision(connection, key, now)


def _invalidate_recall_index(connection: Connection, key: int) -> None:
    ours = namespaces.c.pk == _select_namespace(key)
    connection.execute(update(namespaces).where(ours).values(erased=namespaces.c.erased + 1))


def _advance_revision(connection: Connection, key: int, now: datetime) -> int:
    # Whoever holds the view in memory sees by this that it has to be read anew.
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
