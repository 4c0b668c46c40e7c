"""Erases copies by where they come from, inside a transaction that somebody else has opened.

What stood behind an erased entry takes its place. What an erased entry had ended holds again, or until the next one
that speaks against it. Both get new revisions, so that members who have synced already get them too.
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
    memory_spaces,
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
    from langmem_tiers.sessions.message_rows import AnyRow

_IS_SUPERSEDING = relations.c.kind == escape(RelationKind.SUPERSEDES)
_UPDATE_REVISION = update(memories).where(memories.c.pk == bindparam("of")).values(revision=bindparam("to"))


@dataclass
class _ChangedEntries:
    """Entries that are shown again, by the key of their namespace."""

    by_namespace: dict[int, list[int]] = field(default_factory=dict)

    def add(self, row: AnyRow) -> None:
        self.by_namespace.setdefault(row.namespace_pk, []).append(row.pk)


def lock_pools_of(connection: Connection, namespace: NamespacePath) -> list[int]:
    """Let nobody contribute to or sync from the pools that a namespace is in, or has given something to."""
    path = build_namespace_key(namespace)
    joined = select(pool_members.c.pool_pk).where(pool_members.c.namespace == path)
    given = (
        select(pools.c.pk)
        .join(memories, memories.c.namespace_pk == pools.c.namespace_pk)
        .join(origins, origins.c.memory_pk == memories.c.pk)
        .where(origins.c.namespace == path)
    )
    own = or_(pools.c.pk.in_(joined), pools.c.pk.in_(given))
    query = select(pools.c.pk).where(own).order_by(pools.c.pk).with_for_update()
    return list(connection.execute(query).scalars())


def delete_copies(
    connection: Connection, namespace: NamespacePath, ids: Sequence[str] | None = None
) -> tuple[int, int]:
    """Erase copies of what a namespace has contributed, or of some entries of it, wherever they are.

    The pools are locked by ``lock_pools_of``.

    Returns:
        How many of them were contributions, and how many were synced.
    """
    query = _select_copies(namespace)
    found: dict[int, AnyRow] = {}
    queries = (
        [query] if ids is None else [_filter_by_ids(query, some) for some in split_parameters(list(ids))]
    )
    for each in queries:
        found.update((row.pk, row) for row in connection.execute(each))
    delete_memories(connection, {pk: row.namespace_pk for pk, row in found.items()})
    given = sum(row.pool_pk is not None for row in found.values())
    return given, len(found) - given


def delete_contributions(connection: Connection, pool: AnyRow, namespace: NamespacePath) -> int:
    """Erase what a namespace has contributed to a pool; how much that was. The pool is locked."""
    query = _select_copies(namespace).where(memories.c.namespace_pk == pool.namespace_pk)
    keys = [row.pk for row in connection.execute(query)]
    delete_memories(connection, dict.fromkeys(keys, pool.namespace_pk))
    return len(keys)


def delete_memories(connection: Connection, doomed: Mapping[int, int]) -> None:
    """Erase entries as if they had never been there.

    Args:
        connection: In its transaction.
        doomed: Keys of entries, and of their namespaces.
    """
    if not doomed:
        return
    spaces = sorted(set(doomed.values()))
    for some in split_parameters(spaces):
        own = select(namespaces.c.pk).where(namespaces.c.pk.in_(some)).order_by(namespaces.c.pk)
        connection.execute(own.with_for_update())
    changed = _ChangedEntries()
    replaced = _replace_with_duplicates(connection, sorted(doomed), changed)
    _reopen_ended(connection, sorted(doomed.keys() - replaced), set(doomed), changed)
    for some in split_parameters(sorted(doomed)):
        connection.execute(delete(memories).where(memories.c.pk.in_(some)))
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
    """Let those that say the same take the place of entries that go; the keys of these."""
    heirs: dict[int, list[int]] = {}
    for some in split_parameters(doomed):
        behind = select(origins.c.memory_pk, origins.c.same_as_pk).where(origins.c.same_as_pk.in_(some))
        for row in connection.execute(behind.order_by(origins.c.memory_pk)):
            heirs.setdefault(row.same_as_pk, []).append(row.memory_pk)
    gone = set(doomed)
    first = {old: next((heir for heir in those if heir not in gone), None) for old, those in heirs.items()}
    replaced = {old: heir for old, heir in first.items() if heir is not None}
    rows = _load_times(connection, [*replaced, *replaced.values()])
    for old, heir in replaced.items():
        left, follows = rows[old], rows[heir]
        until = _find_earliest(left.valid_until, follows.valid_until)
        since = follows.valid_from if until is None else min(follows.valid_from, until)
        shown = {"archived_at": None, "valid_from": since, "valid_until": until}
        connection.execute(update(memories).where(memories.c.pk == heir).values(shown))
        behind_old = update(origins).where(origins.c.same_as_pk == old)
        connection.execute(behind_old.values(same_as_pk=heir))
        connection.execute(update(origins).where(origins.c.memory_pk == heir).values(same_as_pk=None))
        for end in (relations.c.source_pk, relations.c.target_pk):
            connection.execute(update(relations).where(end == old).values({end.name: heir}))
        changed.add(follows)
    return set(replaced)


def _reopen_ended(
    connection: Connection, dead: Sequence[int], gone: set[int], changed: _ChangedEntries
) -> None:
    """Let hold again what ended only because of entries that go."""
    ended: list[tuple[int, int]] = []
    ender: dict[int, int] = {}
    for some in split_parameters(dead):
        touched = or_(relations.c.source_pk.in_(some), relations.c.target_pk.in_(some))
        query = select(relations.c.source_pk, relations.c.target_pk).where(_IS_SUPERSEDING, touched)
        for row in connection.execute(query):
            ender[row.target_pk] = row.source_pk
            if row.target_pk not in gone:
                ended.append((row.source_pk, row.target_pk))
    nexts = {target: _find_next_superseder(ender, source, gone) for source, target in ended}
    named = {*(key for pair in ended for key in pair), *(key for key in nexts.values() if key is not None)}
    rows = _load_times(connection, named)
    for source, target in ended:
        old, by, after = rows[target], rows[source], nexts[target]
        if old.valid_until != max(by.valid_from, old.valid_from):
            continue  # it had ended for another reason
        until = _find_earliest(old.ends_at, None if after is None else rows[after].valid_from)
        connection.execute(update(memories).where(memories.c.pk == target).values(valid_until=until))
        if after is not None:
            _insert_supersession(connection, after, target, source)
        changed.add(old)


def _find_next_superseder(ender: Mapping[int, int], key: int, gone: set[int]) -> int | None:
    # Each is left once: an entry supersedes none that supersedes it.
    found: int | None = key
    while found is not None and found in gone:
        found = ender.get(found)
    return found


def _insert_supersession(connection: Connection, after: int, target: int, source: int) -> None:
    own = relations.c.target_pk == target
    if (
        connection.execute(select(relations.c.kind).where(own, relations.c.source_pk == after)).first()
        is None
    ):
        of = select(relations.c.kind, relations.c.strength, relations.c.created_at)
        row = connection.execute(of.where(own, relations.c.source_pk == source, _IS_SUPERSEDING)).one()
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
    for some in split_parameters(sorted(set(keys))):
        found.update((row.pk, row) for row in connection.execute(query.where(memories.c.pk.in_(some))))
    return found


def _find_earliest(*times: datetime | None) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _update_revisions(connection: Connection, space: int, changed: Sequence[int]) -> None:
    # The next revision too: whoever has compared an entry with what is gone now looks again.
    own = memory_spaces.c.namespace_pk == space
    revision = connection.execute(select(memory_spaces.c.revision).where(own)).scalar_one()
    keys = list(dict.fromkeys(changed))
    rows = [{"of": key, "to": number} for number, key in enumerate(keys, revision + 1)]
    if rows:
        connection.execute(_UPDATE_REVISION, rows)
    values = {"revision": revision + len(rows) + 1, "erased": memory_spaces.c.erased + 1}
    connection.execute(update(memory_spaces).where(own).values(values))
