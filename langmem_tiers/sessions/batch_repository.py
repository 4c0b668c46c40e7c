"""Messages of many sessions in one transaction, on SQL: a few statements, however many sessions there are."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select, tuple_

from langmem_tiers.common.namespaces import escape, namespace_key
from langmem_tiers.errors import StorageBusyError
from langmem_tiers.sessions.message_repository import pieces, sent_before, sort_out
from langmem_tiers.sessions.message_rows import to_message, to_row
from langmem_tiers.sessions.message_sql import ADVANCE_ONE, COLUMNS, INSERT
from langmem_tiers.sessions.models import AppendedTo
from langmem_tiers.sessions.repository import namespace_pk_of, new_session
from langmem_tiers.sessions.session_version import Written, stamp_of
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConnectionLostError, OutrunError
from langmem_tiers.storage.schema import POSITION_STEP, RECORD, messages, namespaces, sessions
from langmem_tiers.storage.search import index_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.sessions.models import SessionBatch
    from langmem_tiers.storage.database import Database

_TRIES = 20  # far more than two racing writers need
_Place = tuple[str, str]
"""A session by the stored forms of its namespace and its name."""
_Sent = tuple[int, str]
"""A message by its session's key and its id."""
# Each namespace before its sessions, and all by their keys: two that lock in another order wait for ever.
_LOCK = (
    select(sessions, namespaces.c.path)
    .join(namespaces)
    .where(tuple_(namespaces.c.path, sessions.c.name).in_(bindparam("places", expanding=True)))
    .order_by(namespaces.c.pk, sessions.c.pk)
    .suffix_with(
        f"FOR KEY SHARE OF {namespaces.name} FOR UPDATE OF {sessions.name}",
        dialect="postgresql",
    )
)


@dataclass(frozen=True, slots=True)
class _Done:
    appended: AppendedTo
    written: Written | None
    """For who holds copies; None if nothing was written, or if others may have written since."""


