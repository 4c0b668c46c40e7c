"""Find the data that an erasure affects, and delete what was planned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, or_, select, type_coerce

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import MessageToolCall
from langmem_tiers.common.namespaces import build_namespace_key, escape, parse_namespace_key, unescape
from langmem_tiers.erasure.deletion import delete_namespace_rows, delete_planned, read_change_stamp
from langmem_tiers.erasure.derived_data import SourceFinder, build_message_sources
from langmem_tiers.erasure.records import ErasureImpact, MessageRef, SessionRef, SessionViewState
from langmem_tiers.items.repository import delete_session_items, split_parameters
from langmem_tiers.sessions.message_sql import IS_IN_LIST, from_message_row
from langmem_tiers.sessions.repository import delete_sessions, is_user_namespace
from langmem_tiers.storage.column_types import unpack_json
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver_errors import ConcurrentWriteError, detect_damaged_rows
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
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.sessions.redis.cache import RedisCache
    from langmem_tiers.storage.database import Database

_NAMESPACE_PATH_COLUMNS = (
    namespaces.c.path,
    item_namespaces.c.path,
    pool_members.c.namespace,
    origins.c.namespace,
)
_IS_SUMMARY = messages.c.position % POSITION_STEP == 1
_IS_PROMOTED = exists().where(entries.c.message_pk == messages.c.pk, entries.c.tier == Tier.LONG_TERM.value)
# Turns after an erased message that are searched for the second following message.
_LOOKAHEAD_TURNS = 200


class ErasureRepository:
    """Finds the data that an erasure affects, and deletes what was planned.

    Args:
        database: Database with the memory.
        copies: Redis cache in front of the database, if any. Its copies are invalidated before an erasure commits, so
            that no copy outlives it.
    """

    def __init__(self, database: Database, copies: RedisCache | None = None) -> None:
        self._copies = copies
        self._database = database

    @retry_on_disconnect
    def find_user_namespaces(self, user: str) -> tuple[NamespacePath, ...]:
        """Return all namespaces with exactly this label, including those that only have items or shared entries."""
        label = f"/{build_namespace_key((user,))}/"
        found = set[str]()
        with self._database.read() as connection:
            for path in _NAMESPACE_PATH_COLUMNS:
                query = (
                    select(path)
                    .distinct()
                    .where(is_user_namespace(path), self._build_label_filter(path, label))
                )
                found.update(connection.execute(query).scalars())
        return tuple(parse_namespace_key(path) for path in sorted(found))

    def _build_label_filter(self, path: ColumnElement[str], label: str) -> ColumnElement[bool]:
        # With slashes around the path, only whole labels match. Not LIKE: on SQLite it ignores case.
        delimited = "/" + path + "/"
        find_text = func.instr if self._database.is_sqlite else func.strpos
        return find_text(type_coerce(delimited, path.type), label) > 0

    @retry_on_disconnect
    def find_sessions(self, namespace: NamespacePath, starts: Sequence[str]) -> tuple[SessionRef, ...]:
        """Return the sessions whose names start with one of the prefixes."""
        stored = [escape(start) for start in starts]
        has_prefix = [func.substr(sessions.c.name, 1, len(start)) == start for start in stored]
        query = (
            select(sessions.c.pk, sessions.c.name)
            .join(namespaces)
            .where(namespaces.c.path == build_namespace_key(namespace), or_(*has_prefix))
            .order_by(sessions.c.pk)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(SessionRef(row.pk, namespace, unescape(row.name)) for row in rows)

    def delete_namespace(self, namespace: NamespacePath) -> ErasedCounts:
        """Delete a namespace with its sessions, memories, context files, items and leases, but no longer path."""
        with self._database.write() as connection:
            path = namespaces.c.path == build_namespace_key(namespace)
            # While the row is locked, no session can be added, so the keys below are complete.
            connection.execute(select(namespaces.c.pk).where(path).with_for_update())
            own = select(sessions.c.pk).join(namespaces).where(path)
            keys = list(connection.execute(own).scalars()) if self._copies is not None else []
            counts = delete_namespace_rows(connection, namespace)
            self._invalidate_copies(keys)
            return counts

    @retry_on_disconnect
    def find_messages(
        self, session: SessionRef, ids: Sequence[str] | None, older_than: datetime | None = None
    ) -> tuple[MessageRef, ...]:
        """Return the requested messages of a session and all tool messages, in order.

        Args:
            session: Session to search.
            ids: Ids of the requested messages, or None for all old messages.
            older_than: Time before which a message is old.
        """
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
            conditions: list[ColumnElement[bool]]
            if ids is None:
                conditions = [is_old & ~_IS_SUMMARY]
            else:
                stored_ids = [escape(message_id) for message_id in ids]
                conditions = [messages.c.id.in_(part) for part in split_parameters(stored_ids)]
            # Tool calls and their results are in "extra". All of them are needed to find complete groups.
            for condition in (*conditions, messages.c.extra.is_not(None)):
                found.update((row.pk, row) for row in connection.execute(query.where(condition)))
        rows = sorted(found.values(), key=lambda row: (row.position, row.pk))
        with detect_damaged_rows(self._database.label):
            return tuple(map(_to_message_ref, rows))

    @retry_on_disconnect
    def find_session_impact(
        self, namespace: NamespacePath, sessions: Sequence[SessionRef], names: Sequence[str]
    ) -> ErasureImpact:
        """Find the data derived from sessions that are erased completely.

        Args:
            namespace: Namespace of the sessions.
            sessions: Existing sessions to erase.
            names: Their names, and the requested name even if no such session exists.
        """
        with detect_damaged_rows(self._database.label), self._database.read() as connection:
            stamp = read_change_stamp(connection, namespace, None)
            sources = SourceFinder(connection, namespace, stamp[0])
            facts = sources.find_facts([session.key for session in sessions])
            found = sources.find_entries(names, None, facts)
            # Knowledge names its source as free text; these are the forms in use.
            named = [form for name in names for form in (name, f"session {name}", f"context file {name}")]
            named += sources.find_message_sources([session.key for session in sessions])
            return ErasureImpact(
                namespace=namespace,
                stamp=stamp,
                sessions=tuple(sessions),
                knowledge=sources.find_knowledge(named),
                past_knowledge=sources.find_past_knowledge(named),
                procedures=sources.find_procedures(_build_session_filters(sessions)),
                sources=tuple(named),
                **found,
            )

    @retry_on_disconnect
    def find_message_impact(
        self, session: SessionRef, messages: Sequence[MessageRef], *, with_long_term: bool
    ) -> ErasureImpact | None:
        """Find the data derived from messages of a session; None if the session does not exist.

        Args:
            session: Session of the messages.
            messages: Messages to erase.
            with_long_term: Also find long-term entries and knowledge.
        """
        ids = frozenset(message.id for message in messages)
        with detect_damaged_rows(self._database.label), self._database.read() as connection:
            stamp = read_change_stamp(connection, session.namespace, session.key)
            state = _load_view_state(connection, session)
            if state is None:
                return None
            sources = SourceFinder(connection, session.namespace, stamp[0])
            facts = [
                fact for fact in sources.find_facts([session.key]) if sources.is_from_messages(fact, ids)
            ]
            found: dict[str, Any] = {"facts": tuple(facts)}
            if with_long_term:
                found = sources.find_entries([session.name], ids, facts)
                named = [form for message_id in sorted(ids) for form in build_message_sources(message_id)]
                found |= {"knowledge": sources.find_knowledge(named), "sources": tuple(named)}
                found |= {"past_knowledge": sources.find_past_knowledge(named)}
                found |= {"procedures": sources.find_procedures(_build_message_filters(messages))}
            return ErasureImpact(
                namespace=session.namespace,
                stamp=stamp,
                state=state,
                messages=tuple(messages),
                following_turns=_find_following_turns(connection, session.key, messages),
                chunks_and_episodes=sources.find_chunks_and_episodes(
                    session.key, min(message.number for message in messages)
                ),
                **found,
            )

    @retry_on_disconnect
    def find_entry_impact(self, namespace: NamespacePath, entry_id: str) -> ErasureImpact:
        """Find the data that depends on an entry, an episode, a chunk, a fact or an item of knowledge."""
        with self._database.read() as connection:
            stamp = read_change_stamp(connection, namespace, None)
            sources = SourceFinder(connection, namespace, stamp[0])
            return ErasureImpact(namespace=namespace, stamp=stamp, **sources.find_by_entry(entry_id))

    @retry_on_disconnect
    def list_summarized_messages(self, state: SessionViewState, limit: int) -> tuple[Message, ...]:
        """Return the newest messages that the current summary covers, oldest first, without summaries."""
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
        """Execute a plan in one transaction; return None, with nothing changed, if the data changed meanwhile."""
        try:
            with self._database.write() as connection:
                counts = delete_planned(connection, removal)
                # Inside the transaction: if the process dies after the commit, no copy must be left.
                self._invalidate_copies([session.key for session in removal.sessions])
                if removal.state is not None:
                    self._invalidate_changed_copies(connection, removal.state.session.key)
                return counts
        except ConcurrentWriteError:
            return None

    @retry_on_disconnect
    def list_old_sessions(self, older_than: datetime, *, after: int, limit: int) -> tuple[SessionRef, ...]:
        """Return sessions with old messages, and empty sessions that were not changed since, after a key."""
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
        """Delete a session if it is empty and was not changed since a time; return True if it was deleted."""
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


def _build_session_filters(references: Sequence[SessionRef]) -> list[ColumnElement[bool]]:
    keys = [reference.key for reference in references]
    return [messages.c.session_pk.in_(part) for part in split_parameters(keys)]


def _build_message_filters(references: Sequence[MessageRef]) -> list[ColumnElement[bool]]:
    keys = [reference.key for reference in references]
    return [messages.c.pk.in_(part) for part in split_parameters(keys)]


def _to_message_ref(row: AnyRow) -> MessageRef:
    extra: dict[str, Any] = {} if row.extra is None else json.loads(unpack_json(row.extra))
    # Messages are at multiples of POSITION_STEP. A summary is one position before the message that follows it.
    is_summary = row.position % POSITION_STEP == 1
    return MessageRef(
        key=row.pk,
        id=unescape(row.id),
        number=(row.position + is_summary) // POSITION_STEP,
        is_summary=is_summary,
        is_old=bool(row.is_old),
        is_promoted=bool(row.is_promoted),
        tool_calls=tuple(MessageToolCall(*call) for call in extra.get("tool_calls", ())),
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
    numbers = sorted({message.number for message in erased if not message.is_summary})
    if not numbers:
        return {}
    until = (numbers[-1] + _LOOKAHEAD_TURNS) * POSITION_STEP
    query = (
        select(messages.c.position)
        .where(messages.c.session_pk == key, ~_IS_SUMMARY)
        .where(messages.c.position >= numbers[0] * POSITION_STEP, messages.c.position <= until)
        .order_by(messages.c.position)
    )
    existing = [position // POSITION_STEP for position in connection.execute(query).scalars()]
    index = {number: position for position, number in enumerate(existing)}
    return {
        number: existing[index[number] + 2] if index[number] + 2 < len(existing) else until // POSITION_STEP
        for number in numbers
        if number in index
    }
