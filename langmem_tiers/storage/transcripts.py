"""Lists of messages on SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from langmem_tiers.core.names import escape
from langmem_tiers.core.transcripts import Listing
from langmem_tiers.storage.messages import no_session, pieces
from langmem_tiers.storage.schema import listings, messages, sessions
from langmem_tiers.storage.statements import LIST, LIST_COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from langmem_tiers.core.records import Tail
    from langmem_tiers.core.transcripts import ListChange
    from langmem_tiers.storage.database import Database
    from langmem_tiers.storage.messages import SqlMessageStore

_ALL = 2**62


class SqlTranscriptStore:
    """Serves the ``TranscriptStore`` port.

    Args:
        database: Where.
        messages: The record on the same database.
    """

    def __init__(self, database: Database, messages: SqlMessageStore) -> None:
        self._database = database
        self._messages = messages

    def read(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> Tail:
        """The messages that stand so in the list, oldest first."""
        values = {
            "key": key,
            "listings": [one.value for one in listings],
            "limit": _ALL if limit is None else limit,
            "offset": offset,
        }
        return self._messages.read(LIST, values)

    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """How many messages stand so in the list."""
        with self._database.read() as connection:
            values = {"key": key, "listings": [one.value for one in listings]}
            return int(connection.execute(LIST_COUNT, values).scalar_one())

    def change(self, key: int, change: ListChange, now: datetime, *, revision: int | None) -> int | None:
        """Carry a change out in one transaction."""
        with self._database.write() as connection:
            # The row of the session is the lock of its list, as of its record.
            row = connection.execute(
                select(sessions.c.revision).where(sessions.c.pk == key).with_for_update()
            ).first()
            if row is None:
                raise no_session()
            if revision is not None and row.revision != revision:
                return None
            after: int = row.revision
            if change.added:
                after = self._messages.append_in(connection, key, change.added, now)
            listed = dict(change.listed)
            if change.added_as is not Listing.ACTIVE:
                listed |= dict.fromkeys((one.id for one in change.added), change.added_as)
            return _put(connection, key, listed, now) if listed else after


def _put(connection: Connection, key: int, listed: Mapping[str, Listing], now: datetime) -> int:
    by_id = {escape(one): listing for one, listing in listed.items()}
    for ids in pieces(list(by_id)):
        query = select(messages.c.pk, messages.c.id).where(
            messages.c.session_pk == key, messages.c.id.in_(ids)
        )
        rows = connection.execute(query).all()
        keys = [row.pk for row in rows]
        connection.execute(delete(listings).where(listings.c.message_pk.in_(keys)))
        new = [
            {"message_pk": row.pk, "listing": by_id[row.id].value}
            for row in rows
            if by_id[row.id] is not Listing.ACTIVE
        ]
        if new:
            connection.execute(insert(listings), new)
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
