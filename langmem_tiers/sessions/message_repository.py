"""SQL store for the append-only message record of each session."""

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
from langmem_tiers.sessions.message_sql import (
    ADVANCE_RETURNING,
    ADVANCE_RETURNING_PREVIOUS,
    APPEND_MESSAGE,
    INSERT_COLUMNS,
    INSERT_MESSAGE,
    SELECT_FIRST_PAGE,
    SELECT_LATEST,
    SELECT_MESSAGE,
    SELECT_NEXT_PAGE,
    SELECT_PREVIOUS_PAGE,
    SELECT_SESSION,
    SELECT_VIEW,
    from_message_row,
    to_message_row,
)
from langmem_tiers.sessions.models import AppendResult, RollUp, VersionedMessages
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError, ConnectionLostError, detect_damaged_rows
from langmem_tiers.storage.schema import MESSAGE_COLUMNS, POSITION_STEP, messages, sessions
from langmem_tiers.storage.search import build_index_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Select
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

_T = TypeVar("_T")
_MAX_CACHED_SESSIONS = 10_000
# Well below the parameter limit of every database.
_IDS_PER_QUERY = 500


class MessageRepository:
    """Append-only record of each session in SQL.

    Args:
        database: The database.
        index_text: Computes the index columns of a message, which are stored in its row.
    """

    def __init__(self, database: Database, index_text: Callable[[Message], IndexText]) -> None:
        self._database = database
        self._index_text = index_text
        self._advance = DriverStatement(
            ADVANCE_RETURNING if database.is_sqlite else ADVANCE_RETURNING_PREVIOUS, database.dialect
        )
        self._insert = DriverStatement(INSERT_MESSAGE.inline(), database.dialect, INSERT_COLUMNS)
        self._append_one = None if database.is_sqlite else DriverStatement(APPEND_MESSAGE, database.dialect)
        # Safe to cache: a session never moves to another namespace.
        self._namespace_by_session: dict[int, int] = {}

    def append(
        self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False
    ) -> AppendResult:
        """Store the batch completely or not at all, exactly once even if the connection is lost meanwhile."""
        # Ids of messages sent to the server, which may have stored them although the reply was lost.
        sent: set[str] = set()
        if new_ids and batch:
            # Skip the lookup. If an id exists after all, or the connection is lost, continue with the lookup.
            with suppress(ConcurrentWriteError, ConnectionLostError):
                revision, previous_write_at = self._append_new(key, batch, now, sent)
                return AppendResult(tuple(batch), (), revision, previous_write_at=previous_write_at)
        return self._database.run_with_retry(lambda: self._append_with_lookup(key, batch, now, sent))

    def _append_new(
        self, key: int, batch: Sequence[Message], now: datetime, sent: set[str]
    ) -> tuple[int, datetime | None]:
        # Fast path on PostgreSQL for a single message: one statement, and so one round trip.
        namespace = self._namespace_by_session.get(key)
        if self._append_one is None or namespace is None or len(batch) > 1:
            with self._database.write_raw() as raw:
                inserted = self._insert_messages(raw, key, batch, now)
                sent.update(message.id for message in batch)
                return inserted
        (message,) = batch
        advance = {"key": key, "added": 1, "tokens": message.token_count, "now": now}
        columns = build_index_columns(self._index_text(message), namespace, is_sqlite=False)
        with self._database.write_statement() as raw:
            # The statement commits by itself, so it counts as sent before it runs.
            sent.add(message.id)
            # The position 0 is a placeholder: the statement computes it.
            row = self._append_one.run(raw, advance | to_message_row(message, key, 0) | columns)
        if row is None:
            raise build_session_not_found_error()
        return int(row[0]), row[1]

    def _append_with_lookup(
        self, key: int, batch: Sequence[Message], now: datetime, sent: set[str]
    ) -> AppendResult:
        """Store the messages whose ids are new.

        Args:
            key: Key of the session.
            batch: The messages.
            now: Time of the write.
            sent: Ids sent by earlier attempts whose reply was lost: the server may have stored them.
        """
        with self._database.write() as connection:
            session = connection.execute(SELECT_SESSION.with_for_update(), {"key": key}).first()
            if session is None:
                raise build_session_not_found_error()
            known = _find_known_messages(connection, key, session, batch)
            new, duplicates = split_duplicates(batch, known)
            revision = self.append_in_transaction(connection, key, new, now) if new else session.revision
            # Messages stored by an earlier attempt of this call look like duplicates: report them as stored.
            recovered, confirmed = split_unconfirmed(sent, new, duplicates)
            sent.update(message.id for message in new)
            return AppendResult(
                (*recovered, *new), confirmed, revision, has_recovered_messages=bool(recovered)
            )

    def append_in_transaction(
        self, connection: Connection, key: int, batch: Sequence[Message], now: datetime
    ) -> int:
        """Store the batch in the caller's transaction; return the session's revision after it."""
        return self._insert_messages(connection.connection, key, batch, now)[0]

    def _insert_messages(
        self, raw: PoolProxiedConnection, key: int, batch: Sequence[Message], now: datetime
    ) -> tuple[int, datetime | None]:
        tokens = sum(message.token_count for message in batch)
        row = self._advance.run(raw, {"key": key, "added": len(batch), "tokens": tokens, "now": now})
        if row is None:
            raise build_session_not_found_error()
        last_position, revision, namespace_pk, *previous_write_at = row
        if len(self._namespace_by_session) >= _MAX_CACHED_SESSIONS:
            self._namespace_by_session.clear()
        self._namespace_by_session[key] = namespace_pk
        # The session was advanced by the whole batch, so its last position is that of the last message.
        first = last_position - (len(batch) - 1) * POSITION_STEP
        rows = [
            to_message_row(message, key, first + index * POSITION_STEP)
            | build_index_columns(self._index_text(message), namespace_pk, self._database.is_sqlite)
            for index, message in enumerate(batch)
        ]
        if len(rows) == 1:
            self._insert.run(raw, rows[0])
        else:
            self._insert.run_many(raw, rows)
        return int(revision), previous_write_at[0] if previous_write_at else None

    def list_latest(self, key: int, limit: int) -> VersionedMessages:
        """Return the newest ``limit`` messages of the record, oldest first."""
        return self.query(SELECT_LATEST, {"key": key, "limit": limit})

    def list_after(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Return messages following the message ``after``, oldest first."""
        if after is None:
            return self.query(SELECT_FIRST_PAGE, {"key": key, "limit": limit}).messages
        found = self.query(SELECT_NEXT_PAGE, {"key": key, "limit": limit, "after": escape(after)}).messages
        # Either there are no further messages, or the cursor does not exist.
        if not found and self.get(key, after) is None:
            raise _build_message_not_found_error(after)
        return found

    def list_before(self, key: int, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """Return the newest messages preceding the message ``before``, oldest first."""
        if before is None:
            return self.query(SELECT_LATEST, {"key": key, "limit": limit}).messages
        found = self.query(
            SELECT_PREVIOUS_PAGE, {"key": key, "limit": limit, "after": escape(before)}
        ).messages
        if not found and self.get(key, before) is None:
            raise _build_message_not_found_error(before)
        return found

    def list_visible(self, key: int, limit: int) -> tuple[Message, ...]:
        """Return the active summary and the newest ``limit`` visible messages, oldest first."""
        return self.query(SELECT_VIEW, {"key": key, "limit": limit}).messages

    def get(self, key: int, message_id: str) -> Message | None:
        """Return one message, or None if the session does not have it."""
        found = self.query(SELECT_MESSAGE, {"key": key, "id": escape(message_id)}).messages
        return found[0] if found else None

    @retry_on_disconnect
    def find_known_ids(self, key: int, ids: Sequence[str]) -> set[str]:
        """Return the subset of the ids that the record contains."""
        known: set[str] = set()
        with self._database.read() as connection:
            for chunk in split_by_query_limit([escape(message_id) for message_id in ids]):
                query = select(messages.c.id).where(messages.c.session_pk == key, messages.c.id.in_(chunk))
                known.update(unescape(stored) for stored in connection.execute(query).scalars())
        return known

    @retry_on_disconnect
    def query(self, statement: Select[*tuple[Any, ...]], values: dict[str, Any]) -> VersionedMessages:
        """Run a statement, and return its messages with the session's revision."""
        with detect_damaged_rows(self._database.label):
            with self._database.read() as connection:
                rows = connection.execute(statement, values).all()
            return _to_versioned_messages(rows)

    def query_in_transaction(
        self, connection: Connection, statement: Select[*tuple[Any, ...]], values: dict[str, Any]
    ) -> VersionedMessages:
        """Run a statement in the caller's transaction, and return its messages with the session's revision."""
        with detect_damaged_rows(self._database.label):
            return _to_versioned_messages(connection.execute(statement, values).all())

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Replace everything before the message ``before`` with ``summary``.

        Args:
            key: Key of the session.
            summary: The summary.
            before: Id of the first message that stays visible.
            hidden: Number of visible messages that the summary replaces.
            was_hidden: Number of hidden messages that the caller has seen.

        Returns:
            False, with nothing changed, if the session was compressed since the caller read it.
        """
        roll_up = RollUp(summary=summary, first_visible_id=before, hidden_count=hidden)
        with self._database.write() as connection:
            if not lock_and_check_hidden(connection, key, was_hidden):
                return False
            insert_summary(connection, key, roll_up)
            return True


def _to_versioned_messages(rows: Sequence[AnyRow]) -> VersionedMessages:
    if not rows:
        raise build_session_not_found_error()
    view = (rows[0].view_position, rows[0].view_message)
    # The view contains the summary twice if it is among the newest messages too. A session without messages gives
    # one row without a message.
    unique = {row.pk: row for row in rows if row.pk is not None}
    return VersionedMessages(tuple(from_message_row(row, view) for row in unique.values()), rows[0].revision)


def lock_and_check_hidden(connection: Connection, key: int, was_hidden: int) -> bool:
    """Lock the session's row; return True if it was not compressed since the caller read it."""
    session = connection.execute(
        select(sessions.c.compressed_count).where(sessions.c.pk == key).with_for_update()
    ).first()
    if session is None:
        raise build_session_not_found_error()
    return bool(session.compressed_count == was_hidden)


def insert_summary(connection: Connection, key: int, roll_up: RollUp) -> int:
    """Insert a summary before the first message that stays visible, and start the view there.

    Returns:
        The key of the summary.
    """
    first_shown = connection.execute(
        select(messages.c.position).where(
            messages.c.session_pk == key, messages.c.id == escape(roll_up.first_visible_id)
        )
    ).scalar()
    if first_shown is None:
        raise _build_message_not_found_error(roll_up.first_visible_id)
    # Positions of messages are multiples of POSITION_STEP. The free position right before one belongs to its summary.
    position, summary = first_shown - 1, roll_up.summary
    row = connection.execute(
        INSERT_MESSAGE.returning(messages.c.pk), to_message_row(summary, key, position)
    ).one()
    connection.execute(
        update(sessions)
        .where(sessions.c.pk == key)
        .values(
            view_position=position,
            view_message=row.pk,
            compressed_count=sessions.c.compressed_count + roll_up.hidden_count,
            message_count=sessions.c.message_count + 1,
            token_count=sessions.c.token_count + summary.token_count,
            revision=sessions.c.revision + 1,
            view_revision=sessions.c.view_revision + 1,
            updated_at=summary.created_at,
        )
    )
    return int(row.pk)


def _find_known_messages(
    connection: Connection, key: int, session: AnyRow, batch: Iterable[Message]
) -> dict[str, Message]:
    view = (session.view_position, session.view_message)
    known: dict[str, Message] = {}
    for ids in split_by_query_limit([escape(message.id) for message in batch]):
        rows = connection.execute(
            select(*MESSAGE_COLUMNS).where(messages.c.session_pk == key, messages.c.id.in_(ids))
        )
        known.update((message.id, message) for message in (from_message_row(row, view) for row in rows))
    return known


def split_duplicates(
    batch: Iterable[Message], known: dict[str, Message]
) -> tuple[list[Message], list[Message]]:
    """Split a batch into new messages and duplicates of stored ones.

    Args:
        batch: The messages.
        known: Stored messages by id; new messages are added.

    Raises:
        MessageConflictError: An id belongs to a message with other content.
    """
    new, duplicates = [], []
    for message in batch:
        stored = known.get(message.id)
        if stored is None:
            known[message.id] = message
            new.append(message)
        elif stored.has_same_content(message):
            duplicates.append(stored)
        else:
            raise MessageConflictError(
                f"the session has another message with the id {message.id!r}, of {stored.created_at.isoformat()}: "
                "use a different id for the new message; nothing was stored"
            )
    return new, duplicates


def split_unconfirmed(
    sent: set[str], new: Iterable[Message], duplicates: Iterable[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split duplicates into messages stored by an earlier attempt of the same call, and real duplicates.

    Args:
        sent: Ids sent by attempts whose reply was lost.
        new: Messages that turned out not to be stored.
        duplicates: Messages that are stored.

    Returns:
        The recovered messages, each once, and the other duplicates.
    """
    sent = sent.difference(message.id for message in new)
    recovered: dict[str, Message] = {}
    confirmed = []
    for message in duplicates:
        # A batch may contain an id twice: the second one is a duplicate in any case.
        if message.id in sent and message.id not in recovered:
            recovered[message.id] = message
        else:
            confirmed.append(message)
    return tuple(recovered.values()), tuple(confirmed)


def _build_message_not_found_error(message_id: str) -> MessageNotFoundError:
    return MessageNotFoundError(
        f"the session has no message {message_id!r}: use an id returned by page() or add()"
    )


def build_session_not_found_error() -> SessionNotFoundError:
    """Build the error for a session whose row no longer exists."""
    return SessionNotFoundError("the session was deleted: open a new one with engine.session(...)")


def split_by_query_limit(ids: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Split ids into lists small enough for the parameters of one statement."""
    for start in range(0, len(ids), _IDS_PER_QUERY):
        yield ids[start : start + _IDS_PER_QUERY]
