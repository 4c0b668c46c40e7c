"""Writes of entries and extracted facts, inside a transaction of the caller.

Each write first locks the row of the namespace. This lock protects the whole memory of the namespace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, literal, or_, select, update

from langmem_tiers.common.namespaces import build_namespace_key, escape
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.long_term.models import RelationKind
from langmem_tiers.long_term.records import LearningCursor
from langmem_tiers.long_term.rows import SELECT_FACTS, to_entry_row, to_fact, to_fact_body, to_fact_row
from langmem_tiers.sessions.message_repository import build_session_not_found_error
from langmem_tiers.sessions.repository import get_or_create_namespace
from langmem_tiers.storage.column_types import KEY_TYPE
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import (
    extracted_facts,
    learned_sessions,
    memories,
    memory_namespaces,
    memory_tags,
    memory_vectors,
    namespaces,
    relations,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, ScalarSelect

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import CursorMove, FactMove, MemoryWrite, NewEntry
    from langmem_tiers.storage.database import Database


_PRESERVED_COLUMNS = frozenset({"archived_at", "access_count", "last_access_at"})
"""Columns that a replaced entry keeps: other processes may change them at any time."""


class StaleWriteError(ConcurrentWriteError):
    """The data has changed since it was read, so the write must be discarded."""


def run_memory_write(database: Database, work: Callable[[Connection], None]) -> bool:
    """Run work in a transaction; return False, with nothing written, if it raises ``StaleWriteError``."""

    def write() -> bool:
        # Any other conflict: another process created the same namespace. The next attempt finds it.
        try:
            with database.write() as connection:
                work(connection)
        except StaleWriteError:
            return False
        return True

    return retry_on_conflict(write, "concurrent writes to the same memory: try again later")


def apply_memory_write(
    connection: Connection, namespace: NamespacePath, write: MemoryWrite, now: datetime
) -> None:
    """Apply all changes of a write."""
    namespace_pk, revision = lock_and_advance_revision(connection, namespace, now, expected=write.revision)
    if write.cursor is not None:
        _update_cursor(connection, write.cursor)
    new = upsert_entries(connection, namespace_pk, write.put, revision)
    names = {
        *write.close,
        *write.archive,
        *write.restore,
        *(relation.source for relation in write.relate),
        *(relation.target for relation in write.relate),
    }
    keys = require_entry_keys(connection, namespace_pk, sorted(names))
    for name, until in write.close.items():
        _close_entry(connection, name, keys[name], until)
    archive_entries(connection, namespace_pk, [keys[name] for name in write.archive], now)
    restored = [keys[name] for name in write.restore]
    connection.execute(update(memories).where(memories.c.pk.in_(restored)).values(archived_at=None))
    # A new entry cannot have been superseded before, except by a relation of this write. Such sources need no
    # search for cycles.
    unchecked = new - {relation.target for relation in write.relate}
    for relation in write.relate:
        _upsert_relation(connection, relation, keys, is_checked=relation.source not in unchecked)
    _insert_facts(connection, namespace_pk, write)
    for move in write.fact_moves:
        _update_fact(connection, namespace_pk, move)


def lock_and_advance_revision(
    connection: Connection, namespace: NamespacePath, now: datetime, *, expected: int | None = None
) -> tuple[int, int]:
    """Lock the namespace's memory and return the namespace's key and the new revision.

    Args:
        connection: Connection of an open transaction. The lock is held until it ends.
        namespace: Namespace to lock. It is created if it does not exist.
        now: Creation time of a new namespace.
        expected: Revision that the write is based on. None skips the check.

    Raises:
        StaleWriteError: The memory has another revision.
    """
    namespace_pk = get_or_create_namespace(connection, build_namespace_key(namespace), now)
    # The namespace row is always the first lock, as in writes of messages. Another order could deadlock.
    connection.execute(select(namespaces.c.pk).where(namespaces.c.pk == namespace_pk).with_for_update())
    own = memory_namespaces.c.namespace_pk == namespace_pk
    current = connection.execute(select(memory_namespaces.c.revision).where(own)).scalar()
    if expected is not None and expected != (current or 0):
        raise StaleWriteError("the memory of the namespace has changed")
    if current is None:
        connection.execute(
            insert(memory_namespaces).values(namespace_pk=namespace_pk, revision=1, erasure_epoch=0)
        )
    else:
        connection.execute(update(memory_namespaces).where(own).values(revision=current + 1))
    return namespace_pk, (current or 0) + 1


def require_entry_keys(connection: Connection, namespace_pk: int, ids: Sequence[str]) -> dict[str, int]:
    """Return the row keys of entries by id.

    Raises:
        EntryNotFoundError: One of the entries does not exist.
    """
    found: dict[str, int] = {}
    for batch in split_parameters(ids):
        names = {escape(name): name for name in batch}
        query = select(memories.c.id, memories.c.pk).where(
            memories.c.namespace_pk == namespace_pk, memories.c.id.in_(list(names))
        )
        found.update((names[row.id], row.pk) for row in connection.execute(query))
    for name in ids:
        if name not in found:
            raise EntryNotFoundError(
                f"no entry {name!r} in this namespace: use an id returned by store() or recall(); "
                "nothing was changed"
            )
    return found


def upsert_entries(
    connection: Connection, namespace_pk: int, new: Sequence[NewEntry], revision: int
) -> set[str]:
    """Insert entries, or replace entries with the same id. Return the ids of the inserted ones."""
    if not new:
        return set()
    _check_sessions(connection, namespace_pk, new)
    # If an id occurs twice, its last entry counts.
    last = {new_entry.entry.id: new_entry for new_entry in new}
    rows = {escape(name): to_entry_row(new_entry, namespace_pk, revision) for name, new_entry in last.items()}
    existing = _find_entry_keys(connection, namespace_pk, list(rows))
    # An existing row is updated, so its key and its relations stay.
    for name, pk in existing.items():
        changed = {key: value for key, value in rows.pop(name).items() if key not in _PRESERVED_COLUMNS}
        connection.execute(update(memories).where(memories.c.pk == pk).values(changed))
        # Tags and vectors belong to the old text.
        connection.execute(delete(memory_tags).where(memory_tags.c.memory_pk == pk))
        connection.execute(delete(memory_vectors).where(memory_vectors.c.memory_pk == pk))
    if rows:
        connection.execute(insert(memories), list(rows.values()))
    inserted = {name for name in last if escape(name) in rows}
    tagged = [new_entry for new_entry in last.values() if new_entry.entry.tags]
    if not tagged:
        return inserted
    keys = _find_entry_keys(connection, namespace_pk, [escape(new_entry.entry.id) for new_entry in tagged])
    tags = [
        {"memory_pk": keys[escape(new_entry.entry.id)], "tag": escape(tag)}
        for new_entry in tagged
        for tag in sorted(new_entry.entry.tags)
    ]
    connection.execute(insert(memory_tags), tags)
    return inserted


def _check_sessions(connection: Connection, namespace_pk: int, new: Sequence[NewEntry]) -> None:
    # The namespace is locked, so a session that exists now cannot be deleted before the transaction ends.
    session_keys = sorted({new_entry.session_key for new_entry in new if new_entry.session_key is not None})
    own = select(func.count()).select_from(sessions).where(sessions.c.namespace_pk == namespace_pk)
    for batch in split_parameters(session_keys):
        if connection.execute(own.where(sessions.c.pk.in_(batch))).scalar_one() < len(batch):
            raise build_session_not_found_error()


def archive_entries(
    connection: Connection,
    namespace_pk: int | ScalarSelect[int],
    keys: Sequence[int],
    now: datetime,
) -> tuple[int, int]:
    """Archive entries of a namespace. Return the number of newly archived entries, and their tokens."""
    count = tokens = 0
    for batch in split_parameters(keys):
        archived = (
            update(memories)
            .where(memories.c.namespace_pk == namespace_pk, memories.c.pk.in_(batch))
            .where(memories.c.archived_at.is_(None))
            .values(archived_at=now)
            .returning(memories.c.token_count)
        )
        sizes = connection.execute(archived).scalars().all()
        count += len(sizes)
        tokens += sum(sizes)
    return count, tokens


def _find_entry_keys(connection: Connection, namespace_pk: int, ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in split_parameters(ids):
        query = select(memories.c.id, memories.c.pk).where(
            memories.c.namespace_pk == namespace_pk, memories.c.id.in_(batch)
        )
        found.update((row.id, row.pk) for row in connection.execute(query))
    return found


def _close_entry(connection: Connection, name: str, key: int, until: datetime) -> None:
    may_end = or_(memories.c.valid_until.is_(None), memories.c.valid_until >= until)
    # The condition is part of the UPDATE: an end can be moved to an earlier time, but not to a later one.
    own = update(memories).where(memories.c.pk == key, memories.c.valid_from <= until, may_end)
    if not connection.execute(own.values(valid_until=until)).rowcount:
        raise InvalidInputError(
            f"the entry {name!r} cannot end at {until.isoformat()!r}: that is before its start, or after its current "
            "end; nothing was changed"
        )


def _upsert_relation(
    connection: Connection, relation: Relation, keys: Mapping[str, int], *, is_checked: bool = True
) -> None:
    source, target = keys[relation.source], keys[relation.target]
    if is_checked and relation.kind == RelationKind.SUPERSEDES:
        _refuse_cycle(connection, relation, source, target)
    values: dict[str, Any] = {"strength": relation.strength, "created_at": relation.created_at}
    own = (
        (relations.c.source_pk == source)
        & (relations.c.target_pk == target)
        & (relations.c.kind == escape(relation.kind))
    )
    if not connection.execute(update(relations).where(own).values(values)).rowcount:
        row = {"source_pk": source, "target_pk": target, "kind": escape(relation.kind), **values}
        connection.execute(insert(relations), [row])


# Collect everything that the target supersedes, directly or indirectly. The source must not be among it.
def _refuse_cycle(connection: Connection, relation: Relation, source: int, target: int) -> None:
    superseded = select(literal(target, KEY_TYPE).label("pk")).cte(recursive=True)
    step = (
        select(relations.c.target_pk)
        .join(superseded, superseded.c.pk == relations.c.source_pk)
        .where(relations.c.kind == escape(RelationKind.SUPERSEDES))
    )
    # UNION removes duplicates, so the recursion ends even if there is a cycle.
    superseded = superseded.union(step)
    if connection.execute(select(superseded.c.pk).where(superseded.c.pk == source)).first() is not None:
        raise InvalidInputError(
            f"{relation.source!r} cannot supersede {relation.target!r}, which already supersedes it directly or "
            "indirectly; nothing was changed"
        )


def _insert_facts(connection: Connection, namespace_pk: int, write: MemoryWrite) -> None:
    if not write.facts:
        return
    names = sorted({fact.session for fact in write.facts if fact.session is not None})
    # A fact may name a session that is not stored: its name is also part of the body.
    keys: dict[str, int] = {}
    for batch in split_parameters(names):
        query = select(sessions.c.name, sessions.c.pk).where(
            sessions.c.namespace_pk == namespace_pk, sessions.c.name.in_([escape(name) for name in batch])
        )
        keys.update((row.name, row.pk) for row in connection.execute(query))
    rows = [
        to_fact_row(fact, namespace_pk, None if fact.session is None else keys.get(escape(fact.session)))
        for fact in write.facts
    ]
    connection.execute(insert(extracted_facts), rows)


def _update_fact(connection: Connection, namespace_pk: int, move: FactMove) -> None:
    own = (extracted_facts.c.namespace_pk == namespace_pk) & (extracted_facts.c.id == escape(move.id))
    row = connection.execute(SELECT_FACTS.where(own).with_for_update(of=extracted_facts)).first()
    if row is None:
        raise EntryNotFoundError(
            f"no extracted fact {move.id!r}: use an id returned by facts(); nothing was changed"
        )
    fact = to_fact(row)
    if fact.state not in move.from_states:
        raise StaleWriteError("the state of the fact has changed")
    confidence = fact.confidence if move.confidence is None else move.confidence
    moved = replace(fact, state=move.state, reason=move.reason, entry_id=move.entry_id)
    values = {"state": move.state.value, "confidence": confidence, "body": to_fact_body(moved)}
    connection.execute(update(extracted_facts).where(own).values(values))


def _update_cursor(connection: Connection, move: CursorMove) -> None:
    own = learned_sessions.c.session_pk == move.session_key
    erased_query = select(namespaces.c.erasure_epoch).join(sessions).where(sessions.c.pk == move.session_key)
    erased = connection.execute(erased_query).scalar()
    if erased is None:
        raise build_session_not_found_error()
    # Messages that the write is based on may have been erased: it must not bring their content back.
    if move.before.erasure_count not in (None, erased):
        raise StaleWriteError("messages were erased concurrently")
    row = connection.execute(select(learned_sessions).where(own).with_for_update()).first()
    if (
        LearningCursor() if row is None else LearningCursor(row.learned_turn, row.chunked_turn)
    ) != move.before:
        raise StaleWriteError("another process has processed the session")
    values = {"learned_turn": move.after.learned_turn, "chunked_turn": move.after.chunked_turn}
    if row is None:
        connection.execute(insert(learned_sessions).values(session_pk=move.session_key, **values))
    else:
        connection.execute(update(learned_sessions).where(own).values(values))
