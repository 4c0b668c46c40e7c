"""What an erasure touches, and who is old enough for one, on SQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import exists, func, or_, select, type_coerce

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import ToolCall
from langmem_tiers.common.namespaces import escape, namespace_from_key, namespace_key, unescape
from langmem_tiers.erasure.deletion import erase_namespace, remove_all, stamp_of
from langmem_tiers.erasure.records import Place, SessionName, SessionState, Touched
from langmem_tiers.erasure.sources import Sources, forms_of
from langmem_tiers.items.repository import delete_beside, parts_of
from langmem_tiers.sessions.message_rows import to_message
from langmem_tiers.sessions.message_sql import IS_IN_LIST
from langmem_tiers.sessions.repository import delete_sessions, is_of_callers
from langmem_tiers.storage.column_types import unpack_json
from langmem_tiers.storage.driver_errors import OutrunError, undamaged
from langmem_tiers.storage.retry_read import repeatable
from langmem_tiers.storage.schema import (
    POSITION_STEP,
    RECORD,
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
    from langmem_tiers.erasure.records import Removal
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_PATHS = (namespaces.c.path, item_namespaces.c.path, pool_members.c.namespace, origins.c.namespace)
_IS_SUMMARY = messages.c.position % POSITION_STEP == 1
_IS_PROMOTED = exists().where(entries.c.message_pk == messages.c.pk, entries.c.tier == Tier.LONG_TERM.value)
_AROUND = 200  # turns behind an erased one that are looked at for the second next


class SessionCopies(Protocol):
    """Who keeps copies of sessions elsewhere: told of an erasure before it is final, so that none outlives it."""

    def erase(self, sessions: Sequence[int]) -> bool:
        """Sessions are gone, by their keys."""
        ...

    def outdate(self, session: int, revision: int) -> bool:
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

    @repeatable
    def namespaces_of(self, user: str) -> tuple[NamespacePath, ...]:
        """Every namespace with that label, also of items, and of those who only share something in pools."""
        wanted = f"/{namespace_key((user,))}/"
        found = set[str]()
        with self._database.read() as connection:
            for path in _PATHS:
                query = select(path).distinct().where(is_of_callers(path), self._holds(path, wanted))
                found.update(connection.execute(query).scalars())
        return tuple(namespace_from_key(path) for path in sorted(found))

    def _holds(self, path: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
        around = "/" + path + "/"  # by whole labels, and byte by byte: a pattern would know no case
        place = func.instr if self._database.is_sqlite else func.strpos
        return place(type_coerce(around, path.type), wanted) > 0

    @repeatable
    def sessions_of(self, namespace: NamespacePath, starts: Sequence[str]) -> tuple[SessionName, ...]:
        """The sessions whose names begin with one of these."""
        stored = [escape(start) for start in starts]
        begins = [func.substr(sessions.c.name, 1, len(start)) == start for start in stored]
        query = (
            select(sessions.c.pk, sessions.c.name)
            .join(namespaces)
            .where(namespaces.c.path == namespace_key(namespace), or_(*begins))
            .order_by(sessions.c.pk)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(SessionName(row.pk, namespace, unescape(row.name)) for row in rows)

    def erase_namespace(self, namespace: NamespacePath) -> ErasedCounts:
        """Erase exactly this namespace with all that it holds."""
        with self._database.write() as connection:
            path = namespaces.c.path == namespace_key(namespace)
            connection.execute(select(namespaces.c.pk).where(path).with_for_update())  # no session comes now
            own = select(sessions.c.pk).join(namespaces).where(path)
            keys = list(connection.execute(own).scalars()) if self._copies is not None else []
            counts = erase_namespace(connection, namespace)
            self._tell(keys)
            return counts

    @repeatable
    def places(
        self, session: SessionName, ids: Sequence[str] | None, older_than: datetime | None = None
    ) -> tuple[Place, ...]:
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
                wanted = [messages.c.id.in_(some) for some in parts_of([escape(one) for one in ids])]
            for one in (*wanted, messages.c.extra.is_not(None)):
                found.update((row.pk, row) for row in connection.execute(query.where(one)))
        rows = sorted(found.values(), key=lambda row: (row.position, row.pk))
        with undamaged(self._database.label):
            return tuple(map(_place, rows))

    @repeatable
    def touched_by_sessions(
        self, namespace: NamespacePath, sessions: Sequence[SessionName], names: Sequence[str]
    ) -> Touched:
        """What comes from sessions that are erased whole."""
        with undamaged(self._database.label), self._database.read() as connection:
            stamp = stamp_of(connection, namespace, None)
            sources = Sources(connection, namespace, stamp[0])
            facts = sources.facts([one.key for one in sessions])
            found = sources.entries(names, None, facts)
            said = [form for name in names for form in (name, f"session {name}", f"context file {name}")]
            said += sources.of_messages([one.key for one in sessions])
            return Touched(
                namespace=namespace,
                stamp=stamp,
                sessions=tuple(sessions),
                knowledge=sources.knowledge(said),
                known_before=sources.known_before(said),
                procedures=sources.procedures(_of_sessions(sessions)),
                sources=tuple(said),
                **found,
            )

    @repeatable
    def touched_by_messages(
        self, session: SessionName, messages: Sequence[Place], *, lasting: bool
    ) -> Touched | None:
        """What comes from some messages of a session."""
        ids = frozenset(one.id for one in messages)
        with undamaged(self._database.label), self._database.read() as connection:
            stamp = stamp_of(connection, session.namespace, session.key)
            state = _state(connection, session)
            if state is None:
                return None
            sources = Sources(connection, session.namespace, stamp[0])
            facts = [one for one in sources.facts([session.key]) if sources.is_from(one, ids)]
            found: dict[str, Any] = {"facts": tuple(facts)}
            if lasting:
                found = sources.entries([session.name], ids, facts)
                said = [form for one in sorted(ids) for form in forms_of(one)]
                found |= {"knowledge": sources.knowledge(said), "sources": tuple(said)}
                found |= {"known_before": sources.known_before(said)}
                found |= {"procedures": sources.procedures(_of_messages(messages))}
            return Touched(
                namespace=session.namespace,
                stamp=stamp,
                state=state,
                messages=tuple(messages),
                following=_following(connection, session.key, messages),
                told=sources.told(session.key, min(one.number for one in messages)),
                **found,
            )

    @repeatable
    def touched_by_entry(self, namespace: NamespacePath, entry_id: str) -> Touched:
        """What an entry takes along."""
        with self._database.read() as connection:
            stamp = stamp_of(connection, namespace, None)
            sources = Sources(connection, namespace, stamp[0])
            return Touched(namespace=namespace, stamp=stamp, **sources.of_entry(entry_id))

    @repeatable
    def behind(self, state: SessionState, limit: int) -> tuple[Message, ...]:
        """The newest of the messages behind the summary in force, oldest first."""
        query = (
            select(*RECORD)
            .where(messages.c.session_pk == state.session.key, ~_IS_SUMMARY, IS_IN_LIST)
            .where(messages.c.position < state.view_number * POSITION_STEP)
            .order_by(messages.c.position.desc(), messages.c.pk.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(to_message(row, (0, 0)) for row in reversed(rows))

    def remove(self, removal: Removal) -> ErasedCounts | None:
        """Take it away in one transaction."""
        try:
            with self._database.write() as connection:
                counts = remove_all(connection, removal)
                self._tell([one.key for one in removal.sessions])
                if removal.state is not None:
                    self._tell_of_change(connection, removal.state.session.key)
                return counts
        except OutrunError:
            return None

    @repeatable
    def old_sessions(self, older_than: datetime, *, after: int, limit: int) -> tuple[SessionName, ...]:
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
        return tuple(SessionName(row.pk, namespace_from_key(row.path), unescape(row.name)) for row in rows)

    def drop_empty(self, session: SessionName, older_than: datetime) -> bool:
        """Erase the session if it holds no message and was not changed since."""
        own = select(sessions.c.message_count, sessions.c.updated_at).where(sessions.c.pk == session.key)
        path = namespaces.c.path == namespace_key(session.namespace)
        with self._database.write() as connection:
            connection.execute(select(namespaces.c.pk).where(path).with_for_update())
            row = connection.execute(own.with_for_update()).first()
            if row is None or row.message_count or row.updated_at >= older_than:
                return False
            is_gone = delete_sessions(connection, [session.key]).sessions > 0
            delete_beside(connection, session.namespace, [session.name])
            self._tell([session.key])
            return is_gone

    def _tell(self, keys: Sequence[int]) -> None:
        if self._copies is not None and keys:
            self._copies.erase(keys)

    def _tell_of_change(self, connection: Connection, key: int) -> None:
        if self._copies is not None:
            revision = connection.execute(select(sessions.c.revision).where(sessions.c.pk == key)).scalar()
            if revision is not None:
                self._copies.outdate(key, revision)


def _of_sessions(which: Sequence[SessionName]) -> list[ColumnElement[bool]]:
    return [messages.c.session_pk.in_(some) for some in parts_of([one.key for one in which])]


def _of_messages(which: Sequence[Place]) -> list[ColumnElement[bool]]:
    return [messages.c.pk.in_(some) for some in parts_of([one.key for one in which])]


def _place(row: AnyRow) -> Place:
    extra: dict[str, Any] = {} if row.extra is None else json.loads(unpack_json(row.extra))
    is_summary = row.position % POSITION_STEP == 1
    return Place(
        key=row.pk,
        id=unescape(row.id),
        number=(row.position + is_summary) // POSITION_STEP,
        is_summary=is_summary,
        is_old=bool(row.is_old),
        is_promoted=bool(row.is_promoted),
        tool_calls=tuple(ToolCall(*call) for call in extra.get("tool_calls", ())),
        tool_call_id=extra.get("tool_call_id"),
    )


def _state(connection: Connection, session: SessionName) -> SessionState | None:
    row = connection.execute(
        select(sessions.c.view_position, sessions.c.view_message).where(sessions.c.pk == session.key)
    ).first()
    if row is None:
        return None
    return SessionState(
        session=session, view_number=(row.view_position + 1) // POSITION_STEP, view_key=row.view_message
    )


def _following(connection: Connection, key: int, erased: Sequence[Place]) -> dict[int, int]:
    numbers = sorted({one.number for one in erased if not one.is_summary})
    if not numbers:
        return {}
    until = (numbers[-1] + _AROUND) * POSITION_STEP
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
