"""SQL store for batches: messages of many sessions in one transaction with a few statements."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select, tuple_

from langmem_tiers.common.namespaces import build_namespace_key, escape
from langmem_tiers.sessions.message_repository import (
    split_by_query_limit,
    split_duplicates,
    split_unconfirmed,
)
from langmem_tiers.sessions.message_sql import (
    ADVANCE_SESSION,
    INSERT_COLUMNS,
    INSERT_MESSAGE,
    from_message_row,
    to_message_row,
)
from langmem_tiers.sessions.models import SessionAppendResult
from langmem_tiers.sessions.repository import build_session_row, get_or_create_namespace
from langmem_tiers.sessions.session_version import SessionWrite, to_session_version
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConnectionLostError
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import MESSAGE_COLUMNS, POSITION_STEP, messages, namespaces, sessions
from langmem_tiers.storage.search import build_index_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.sessions.models import SessionBatch
    from langmem_tiers.storage.database import Database

# A session by the stored forms of its namespace and its name.
_SessionPath = tuple[str, str]
# A message by the key of its session and its id.
_SentMessage = tuple[int, str]
# Namespaces are locked before sessions, and both in the order of their keys. Transactions that lock in different
# orders would deadlock.
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
    """For caches; None if nothing was written, or if other processes may have written since."""


class BatchRepository:
    """Appends to the records of many sessions at once.

    Args:
        database: The database.
        index_text: Computes the index columns of a message, which are stored in its row.
        on_written: Called with everything that a transaction wrote, after the commit; for caches.
    """

    def __init__(
        self,
        database: Database,
        index_text: Callable[[Message], IndexText],
        on_written: Callable[[Sequence[SessionWrite]], object] | None = None,
    ) -> None:
        self._database = database
        self._index_text = index_text
        self._on_written = on_written
        # Messages of transactions whose reply was lost: the server may have committed them or not.
        self._unconfirmed: set[_SentMessage] = set()
        self._advance = DriverStatement(ADVANCE_SESSION, database.dialect)
        self._insert = DriverStatement(INSERT_MESSAGE.inline(), database.dialect, INSERT_COLUMNS)

    def append_all(
        self, batches: Sequence[SessionBatch], now: datetime, *, new_ids: bool = False
    ) -> tuple[SessionAppendResult, ...]:
        """Store all batches in one transaction, or nothing; each one in order, as ``MessageRepository.append`` does.

        Missing namespaces and sessions are created. Safe under concurrent calls, in any order of sessions.

        Args:
            batches: One batch per session.
            now: Current time.
            new_ids: True if all ids are assumed to be new, so that looking them up first can be skipped.

        Raises:
            MessageConflictError: An id belongs to a message with other content.
        """
        # Computed before the transaction, so that other writers do not have to wait for it.
        texts = {id(message): self._index_text(message) for batch in batches for message in batch.messages}
        attempt_batch = partial(self._attempt, batches, now, texts)
        # After a conflict an id exists already, or another process created the same session: repeat with a lookup.
        attempts = count()
        results = retry_on_conflict(
            lambda: self._database.run_with_retry(
                partial(attempt_batch, looks_up=next(attempts) > 0 or not new_ids)
            ),
            "the sessions are being created and deleted concurrently; try again later",
        )
        if self._on_written is not None:
            self._on_written([result.write for result in results if result.write is not None])
        return tuple(result.appended for result in results)

    def _attempt(
        self, batches: Sequence[SessionBatch], now: datetime, texts: dict[int, IndexText], *, looks_up: bool
    ) -> list[_BatchResult]:
        looks_up = looks_up or bool(self._unconfirmed)
        results: list[_BatchResult] = []
        try:
            with self._database.write() as connection:
                results = self._append(connection, batches, now, texts, looks_up=looks_up)
        except ConnectionLostError:
            # If the commit itself failed, `results` is set. If an earlier statement failed, it is empty and the
            # transaction is rolled back for certain.
            self._unconfirmed.update(_list_sent_messages(results))
            raise
        if self._unconfirmed:
            self._unconfirmed.difference_update(_list_sent_messages(results))
        return results

    def _append(
        self,
        connection: Connection,
        batches: Sequence[SessionBatch],
        now: datetime,
        texts: dict[int, IndexText],
        *,
        looks_up: bool,
    ) -> list[_BatchResult]:
        session_rows = _lock_or_create_sessions(connection, batches, now)
        known = _find_known_messages(connection, session_rows, batches) if looks_up else {}
        rows: list[dict[str, Any]] = []
        advances: list[dict[str, Any]] = []
        results = []
        for batch, session in zip(batches, session_rows, strict=True):
            new: list[Message] = list(batch.messages)
            duplicates: list[Message] = []
            if looks_up:
                new, duplicates = split_duplicates(new, known.setdefault(session.pk, {}))
            results.append(self._build_result(session, new, duplicates, now))
            if not new:
                continue
            tokens = sum(message.token_count for message in new)
            advances.append({"key": session.pk, "added": len(new), "tokens": tokens, "now": now})
            # The session's row is locked, so no other writer can take these positions.
            rows += (
                to_message_row(message, session.pk, session.last_position + number * POSITION_STEP)
                | build_index_columns(texts[id(message)], session.namespace_pk, self._database.is_sqlite)
                for number, message in enumerate(new, 1)
            )
        if rows:
            with self._send_together(connection) as raw:
                self._advance.run_many(raw, advances)
                self._insert.run_many(raw, rows)
        return results

    def _build_result(
        self, session: AnyRow, new: Sequence[Message], duplicates: Sequence[Message], now: datetime
    ) -> _BatchResult:
        # Messages of an attempt whose reply was lost look like duplicates, but this call stored them: report
        # them as stored.
        unconfirmed = {message.id for message in duplicates if (session.pk, message.id) in self._unconfirmed}
        recovered, other_batches = split_unconfirmed(unconfirmed, new, duplicates)
        revision = session.revision + bool(new)
        write = None
        # Caches may be extended only from the state right before the write. After a recovery that is unknown.
        if new and not recovered and self._on_written is not None:
            before = to_session_version(session)
            write = SessionWrite(session.pk, before, before.advance(revision, now), new)
        appended = SessionAppendResult(
            (*recovered, *new), other_batches, revision, session.pk, has_recovered_messages=bool(recovered)
        )
        return _BatchResult(appended, write)

    @contextmanager
    def _send_together(self, connection: Connection) -> Iterator[PoolProxiedConnection]:
        # On PostgreSQL, pipeline mode sends both statements without waiting for the first reply.
        raw: Any = connection.connection
        with nullcontext() if self._database.is_sqlite else raw.driver_connection.pipeline():
            yield raw


def _list_sent_messages(results: Sequence[_BatchResult]) -> Iterator[_SentMessage]:
    return ((result.appended.key, message.id) for result in results for message in result.appended.stored)


def _lock_or_create_sessions(
    connection: Connection, batches: Sequence[SessionBatch], now: datetime
) -> list[AnyRow]:
    paths = [(build_namespace_key(batch.namespace), escape(batch.session)) for batch in batches]
    found = _lock_sessions(connection, paths)
    # Sorted, so that concurrent transactions create rows in the same order and do not deadlock.
    missing = sorted({path for path in paths if path not in found})
    if missing:
        keys: dict[str, int] = {}
        for namespace, _ in missing:
            keys[namespace] = keys.get(namespace) or get_or_create_namespace(connection, namespace, now)
        rows = [build_session_row(keys[namespace], name, now) for namespace, name in missing]
        connection.execute(insert(sessions), rows)
        found |= _lock_sessions(connection, missing)
    return [found[path] for path in paths]


def _lock_sessions(connection: Connection, paths: Sequence[_SessionPath]) -> dict[_SessionPath, AnyRow]:
    found: dict[_SessionPath, AnyRow] = {}
    for chunk in split_by_query_limit(paths):
        rows = connection.execute(_LOCK_SESSIONS, {"places": chunk})
        found.update(((row.path, row.name), row) for row in rows)
    return found


def _find_known_messages(
    connection: Connection, session_rows: Sequence[AnyRow], batches: Sequence[SessionBatch]
) -> dict[int, dict[str, Message]]:
    # Stored messages with ids of the batches: by the key of the session, then by message id.
    views = {session.pk: (session.view_position, session.view_message) for session in session_rows}
    ids = [
        (session.pk, escape(message.id))
        for session, batch in zip(session_rows, batches, strict=True)
        for message in batch.messages
    ]
    known: dict[int, dict[str, Message]] = {}
    for chunk in split_by_query_limit(ids):
        where = tuple_(messages.c.session_pk, messages.c.id).in_(chunk)
        for row in connection.execute(select(*MESSAGE_COLUMNS).where(where)):
            message = from_message_row(row, views[row.session_pk])
            known.setdefault(row.session_pk, {})[message.id] = message
    return known
