"""Walking from entry to entry over relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.long_term.models import Related

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import StoredEntry

MAX_REACHED_ENTRIES = 10_000
"""Entries that one walk reaches at most."""


def walk_relations(
    parts: LongTermDependencies,
    namespace: NamespacePath,
    start: StoredEntry,
    depth: int,
    kinds: AbstractSet[str] | None,
) -> tuple[Related, ...]:
    """Entries that are reached over relations, either way, the nearest and strongest first; two reads for each step.

    Args:
        parts: Where they are.
        namespace: Whose.
        start: Where to begin.
        depth: How many relations may lie between.
        kinds: Only over relations of these kinds.
    """
    store, done = parts.store, {start.entry.id}
    ways: dict[str, tuple[Relation, ...]] = {start.entry.id: ()}
    reached: list[Related] = []
    step = 0
    while ways and step < depth and len(reached) < MAX_REACHED_ENTRIES:
        step += 1
        relations = [
            one for one in store.list_relations(namespace, sorted(ways)) if kinds is None or one.kind in kinds
        ]
        ways = _find_next_paths(ways, relations, done)
        done |= ways.keys()
        entries = store.get(namespace, sorted(ways))
        reached += sorted(
            (
                Related(
                    entry=parts.access_counter.with_pending_accesses(entries[name]).entry,
                    depth=step,
                    strength=_multiply_strengths(way),
                    path=way,
                )
                for name, way in ways.items()
                if name in entries
            ),
            key=lambda one: (-one.strength, one.entry.id),
        )
    return tuple(reached[:MAX_REACHED_ENTRIES])


def _find_next_paths(
    ways: dict[str, tuple[Relation, ...]], relations: list[Relation], done: set[str]
) -> dict[str, tuple[Relation, ...]]:
    # To each new entry the strongest way.
    found: dict[str, tuple[Relation, ...]] = {}
    for relation in relations:
        for here, there in ((relation.source, relation.target), (relation.target, relation.source)):
            if here in ways and there not in done:
                way = (*ways[here], relation)
                if there not in found or _multiply_strengths(way) > _multiply_strengths(found[there]):
                    found[there] = way
    return found


def _multiply_strengths(way: tuple[Relation, ...]) -> float:
    strength = 1.0
    for relation in way:
        strength *= relation.strength
    return strength
