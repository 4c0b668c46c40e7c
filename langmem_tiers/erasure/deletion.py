"""Deletion of rows in one transaction, with counts.

Every erasure locks the row of the namespace first, then that of a session. With another order, two erasures could
deadlock.
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
from langmem_tiers.sessions.message_sql import INSERT_MESSAGE, IS_IN_LIST, to_message_row
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
    memory_namespaces,
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
    """The data changed after the plan of the erasure was made."""


def read_change_stamp(
    connection: Connection, namespace: NamespacePath, session: int | None
) -> tuple[int, ...]:
    """Return counters that differ after any change that affects an erasure; zeros for missing rows."""
    row = connection.execute(
        select(namespaces.c.pk, namespaces.c.erasure_epoch, memory_namespaces.c.revision)
        .outerjoin(memory_namespaces, memory_namespaces.c.namespace_pk == namespaces.c.pk)
        .where(namespaces.c.path == build_namespace_key(namespace))
    ).first()
    found = (0, 0, 0) if row is None else (row.pk, row.erasure_epoch, row.revision or 0)
    if session is None:
        return found
    view = select(sessions.c.view_revision, sessions.c.compressed_count).where(sessions.c.pk == session)
    return (*found, *(connection.execute(view).first() or (-1, -1)))


def delete_namespace_rows(connection: Connection, namespace: NamespacePath) -> ErasedCounts:
    """Delete a namespace with all its contents."""
    path = build_namespace_key(namespace)
    own = select(namespaces.c.pk).where(namespaces.c.path == path).with_for_update()
    key = connection.execute(own).scalar()
    counts = _delete_items(connection, path) + ErasedCounts(
        items=delete_session_items(connection, namespace, None)
    )
    names = [escape(build_lease_name(kind, namespace)) for kind in LeaseKind]
    connection.execute(delete(leases).where(leases.c.name.in_(names)))
    # The cache has no namespaces, so it is cleared completely.
    connection.execute(delete(embedding_cache))
    if key is None:
        return counts
    condition = sessions.c.namespace_pk == key
    counts += _count_messages(connection, condition) + _count_long_term(
        connection, key, memories.c.namespace_pk == key
    )
    deleted = delete_namespace(connection, key)
    return counts + ErasedCounts(namespaces=1, sessions=deleted.sessions)


def delete_planned(connection: Connection, removal: ErasurePlan) -> ErasedCounts:
    """Execute a plan.

    Raises:
        ConcurrentWriteError: The data changed since the plan was made; the transaction must be rolled back.
    """
    session = None if removal.state is None else removal.state.session.key
    path = namespaces.c.path == build_namespace_key(removal.namespace)
    key = connection.execute(select(namespaces.c.pk).where(path).with_for_update()).scalar()
    if session is not None:
        connection.execute(select(sessions.c.pk).where(sessions.c.pk == session).with_for_update())
    # Both rows are locked now, so the stamp cannot change any more before the commit.
    if read_change_stamp(connection, removal.namespace, session) != removal.stamp:
        raise _ChangedError("the data was modified concurrently")
    # It is unknown which of the cached queries contain the erased text, so all are deleted.
    if removal.is_clearing_query_vectors:
        connection.execute(delete(embedding_cache))
    item_count = delete_session_items(connection, removal.namespace, removal.context_names)
    if key is None:
        return ErasedCounts(items=item_count)
    counts = (
        ErasedCounts(items=item_count)
        + _delete_memories(connection, key, removal)
        + _delete_knowledge(connection, key, removal.knowledge)
    )
    counts += _delete_past_knowledge(connection, key, removal.sources)
    counts += _delete_context_files(connection, key, removal.context_names)
    if removal.sessions:
        counts += _delete_sessions(connection, [session_ref.key for session_ref in removal.sessions])
    if removal.state is not None:
        counts += _delete_messages(connection, removal)
    return counts


def _delete_sessions(connection: Connection, keys: Sequence[int]) -> ErasedCounts:
    counts = ErasedCounts()
    for part in split_parameters(keys):
        counts += _count_messages(connection, sessions.c.pk.in_(part))
        counts += _count_entries(connection, memories.c.session_pk.in_(part))
        counts += ErasedCounts(
            facts=_count_rows(connection, extracted_facts, extracted_facts.c.session_pk.in_(part))
        )
    return counts + ErasedCounts(sessions=delete_sessions(connection, keys).sessions)


def _count_messages(connection: Connection, condition: ColumnElement[bool]) -> ErasedCounts:
    # Counts the messages of the matching sessions, and their vectors.
    joined = messages.join(sessions, sessions.c.pk == messages.c.session_pk)
    count = select(func.count()).select_from(joined).where(condition)
    joined_vectors = joined.join(vectors, vectors.c.message_pk == messages.c.pk)
    vector_count = select(func.count()).select_from(joined_vectors).where(condition)
    return ErasedCounts(
        messages=connection.execute(count.where(~_IS_SUMMARY)).scalar_one(),
        summaries=connection.execute(count.where(_IS_SUMMARY)).scalar_one(),
        vectors=connection.execute(vector_count).scalar_one(),
    )


def _count_entries(connection: Connection, condition: ColumnElement[bool]) -> ErasedCounts:
    tiers = select(memories.c.tier, func.count().label("number")).where(condition).group_by(memories.c.tier)
    vector_count = select(func.count()).select_from(memories.join(memory_vectors)).where(condition)
    counts = ErasedCounts(vectors=connection.execute(vector_count).scalar_one())
    return replace(counts, **{_COUNT_FIELDS[Tier(row.tier)]: row.number for row in connection.execute(tiers)})


def _count_long_term(connection: Connection, key: int, condition: ColumnElement[bool]) -> ErasedCounts:
    versions = select(func.count()).select_from(context_versions.join(context_files))
    return _count_entries(connection, condition) + ErasedCounts(
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
    condition = items.c.namespace_pk == pk
    joined = items.join(item_vectors, item_vectors.c.item_pk == items.c.pk)
    vector_count = select(func.count()).select_from(joined).where(condition)
    counts = ErasedCounts(
        items=_count_rows(connection, items, condition),
        vectors=connection.execute(vector_count).scalar_one(),
    )
    connection.execute(delete(item_namespaces).where(item_namespaces.c.pk == pk))
    return counts


def _delete_memories(connection: Connection, key: int, removal: ErasurePlan) -> ErasedCounts:
    counts = ErasedCounts()
    for part in split_parameters([escape(memory_id) for memory_id in removal.memories]):
        condition = and_(memories.c.namespace_pk == key, memories.c.id.in_(part))
        counts += _count_entries(connection, condition)
        connection.execute(delete(memories).where(condition))
    for part in split_parameters([escape(fact_id) for fact_id in removal.facts]):
        condition = and_(extracted_facts.c.namespace_pk == key, extracted_facts.c.id.in_(part))
        counts += ErasedCounts(facts=connection.execute(delete(extracted_facts).where(condition)).rowcount)
    # Earlier versions are entries too, but are reported as versions.
    versions = len(removal.versions.intersection(removal.memories))
    counts = replace(counts, entries=counts.entries - versions, versions=counts.versions + versions)
    if removal.rewritten_entries or removal.memories:
        upsert_entries(connection, key, removal.rewritten_entries, removal.stamp[2] + 1)
        # Raising the revision makes concurrent writers repeat their check: they may have compared a new entry with one
        # that is deleted here.
        space = update(memory_namespaces).where(memory_namespaces.c.namespace_pk == key)
        counters = {
            "erasure_epoch": memory_namespaces.c.erasure_epoch + 1,
            "revision": memory_namespaces.c.revision + 1,
        }
        connection.execute(space.values(counters))
    return counts


def _delete_knowledge(connection: Connection, key: int, names: Sequence[tuple[str, str]]) -> ErasedCounts:
    counts = ErasedCounts()
    for part in split_parameters([(escape(category), escape(name)) for category, name in names]):
        deleted = []
        for table in (knowledge, knowledge_history):
            condition = tuple_(table.c.category, table.c.key).in_(part)
            statement = delete(table).where(table.c.namespace_pk == key, condition)
            deleted.append(connection.execute(statement).rowcount)
        counts += ErasedCounts(knowledge=deleted[0], versions=deleted[1])
    return counts


def _delete_past_knowledge(connection: Connection, key: int, sources: Sequence[str]) -> ErasedCounts:
    is_own, count = knowledge_history.c.namespace_pk == key, 0
    for part in split_parameters([to_storable_text(source) for source in sources]):
        statement = delete(knowledge_history).where(is_own, knowledge_history.c.source.in_(part))
        count += connection.execute(statement).rowcount
    return ErasedCounts(versions=count)


def _delete_context_files(connection: Connection, key: int, names: Sequence[str]) -> ErasedCounts:
    counts = ErasedCounts()
    for part in split_parameters([escape(name) for name in names]):
        condition = and_(context_files.c.namespace_pk == key, context_files.c.session_id.in_(part))
        # Versions are deleted by the database together with their file, so they are counted before.
        versions = select(func.count()).select_from(context_versions.join(context_files)).where(condition)
        version_count = connection.execute(versions).scalar_one()
        file_count = connection.execute(delete(context_files).where(condition)).rowcount
        counts += ErasedCounts(files=file_count, versions=version_count)
    return counts


def _delete_messages(connection: Connection, removal: ErasurePlan) -> ErasedCounts:
    state = removal.state
    assert state is not None  # noqa: S101 - checked by the caller
    key, counts, tokens, rows = state.session.key, ErasedCounts(), 0, 0
    is_own = messages.c.session_pk == key
    # Position of the first summary that covers an erased message: one before the message that follows it.
    since = find_first_outdated_summary(removal) * POSITION_STEP - 1
    keys = [message.key for message in removal.messages if not message.is_summary]
    planned = [messages.c.pk.in_(part) for part in split_parameters(keys)]
    for filtered in (*planned, and_(_IS_SUMMARY, messages.c.position >= since)):
        condition = and_(is_own, filtered)
        joined = messages.join(vectors, vectors.c.message_pk == messages.c.pk)
        vector_count = connection.execute(
            select(func.count()).select_from(joined).where(condition)
        ).scalar_one()
        statement = delete(messages).where(condition).returning(messages.c.token_count)
        sizes = connection.execute(statement).scalars().all()
        tokens, rows = tokens + sum(sizes), rows + len(sizes)
        kind = {"messages": len(sizes)} if filtered in planned else {"summaries": len(sizes)}
        counts += ErasedCounts(vectors=vector_count, **kind)
    # The replacement is inserted by _rebuild_view().
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
    """Return the number of the first summary that may cover an erased message."""
    # The first summary after a message has the number of the next turn; an erased summary counts itself.
    return min(message.number + (not message.is_summary) for message in removal.messages)


def _rebuild_view(connection: Connection, removal: ErasurePlan) -> dict[str, Any]:
    state = removal.state
    assert state is not None  # noqa: S101 - checked by the caller
    key = state.session.key
    # All erased messages follow the current summary, so the view remains valid.
    if not state.view_key or state.view_number < find_first_outdated_summary(removal):
        return {}
    if removal.summary is None:
        # No message before the summary is left, so the remaining summaries have no content to cover.
        connection.execute(delete(messages).where(messages.c.session_pk == key, _IS_SUMMARY))
        rest = select(func.count(), func.coalesce(func.sum(messages.c.token_count), 0))
        count, tokens = connection.execute(rest.where(messages.c.session_pk == key)).one()
        empty_view = {"view_position": 0, "view_message": 0, "compressed_count": 0}
        return {**empty_view, "message_count": count, "token_count": tokens}
    position = state.view_number * POSITION_STEP - 1
    covered = (
        select(func.count())
        .select_from(messages)
        .where(messages.c.session_pk == key, messages.c.position < position, IS_IN_LIST)
    )
    hidden = connection.execute(covered).scalar_one()
    summary = INSERT_MESSAGE.returning(messages.c.pk)
    pk = connection.execute(summary, to_message_row(removal.summary, key, position)).scalar_one()
    if removal.digest is not None:
        replace_overrides(
            connection, key, {pk: EntryOverride(digest=removal.digest, changed_at=removal.summary.created_at)}
        )
    return {"view_position": position, "view_message": pk, "compressed_count": hidden}


def _count_rows(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one())
