"""Deletes contributions and their copies, inside a transaction of the caller.

A hidden duplicate of a deleted entry takes its place. An entry that a deleted one had superseded becomes valid
again, until the next entry that contradicts it. Both get new revisions, so that members who have synced before
receive them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, or_, select, update

from langmem_tiers.common.namespaces import build_namespace_key, escape
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.long_term.models import RelationKind
from langmem_tiers.storage.schema import (
    memories,
    memory_namespaces,
    namespaces,
    origins,
    pool_members,
    pools,
    relations,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_sql import AnyRow

_IS_SUPERSEDING = relations.c.kind == escape(RelationKind.SUPERSEDES)
_UPDATE_REVISION = update(memories).where(memories.c.pk == bindparam("of")).values(revision=bindparam("to"))


@dataclass
class _ChangedEntries:
    """Row keys of entries that became visible or valid again, by namespace key."""

    by_namespace: dict[int, list[int]] = field(default_factory=dict)

    def add(self, row: AnyRow) -> None:
        self.by_namespace.setdefault(row.namespace_pk, []).append(row.pk)


def lock_pools_of(connection: Connection, namespace: NamespacePath) -> list[int]:
    """Lock the pools that a namespace is a member of or has contributed to; return their keys.

    While they are locked, no contribution and no sync can happen. The order of the keys avoids deadlocks.
    """
    path = build_namespace_key(namespace)
    member_of = select(pool_members.c.pool_pk).where(pool_members.c.namespace == path)
    contributed_to = (
        select(pools.c.pk)
        .join(memories, memories.c.namespace_pk == pools.c.namespace_pk)
        .join(origins, origins.c.memory_pk == memories.c.pk)
        .where(origins.c.namespace == path)
    )
    own = or_(pools.c.pk.in_(member_of), pools.c.pk.in_(contributed_to))
    query = select(pools.c.pk).where(own).order_by(pools.c.pk).with_for_update()
    return list(connection.execute(query).scalars())


def delete_copies(
    connection: Connection, namespace: NamespacePath, ids: Sequence[str] | None = None
) -> tuple[int, int]:
    """Delete the copies of a namespace's contributions, in pools and in the namespaces that synced them.

    The caller must have locked the pools with ``lock_pools_of``.

    Args:
        connection: Connection of an open transaction.
        namespace: Namespace of the contributor.
        ids: Ids of the originals. None means all.

    Returns:
        Number of deleted contributions and number of deleted synced copies.
    """
    query = _select_copies(namespace)
    found: dict[int, AnyRow] = {}
    queries = (
        [query] if ids is None else [_filter_by_ids(query, batch) for batch in split_parameters(list(ids))]
    )
    for batch_query in queries:
        found.update((row.pk, row) for row in connection.execute(batch_query))
    delete_memories(connection, {pk: row.namespace_pk for pk, row in found.items()})
    contributions = sum(row.pool_pk is not None for row in found.values())
    return contributions, len(found) - contributions


def delete_contributions(connection: Connection, pool: AnyRow, namespace: NamespacePath) -> int:
    """Delete a namespace's contributions to a locked pool and return their number."""
    query = _select_copies(namespace).where(memories.c.namespace_pk == pool.namespace_pk)
    keys = [row.pk for row in connection.execute(query)]
    delete_memories(connection, dict.fromkeys(keys, pool.namespace_pk))
    return len(keys)


def delete_memories(connection: Connection, doomed: Mapping[int, int]) -> None:
    """Delete entries and undo their effects on other entries.

    Args:
        connection: Connection of an open transaction.
        doomed: Namespace keys by entry key.
    """
    if not doomed:
        return
    spaces = sorted(set(doomed.values()))
    # Lock in the order of the keys: all transactions that lock several namespaces do, which avoids deadlocks.
    for batch in split_parameters(spaces):
        own = select(namespaces.c.pk).where(namespaces.c.pk.in_(batch)).order_by(namespaces.c.pk)
        connection.execute(own.with_for_update())
    changed = _ChangedEntries()
    # First the duplicates: an entry that has one lives on in it, so what it superseded must stay superseded.
    replaced = _replace_with_duplicates(connection, sorted(doomed), changed)
    _reopen_ended_entries(connection, sorted(doomed.keys() - replaced), set(doomed), changed)
    for batch in split_parameters(sorted(doomed)):
        connection.execute(delete(memories).where(memories.c.pk.in_(batch)))
    for space in spaces:
        _update_revisions(connection, space, changed.by_namespace.get(space, []))


def _select_copies(namespace: NamespacePath) -> Select[int, int, int | None]:
    return (
        select(memories.c.pk, memories.c.namespace_pk, pools.c.pk.label("pool_pk"))
        .join(origins, origins.c.memory_pk == memories.c.pk)
        .outerjoin(pools, pools.c.namespace_pk == memories.c.namespace_pk)
        .where(origins.c.namespace == build_namespace_key(namespace))
    )


def _filter_by_ids(query: Select[int, int, int | None], ids: Sequence[str]) -> Select[int, int, int | None]:
    return query.where(origins.c.entry_id.in_([escape(name) for name in ids]))


