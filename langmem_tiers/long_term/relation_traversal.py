"""Walking from entry to entry over relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.long_term.models import Related

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LastingParts
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import KeptEntry

MOST_REACHED = 10_000
"""Entries that one walk reaches at most."""


def walk(
    parts: LastingParts,
    namespace: NamespacePath,
    start: KeptEntry,
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
    while ways and step < depth and len(reached) < MOST_REACHED:
        step += 1
        relations = [
            one for one in store.relations(namespace, sorted(ways)) if kinds is None or one.kind in kinds
        ]
        ways = _next(ways, relations, done)
        done |= ways.keys()
        entries = store.get(namespace, sorted(ways))
        reached += sorted(
            (
                Related(
                    entry=parts.uses.seen(entries[name]).entry, depth=step, strength=_strength(way), path=way
                )
                for name, way in ways.items()
                if name in entries
            ),
            key=lambda one: (-one.strength, one.entry.id),
        )
    return tuple(reached[:MOST_REACHED])


def _next(
    ways: dict[str, tuple[Relation, ...]], relations: list[Relation], done: set[str]
) -> dict[str, tuple[Relation, ...]]:
    # To each new entry the strongest way.
    found: dict[str, tuple[Relation, ...]] = {}
    for relation in relations:
        for here, there in ((relation.source, relation.target), (relation.target, relation.source)):
            if here in ways and there not in done:
                way = (*ways[here], relation)
                if there not in found or _strength(way) > _strength(found[there]):
                    found[there] = way
    return found


def _strength(way: tuple[Relation, ...]) -> float:
    strength = 1.0
    for relation in way:
        strength *= relation.strength
    return strength
