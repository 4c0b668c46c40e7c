"""Messages of many sessions in one transaction, on SQL: a few statements, however many sessions there are."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select, tuple_

from langmem_tiers.common.namespaces import build_namespace_key, escape
from langmem_tiers.errors import StorageBusyError
from langmem_tiers.sessions.message_repository import (
    split_by_query_limit,
    split_duplicates,
    split_unconfirmed,
)
from langmem_tiers.sessions.message_rows import from_message_row, to_message_row
from langmem_tiers.sessions.message_sql import ADVANCE_SESSION, INSERT_COLUMNS, INSERT_MESSAGE
from langmem_tiers.sessions.models import SessionAppendResult
from langmem_tiers.sessions.repository import build_session_row, get_or_create_namespace
from langmem_tiers.sessions.session_version import SessionWrite, to_session_version
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError, ConnectionLostError
from langmem_tiers.storage.schema import MESSAGE_COLUMNS, POSITION_STEP, messages, namespaces, sessions
from langmem_tiers.storage.search import build_index_columns

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

_MAX_ATTEMPTS = 20  # far more than two racing writers need
_SessionPath = tuple[str, str]
"""A session by the stored forms of its namespace and its name."""
_SentMessage = tuple[int, str]
"""A message by its session's key and its id."""
# Each namespace before its sessions, and all by their keys: two that lock in another order wait for ever.
_LOCK_SESSIONS = (
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
class _BatchResult:
    appended: SessionAppendResult
    write: SessionWrite | None
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
        written: Callable[[Sequence[SessionWrite]], object] | None = None,
    ) -> None:
        self._database = database
        self._index_text = index_text
        self._on_written = written
        self._unconfirmed: set[_SentMessage] = set()  # without an answer: the server may have kept them
        self._advance = DriverStatement(ADVANCE_SESSION, database.dialect)
        self._insert = DriverStatement(INSERT_MESSAGE.inline(), database.dialect, INSERT_COLUMNS)

    def append_all(
        self, batches: Sequence[SessionBatch], now: datetime, *, new_ids: bool = False
    ) -> tuple[SessionAppendResult, ...]:
        """Store all batches in one transaction, or nothing."""
        # Worked out before the transaction, while others may write.
        texts = {id(one): self._index_text(one) for batch in batches for one in batch.messages}
        tries = partial(self._attempt, batches, now, texts)
        for attempt in range(_MAX_ATTEMPTS):
            try:
                done = self._database.run_with_retry(partial(tries, looks_up=bool(attempt) or not new_ids))
            except ConcurrentWriteError:  # an id is known, or somebody made the same session: look again
                continue
            if self._on_written is not None:
                self._on_written([one.write for one in done if one.write is not None])
            return tuple(one.appended for one in done)
        raise StorageBusyError("sessions are created and deleted by others all the time: try again later")

    def _attempt(
        self, batches: Sequence[SessionBatch], now: datetime, texts: dict[int, IndexText], *, looks_up: bool
    ) -> list[_BatchResult]:
        looks_up = looks_up or bool(self._unconfirmed)
        done: list[_BatchResult] = []
        try:
            with self._database.write() as connection:
                done = self._append(connection, batches, now, texts, looks_up=looks_up)
        except ConnectionLostError:
            self._unconfirmed.update(_list_sent_messages(done))
            raise
        if self._unconfirmed:
            self._unconfirmed.difference_update(_list_sent_messages(done))
        return done

    def _append(
        self,
        connection: Connection,
        batches: Sequence[SessionBatch],
        now: datetime,
        texts: dict[int, IndexText],
        *,
        looks_up: bool,
    ) -> list[_BatchResult]:
        there = _lock_or_create_sessions(connection, batches, now)
        known = _find_known_messages(connection, there, batches) if looks_up else {}
        rows: list[dict[str, Any]] = []
        steps: list[dict[str, Any]] = []
        done = []
        for batch, session in zip(batches, there, strict=True):
            new: list[Message] = list(batch.messages)
            duplicates: list[Message] = []
            if looks_up:
                new, duplicates = split_duplicates(new, known.setdefault(session.pk, {}))
            done.append(self._build_result(session, new, duplicates, now))
            if not new:
                continue
            tokens = sum(message.token_count for message in new)
            steps.append({"key": session.pk, "added": len(new), "tokens": tokens, "now": now})
            rows += (
                to_message_row(message, session.pk, session.last_position + place * POSITION_STEP)
                | build_index_columns(texts[id(message)], session.namespace_pk, self._database.is_sqlite)
                for place, message in enumerate(new, 1)
            )
        if rows:
            with self._send_together(connection) as raw:
                self._advance.run_many(raw, steps)
                self._insert.run_many(raw, rows)
        return done

    def _build_result(
        self, session: AnyRow, new: Sequence[Message], duplicates: Sequence[Message], now: datetime
    ) -> _BatchResult:
        doubtful = {message.id for message in duplicates if (session.pk, message.id) in self._unconfirmed}
        kept, others = split_unconfirmed(doubtful, new, duplicates)
        revision = session.revision + bool(new)
        written = None
        if new and not kept and self._on_written is not None:
            before = to_session_version(session)
            written = SessionWrite(session.pk, before, before.advance(revision, now), new)
        appended = SessionAppendResult(
            (*kept, *new), others, revision, session.pk, has_recovered_messages=bool(kept)
        )
        return _BatchResult(appended, written)

    @contextmanager
    def _send_together(self, connection: Connection) -> Iterator[PoolProxiedConnection]:
        # PostgreSQL is sent both statements before it is asked for the first answer.
        raw: Any = connection.connection
        with nullcontext() if self._database.is_sqlite else raw.driver_connection.pipeline():
            yield raw