def _replace_with_duplicates(
    connection: Connection, doomed: Sequence[int], changed: _ChangedEntries
) -> set[int]:
    """Put hidden duplicates in the place of deleted entries; return the keys of the entries that had one."""
    heirs: dict[int, list[int]] = {}
    for batch in split_parameters(doomed):
        duplicates = select(origins.c.memory_pk, origins.c.same_as_pk).where(origins.c.same_as_pk.in_(batch))
        for row in connection.execute(duplicates.order_by(origins.c.memory_pk)):
            heirs.setdefault(row.same_as_pk, []).append(row.memory_pk)
    deleted = set(doomed)
    # The oldest duplicate that is not deleted itself takes over.
    first = {
        old: next((heir for heir in candidates if heir not in deleted), None)
        for old, candidates in heirs.items()
    }
    replaced = {old: heir for old, heir in first.items() if heir is not None}
    rows = _load_times(connection, [*replaced, *replaced.values()])
    for old, heir in replaced.items():
        old_row, heir_row = rows[old], rows[heir]
        # The heir's validity is its own, cut off at the end of the old entry. It must not end before it begins.
        until = _find_earliest(old_row.valid_until, heir_row.valid_until)
        since = heir_row.valid_from if until is None else min(heir_row.valid_from, until)
        values = {"archived_at": None, "valid_from": since, "valid_until": until}
        connection.execute(update(memories).where(memories.c.pk == heir).values(values))
        other_duplicates = update(origins).where(origins.c.same_as_pk == old)
        connection.execute(other_duplicates.values(same_as_pk=heir))
        connection.execute(update(origins).where(origins.c.memory_pk == heir).values(same_as_pk=None))
        # Relations of the old entry move to the heir; deleting the old one would delete them, too.
        for end in (relations.c.source_pk, relations.c.target_pk):
            connection.execute(update(relations).where(end == old).values({end.name: heir}))
        changed.add(heir_row)
    return set(replaced)


def _reopen_ended_entries(
    connection: Connection, deleted_keys: Sequence[int], deleted: set[int], changed: _ChangedEntries
) -> None:
    """Reopen entries that ended only because deleted entries had superseded them."""
    supersessions: list[tuple[int, int]] = []
    superseder_of: dict[int, int] = {}
    for batch in split_parameters(deleted_keys):
        touched = or_(relations.c.source_pk.in_(batch), relations.c.target_pk.in_(batch))
        query = select(relations.c.source_pk, relations.c.target_pk).where(_IS_SUPERSEDING, touched)
        for row in connection.execute(query):
            superseder_of[row.target_pk] = row.source_pk
            if row.target_pk not in deleted:
                supersessions.append((row.source_pk, row.target_pk))
    nexts = {
        target: _find_next_superseder(superseder_of, source, deleted) for source, target in supersessions
    }
    keys = {
        *(key for pair in supersessions for key in pair),
        *(key for key in nexts.values() if key is not None),
    }
    rows = _load_times(connection, keys)
    for source, target in supersessions:
        old, superseder, after = rows[target], rows[source], nexts[target]
        if old.valid_until != max(superseder.valid_from, old.valid_from):
            continue  # it had ended earlier for another reason
        until = _find_earliest(old.ends_at, None if after is None else rows[after].valid_from)
        connection.execute(update(memories).where(memories.c.pk == target).values(valid_until=until))
        if after is not None:
            _insert_supersession(connection, after, target, source)
        changed.add(old)


def _find_next_superseder(superseder_of: Mapping[int, int], key: int, deleted: set[int]) -> int | None:
    # Follow the chain to the first superseder that is not deleted. It cannot cycle: relate() and the conflict rules
    # prevent mutual supersession.
    found: int | None = key
    while found is not None and found in deleted:
        found = superseder_of.get(found)
    return found


def _insert_supersession(connection: Connection, after: int, target: int, source: int) -> None:
    is_target = relations.c.target_pk == target
    if (
        connection.execute(select(relations.c.kind).where(is_target, relations.c.source_pk == after)).first()
        is None
    ):
        columns = select(relations.c.kind, relations.c.strength, relations.c.created_at)
        row = connection.execute(
            columns.where(is_target, relations.c.source_pk == source, _IS_SUPERSEDING)
        ).one()
        connection.execute(
            insert(relations),
            [{"source_pk": after, "target_pk": target, **row._mapping}],  # noqa: SLF001 - public in SQLAlchemy
        )


def _load_times(connection: Connection, keys: Iterable[int]) -> dict[int, AnyRow]:
    query = select(
        memories.c.pk,
        memories.c.namespace_pk,
        memories.c.valid_from,
        memories.c.valid_until,
        origins.c.ends_at,
    ).outerjoin(origins, origins.c.memory_pk == memories.c.pk)
    found: dict[int, AnyRow] = {}
    for batch in split_parameters(sorted(set(keys))):
        found.update((row.pk, row) for row in connection.execute(query.where(memories.c.pk.in_(batch))))
    return found


def _find_earliest(*times: datetime | None) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _update_revisions(connection: Connection, space: int, changed: Sequence[int]) -> None:
    # One revision per changed entry, plus one: a writer that compared its entry with a deleted one must start over.
    own = memory_namespaces.c.namespace_pk == space
    revision = connection.execute(select(memory_namespaces.c.revision).where(own)).scalar_one()
    keys = list(dict.fromkeys(changed))
    rows = [{"of": key, "to": number} for number, key in enumerate(keys, revision + 1)]
    if rows:
        connection.execute(_UPDATE_REVISION, rows)
    values = {"revision": revision + len(rows) + 1, "erasure_epoch": memory_namespaces.c.erasure_epoch + 1}
    connection.execute(update(memory_namespaces).where(own).values(values))
