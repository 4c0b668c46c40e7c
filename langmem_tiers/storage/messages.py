"""The append-only record of each session on SQL."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    insert,
    or_,
    select,
    union_all,
    update,
)

from langmem_tiers.core.errors import (
    MessageConflictError,
    MessageNotFoundError,
    SessionNotFoundError,
)
from langmem_tiers.core.names import escape, namespace_key, unescape
from langmem_tiers.core.ports import Appended, Tail
from langmem_tiers.core.reports import SearchHit
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.faults import OutrunError
from langmem_tiers.storage.rows import to_message, to_row
from langmem_tiers.storage.schema import POSITION_STEP, messages, namespaces, sessions
from langmem_tiers.storage.search import postgres, sqlite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.storage.database import Database
    from langmem_tiers.storage.rows import AnyRow

_IDS_PER_QUERY = 500  # well below every database's limit on parameters

# The row of the session is the lock of its record: whoever advances it writes next, so
# positions have no gaps, and a reader never sees a later message before an earlier one.
_ADVANCE = (
    update(sessions)
    .where(sessions.c.pk == bindparam("key"))
    .values(
        last_position=sessions.c.last_position + bindparam("added") * POSITION_STEP,
        message_count=sessions.c.message_count + bindparam("added"),
        token_count=sessions.c.token_count + bindparam("tokens"),
        revision=sessions.c.revision + 1,
        updated_at=bindparam("now"),
    )
    .returning(sessions.c.last_position, sessions.c.revision)
)
_INSERT = insert(messages)
_COLUMNS = [column.name for column in messages.c if column.name != "pk"]
_SESSION = select(sessions.c.revision, sessions.c.view_position, sessions.c.view_message).where(
    sessions.c.pk == bindparam("key")
)

# Each read is one statement, so that the session's row and its messages belong together on
# every database, whatever others write meanwhile. The session comes first and at least once.
_position, _pk = messages.c.position, messages.c.pk
_of_session = select(messages).where(messages.c.session_pk == bindparam("key"))
_backwards = (_position.desc(), _pk.desc())


def _with_session(
    rows: Select[*tuple[Any, ...]] | CompoundSelect[*tuple[Any, ...]],
) -> Select[*tuple[Any, ...]]:
    found = rows.subquery("found")
    return (
        select(sessions.c.revision, sessions.c.view_position, sessions.c.view_message, found)
        .select_from(sessions.outerjoin(found, found.c.session_pk == sessions.c.pk))
        .where(sessions.c.pk == bindparam("key"))
        .order_by(found.c.position, found.c.pk)
    )


def _from(position: ScalarSelect[int], pk: ScalarSelect[int], *, inclusive: bool) -> ColumnElement[bool]:
    # As a row comparison, but so that the index on the position is used for its range.
    return and_(_position >= position, or_(_position > position, _pk >= pk if inclusive else _pk > pk))


def _of_cursor(column: ColumnElement[int]) -> ScalarSelect[int]:
    return (
        select(column)
        .where(messages.c.session_pk == bindparam("key"), messages.c.id == bindparam("after"))
        .correlate(None)
        .scalar_subquery()
    )


def _of_view(column: ColumnElement[int]) -> ScalarSelect[int]:
    return select(column).where(sessions.c.pk == bindparam("key")).correlate(None).scalar_subquery()


_LATEST = _with_session(_of_session.order_by(*_backwards).limit(bindparam("limit")))
_FIRST_PAGE = _with_session(_of_session.order_by(_position, _pk).limit(bindparam("limit")))
_NEXT_PAGE = _with_session(
    _of_session.where(_from(_of_cursor(_position), _of_cursor(_pk), inclusive=False))
    .order_by(_position, _pk)
    .limit(bindparam("limit"))
)
_view_position, _view_message = _of_view(sessions.c.view_position), _of_view(sessions.c.view_message)
_shown = _of_session.where(_from(_view_position, _view_message, inclusive=True))
_summary = _of_session.where(_pk == _view_message)
_VIEW = _with_session(
    union_all(
        select(_shown.order_by(*_backwards).limit(bindparam("limit")).subquery()),
        select(_summary.subquery()),
    )
)
_ONE = _with_session(_of_session.where(messages.c.id == bindparam("id")))


class SqlMessageStore:
    """Serves the ``MessageStore`` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._advance = DriverStatement(_ADVANCE, database.dialect)
        self._insert = DriverStatement(_INSERT.inline(), database.dialect, _COLUMNS)

    def append(self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False) -> Appended:
        """Store the batch whole or not at all."""
        if new_ids and batch:
            # Ids that were just made are new, short of a clash that the look-up below would find.
            with suppress(OutrunError), self._database.write() as connection:
                return Appended(tuple(batch), (), self._append(connection, key, batch, now))
        with self._database.write() as connection:
            session = connection.execute(_SESSION.with_for_update(), {"key": key}).first()
            if session is None:
                raise _no_session()
            known = _known(connection, key, session, batch)
            new, duplicates = _sort_out(batch, known)
            revision = self._append(connection, key, new, now) if new else session.revision
            return Appended(tuple(new), tuple(duplicates), revision)

    def _append(self, connection: Connection, key: int, batch: Sequence[Message], now: datetime) -> int:
        tokens = sum(message.token_count for message in batch)
        row = self._advance.run(connection, {"key": key, "added": len(batch), "tokens": tokens, "now": now})
        if row is None:
            raise _no_session()
        last_position, revision = row
        first = last_position - (len(batch) - 1) * POSITION_STEP
        rows = [to_row(message, key, first + index * POSITION_STEP) for index, message in enumerate(batch)]
        if len(rows) == 1:
            self._insert.run(connection, rows[0])
        else:
            self._insert.run_many(connection, rows)
        return int(revision)

    def latest(self, key: int, limit: int) -> Tail:
        """The newest ``limit`` messages of the record."""
        return self._read(_LATEST, {"key": key, "limit": limit})

    def page(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Messages behind the message ``after``, oldest first."""
        if after is None:
            return self._read(_FIRST_PAGE, {"key": key, "limit": limit}).messages
        found = self._read(_NEXT_PAGE, {"key": key, "limit": limit, "after": escape(after)}).messages
        if not found and self.get(key, after) is None:
            raise _no_message(after)
        return found

    def view(self, key: int, limit: int) -> tuple[Message, ...]:
        """The summary in force, and the newest ``limit`` of the messages that are shown."""
        return self._read(_VIEW, {"key": key, "limit": limit}).messages

    def get(self, key: int, message_id: str) -> Message | None:
        """One message, if the session holds it."""
        found = self._read(_ONE, {"key": key, "id": escape(message_id)}).messages
        return found[0] if found else None

    def _read(self, statement: Select[*tuple[Any, ...]], values: dict[str, Any]) -> Tail:
        with self._database.read() as connection:
            rows = connection.execute(statement, values).all()
        if not rows:
            raise _no_session()
        view = (rows[0].view_position, rows[0].view_message)
        unique = {row.pk: row for row in rows if row.pk is not None}  # a summary may come twice
        return Tail(tuple(to_message(row, view) for row in unique.values()), rows[0].revision)

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Put ``summary`` in front of the message ``before`` and everything older behind it."""
        with self._database.write() as connection:
            session = connection.execute(
                select(sessions.c.compressed_count).where(sessions.c.pk == key).with_for_update()
            ).first()
            if session is None:
                raise _no_session()
            if session.compressed_count != was_hidden:
                return False
            first_shown = connection.execute(
                select(_position).where(messages.c.session_pk == key, messages.c.id == escape(before))
            ).scalar()
            if first_shown is None:
                raise _no_message(before)
            position = first_shown - 1
            row = connection.execute(_INSERT.returning(messages.c.pk), to_row(summary, key, position)).one()
            connection.execute(
                update(sessions)
                .where(sessions.c.pk == key)
                .values(
                    view_position=position,
                    view_message=row.pk,
                    compressed_count=sessions.c.compressed_count + hidden,
                    message_count=sessions.c.message_count + 1,
                    token_count=sessions.c.token_count + summary.token_count,
                    revision=sessions.c.revision + 1,
                    updated_at=summary.created_at,
                )
            )
            return True

    def search(self, namespace: NamespacePath, words: Sequence[str], limit: int) -> tuple[SearchHit, ...]:
        """Messages of this namespace that hold any of the words, best first."""
        query = self._search(namespace, words, limit)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(
            SearchHit(
                message=to_message(row, (row.view_position, row.view_message)),
                session=unescape(row.name),
                score=float(row.score),
            )
            for row in rows
        )

    def _search(self, namespace: NamespacePath, words: Sequence[str], limit: int) -> Select[*tuple[Any, ...]]:
        found = (sqlite if self._database.is_sqlite else postgres).matches(words)
        # The best are chosen by key and score alone; only their texts are read.
        best = (
            select(found.c.pk, found.c.score)
            .select_from(found.join(messages, messages.c.pk == found.c.pk).join(sessions).join(namespaces))
            .where(namespaces.c.path == namespace_key(namespace))
            .order_by(found.c.score.desc(), found.c.pk.desc())
            .limit(limit)
            .subquery("best")
        )
        return (
            select(messages, sessions.c.name, sessions.c.view_position, sessions.c.view_message, best.c.score)
            .select_from(best.join(messages, messages.c.pk == best.c.pk).join(sessions))
            .order_by(best.c.score.desc(), best.c.pk.desc())
        )


def _known(connection: Connection, key: int, session: AnyRow, batch: Iterable[Message]) -> dict[str, Message]:
    view = (session.view_position, session.view_message)
    known: dict[str, Message] = {}
    for ids in _pieces([escape(message.id) for message in batch], _IDS_PER_QUERY):
        rows = connection.execute(
            select(messages).where(messages.c.session_pk == key, messages.c.id.in_(ids))
        )
        known.update((message.id, message) for message in (to_message(row, view) for row in rows))
    return known


def _sort_out(batch: Iterable[Message], known: dict[str, Message]) -> tuple[list[Message], list[Message]]:
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


def _no_message(message_id: str) -> MessageNotFoundError:
    return MessageNotFoundError(
        f"the session holds no message {message_id!r}: use an id that page() or add() gave"
    )


def _no_session() -> SessionNotFoundError:
    return SessionNotFoundError("the session was deleted: open it anew with engine.session(...)")


def _pieces(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
