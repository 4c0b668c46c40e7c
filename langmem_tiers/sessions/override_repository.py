"""SQL store for overrides: tier, state and compressed text of messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select, update

from langmem_tiers.common.entries import EntryOverride, EntryState, Tier, ViewItem
from langmem_tiers.common.messages import MessageToolCall
from langmem_tiers.common.namespaces import build_namespace_key, escape, unescape
from langmem_tiers.errors import LangmemTiersError, MessageNotFoundError, StorageCorruptError
from langmem_tiers.sessions.message_repository import (
    build_session_not_found_error,
    insert_summary,
    lock_and_check_hidden,
)
from langmem_tiers.sessions.message_sql import (
    IS_REMOVED,
    OVERRIDE_COLUMNS,
    SELECT_MESSAGE_WITH_OVERRIDE,
    SELECT_NEWER_WITH_OVERRIDES,
    SELECT_VIEW_WITH_OVERRIDES,
    from_message_row,
)
from langmem_tiers.sessions.models import LocatedItem, StoredView
from langmem_tiers.storage.column_types import pack_json, unpack_json
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.schema import MESSAGE_COLUMNS, entries, messages, namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.sessions.models import RollUp
    from langmem_tiers.storage.database import Database

_KEYS_PER_QUERY = 500
_SELECT_WITH_SESSION = select(
    *MESSAGE_COLUMNS, *OVERRIDE_COLUMNS, sessions.c.name.label("session_name")
).add_columns(sessions.c.view_position, sessions.c.view_message)
_SELECT_OVERRIDDEN = _SELECT_WITH_SESSION.select_from(
    entries.join(messages, messages.c.pk == entries.c.message_pk).join(
        sessions, sessions.c.pk == messages.c.session_pk
    )
)
_SELECT_ANY = _SELECT_WITH_SESSION.select_from(
    sessions.join(messages, messages.c.session_pk == sessions.c.pk).outerjoin(
        entries, entries.c.message_pk == messages.c.pk
    )
)


class OverrideRepository:
    """Overrides of messages as memories, stored beside the record, which does not change."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._newer = DriverStatement(SELECT_NEWER_WITH_OVERRIDES, database.dialect)

    @retry_on_disconnect
    def get_view(self, key: int, limit: int, *, known_view: StoredView | None = None) -> StoredView:
        """Return the session's view with overrides: the summary, and the newest ``limit`` messages after it.

        Args:
            key: Key of the session.
            limit: Maximum number of messages.
            known_view: Earlier view with the same limit. Only new messages are read and appended to it; if anything
                in it has changed, the whole view is read again.
        """
        if known_view is not None:
            with self._database.read_raw() as connection:
                rows = self._newer.fetch_named(
                    connection, {"key": key, "limit": limit + 1, "newest": known_view.newest_position}
                )
            if not rows:
                raise build_session_not_found_error()
            # The same view revision: no override and no summary was written, so only new messages are missing.
            if rows[0].view_revision == known_view.revision and len(known_view.items) + len(rows) <= limit:
                return known_view if rows[0].pk is None else self._build_view(key, rows, known_view.items)
        return self._build_view(
            key, self._select_rows(SELECT_VIEW_WITH_OVERRIDES, {"key": key, "limit": limit})
        )

    def _build_view(self, key: int, rows: list[AnyRow], before: tuple[ViewItem, ...] = ()) -> StoredView:
        first, newest = rows[0], rows[-1].position
        return StoredView(
            items=(*before, *self._to_items(rows)),
            hidden_count=first.compressed_count,
            session=key,
            revision=first.view_revision,
            newest_position=0 if newest is None else newest,
        )

    def get(self, key: int, message_id: str) -> ViewItem | None:
        """Return one message of the record with its override, or None."""
        found = self._to_items(
            self._select_rows(SELECT_MESSAGE_WITH_OVERRIDE, {"key": key, "id": escape(message_id)})
        )
        return found[0] if found else None

    @retry_on_disconnect
    def _select_rows(self, statement: Select[*tuple[Any, ...]], values: dict[str, Any]) -> list[AnyRow]:
        with self._database.read() as connection:
            rows = list(connection.execute(statement, values))
        if not rows:
            raise build_session_not_found_error()
        return rows

    def _to_items(self, rows: list[AnyRow]) -> list[ViewItem]:
        return to_view_items(rows, self._database.label)

    def apply(
        self,
        key: int,
        marks: Mapping[int, EntryOverride | None],
        *,
        roll_up: RollUp | None,
        was_hidden: int,
        seen: Mapping[int, EntryOverride | None] | None = None,
    ) -> bool:
        """Write all overrides and the summary in one transaction.

        Args:
            key: Key of the session.
            marks: Overrides by message key; None removes an override.
            roll_up: New summary, if any.
            was_hidden: Number of hidden messages when the caller read the session.
            seen: Overrides that the caller read for the same messages. Default: not compared.

        Returns:
            False, with nothing written, if the session was compressed or one of the messages got another
            override concurrently.

        Raises:
            MessageNotFoundError: A key is not of a message of this session; nothing was written.
        """
        with self._database.write() as connection:
            # Lock the session, then compare: nobody can change it between the comparison and the writes.
            if not lock_and_check_hidden(connection, key, was_hidden) or not _are_overrides_unchanged(
                connection, key, seen or {}
            ):
                return False
            replace_overrides(connection, key, marks)
            if roll_up is not None:
                _replace_summary(connection, key, roll_up)
            return True

    @retry_on_disconnect
    def list_promoted(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[LocatedItem, ...]:
        """Return a namespace's long-term entries, newest message first, before the message key ``before``."""
        query = (
            _SELECT_OVERRIDDEN.join(namespaces, namespaces.c.pk == entries.c.namespace_pk)
            .where(
                namespaces.c.path == build_namespace_key(namespace), entries.c.tier == Tier.LONG_TERM.value
            )
            .where(~IS_REMOVED)
            .order_by(entries.c.message_pk.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(entries.c.message_pk < before)
        return self._select_located_items(query)

    @retry_on_disconnect
    def list_by_message_id(
        self, namespace: NamespacePath, message_id: str, *, limit: int
    ) -> tuple[LocatedItem, ...]:
        """Return messages with this id in any session of a namespace. Costs one look-up per session."""
        query = (
            _SELECT_ANY.join(namespaces, namespaces.c.pk == sessions.c.namespace_pk)
            .where(namespaces.c.path == build_namespace_key(namespace), messages.c.id == escape(message_id))
            .limit(limit)
        )
        return self._select_located_items(query)

    def _select_located_items(self, query: Select[*tuple[Any, ...]]) -> tuple[LocatedItem, ...]:
        with self._database.read() as connection:
            rows = list(connection.execute(query))
        return tuple(
            LocatedItem(item, unescape(row.session_name))
            for item, row in zip(self._to_items(rows), rows, strict=True)
        )


def to_view_items(rows: list[AnyRow], label: str) -> list[ViewItem]:
    """Convert rows to messages with their overrides, without repetitions.

    Args:
        rows: The rows.
        label: Name of the database for the error.

    Raises:
        StorageCorruptError: A row is damaged.
    """
    # The view contains the summary twice if it is among the newest messages too.
    unique = {row.pk: row for row in rows if row.pk is not None}
    try:
        return [
            ViewItem(
                row.pk, from_message_row(row, (row.view_position, row.view_message)), _from_override_row(row)
            )
            for row in unique.values()
        ]
    except LangmemTiersError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        raise StorageCorruptError(
            f"{label!r} contains an entry that is damaged or was written by another program: "
            "restore a backup; nothing was changed"
        ) from None


def replace_overrides(connection: Connection, key: int, marks: Mapping[int, EntryOverride | None]) -> None:
    """Write overrides of a session in the caller's transaction; None removes an override."""
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
        chunk = keys[start : start + _KEYS_PER_QUERY]
        own_count = select(func.count()).where(messages.c.session_pk == key, messages.c.pk.in_(chunk))
        if connection.execute(own_count).scalar_one() != len(chunk):
            raise MessageNotFoundError(
                "the plan contains messages of another session: apply it to the session it was made for"
            )
        connection.execute(delete(entries).where(entries.c.message_pk.in_(chunk)))
    rows = [
        _to_override_row(mark, message_pk, namespace_pk)
        for message_pk, mark in marks.items()
        if mark is not None
    ]
    if rows:
        connection.execute(insert(entries), rows)


def _are_overrides_unchanged(
    connection: Connection, key: int, seen: Mapping[int, EntryOverride | None]
) -> bool:
    keys = list(seen)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        chunk = keys[start : start + _KEYS_PER_QUERY]
        # All messages must still exist: a summary of messages that were erased meanwhile must not be stored.
        own_count = select(func.count()).where(messages.c.session_pk == key, messages.c.pk.in_(chunk))
        if connection.execute(own_count).scalar_one() != len(chunk):
            return False
        rows = connection.execute(select(*OVERRIDE_COLUMNS).where(entries.c.message_pk.in_(chunk)))
        current = {row.mark_message_pk: _from_override_row(row) for row in rows}
        if any(current.get(message_pk) != seen[message_pk] for message_pk in chunk):
            return False
    return True


def _replace_summary(connection: Connection, key: int, roll_up: RollUp) -> None:
    # Only the active summary has a digest, so delete the override of the former summary.
    former = select(sessions.c.view_message).where(sessions.c.pk == key).scalar_subquery()
    connection.execute(delete(entries).where(entries.c.message_pk == former))
    summary_pk = insert_summary(connection, key, roll_up)
    if roll_up.digest is not None:
        mark = EntryOverride(digest=roll_up.digest, changed_at=roll_up.summary.created_at)
        replace_overrides(connection, key, {summary_pk: mark})


def _to_override_row(mark: EntryOverride, message_pk: int, namespace_pk: int) -> dict[str, Any]:
    calls = mark.tool_calls
    body = {
        "content": mark.content,
        "token_counter": mark.token_counter,
        "reason": mark.reason,
        "tool_calls": None if calls is None else [[call.id, call.name, call.arguments] for call in calls],
        "is_kept": mark.is_pinned,
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


def _from_override_row(row: AnyRow) -> EntryOverride | None:
    if row.mark_pk is None:
        return None
    body = json.loads(unpack_json(row.mark_body))
    calls = body["tool_calls"]
    return EntryOverride(
        tier=Tier(row.mark_tier),
        state=EntryState(row.mark_state),
        relevance=row.mark_relevance,
        content=body["content"],
        tool_calls=None if calls is None else tuple(MessageToolCall(*call) for call in calls),
        token_count=row.mark_token_count,
        token_counter=body["token_counter"],
        is_pinned=body["is_kept"],
        digest=body["digest"],
        reason=body["reason"],
        changed_at=row.mark_changed_at,
    )
