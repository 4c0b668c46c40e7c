"""Comparison and merge of versions of a context. A three-way merge keeps the additions of both sides."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.context_files.models import ActiveTask, ContextData, HistoryEntry, TokenUsage, ToolStats
from langmem_tiers.context_files.serializer import context_to_bytes, part_to_dict, to_json_text
from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def merge_contexts(base: ContextData, theirs: ContextData, ours: ContextData) -> ContextData:
    """Merge two contexts that are based on the same version.

    Entries, facts and tasks that one side removed are removed, and counts are added up. If both sides changed the
    same value, ours wins; for a task, the later update wins.

    Args:
        base: The common ancestor; an empty context if it no longer exists.
        theirs: The stored context.
        ours: The context to be saved.
    """
    return replace(
        theirs,
        system_state=_merge_objects(base.system_state, theirs.system_state, ours.system_state),
        facts=tuple(_merge_lists(base.facts, theirs.facts, ours.facts, key=str)),
        recent_history=_merge_history(base, theirs, ours),
        long_term_summary=_merge_summaries(
            base.long_term_summary, theirs.long_term_summary, ours.long_term_summary
        ),
        active_tasks=_merge_tasks(base.active_tasks, theirs.active_tasks, ours.active_tasks),
        tool_stats=_merge_tool_stats(base.tool_stats, theirs.tool_stats, ours.tool_stats),
        last_known_environment=max(
            (theirs.last_known_environment, ours.last_known_environment),
            key=lambda environment: environment.last_update,
        ),
        token_usage=_merge_token_usage(base.token_usage, theirs.token_usage, ours.token_usage),
        extra=_merge_objects(base.extra, theirs.extra, ours.extra),
    )


def _merge_history(base: ContextData, theirs: ContextData, ours: ContextData) -> tuple[HistoryEntry, ...]:
    both = _merge_lists(base.recent_history, theirs.recent_history, ours.recent_history, key=_to_key)
    return tuple(sorted(both, key=lambda entry: entry.timestamp))


def _to_key(part: HistoryEntry | ActiveTask) -> str:
    return to_json_text(part_to_dict(part))


def _merge_lists(base: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any], *, key: Any) -> list[Any]:  # noqa: ANN401 - a function of what is in the lists
    # Merge as multisets. For an item of the base, both sides' changes of its count are applied, so a removal by one
    # side removes it. An item that both sides added is kept once, not twice.
    in_base, in_theirs, in_ours = (Counter(map(key, items)) for items in (base, theirs, ours))
    remaining = {
        item_key: in_theirs[item_key] + in_ours[item_key] - in_base[item_key]
        if item_key in in_base
        else max(in_theirs[item_key], in_ours[item_key])
        for item_key in in_theirs | in_ours
    }
    merged: list[Any] = []
    for item in (*theirs, *ours):
        if remaining[item_key := key(item)] > 0:
            remaining[item_key] -= 1
            merged.append(item)
    return merged


def _merge_summaries(base: str, theirs: str, ours: str) -> str:
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    # Both sides changed the summary. If ours only extends the base, which theirs already contains, append the rest.
    added = ours.removeprefix(base).strip() if base and ours.startswith(base) else ours
    return f"{theirs}\n\n{added}" if theirs else added


def _merge_tasks(
    base: Sequence[ActiveTask], theirs: Sequence[ActiveTask], ours: Sequence[ActiveTask]
) -> tuple[ActiveTask, ...]:
    in_base, in_theirs, in_ours = ({task.id: task for task in tasks} for tasks in (base, theirs, ours))
    merged: list[ActiveTask] = []
    for task_id in {**in_theirs, **in_ours}:
        candidates = [side[task_id] for side in (in_theirs, in_ours) if task_id in side]
        # One side removed the task, and the other one did not change it.
        is_removed = len(candidates) == 1 and in_base.get(task_id) == candidates[0]
        if not is_removed:
            # max() returns the first of equal elements; reversed, so that ours wins.
            merged.append(max(reversed(candidates), key=lambda task: task.updated_at))
    return tuple(merged)


def _merge_tool_stats(base: ToolStats, theirs: ToolStats, ours: ToolStats) -> ToolStats:
    return ToolStats(
        total_calls=_merge_counts(base.total_calls, theirs.total_calls, ours.total_calls),
        by_tool={
            name: _merge_counts(
                base.by_tool.get(name, 0), theirs.by_tool.get(name, 0), ours.by_tool.get(name, 0)
            )
            for name in {**theirs.by_tool, **ours.by_tool}
        },
        failures=_merge_counts(base.failures, theirs.failures, ours.failures),
        extra=_merge_objects(base.extra, theirs.extra, ours.extra),
    )


def _merge_token_usage(base: TokenUsage, theirs: TokenUsage, ours: TokenUsage) -> TokenUsage:
    return TokenUsage(
        total_input=_merge_counts(base.total_input, theirs.total_input, ours.total_input),
        total_output=_merge_counts(base.total_output, theirs.total_output, ours.total_output),
        by_session=_merge_counts(base.by_session, theirs.by_session, ours.by_session),
        extra=_merge_objects(base.extra, theirs.extra, ours.extra),
    )


def _merge_counts(base: int, theirs: int, ours: int) -> int:
    # Add both sides' increments to the base; max(), because a count may have been reset by hand.
    return max(0, theirs + ours - base)


def _merge_objects(
    base: Mapping[str, Any], theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[str, Any]:
    # ``missing`` distinguishes a removed key from one whose value is None.
    missing = object()
    merged: dict[str, Any] = {}
    for name in {**theirs, **ours}:
        base_value, their_value, our_value = (side.get(name, missing) for side in (base, theirs, ours))
        if all(isinstance(value, dict) for value in (their_value, our_value)):
            value: Any = _merge_objects(
                base_value if isinstance(base_value, dict) else {}, their_value, our_value
            )
        else:
            value = their_value if our_value == base_value else our_value
        if value is not missing:
            merged[name] = value
    return merged


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
        facts_added=_find_additions(newer.facts, older.facts),
        facts_removed=_find_additions(older.facts, newer.facts),
        history_added=_find_added_entries(newer.recent_history, older.recent_history),
        history_removed=_find_added_entries(older.recent_history, newer.recent_history),
        tasks_changed=_find_changed_tasks(older.active_tasks, newer.active_tasks),
        text="".join(difflib.unified_diff(before, after, old_head, new_head, n=2)),
    )


def _to_lines(context: ContextData) -> list[str]:
    return context_to_bytes(context).decode().splitlines(keepends=True)


def _find_additions(items: Sequence[_T], others: Sequence[_T]) -> tuple[_T, ...]:
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
    added_counts = Counter(_find_additions(keys, [to_json_text(part_to_dict(entry)) for entry in others]))
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
