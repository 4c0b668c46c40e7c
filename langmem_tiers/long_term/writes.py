"""Changes of entries and extracted facts, inside a transaction that somebody else has opened.

Each begins with the row of the namespace's memory, which is the lock of all that it holds.
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
from langmem_tiers.storage.schema import (
    extracted_facts,
    learned_sessions,
    memories,
    memory_spaces,
    memory_tags,
    memory_vectors,
    namespaces,
    relations,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, ScalarSelect

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import CursorMove, FactMove, MemoryWrite, NewEntry


_PRESERVED_COLUMNS = frozenset({"archived_at", "access_count", "last_access_at"})
"""What an entry that takes the place of another leaves as it is: others may change it at any time."""


class StaleWriteError(ConcurrentWriteError):
    """Somebody else was faster: nothing of this write may be kept."""


def apply_memory_write(
    connection: Connection, namespace: NamespacePath, write: MemoryWrite, now: datetime
) -> None:
    """Make all changes of a write."""
    namespace_pk, revision = lock_and_advance_revision(connection, namespace, now, expected=write.revision)
    if write.cursor is not None:
        _update_cursor(connection, write.cursor)
    new = upsert_entries(connection, namespace_pk, write.put, revision)
    named = {
        *write.close,
        *write.archive,
        *write.restore,
        *(r.source for r in write.relate),
        *(r.target for r in write.relate),
    }
    keys = require_entry_keys(connection, namespace_pk, sorted(named))
    for name, until in write.close.items():
        _close_entry(connection, name, keys[name], until)
    archive_entries(connection, namespace_pk, [keys[name] for name in write.archive], now)
    shown = [keys[name] for name in write.restore]
    connection.execute(update(memories).where(memories.c.pk.in_(shown)).values(archived_at=None))
    # What is new was superseded by nothing yet, but for what this write says of it.
    unchecked = new - {relation.target for relation in write.relate}
    for relation in write.relate:
        _upsert_relation(connection, relation, keys, is_checked=relation.source not in unchecked)
    _insert_facts(connection, namespace_pk, write)
    for move in write.fact_moves:
        _update_fact(connection, namespace_pk, move)


def lock_and_advance_revision(
    connection: Connection, namespace: NamespacePath, now: datetime, *, expected: int | None = None
) -> tuple[int, int]:
    """The namespace's key and its next revision; nobody else changes its memory until the transaction ends."""
    namespace_pk = get_or_create_namespace(connection, build_namespace_key(namespace), now)
    # Locked first, as by all who write beside messages: two that lock in another order wait for ever.
    connection.execute(select(namespaces.c.pk).where(namespaces.c.pk == namespace_pk).with_for_update())
    own = memory_spaces.c.namespace_pk == namespace_pk
    found = connection.execute(select(memory_spaces.c.revision).where(own)).scalar()
    if expected is not None and expected != (found or 0):
        raise StaleWriteError("the memory of the namespace has changed")
    if found is None:
        connection.execute(insert(memory_spaces).values(namespace_pk=namespace_pk, revision=1, erased=0))
    else:
        connection.execute(update(memory_spaces).where(own).values(revision=found + 1))
    return namespace_pk, (found or 0) + 1


def require_entry_keys(connection: Connection, namespace_pk: int, ids: Sequence[str]) -> dict[str, int]:
    """The keys of entries.

    Raises:
        EntryNotFoundError: One of them is not there.
    """
    found: dict[str, int] = {}
    for some in split_parameters(ids):
        stored = {escape(name): name for name in some}
        query = select(memories.c.id, memories.c.pk).where(
            memories.c.namespace_pk == namespace_pk, memories.c.id.in_(list(stored))
        )
        found.update((stored[row.id], row.pk) for row in connection.execute(query))
    for name in ids:
        if name not in found:
            raise EntryNotFoundError(
                f"there is no entry {name!r} in this namespace: use an id that store() or recall() gave; "
                "nothing was changed"
            )
    return found


def upsert_entries(
    connection: Connection, namespace_pk: int, new: Sequence[NewEntry], revision: int
) -> set[str]:
    """Keep entries; one whose id is there already takes the place of the one before. The ids of those that are new."""
    if not new:
        return set()
    _check_sessions(connection, namespace_pk, new)
    last = {one.entry.id: one for one in new}
    rows = {escape(name): to_entry_row(one, namespace_pk, revision) for name, one in last.items()}
    there = _find_entry_keys(connection, namespace_pk, list(rows))
    for name, pk in there.items():
        changed = {key: value for key, value in rows.pop(name).items() if key not in _PRESERVED_COLUMNS}
        connection.execute(update(memories).where(memories.c.pk == pk).values(changed))
        connection.execute(delete(memory_tags).where(memory_tags.c.memory_pk == pk))
        connection.execute(delete(memory_vectors).where(memory_vectors.c.memory_pk == pk))
    if rows:
        connection.execute(insert(memories), list(rows.values()))
    fresh = {name for name in last if escape(name) in rows}
    tagged = [one for one in last.values() if one.entry.tags]
    if not tagged:
        return fresh
    keys = _find_entry_keys(connection, namespace_pk, [escape(one.entry.id) for one in tagged])
    tags = [
        {"memory_pk": keys[escape(one.entry.id)], "tag": escape(tag)}
        for one in tagged
        for tag in sorted(one.entry.tags)
    ]
    connection.execute(insert(memory_tags), tags)
    return fresh


