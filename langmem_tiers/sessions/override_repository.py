"""Marks on messages on SQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select, update

from langmem_tiers.common.entries import EntryState, Mark, Shown, Tier
from langmem_tiers.common.messages import ToolCall
from langmem_tiers.common.namespaces import escape, namespace_key, unescape
from langmem_tiers.errors import LangmemTiersError, MessageNotFoundError, StorageCorruptError
from langmem_tiers.sessions.message_repository import is_hidden_still, no_session, put_summary
from langmem_tiers.sessions.message_rows import to_message
from langmem_tiers.sessions.message_sql import (
    IS_REMOVED,
    MARK_COLUMNS,
    MARKED_NEWER,
    MARKED_ONE,
    MARKED_VIEW,
)
from langmem_tiers.sessions.models import Promoted, View
from langmem_tiers.storage.column_types import pack_json, unpack_json
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.retry_read import repeatable
from langmem_tiers.storage.schema import RECORD, entries, messages, namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.sessions.models import RollUp
    from langmem_tiers.storage.database import Database

_KEYS_PER_QUERY = 500
_WITH_SESSION = select(*RECORD, *MARK_COLUMNS, sessions.c.name.label("session_name")).add_columns(
    sessions.c.view_position, sessions.c.view_message
)
_MARKED = _WITH_SESSION.select_from(
    entries.join(messages, messages.c.pk == entries.c.message_pk).join(
        sessions, sessions.c.pk == messages.c.session_pk
    )
)
_ANY = _WITH_SESSION.select_from(
    sessions.join(messages, messages.c.session_pk == sessions.c.pk).outerjoin(
        entries, entries.c.message_pk == messages.c.pk
    )
)


class SqlEntryStore:
    """Serves the ``EntryStore`` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._newer = DriverStatement(MARKED_NEWER, database.dialect)

    @repeatable
    def view(self, key: int, limit: int, *, held: View | None = None) -> View:
        """The view of a session with its marks."""
        if held is not None:
            with self._database.read_raw() as connection:
                rows = self._newer.named(connection, {"key": key, "limit": limit + 1, "newest": held.newest})
            if not rows:
                raise no_session()
            if rows[0].view_revision == held.revision and len(held.items) + len(rows) <= limit:
                return held if rows[0].pk is None else self._view(key, rows, held.items)
        return self._view(key, self._read(MARKED_VIEW, {"key": key, "limit": limit}))

    def _view(self, key: int, rows: list[AnyRow], before: tuple[Shown, ...] = ()) -> View:
        first, newest = rows[0], rows[-1].position
        return View(
            items=(*before, *self._shown(rows)),
            hidden=first.compressed_count,
            session=key,
            revision=first.view_revision,
            newest=0 if newest is None else newest,
        )

    def find(self, key: int, message_id: str) -> Shown | None:
        """One message of the record with its mark."""
        found = self._shown(self._read(MARKED_ONE, {"key": key, "id": escape(message_id)}))
        return found[0] if found else None

    @repeatable
    def _read(self, statement: Select[*tuple[Any, ...]], values: dict[str, Any]) -> list[AnyRow]:
        with self._database.read() as connection:
            rows = list(connection.execute(statement, values))
        if not rows:
            raise no_session()
        return rows

    def _shown(self, rows: list[AnyRow]) -> list[Shown]:
        return shown_of(rows, self._database.label)

    def apply(
        self,
        key: int,
        marks: Mapping[int, Mark | None],
        *,
        roll_up: RollUp | None,
        was_hidden: int,
        seen: Mapping[int, Mark | None] | None = None,
    ) -> bool:
        """Write all marks and the summary in one transaction."""
        with self._database.write() as connection:
            if not is_hidden_still(connection, key, was_hidden) or not _as_seen(connection, key, seen or {}):
                return False
            put_marks(connection, key, marks)
            if roll_up is not None:
                _put_digest(connection, key, roll_up)
            return True

    @repeatable
    def promoted(self, namespace: NamespacePath, *, before: int | None, limit: int) -> tuple[Promoted, ...]:
        """The long-term entries of a namespace, newest message first."""
        query = (
            _MARKED.join(namespaces, namespaces.c.pk == entries.c.namespace_pk)
            .where(namespaces.c.path == namespace_key(namespace), entries.c.tier == Tier.LONG_TERM.value)
            .where(~IS_REMOVED)
            .order_by(entries.c.message_pk.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(entries.c.message_pk < before)
        return self._with_sessions(query)

    @repeatable
    def anywhere(self, namespace: NamespacePath, message_id: str, *, limit: int) -> tuple[Promoted, ...]:
        """The messages of that id in any session of a namespace."""
        query = (
            _ANY.join(namespaces, namespaces.c.pk == sessions.c.namespace_pk)
            .where(namespaces.c.path == namespace_key(namespace), messages.c.id == escape(message_id))
            .limit(limit)
        )
        return self._with_sessions(query)

    def _with_sessions(self, query: Select[*tuple[Any, ...]]) -> tuple[Promoted, ...]:
        with self._database.read() as connection:
            rows = list(connection.execute(query))
        return tuple(
            Promoted(shown, unescape(row.session_name))
            for shown, row in zip(self._shown(rows), rows, strict=True)
        )


def shown_of(rows: list[AnyRow], label: str) -> list[Shown]:
    """The messages of rows with their marks, each once."""
    unique = {row.pk: row for row in rows if row.pk is not None}  # a summary may come twice
    try:
        return [
            Shown(row.pk, to_message(row, (row.view_position, row.view_message)), _mark(row))
            for row in unique.values()
        ]
    except LangmemTiersError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        raise StorageCorruptError(
            f"{label!r} holds an entry that was not written by us or is damaged: "
            "restore a backup, nothing was changed"
        ) from None


def put_marks(connection: Connection, key: int, marks: Mapping[int, Mark | None]) -> None:
    """Write marks of a session in a transaction of the caller's; None takes one away."""
    if not marks:
        return
    namespace_pk = connection.execute(
        update(sessions)
        .where(sessions.c.pk == key)
        .values(view_revision=sessions.c.view_revision + 1)
        .returning(sessions.c.namespace_pk)
    ).scalar_one()
    keys = list(marks)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        ours = select(func.count()).where(messages.c.session_pk == key, messages.c.pk.in_(some))
        if connection.execute(ours).scalar_one() != len(some):
            raise MessageNotFoundError(
                "a plan marks messages that are not of this session: apply it to the session it was made for"
            )
        connection.execute(delete(entries).where(entries.c.message_pk.in_(some)))
    rows = [_row(mark, message_pk, namespace_pk) for message_pk, mark in marks.items() if mark is not None]
    if rows:
        connection.execute(insert(entries), rows)


def _as_seen(connection: Connection, key: int, seen: Mapping[int, Mark | None]) -> bool:
    keys = list(seen)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        # A summary of what was erased meanwhile must not be kept.
        ours = select(func.count()).where(messages.c.session_pk == key, messages.c.pk.in_(some))
        if connection.execute(ours).scalar_one() != len(some):
            return False
        rows = connection.execute(select(*MARK_COLUMNS).where(entries.c.message_pk.in_(some)))
        there = {row.mark_message_pk: _mark(row) for row in rows}
        if any(there.get(key) != seen[key] for key in some):
            return False
    return True


def _put_digest(connection: Connection, key: int, roll_up: RollUp) -> None:
    # Beside the summary in force and only there: the one before it needs none any more.
    former = select(sessions.c.view_message).where(sessions.c.pk == key).scalar_subquery()
    connection.execute(delete(entries).where(entries.c.message_pk == former))
    summary_pk = put_summary(connection, key, roll_up)
    if roll_up.digest is not None:
        mark = Mark(digest=roll_up.digest, changed_at=roll_up.summary.created_at)
        put_marks(connection, key, {summary_pk: mark})


def _row(mark: Mark, message_pk: int, namespace_pk: int) -> dict[str, Any]:
    calls = mark.tool_calls
    body = {
        "content": mark.content,
        "token_counter": mark.token_counter,
        "reason": mark.reason,
        "tool_calls": None if calls is None else [[call.id, call.name, call.arguments] for call in calls],
        "is_kept": mark.is_kept,
        "digest": mark.digest,
    }
    return {
        "namespace_pk": namespace_pk,
        "message_pk": message_pk,
        "tier": mark.tier.value,
        "state": mark.state.value,
        "relevance": mark.relevance,
        "token_count": mark.token_count,
        "changed_at": mark.changed_at,
        "body": pack_json(json.dumps(body, ensure_ascii=False, separators=(",", ":"))),
    }


def _mark(row: AnyRow) -> Mark | None:
    if row.mark_pk is None:
        return None
    body = json.loads(unpack_json(row.mark_body))
    calls = body["tool_calls"]
    return Mark(
        tier=Tier(row.mark_tier),
        state=EntryState(row.mark_state),
        relevance=row.mark_relevance,
        content=body["content"],
        tool_calls=None if calls is None else tuple(ToolCall(*call) for call in calls),
        token_count=row.mark_token_count,
        token_counter=body["token_counter"],
        is_kept=body["is_kept"],
        digest=body["digest"],
        reason=body["reason"],
        changed_at=row.mark_changed_at,
    )