def _list_sent_messages(done: Sequence[_BatchResult]) -> Iterator[_SentMessage]:
    return ((one.appended.key, message.id) for one in done for message in one.appended.stored)


def _lock_or_create_sessions(
    connection: Connection, batches: Sequence[SessionBatch], now: datetime
) -> list[AnyRow]:
    places = [(build_namespace_key(batch.namespace), escape(batch.session)) for batch in batches]
    found = _lock_sessions(connection, places)
    missing = sorted({place for place in places if place not in found})
    if missing:
        keys: dict[str, int] = {}
        for path, _ in missing:
            keys[path] = keys.get(path) or get_or_create_namespace(connection, path, now)
        rows = [build_session_row(keys[path], name, now) for path, name in missing]
        connection.execute(insert(sessions), rows)
        found |= _lock_sessions(connection, missing)
    return [found[place] for place in places]


def _lock_sessions(connection: Connection, places: Sequence[_SessionPath]) -> dict[_SessionPath, AnyRow]:
    found: dict[_SessionPath, AnyRow] = {}
    for some in split_by_query_limit(places):
        rows = connection.execute(_LOCK_SESSIONS, {"places": some})
        found.update(((row.path, row.name), row) for row in rows)
    return found


def _find_known_messages(
    connection: Connection, there: Sequence[AnyRow], batches: Sequence[SessionBatch]
) -> dict[int, dict[str, Message]]:
    views = {session.pk: (session.view_position, session.view_message) for session in there}
    wanted = [
        (session.pk, escape(message.id))
        for session, batch in zip(there, batches, strict=True)
        for message in batch.messages
    ]
    known: dict[int, dict[str, Message]] = {}
    for some in split_by_query_limit(wanted):
        where = tuple_(messages.c.session_pk, messages.c.id).in_(some)
        for row in connection.execute(select(*MESSAGE_COLUMNS).where(where)):
            message = from_message_row(row, views[row.session_pk])
            known.setdefault(row.session_pk, {})[message.id] = message
    return known