class SqlBatchStore:
    """Serves the ``BatchStore`` port.

    Args:
        database: Where.
        index_text: What recall is to find of a message; written with it, in one row.
        written: Told of all that a transaction wrote, once it is durable: who holds copies elsewhere.
    """

    def __init__(
        self,
        database: Database,
        index_text: Callable[[Message], IndexText],
        written: Callable[[Sequence[Written]], object] | None = None,
    ) -> None:
        self._database = database
        self._index_text = index_text
        self._written = written
        self._in_doubt: set[_Sent] = set()  # without an answer: the server may have kept them
        self._advance = DriverStatement(ADVANCE_ONE, database.dialect)
        self._insert = DriverStatement(INSERT.inline(), database.dialect, COLUMNS)

    def append_all(
        self, batches: Sequence[SessionBatch], now: datetime, *, new_ids: bool = False
    ) -> tuple[AppendedTo, ...]:
        """Store all batches in one transaction, or nothing."""
        # Worked out before the transaction, while others may write.
        texts = {id(one): self._index_text(one) for batch in batches for one in batch.messages}
        tries = partial(self._attempt, batches, now, texts)
        for attempt in range(_TRIES):
            try:
                done = self._database.again(partial(tries, looks_up=bool(attempt) or not new_ids))
            except OutrunError:  # an id is known, or somebody made the same session: look again
                continue
            if self._written is not None:
                self._written([one.written for one in done if one.written is not None])
            return tuple(one.appended for one in done)
        raise StorageBusyError("sessions are created and deleted by others all the time: try again later")

    def _attempt(
        self, batches: Sequence[SessionBatch], now: datetime, texts: dict[int, IndexText], *, looks_up: bool
    ) -> list[_Done]:
        looks_up = looks_up or bool(self._in_doubt)
        done: list[_Done] = []
        try:
            with self._database.write() as connection:
                done = self._append(connection, batches, now, texts, looks_up=looks_up)
        except ConnectionLostError:
            self._in_doubt.update(_sent_in(done))
            raise
        if self._in_doubt:
            self._in_doubt.difference_update(_sent_in(done))
        return done

    def _append(
        self,
        connection: Connection,
        batches: Sequence[SessionBatch],
        now: datetime,
        texts: dict[int, IndexText],
        *,
        looks_up: bool,
    ) -> list[_Done]:
        there = _locked(connection, batches, now)
        known = _known(connection, there, batches) if looks_up else {}
        rows: list[dict[str, Any]] = []
        steps: list[dict[str, Any]] = []
        done = []
        for batch, session in zip(batches, there, strict=True):
            new: list[Message] = list(batch.messages)
            duplicates: list[Message] = []
            if looks_up:
                new, duplicates = sort_out(new, known.setdefault(session.pk, {}))
            done.append(self._done(session, new, duplicates, now))
            if not new:
                continue
            tokens = sum(message.token_count for message in new)
            steps.append({"key": session.pk, "added": len(new), "tokens": tokens, "now": now})
            rows += (
                to_row(message, session.pk, session.last_position + place * POSITION_STEP)
                | index_columns(texts[id(message)], session.namespace_pk, self._database.is_sqlite)
                for place, message in enumerate(new, 1)
            )
        if rows:
            with self._together(connection) as raw:
                self._advance.run_many(raw, steps)
                self._insert.run_many(raw, rows)
        return done

    def _done(
        self, session: AnyRow, new: Sequence[Message], duplicates: Sequence[Message], now: datetime
    ) -> _Done:
        doubtful = {message.id for message in duplicates if (session.pk, message.id) in self._in_doubt}
        kept, others = sent_before(doubtful, new, duplicates)
        revision = session.revision + bool(new)
        written = None
        if new and not kept and self._written is not None:
            before = stamp_of(session)
            written = Written(session.pk, before, before.after(revision, now), new)
        appended = AppendedTo((*kept, *new), others, revision, session.pk, is_late=bool(kept))
        return _Done(appended, written)

    @contextmanager
    def _together(self, connection: Connection) -> Iterator[PoolProxiedConnection]:
        # PostgreSQL is sent both statements before it is asked for the first answer.
        raw: Any = connection.connection
        with nullcontext() if self._database.is_sqlite else raw.driver_connection.pipeline():
            yield raw


def _sent_in(done: Sequence[_Done]) -> Iterator[_Sent]:
    return ((one.appended.key, message.id) for one in done for message in one.appended.stored)


def _locked(connection: Connection, batches: Sequence[SessionBatch], now: datetime) -> list[AnyRow]:
    places = [(namespace_key(batch.namespace), escape(batch.session)) for batch in batches]
    found = _sessions(connection, places)
    missing = sorted({place for place in places if place not in found})
    if missing:
        keys: dict[str, int] = {}
        for path, _ in missing:
            keys[path] = keys.get(path) or namespace_pk_of(connection, path, now)
        rows = [new_session(keys[path], name, now) for path, name in missing]
        connection.execute(insert(sessions), rows)
        found |= _sessions(connection, missing)
    return [found[place] for place in places]


def _sessions(connection: Connection, places: Sequence[_Place]) -> dict[_Place, AnyRow]:
    found: dict[_Place, AnyRow] = {}
    for some in pieces(places):
        rows = connection.execute(_LOCK, {"places": some})
        found.update(((row.path, row.name), row) for row in rows)
    return found


def _known(
    connection: Connection, there: Sequence[AnyRow], batches: Sequence[SessionBatch]
) -> dict[int, dict[str, Message]]:
    views = {session.pk: (session.view_position, session.view_message) for session in there}
    wanted = [
        (session.pk, escape(message.id))
        for session, batch in zip(there, batches, strict=True)
        for message in batch.messages
    ]
    known: dict[int, dict[str, Message]] = {}
    for some in pieces(wanted):
        where = tuple_(messages.c.session_pk, messages.c.id).in_(some)
        for row in connection.execute(select(*RECORD).where(where)):
            message = to_message(row, views[row.session_pk])
            known.setdefault(row.session_pk, {})[message.id] = message
    return known
