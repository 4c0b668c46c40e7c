"""What an erasure touches, and who is old enough for one, on SQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import exists, func, or_, select, type_coerce

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import ToolCall
from langmem_tiers.common.namespaces import build_namespace_key, escape, parse_namespace_key, unescape
from langmem_tiers.erasure.deletion import delete_namespace_rows, delete_planned, read_change_stamp
from langmem_tiers.erasure.records import ErasureImpact, MessageRef, SessionRef, SessionViewState
from langmem_tiers.erasure.sources import SourceFinder, build_message_sources
from langmem_tiers.items.repository import delete_session_items, split_parameters
from langmem_tiers.sessions.message_rows import from_message_row
from langmem_tiers.sessions.message_sql import IS_IN_LIST
from langmem_tiers.sessions.repository import delete_sessions, is_user_namespace
from langmem_tiers.storage.column_types import unpack_json
from langmem_tiers.storage.driver_errors import ConcurrentWriteError, detect_damaged_rows
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import (
    MESSAGE_COLUMNS,
    POSITION_STEP,
    entries,
    item_namespaces,
    messages,
    namespaces,
    origins,
    pool_members,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedCounts
    from langmem_tiers.erasure.records import ErasurePlan
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_NAMESPACE_PATH_COLUMNS = (
    namespaces.c.path,
    item_namespaces.c.path,
    pool_members.c.namespace,
    origins.c.namespace,
)
_IS_SUMMARY = messages.c.position % POSITION_STEP == 1
_IS_PROMOTED = exists().where(entries.c.message_pk == messages.c.pk, entries.c.tier == Tier.LONG_TERM.value)
_LOOKAHEAD_TURNS = 200  # turns behind an erased one that are looked at for the second next


class SessionCopies(Protocol):
    """Who keeps copies of sessions elsewhere: told of an erasure before it is final, so that none outlives it."""

    def invalidate_sessions(self, sessions: Sequence[int]) -> bool:
        """Sessions are gone, by their keys."""
        ...

    def invalidate_before_revision(self, session: int, revision: int) -> bool:
        """What a session held before a revision is gone."""
        ...


class SqlErasureStore:
    """Serves the ``ErasureStore`` port.

    Args:
        database: Where.
        copies: Who keeps copies of its sessions.
    """

    def __init__(self, database: Database, copies: SessionCopies | None = None) -> None:
        self._copies = copies
        self._database = database

    @retry_on_disconnect
    def find_user_namespaces(self, user: str) -> tuple[NamespacePath, ...]:
        """Every namespace with that label, also of items, and of those who only share something in pools."""
        wanted = f"/{build_namespace_key((user,))}/"
        found = set[str]()
        with self._database.read() as connection:
            for path in _NAMESPACE_PATH_COLUMNS:
                query = (
                    select(path)
                    .distinct()
                    .where(is_user_namespace(path), self._build_label_filter(path, wanted))
                )
                found.update(connection.execute(query).scalars())
        return tuple(parse_namespace_key(path) for path in sorted(found))

    def _build_label_filter(self, path: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
        around = "/" + path + "/"  # by whole labels, and byte by byte: a pattern would know no case
        place = func.instr if self._database.is_sqlite else func.strpos
        return place(type_coerce(around, path.type), wanted) > 0

    @retry_on_disconnect
    def find_sessions(self, namespace: NamespacePath, starts: Sequence[str]) -> tuple[SessionRef, ...]:
        """The sessions whose names begin with one of these."""
        stored = [escape(start) for start in starts]
        begins = [func.substr(sessions.c.name, 1, len(start)) == start for start in stored]
        query = (
            select(sessions.c.pk, sessions.c.name)
            .join(namespaces)
            .where(namespaces.c.path == build_namespace_key(namespace), or_(*begins))
            .order_by(sessions.c.pk)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(SessionRef(row.pk, namespace, unescape(row.name)) for row in rows)

    def delete_namespace(self, namespace: NamespacePath) -> ErasedCounts:
        """Erase exactly this namespace with all that it holds."""
        with self._database.write() as connection:
            path = namespaces.c.path == build_namespace_key(namespace)
            connection.execute(select(namespaces.c.pk).where(path).with_for_update())  # no session comes now
            own = select(sessions.c.pk).join(namespaces).where(path)
            keys = list(connection.execute(own).scalars()) if self._copies is not None else []
            counts = delete_namespace_rows(connection, namespace)
            self._invalidate_copies(keys)
            return counts

    @retry_on_disconnect
    def find_messages(
        self, session: SessionRef, ids: Sequence[str] | None, older_than: datetime | None = None
    ) -> tuple[MessageRef, ...]:
        """Messages of a session by their place, and all that have to do with tools."""
        is_old = messages.c.created_at < older_than if older_than is not None else messages.c.pk < 0
        query = select(
            messages.c.pk,
            messages.c.id,
            messages.c.position,
            messages.c.extra,
            is_old.label("is_old"),
            _IS_PROMOTED.label("is_promoted"),
        ).where(messages.c.session_pk == session.key)
        found: dict[int, AnyRow] = {}
        with self._database.read() as connection:
            wanted: list[ColumnElement[bool]]
            if ids is None:
                wanted = [is_old & ~_IS_SUMMARY]
            else:
                wanted = [messages.c.id.in_(some) for some in split_parameters([escape(one) for one in ids])]
            for one in (*wanted, messages.c.extra.is_not(None)):
                found.update((row.pk, row) for row in connection.execute(query.where(one)))
        rows = sorted(found.values(), key=lambda row: (row.position, row.pk))
        with detect_damaged_rows(self._database.label):
            return tuple(map(_to_message_ref, rows))

    @retry_on_disconnect
    def find_session_impact(
        self, namespace: NamespacePath, sessions: Sequence[SessionRef], names: Sequence[str]
    ) -> ErasureImpact:
        """What comes from sessions that are erased whole."""
        with detect_damaged_rows(self._database.label), self._database.read() as connection:
            stamp = read_change_stamp(connection, namespace, None)
            sources = SourceFinder(connection, namespace, stamp[0])
            facts = sources.find_facts([one.key for one in sessions])
            found = sources.find_entries(names, None, facts)
            said = [form for name in names for form in (name, f"session {name}", f"context file {name}")]
            said += sources.find_message_sources([one.key for one in sessions])
            return ErasureImpact(
                namespace=namespace,
                stamp=stamp,
                sessions=tuple(sessions),
                knowledge=sources.find_knowledge(said),
                past_knowledge=sources.find_past_knowledge(said),
                procedures=sources.find_procedures(_build_session_filters(sessions)),
                sources=tuple(said),
                **found,
            )

    @retry_on_disconnect
    def find_message_impact(
        self, session: SessionRef, messages: Sequence[MessageRef], *, lasting: bool
    ) -> ErasureImpact | None:
        """What comes from some messages of a session."""
        ids = frozenset(one.id for one in messages)
        with detect_damaged_rows(self._database.label), self._database.read() as connection:
            stamp = read_change_stamp(connection, session.namespace, session.key)
            state = _load_view_state(connection, session)
            if state is None:
                return None
            sources = SourceFinder(connection, session.namespace, stamp[0])
            facts = [one for one in sources.find_facts([session.key]) if sources.is_from_messages(one, ids)]
            found: dict[str, Any] = {"facts": tuple(facts)}
            if lasting:
                found = sources.find_entries([session.name], ids, facts)
                said = [form for one in sorted(ids) for form in build_message_sources(one)]
                found |= {"knowledge": sources.find_knowledge(said), "sources": tuple(said)}
                found |= {"past_knowledge": sources.find_past_knowledge(said)}
                found |= {"procedures": sources.find_procedures(_build_message_filters(messages))}
            return ErasureImpact(
                namespace=session.namespace,
                stamp=stamp,
                state=state,
                messages=tuple(messages),
                following_turns=_find_following_turns(connection, session.key, messages),
                chunks_and_episodes=sources.find_chunks_and_episodes(
                    session.key, min(one.number for one in messages)
                ),
                **found,
            )

    @retry_on_disconnect
    def find_entry_impact(self, namespace: NamespacePath, entry_id: str) -> ErasureImpact:
        """What an entry takes along."""
        with self._database.read() as connection:
            stamp = read_change_stamp(connection, namespace, None)
            sources = SourceFinder(connection, namespace, stamp[0])
            return ErasureImpact(namespace=namespace, stamp=stamp, **sources.find_by_entry(entry_id))

    @retry_on_disconnect
    def list_summarized_messages(self, state: SessionViewState, limit: int) -> tuple[Message, ...]:
        """The newest of the messages behind the summary in force, oldest first."""
        query = (
            select(*MESSAGE_COLUMNS)
            .where(messages.c.session_pk == state.session.key, ~_IS_SUMMARY, IS_IN_LIST)
            .where(messages.c.position < state.view_number * POSITION_STEP)
            .order_by(messages.c.position.desc(), messages.c.pk.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(from_message_row(row, (0, 0)) for row in reversed(rows))

    def delete(self, removal: ErasurePlan) -> ErasedCounts | None:
        """Take it away in one transaction."""
        try:
            with self._database.write() as connection:
                counts = delete_planned(connection, removal)
                self._invalidate_copies([one.key for one in removal.sessions])
                if removal.state is not None:
                    self._invalidate_changed_copies(connection, removal.state.session.key)
                return counts
        except ConcurrentWriteError:
            return None

    @retry_on_disconnect
    def list_old_sessions(self, older_than: datetime, *, after: int, limit: int) -> tuple[SessionRef, ...]:
        """Sessions that hold messages from before then, and empty ones not changed since."""
        is_old = (messages.c.session_pk == sessions.c.pk, messages.c.created_at < older_than, ~_IS_SUMMARY)
        is_empty = (sessions.c.message_count == 0) & (sessions.c.updated_at < older_than)
        query = (
            select(sessions.c.pk, sessions.c.name, namespaces.c.path)
            .join(namespaces)
            .where(sessions.c.pk > after, or_(is_empty, exists().where(*is_old, ~_IS_PROMOTED)))
            .order_by(sessions.c.pk)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(SessionRef(row.pk, parse_namespace_key(row.path), unescape(row.name)) for row in rows)

    def delete_if_empty(self, session: SessionRef, older_than: datetime) -> bool:
        """Erase the session if it holds no message and was not changed since."""
        own = select(sessions.c.message_count, sessions.c.updated_at).where(sessions.c.pk == session.key)
        path = namespaces.c.path == build_namespace_key(session.namespace)
        with self._database.write() as connection:
            connection.execute(select(namespaces.c.pk).where(path).with_for_update())
            row = connection.execute(own.with_for_update()).first()
            if row is None or row.message_count or row.updated_at >= older_than:
                return False
            is_gone = delete_sessions(connection, [session.key]).sessions > 0
            delete_session_items(connection, session.namespace, [session.name])
            self._invalidate_copies([session.key])
            return is_gone

    def _invalidate_copies(self, keys: Sequence[int]) -> None:
        if self._copies is not None and keys:
            self._copies.invalidate_sessions(keys)

    def _invalidate_changed_copies(self, connection: Connection, key: int) -> None:
        if self._copies is not None:
            revision = connection.execute(select(sessions.c.revision).where(sessions.c.pk == key)).scalar()
            if revision is not None:
                self._copies.invalidate_before_revision(key, revision)


def _build_session_filters(which: Sequence[SessionRef]) -> list[ColumnElement[bool]]:
    return [messages.c.session_pk.in_(some) for some in split_parameters([one.key for one in which])]


def _build_message_filters(which: Sequence[MessageRef]) -> list[ColumnElement[bool]]:
    return [messages.c.pk.in_(some) for some in split_parameters([one.key for one in which])]


def _to_message_ref(row: AnyRow) -> MessageRef:
    extra: dict[str, Any] = {} if row.extra is None else json.loads(unpack_json(row.extra))
    is_summary = row.position % POSITION_STEP == 1
    return MessageRef(
        key=row.pk,
        id=unescape(row.id),
        number=(row.position + is_summary) // POSITION_STEP,
        is_summary=is_summary,
        is_old=bool(row.is_old),
        is_promoted=bool(row.is_promoted),
        tool_calls=tuple(ToolCall(*call) for call in extra.get("tool_calls", ())),
        tool_call_id=extra.get("tool_call_id"),
    )


def _load_view_state(connection: Connection, session: SessionRef) -> SessionViewState | None:
    row = connection.execute(
        select(sessions.c.view_position, sessions.c.view_message).where(sessions.c.pk == session.key)
    ).first()
    if row is None:
        return None
    return SessionViewState(
        session=session, view_number=(row.view_position + 1) // POSITION_STEP, view_key=row.view_message
    )


def _find_following_turns(connection: Connection, key: int, erased: Sequence[MessageRef]) -> dict[int, int]:
    numbers = sorted({one.number for one in erased if not one.is_summary})
    if not numbers:
        return {}
    until = (numbers[-1] + _LOOKAHEAD_TURNS) * POSITION_STEP
    query = (
        select(messages.c.position)
        .where(messages.c.session_pk == key, ~_IS_SUMMARY)
        .where(messages.c.position >= numbers[0] * POSITION_STEP, messages.c.position <= until)
        .order_by(messages.c.position)
    )
    there = [position // POSITION_STEP for position in connection.execute(query).scalars()]
    index = {number: place for place, number in enumerate(there)}
    return {
        one: there[index[one] + 2] if index[one] + 2 < len(there) else until // POSITION_STEP
        for one in numbers
        if one in index
    }
