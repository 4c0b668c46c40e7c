"""What changed between two versions of a context."""

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
    """Two versions side by side."""

    older: int
    newer: int
    changed: tuple[str, ...]
    """The fields that are not the same."""
    facts_added: tuple[str, ...]
    facts_removed: tuple[str, ...]
    history_added: tuple[HistoryEntry, ...]
    history_removed: tuple[HistoryEntry, ...]
    tasks_changed: tuple[str, ...]
    """Ids of tasks that are new, gone or not as they were."""
    text: str
    """The files line by line, as ``diff -u`` shows them; empty if they are the same."""


def diff_contexts(older: ContextData, newer: ContextData, numbers: tuple[int, int] = (0, 1)) -> ContextDiff:
    """What changed from one to the other.

    Args:
        older: As it was.
        newer: As it is.
        numbers: Of the two versions, for the headings.
    """
    names = [one.name for one in fields(older) if one.name not in {"based_on", "recovery"}]
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


def _find_added(some: Sequence[_T], others: Sequence[_T]) -> tuple[_T, ...]:
    left = Counter(others)
    found = []
    for one in some:
        left[one] -= 1
        if left[one] < 0:
            found.append(one)
    return tuple(found)


def _find_added_entries(
    some: Sequence[HistoryEntry], others: Sequence[HistoryEntry]
) -> tuple[HistoryEntry, ...]:
    keys = [to_json_text(part_to_dict(entry)) for entry in some]
    more = Counter(_find_added(keys, [to_json_text(part_to_dict(entry)) for entry in others]))
    found = []
    for key, entry in zip(
        reversed(keys), reversed(some), strict=True
    ):  # of those that are alike, the last are new
        if more[key] > 0:
            more[key] -= 1
            found.append(entry)
    return tuple(reversed(found))


def _find_changed_tasks(older: Sequence[ActiveTask], newer: Sequence[ActiveTask]) -> tuple[str, ...]:
    before, after = ({task.id: task for task in tasks} for tasks in (older, newer))
    return tuple(name for name in {**before, **after} if before.get(name) != after.get(name))