def _check_sessions(connection: Connection, namespace_pk: int, new: Sequence[NewEntry]) -> None:
    # Nobody deletes a session while its namespace is locked.
    wanted = sorted({one.session_key for one in new if one.session_key is not None})
    own = select(func.count()).select_from(sessions).where(sessions.c.namespace_pk == namespace_pk)
    for some in split_parameters(wanted):
        if connection.execute(own.where(sessions.c.pk.in_(some))).scalar_one() < len(some):
            raise build_session_not_found_error()


def archive_entries(
    connection: Connection,
    namespace_pk: int | ScalarSelect[int],
    keys: Sequence[int],
    now: datetime,
) -> tuple[int, int]:
    """Archive entries of a namespace; how many were not archived yet, and their tokens."""
    count = tokens = 0
    for some in split_parameters(keys):
        archived = (
            update(memories)
            .where(memories.c.namespace_pk == namespace_pk, memories.c.pk.in_(some))
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
    for some in split_parameters(ids):
        query = select(memories.c.id, memories.c.pk).where(
            memories.c.namespace_pk == namespace_pk, memories.c.id.in_(some)
        )
        found.update((row.id, row.pk) for row in connection.execute(query))
    return found


def _close_entry(connection: Connection, name: str, key: int, until: datetime) -> None:
    may_end = or_(memories.c.valid_until.is_(None), memories.c.valid_until >= until)
    own = update(memories).where(memories.c.pk == key, memories.c.valid_from <= until, may_end)
    if not connection.execute(own.values(valid_until=until)).rowcount:
        raise InvalidInputError(
            f"the entry {name!r} cannot cease to hold at {until.isoformat()!r}: that lies before it held, or after it "
            "ceased to; nothing was changed"
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


def _refuse_cycle(connection: Connection, relation: Relation, source: int, target: int) -> None:
    superseded = select(literal(target, KEY_TYPE).label("pk")).cte(recursive=True)
    step = (
        select(relations.c.target_pk)
        .join(superseded, superseded.c.pk == relations.c.source_pk)
        .where(relations.c.kind == escape(RelationKind.SUPERSEDES))
    )
    superseded = superseded.union(step)  # each once, whatever the cycles
    if connection.execute(select(superseded.c.pk).where(superseded.c.pk == source)).first() is not None:
        raise InvalidInputError(
            f"{relation.source!r} cannot supersede {relation.target!r}, which supersedes it already, "
            "itself or by way of others: nothing was changed"
        )


def _insert_facts(connection: Connection, namespace_pk: int, write: MemoryWrite) -> None:
    if not write.facts:
        return
    names = sorted({fact.session for fact in write.facts if fact.session is not None})
    keys: dict[str, int] = {}
    for some in split_parameters(names):
        query = select(sessions.c.name, sessions.c.pk).where(
            sessions.c.namespace_pk == namespace_pk, sessions.c.name.in_([escape(name) for name in some])
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
            f"there is no extracted fact {move.id!r}: use an id that facts() gave; nothing was changed"
        )
    fact = to_fact(row)
    if fact.state not in move.from_states:
        raise StaleWriteError("the fact has moved on")
    confidence = fact.confidence if move.confidence is None else move.confidence
    moved = replace(fact, state=move.state, reason=move.reason, entry_id=move.entry_id)
    values = {"state": move.state.value, "confidence": confidence, "body": to_fact_body(moved)}
    connection.execute(update(extracted_facts).where(own).values(values))


def _update_cursor(connection: Connection, move: CursorMove) -> None:
    own = learned_sessions.c.session_pk == move.session_key
    there = select(namespaces.c.erased).join(sessions).where(sessions.c.pk == move.session_key)
    erased = connection.execute(there).scalar()
    if erased is None:
        raise build_session_not_found_error()
    if move.before.erasure_count not in (None, erased):
        raise StaleWriteError("something was erased that this may tell of")
    row = connection.execute(select(learned_sessions).where(own).with_for_update()).first()
    if (LearningCursor() if row is None else LearningCursor(row.learned, row.chunked)) != move.before:
        raise StaleWriteError("somebody else works on the session")
    values = {"learned": move.after.learned_turn, "chunked": move.after.chunked_turn}
    if row is None:
        connection.execute(insert(learned_sessions).values(session_pk=move.session_key, **values))
    else:
        connection.execute(update(learned_sessions).where(own).values(values))
