"""Two contexts that were made from the same one, as one: nothing that either added is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.context_files.models import ActiveTask, ContextData, HistoryEntry, TokenUsage, ToolStats
from langmem_tiers.context_files.serializer import part_to_dict, to_json_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def merge_contexts(base: ContextData, theirs: ContextData, ours: ContextData) -> ContextData:
    """What both sides made of a context, taken together.

    Entries, facts and tasks that one side took out are out; counts are added up; of two values that cannot both hold,
    ours does. Of a task, the one that was updated later.

    Args:
        base: What both were made from; an empty context if that is not known any more.
        theirs: As it is stored.
        ours: As it was to be stored.
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
            (theirs.last_known_environment, ours.last_known_environment), key=lambda one: one.last_update
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
    was, is_theirs, is_ours = (Counter(map(key, some)) for some in (base, theirs, ours))
    room = {
        one: is_theirs[one] + is_ours[one] - was[one] if one in was else max(is_theirs[one], is_ours[one])
        for one in is_theirs | is_ours
    }
    kept: list[Any] = []
    for one in (*theirs, *ours):
        if room[name := key(one)] > 0:
            room[name] -= 1
            kept.append(one)
    return kept


def _merge_summaries(base: str, theirs: str, ours: str) -> str:
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    added = ours.removeprefix(base).strip() if base and ours.startswith(base) else ours
    return f"{theirs}\n\n{added}" if theirs else added


def _merge_tasks(
    base: Sequence[ActiveTask], theirs: Sequence[ActiveTask], ours: Sequence[ActiveTask]
) -> tuple[ActiveTask, ...]:
    was, is_theirs, is_ours = ({task.id: task for task in some} for some in (base, theirs, ours))
    merged: list[ActiveTask] = []
    for name in {**is_theirs, **is_ours}:
        sides = [side[name] for side in (is_theirs, is_ours) if name in side]
        is_gone = len(sides) == 1 and was.get(name) == sides[0]  # taken out by one, untouched by the other
        if not is_gone:
            merged.append(max(reversed(sides), key=lambda task: task.updated_at))
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
    return max(0, theirs + ours - base)


def _merge_objects(
    base: Mapping[str, Any], theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[str, Any]:
    nothing = object()
    merged: dict[str, Any] = {}
    for name in {**theirs, **ours}:
        was, is_theirs, is_ours = (side.get(name, nothing) for side in (base, theirs, ours))
        if all(isinstance(side, dict) for side in (is_theirs, is_ours)):
            value: Any = _merge_objects(was if isinstance(was, dict) else {}, is_theirs, is_ours)
        else:
            value = is_theirs if is_ours == was else is_ours
        if value is not nothing:
            merged[name] = value
    return merged
