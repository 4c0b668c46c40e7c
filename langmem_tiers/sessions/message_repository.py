"""The append-only record of each session on SQL."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import select, update

from langmem_tiers.common.namespaces import escape, unescape
from langmem_tiers.errors import (
    MessageConflictError,
    MessageNotFoundError,
    SessionNotFoundError,
)
from langmem_tiers.sessions.message_rows import to_message, to_row
from langmem_tiers.sessions.message_sql import (
    ADVANCE,
    ADVANCE_KNOWING,
    APPEND_ONE,
    COLUMNS,
    FIRST_PAGE,
    INSERT,
    LATEST,
    NEXT_PAGE,
    ONE,
    PREVIOUS_PAGE,
    SESSION,
    VIEW,
)
from langmem_tiers.sessions.models import Appended, RollUp, Tail
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConnectionLostError, OutrunError, undamaged
from langmem_tiers.storage.retry_read import repeatable
from langmem_tiers.storage.schema import POSITION_STEP, RECORD, messages, sessions
from langmem_tiers.storage.search import index_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Select
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_T = TypeVar("_T")
_MOST_SESSIONS = 10_000
_IDS_PER_QUERY = 500  # well below every database's limit on parameters


class SqlMessageStore:
    """Serves the ``MessageStore`` port.

    Args:
        database: Where.
        index_text: What recall is to find of a message; written with it, in one row.
    """

    def __init__(self, database: Database, index_text: Callable[[Message], IndexText]) -> None:
        self._database = database
        self._index_text = index_text
        self._advance = DriverStatement(ADVANCE if database.is_sqlite else ADVANCE_KNOWING, database.dialect)
        self._insert = DriverStatement(INSERT.inline(), database.dialect, COLUMNS)
        self._append_one = None if database.is_sqlite else DriverStatement(APPEND_ONE, database.dialect)
        self._namespaces: dict[int, int] = {}  # of sessions, which never change it

    def append(self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False) -> Appended:
        """Store the batch whole or not at all, and once, also if the server goes away in the middle of it."""
        sent: set[str] = set()
        if new_ids and batch:
            # Ids that are believed to be new are, short of a clash that the look-up below would find.
            with suppress(OutrunError, ConnectionLostError):
                revision, was_at = self._append_new(key, batch, now, sent)
                return Appended(tuple(batch), (), revision, was_at=was_at)
        return self._database.again(lambda: self._append_unknown(key, batch, now, sent))

    def _append_new(
        self, key: int, batch: Sequence[Message], now: datetime, sent: set[str]
    ) -> tuple[int, datetime | None]:
        namespace = self._namespaces.get(key)
        if self._append_one is None or namespace is None or len(batch) > 1:
            with self._database.write_raw() as raw:
                moved = self._append(raw, key, batch, now)
                sent.update(message.id for message in batch)
                return moved
        (message,) = batch
        moves = {"key": key, "added": 1, "tokens": message.token_count, "now": now}
        columns = index_columns(self._index_text(message), namespace, is_sqlite=False)
        with self._database.write_one() as raw:
            sent.add(message.id)
            row = self._append_one.run(raw, moves | to_row(message, key, 0) | columns)
        if row is None:
            raise no_session()
        return int(row[0]), row[1]

    def _append_unknown(self, key: int, batch: Sequence[Message], now: datetime, sent: set[str]) -> Appended:
        """Store those that the session does not know.

        Args:
            key: The session.
            batch: The messages.
            now: When.
            sent: Ids of those that were sent before, without an answer: the server may have kept them.
        """
        with self._database.write() as connection:
            session = connection.execute(SESSION.with_for_update(), {"key": key}).first()
            if session is None:
                raise no_session()
            known = _known(connection, key, session, batch)
            new, duplicates = sort_out(batch, known)
            revision = self.append_in(connection, key, new, now) if new else session.revision
            kept, others = sent_before(sent, new, duplicates)
            sent.update(message.id for message in new)
            return Appended((*kept, *new), others, revision, is_late=bool(kept))

    def append_in(self, connection: Connection, key: int, batch: Sequence[Message], now: datetime) -> int:
        """Store the batch in a transaction of the caller's; the session's revision after it."""
        return self._append(connection.connection, key, batch, now)[0]

    def _append(
        self, raw: PoolProxiedConnection, key: int, batch: Sequence[Message], now: datetime
    ) -> tuple[int, datetime | None]:
        tokens = sum(message.token_count for message in batch)
        row = self._advance.run(raw, {"key": key, "added": len(batch), "tokens": tokens, "now": now})
        if row is None:
            raise no_session()
        last_position, revision, namespace_pk, *was_at = row
        if len(self._namespaces) >= _MOST_SESSIONS:
            self._namespaces.clear()
        self._namespaces[key] = namespace_pk
        first = last_position - (len(batch) - 1) * POSITION_STEP
        rows = [
            to_row(message, key, first + index * POSITION_STEP)
            | index_columns(self._index_text(message), namespace_pk, self._database.is_sqlite)
            for index, message in enumerate(batch)
        ]
        if len(rows) == 1:
            self._insert.run(raw, rows[0])
        else:
            self._insert.run_many(raw, rows)
        return int(revision), was_at[0] if was_at else None

    def latest(self, key: int, limit: int) -> Tail:
        """The newest ``limit`` messages of the record."""
        return self.read(LATEST, {"key": key, "limit": limit})

    def page(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Messages behind the message ``after``, oldest first."""
        if after is None:
            return self.read(FIRST_PAGE, {"key": key, "limit": limit}).messages
        found = self.read(NEXT_PAGE, {"key": key, "limit": limit, "after": escape(after)}).messages
        if not found and self.get(key, after) is None:
            raise _no_message(after)
        return found

    def page_back(self, key: int, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """The newest of the messages before the message ``before``, oldest first."""
        if before is None:
            return self.read(LATEST, {"key": key, "limit": limit}).messages
        found = self.read(PREVIOUS_PAGE, {"key": key, "limit": limit, "after": escape(before)}).messages
        if not found and self.get(key, before) is None:
            raise _no_message(before)
        return found

    def view(self, key: int, limit: int) -> tuple[Message, ...]:
        """The summary in force, and the newest ``limit`` of the messages that are shown."""
        return self.read(VIEW, {"key": key, "limit": limit}).messages

    def get(self, key: int, message_id: str) -> Message | None:
        """One message, if the session holds it."""
        found = self.read(ONE, {"key": key, "id": escape(message_id)}).messages
        return found[0] if found else None

    @repeatable
    def holds(self, key: int, ids: Sequence[str]) -> set[str]:
        """Those of the ids that the record has."""
        held: set[str] = set()
        with self._database.read() as connection:
            for some in pieces([escape(one) for one in ids]):
                query = select(messages.c.id).where(messages.c.session_pk == key, messages.c.id.in_(some))
                held.update(unescape(stored) for stored in connection.execute(query).scalars())
        return held

    @repeatable
    def read(self, statement: Select[*tuple[Any, ...]], values: dict[str, Any]) -> Tail:
        """The messages that a statement finds, with the session's revision."""
        with undamaged(self._database.label):
            with self._database.read() as connection:
                rows = connection.execute(statement, values).all()
            return _tail(rows)

    def read_in(
        self, connection: Connection, statement: Select[*tuple[Any, ...]], values: dict[str, Any]
    ) -> Tail:
        """The same in a transaction of the caller's."""
        with undamaged(self._database.label):
            return _tail(connection.execute(statement, values).all())

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Put ``summary`` in front of the message ``before`` and everything older behind it."""
        roll_up = RollUp(summary=summary, before=before, hidden=hidden)
        with self._database.write() as connection:
            if not is_hidden_still(connection, key, was_hidden):
                return False
            put_summary(connection, key, roll_up)
            return True


def _tail(rows: Sequence[AnyRow]) -> Tail:
    if not rows:
        raise no_session()
    view = (rows[0].view_position, rows[0].view_message)
    unique = {row.pk: row for row in rows if row.pk is not None}  # a summary may come twice
    return Tail(tuple(to_message(row, view) for row in unique.values()), rows[0].revision)


def is_hidden_still(connection: Connection, key: int, was_hidden: int) -> bool:
    """Lock the session's row and tell whether nobody compressed it since the caller looked."""
    session = connection.execute(
        select(sessions.c.compressed_count).where(sessions.c.pk == key).with_for_update()
    ).first()
    if session is None:
        raise no_session()
    return bool(session.compressed_count == was_hidden)


def put_summary(connection: Connection, key: int, roll_up: RollUp) -> int:
    """Put a summary in front of the first message that stays in sight, and show the session from there.

    Returns:
        The summary's key.
    """
    first_shown = connection.execute(
        select(messages.c.position).where(
            messages.c.session_pk == key, messages.c.id == escape(roll_up.before)
        )
    ).scalar()
    if first_shown is None:
        raise _no_message(roll_up.before)
    position, summary = first_shown - 1, roll_up.summary
    row = connection.execute(INSERT.returning(messages.c.pk), to_row(summary, key, position)).one()
    connection.execute(
        update(sessions)
        .where(sessions.c.pk == key)
        .values(
            view_position=position,
            view_message=row.pk,
            compressed_count=sessions.c.compressed_count + roll_up.hidden,
            message_count=sessions.c.message_count + 1,
            token_count=sessions.c.token_count + summary.token_count,
            revision=sessions.c.revision + 1,
            view_revision=sessions.c.view_revision + 1,
            updated_at=summary.created_at,
        )
    )
    return int(row.pk)


def _known(connection: Connection, key: int, session: AnyRow, batch: Iterable[Message]) -> dict[str, Message]:
    view = (session.view_position, session.view_message)
    known: dict[str, Message] = {}
    for ids in pieces([escape(message.id) for message in batch]):
        rows = connection.execute(select(*RECORD).where(messages.c.session_pk == key, messages.c.id.in_(ids)))
        known.update((message.id, message) for message in (to_message(row, view) for row in rows))
    return known


def sort_out(batch: Iterable[Message], known: dict[str, Message]) -> tuple[list[Message], list[Message]]:
    """New messages and those that are known, or an error for an id that stands for another message."""
    new, duplicates = [], []
    for message in batch:
        stored = known.get(message.id)
        if stored is None:
            known[message.id] = message
            new.append(message)
        elif stored.says_the_same_as(message):
            duplicates.append(stored)
        else:
            raise MessageConflictError(
                f"the session holds another message with the id {message.id!r}, of {stored.created_at.isoformat()}: "
                "give the new one an id of its own; nothing was stored"
            )
    return new, duplicates


def sent_before(
    sent: set[str], new: Iterable[Message], duplicates: Iterable[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Parts what was kept by a try without an answer, the first time that it is named, from what was known before.

    Args:
        sent: Ids of what such tries have sent.
        new: What turned out not to be kept.
        duplicates: What is known.
    """
    sent = sent.difference(message.id for message in new)
    kept: dict[str, Message] = {}
    others = []
    for message in duplicates:
        if message.id in sent and message.id not in kept:
            kept[message.id] = message
        else:
            others.append(message)
    return tuple(kept.values()), tuple(others)


def _no_message(message_id: str) -> MessageNotFoundError:
    return MessageNotFoundError(
        f"the session holds no message {message_id!r}: use an id that page() or add() gave"
    )


def no_session() -> SessionNotFoundError:
    """What to raise when the session's row is gone."""
    return SessionNotFoundError("the session was deleted: open it anew with engine.session(...)")


def pieces(ids: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """The ids in lists that a statement takes."""
    for start in range(0, len(ids), _IDS_PER_QUERY):
        yield ids[start : start + _IDS_PER_QUERY]
