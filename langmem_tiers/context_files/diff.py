"""Comparison of two versions of a context."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from langmem_tiers.context_files.serializer import context_to_bytes, part_to_dict, to_json_text
from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.context_files.models import ActiveTask, ContextData, HistoryEntry

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextDiff(Displayable):
    """Differences between two versions of a context."""

    older: int
    newer: int
    changed: tuple[str, ...]
    """Names of the fields that differ."""
    facts_added: tuple[str, ...]
    facts_removed: tuple[str, ...]
    history_added: tuple[HistoryEntry, ...]
    history_removed: tuple[HistoryEntry, ...]
    tasks_changed: tuple[str, ...]
    """Ids of tasks that were added, removed or changed."""
    text: str
    """Unified diff of the two files; empty if they are equal."""


def diff_contexts(older: ContextData, newer: ContextData, numbers: tuple[int, int] = (0, 1)) -> ContextDiff:
    """Compare two versions of a context.

    Args:
        older: The earlier version.
        newer: The later version.
        numbers: Version numbers of both, for the headings of the diff.
    """
    names = [field.name for field in fields(older) if field.name not in {"based_on", "recovery"}]
    before, after = _to_lines(older), _to_lines(newer)
    old_head, new_head = (f"version {number}" for number in numbers)
    return ContextDiff(
        older=numbers[0],
        newer=numbers[1],
        changed=tuple(name for name in names if getattr(older, name) != getattr(newer, name)),
        facts_added=_find_added(newer.facts, older.facts),
        facts_removed=_find_added(older.facts, newer.facts),
        history_added=_find_added_entries(newer.recent_history, older.recent_history),
        history_removed=_find_added_entries(older.recent_history, newer.recent_history),
        tasks_changed=_find_changed_tasks(older.active_tasks, newer.active_tasks),
        text="".join(difflib.unified_diff(before, after, old_head, new_head, n=2)),
    )


def _to_lines(context: ContextData) -> list[str]:
    return context_to_bytes(context).decode().splitlines(keepends=True)


def _find_added(items: Sequence[_T], others: Sequence[_T]) -> tuple[_T, ...]:
    # Multiset difference: an item that occurs twice in ``items`` and once in ``others`` was added once.
    unmatched = Counter(others)
    added = []
    for item in items:
        unmatched[item] -= 1
        if unmatched[item] < 0:
            added.append(item)
    return tuple(added)


def _find_added_entries(
    entries: Sequence[HistoryEntry], others: Sequence[HistoryEntry]
) -> tuple[HistoryEntry, ...]:
    # Entries hold dicts and cannot be hashed; their JSON text serves as the key.
    keys = [to_json_text(part_to_dict(entry)) for entry in entries]
    added_counts = Counter(_find_added(keys, [to_json_text(part_to_dict(entry)) for entry in others]))
    added = []
    # Start at the end: of several equal entries, the last ones are the added ones.
    for key, entry in zip(reversed(keys), reversed(entries), strict=True):
        if added_counts[key] > 0:
            added_counts[key] -= 1
            added.append(entry)
    return tuple(reversed(added))


def _find_changed_tasks(older: Sequence[ActiveTask], newer: Sequence[ActiveTask]) -> tuple[str, ...]:
    before, after = ({task.id: task for task in tasks} for tasks in (older, newer))
    return tuple(name for name in {**before, **after} if before.get(name) != after.get(name))
