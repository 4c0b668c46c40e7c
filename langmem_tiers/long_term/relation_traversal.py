"""Traversal of entries along relations."""

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
"""Maximum number of entries that one traversal returns."""


def walk_relations(
    dependencies: LongTermDependencies,
    namespace: NamespacePath,
    start: StoredEntry,
    depth: int,
    kinds: AbstractSet[str] | None,
) -> tuple[Related, ...]:
    """Return entries reachable over relations in either direction, nearest and strongest first.

    Each step takes two reads, however many entries it reaches.

    Args:
        dependencies: Stores to read from.
        namespace: Namespace of the entries.
        start: Entry to start from.
        depth: Maximum number of relations on the path.
        kinds: Follow only relations of these kinds. None means all.
    """
    store, visited = dependencies.store, {start.entry.id}
    paths: dict[str, tuple[Relation, ...]] = {start.entry.id: ()}
    reached: list[Related] = []
    step = 0
    while paths and step < depth and len(reached) < MAX_REACHED_ENTRIES:
        step += 1
        relations = [
            relation
            for relation in store.list_relations(namespace, sorted(paths))
            if kinds is None or relation.kind in kinds
        ]
        paths = _find_next_paths(paths, relations, visited)
        visited |= paths.keys()
        entries = store.get(namespace, sorted(paths))
        reached += sorted(
            (
                Related(
                    entry=dependencies.access_counter.with_pending_accesses(entries[name]).entry,
                    depth=step,
                    strength=_multiply_strengths(path),
                    path=path,
                )
                for name, path in paths.items()
                if name in entries
            ),
            # The id makes the order of equally strong entries deterministic.
            key=lambda related: (-related.strength, related.entry.id),
        )
    return tuple(reached[:MAX_REACHED_ENTRIES])


def _find_next_paths(
    paths: dict[str, tuple[Relation, ...]], relations: list[Relation], visited: set[str]
) -> dict[str, tuple[Relation, ...]]:
    # For each new entry, keep the strongest path. Entries of earlier steps are not visited again, so cycles end.
    found: dict[str, tuple[Relation, ...]] = {}
    for relation in relations:
        for entry, neighbor in ((relation.source, relation.target), (relation.target, relation.source)):
            if entry in paths and neighbor not in visited:
                path = (*paths[entry], relation)
                if neighbor not in found or _multiply_strengths(path) > _multiply_strengths(found[neighbor]):
                    found[neighbor] = path
    return found


def _multiply_strengths(path: tuple[Relation, ...]) -> float:
    strength = 1.0
    for relation in path:
        strength *= relation.strength
    return strength
