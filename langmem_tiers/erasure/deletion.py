"""Erasing in one transaction, counted as it happens.

Whoever erases locks the namespace first, then a session: two that lock in another order wait for ever.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, func, select, tuple_, update

from langmem_tiers.common.entries import EntryOverride, Tier
from langmem_tiers.common.leases import LeaseKind, build_lease_name
from langmem_tiers.common.namespaces import build_namespace_key, escape
from langmem_tiers.erasure.models import ErasedCounts
from langmem_tiers.items.repository import delete_session_items, split_parameters
from langmem_tiers.long_term.writes import upsert_entries
from langmem_tiers.sessions.message_rows import to_message_row
from langmem_tiers.sessions.message_sql import INSERT_MESSAGE, IS_IN_LIST
from langmem_tiers.sessions.override_repository import replace_overrides
from langmem_tiers.sessions.repository import delete_namespace, delete_sessions, increment_erasure_count
from langmem_tiers.storage.column_types import to_storable_text
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import (
    POSITION_STEP,
    context_files,
    context_versions,
    embedding_cache,
    extracted_facts,
    item_namespaces,
    item_vectors,
    items,
    knowledge,
    knowledge_history,
    leases,
    memories,
    memory_spaces,
    memory_vectors,
    messages,
    namespaces,
    sessions,
    vectors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.records import ErasurePlan

_IS_SUMMARY = messages.c.position % POSITION_STEP == 1
_COUNT_FIELDS = {
    Tier.SHORT_TERM: "chunks",
    Tier.EPISODIC: "episodes",
    Tier.LONG_TERM: "entries",
    Tier.PROCEDURAL: "patterns",
}


class _ChangedError(ConcurrentWriteError):
    """Something was written between the look and the erasure."""


def read_change_stamp(
    connection: Connection, namespace: NamespacePath, session: int | None
) -> tuple[int, ...]:
    """Numbers that are others once anything changed that an erasure goes by; zeros for what is not there."""
    row = connection.execute(
        select(namespaces.c.pk, namespaces.c.erased, memory_spaces.c.revision)
        .outerjoin(memory_spaces, memory_spaces.c.namespace_pk == namespaces.c.pk)
        .where(namespaces.c.path == build_namespace_key(namespace))
    ).first()
    found = (0, 0, 0) if row is None else (row.pk, row.erased, row.revision or 0)
    if session is None:
        return found
    view = select(sessions.c.view_revision, sessions.c.compressed_count).where(sessions.c.pk == session)
    return (*found, *(connection.execute(view).first() or (-1, -1)))


def delete_namespace_rows(connection: Connection, namespace: NamespacePath) -> ErasedCounts:
    """Erase a namespace with all that it holds."""
    path = build_namespace_key(namespace)
    own = select(namespaces.c.pk).where(namespaces.c.path == path).with_for_update()
    key = connection.execute(own).scalar()
    counts = _delete_items(connection, path) + ErasedCounts(
        items=delete_session_items(connection, namespace, None)
    )
    names = [escape(build_lease_name(kind, namespace)) for kind in LeaseKind]
    connection.execute(delete(leases).where(leases.c.name.in_(names)))
    connection.execute(delete(embedding_cache))
    if key is None:
        return counts
    of = sessions.c.namespace_pk == key
    counts += _count_messages(connection, of) + _count_long_term(
        connection, key, memories.c.namespace_pk == key
    )
    gone = delete_namespace(connection, key)
    return counts + ErasedCounts(namespaces=1, sessions=gone.sessions)


def delete_planned(connection: Connection, removal: ErasurePlan) -> ErasedCounts:
    """Take away what was decided.

    Raises:
        OutrunError: Something changed since; nothing may be kept.
    """
    session = None if removal.state is None else removal.state.session.key
    path = namespaces.c.path == build_namespace_key(removal.namespace)
    key = connection.execute(select(namespaces.c.pk).where(path).with_for_update()).scalar()
    if session is not None:
        connection.execute(select(sessions.c.pk).where(sessions.c.pk == session).with_for_update())
    if read_change_stamp(connection, removal.namespace, session) != removal.stamp:
        raise _ChangedError("something was written meanwhile")
    if removal.is_clearing_query_vectors:  # which of them say the same, nobody knows
        connection.execute(delete(embedding_cache))
    beside = delete_session_items(connection, removal.namespace, removal.context_names)
    if key is None:
        return ErasedCounts(items=beside)
    counts = (
        ErasedCounts(items=beside)
        + _delete_memories(connection, key, removal)
        + _delete_knowledge(connection, key, removal.knowledge)
    )
    counts += _delete_past_knowledge(connection, key, removal.sources)
    counts += _delete_context_files(connection, key, removal.context_names)
    if removal.sessions:
        counts += _delete_sessions(connection, [one.key for one in removal.sessions])
    if removal.state is not None:
        counts += _delete_messages(connection, removal)
    return counts


def _delete_sessions(connection: Connection, keys: Sequence[int]) -> ErasedCounts:
    counts = ErasedCounts()
    for some in split_parameters(keys):
        counts += _count_messages(connection, sessions.c.pk.in_(some))
        counts += _count_entries(connection, memories.c.session_pk.in_(some))
        counts += ErasedCounts(
            facts=_count_rows(connection, extracted_facts, extracted_facts.c.session_pk.in_(some))
        )
    return counts + ErasedCounts(sessions=delete_sessions(connection, keys).sessions)


def _count_messages(connection: Connection, of: ColumnElement[bool]) -> ErasedCounts:
    # Messages and their vectors of some sessions.
    mine = messages.join(sessions, sessions.c.pk == messages.c.session_pk)
    number = select(func.count()).select_from(mine).where(of)
    kept = (
        select(func.count()).select_from(mine.join(vectors, vectors.c.message_pk == messages.c.pk)).where(of)
    )
    return ErasedCounts(
        messages=connection.execute(number.where(~_IS_SUMMARY)).scalar_one(),
        summaries=connection.execute(number.where(_IS_SUMMARY)).scalar_one(),
        vectors=connection.execute(kept).scalar_one(),
    )


def _count_entries(connection: Connection, of: ColumnElement[bool]) -> ErasedCounts:
    tiers = select(memories.c.tier, func.count().label("number")).where(of).group_by(memories.c.tier)
    kept = select(func.count()).select_from(memories.join(memory_vectors)).where(of)
    counts = ErasedCounts(vectors=connection.execute(kept).scalar_one())
    return replace(counts, **{_COUNT_FIELDS[Tier(row.tier)]: row.number for row in connection.execute(tiers)})


def _count_long_term(connection: Connection, key: int, of: ColumnElement[bool]) -> ErasedCounts:
    versions = select(func.count()).select_from(context_versions.join(context_files))
    return _count_entries(connection, of) + ErasedCounts(
        facts=_count_rows(connection, extracted_facts, extracted_facts.c.namespace_pk == key),
        knowledge=_count_rows(connection, knowledge, knowledge.c.namespace_pk == key),
        versions=_count_rows(connection, knowledge_history, knowledge_history.c.namespace_pk == key)
        + connection.execute(versions.where(context_files.c.namespace_pk == key)).scalar_one(),
        files=_count_rows(connection, context_files, context_files.c.namespace_pk == key),
    )


def _delete_items(connection: Connection, path: str) -> ErasedCounts:
    own = item_namespaces.c.path == path
    pk = connection.execute(select(item_namespaces.c.pk).where(own).with_for_update()).scalar()
    if pk is None:
        return ErasedCounts()
    mine = items.c.namespace_pk == pk
    kept = select(func.count()).select_from(items.join(item_vectors, item_vectors.c.item_pk == items.c.pk))
    counts = ErasedCounts(
        items=_count_rows(connection, items, mine), vectors=connection.execute(kept.where(mine)).scalar_one()
    )
    connection.execute(delete(item_namespaces).where(item_namespaces.c.pk == pk))
    return counts


def _delete_memories(connection: Connection, key: int, removal: ErasurePlan) -> ErasedCounts:
    counts = ErasedCounts()
    for some in split_parameters([escape(one) for one in removal.memories]):
        of = and_(memories.c.namespace_pk == key, memories.c.id.in_(some))
        counts += _count_entries(connection, of)
        connection.execute(delete(memories).where(of))
    for some in split_parameters([escape(one) for one in removal.facts]):
        of = and_(extracted_facts.c.namespace_pk == key, extracted_facts.c.id.in_(some))
        counts += ErasedCounts(facts=connection.execute(delete(extracted_facts).where(of)).rowcount)
    versions = len(removal.versions.intersection(removal.memories))
    counts = replace(counts, entries=counts.entries - versions, versions=counts.versions + versions)
    if removal.rewritten_entries or removal.memories:
        upsert_entries(connection, key, removal.rewritten_entries, removal.stamp[2] + 1)
        # The next revision too: whoever has compared an entry with what is gone now looks again.
        space = update(memory_spaces).where(memory_spaces.c.namespace_pk == key)
        ahead = {"erased": memory_spaces.c.erased + 1, "revision": memory_spaces.c.revision + 1}
        connection.execute(space.values(ahead))
    return counts


def _delete_knowledge(connection: Connection, key: int, names: Sequence[tuple[str, str]]) -> ErasedCounts:
    counts = ErasedCounts()
    for some in split_parameters([(escape(category), escape(name)) for category, name in names]):
        gone = []
        for table in (knowledge, knowledge_history):
            of = tuple_(table.c.category, table.c.key).in_(some)
            gone.append(connection.execute(delete(table).where(table.c.namespace_pk == key, of)).rowcount)
        counts += ErasedCounts(knowledge=gone[0], versions=gone[1])
    return counts


def _delete_past_knowledge(connection: Connection, key: int, sources: Sequence[str]) -> ErasedCounts:
    mine, count = knowledge_history.c.namespace_pk == key, 0
    for some in split_parameters([to_storable_text(one) for one in sources]):
        gone = delete(knowledge_history).where(mine, knowledge_history.c.source.in_(some))
        count += connection.execute(gone).rowcount
    return ErasedCounts(versions=count)


def _delete_context_files(connection: Connection, key: int, names: Sequence[str]) -> ErasedCounts:
    counts = ErasedCounts()
    for some in split_parameters([escape(name) for name in names]):
        of = and_(context_files.c.namespace_pk == key, context_files.c.session_id.in_(some))
        versions = select(func.count()).select_from(context_versions.join(context_files)).where(of)
        number = connection.execute(versions).scalar_one()
        gone = connection.execute(delete(context_files).where(of)).rowcount
        counts += ErasedCounts(files=gone, versions=number)
    return counts


def _delete_messages(connection: Connection, removal: ErasurePlan) -> ErasedCounts:
    state = removal.state
    assert state is not None  # noqa: S101 - asked for by who calls
    key, counts, tokens, rows = state.session.key, ErasedCounts(), 0, 0
    mine = messages.c.session_pk == key
    since = find_first_outdated_summary(removal) * POSITION_STEP - 1
    keys = [one.key for one in removal.messages if not one.is_summary]
    gone = [messages.c.pk.in_(some) for some in split_parameters(keys)]
    for which in (*gone, and_(_IS_SUMMARY, messages.c.position >= since)):
        of = and_(mine, which)
        kept = select(func.count()).select_from(messages.join(vectors, vectors.c.message_pk == messages.c.pk))
        number = connection.execute(kept.where(of)).scalar_one()
        sizes = (
            connection.execute(delete(messages).where(of).returning(messages.c.token_count)).scalars().all()
        )
        tokens, rows = tokens + sum(sizes), rows + len(sizes)
        kind = {"messages": len(sizes)} if which in gone else {"summaries": len(sizes)}
        counts += ErasedCounts(vectors=number, **kind)
    if removal.summary is not None:
        rows, tokens = rows - 1, tokens - removal.summary.token_count
    values: dict[str, Any] = {
        "message_count": sessions.c.message_count - rows,
        "token_count": sessions.c.token_count - tokens,
        "revision": sessions.c.revision + 1,
        "view_revision": sessions.c.view_revision + 1,
    }
    values |= _rebuild_view(connection, removal)
    connection.execute(update(sessions).where(sessions.c.pk == key).values(values))
    increment_erasure_count(connection, removal.stamp[0])
    return counts


def find_first_outdated_summary(removal: ErasurePlan) -> int:
    """The number from which on summaries tell of what is erased."""
    return min(one.number + (not one.is_summary) for one in removal.messages)


def _rebuild_view(connection: Connection, removal: ErasurePlan) -> dict[str, Any]:
    state = removal.state
    assert state is not None  # noqa: S101 - asked for by who calls
    key = state.session.key
    if not state.view_key or state.view_number < find_first_outdated_summary(removal):
        return {}  # what was erased stands in sight
    if removal.summary is None:
        # Nothing is left behind it: summaries that are still there tell of nothing.
        connection.execute(delete(messages).where(messages.c.session_pk == key, _IS_SUMMARY))
        rest = select(func.count(), func.coalesce(func.sum(messages.c.token_count), 0))
        count, tokens = connection.execute(rest.where(messages.c.session_pk == key)).one()
        shown = {"view_position": 0, "view_message": 0, "compressed_count": 0}
        return {**shown, "message_count": count, "token_count": tokens}
    position = state.view_number * POSITION_STEP - 1
    behind = (
        select(func.count())
        .select_from(messages)
        .where(messages.c.session_pk == key, messages.c.position < position, IS_IN_LIST)
    )
    hidden = connection.execute(behind).scalar_one()
    summary = INSERT_MESSAGE.returning(messages.c.pk)
    pk = connection.execute(summary, to_message_row(removal.summary, key, position)).scalar_one()
    if removal.digest is not None:
        replace_overrides(
            connection, key, {pk: EntryOverride(digest=removal.digest, changed_at=removal.summary.created_at)}
        )
    return {"view_position": position, "view_message": pk, "compressed_count": hidden}


def _count_rows(connection: Connection, table: Table, of: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(of)).scalar_one())
