"""Groups: an assistant message with tool calls and all their results are one.

Providers refuse a call without its result and a result without its call, so no window,
cut or summary may part them.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_tool_spans(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """The half-open ranges that a cut must not fall into, one per message with tool calls.

    A call waits for its result until the user speaks again, or until the assistant goes on after
    a later result; while it waits, its range runs past the end. A call id may be used again: a
    result belongs to the latest call.
    """
    ends: dict[int, int] = {}
    opened: dict[str, int] = {}
    waiting: dict[int, set[str]] = {}
    answered = -1
    for index, message in enumerate(messages):
        if waiting and message.role is Role.ASSISTANT:  # it went on without those before the last result
            waiting = {start: calls for start, calls in waiting.items() if start > answered}
        elif message.role is Role.TOOL:
            answered = index
        if message.tool_calls:
            calls = {call.id for call in message.tool_calls}
            ends[index], waiting[index] = index + 1, calls
            opened.update(dict.fromkeys(calls, index))
        elif message.tool_call_id is not None and message.tool_call_id in opened:
            start = opened[message.tool_call_id]
            ends[start] = index + 1
            waiting.get(start, set()).discard(message.tool_call_id)
        elif message.role is Role.USER:
            waiting.clear()
    ends.update((start, len(messages) + 1) for start, calls in waiting.items() if calls)
    return sorted(ends.items())


def find_safe_cut(messages: Sequence[Message], cut: int) -> int:
    """The largest index at most ``cut`` where the list can be cut without parting a group."""
    for start, end in reversed(find_tool_spans(messages)):
        if start < cut < end:
            cut = start
    return cut


def remove_orphans(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages less the results whose call is not among them; each call has one result."""
    alone = set(find_orphans(messages))
    return tuple(message for index, message in enumerate(messages) if index not in alone)


def find_orphans(messages: Sequence[Message | None]) -> list[int]:
    """Where the results stand whose call is not among the messages before them."""
    seen: set[str] = set()
    alone = []
    of_tools = [
        (index, message)
        for index, message in enumerate(messages)
        if message is not None and (message.tool_calls or message.tool_call_id is not None)
    ]
    for index, message in of_tools:
        seen.update(call.id for call in message.tool_calls)
        if message.tool_call_id is not None and message.tool_call_id not in seen:
            alone.append(index)
        seen.discard(message.tool_call_id or "")
    return alone


def group_tool_calls(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """The list as half-open ranges that must not be parted, one after the other without gaps."""
    groups: list[tuple[int, int]] = []
    done = 0
    for start, end in _merge_overlaps(find_tool_spans(messages)):
        groups += [(index, index + 1) for index in range(done, start)]
        done = min(end, len(messages))
        groups.append((start, done))
    return groups + [(index, index + 1) for index in range(done, len(messages))]


def _merge_overlaps(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    apart: list[tuple[int, int]] = []
    for start, end in spans:
        if apart and start < apart[-1][1]:  # spans that overlap are one group
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    return apart


def find_window_start(groups: Sequence[tuple[int, int]], window: int) -> int:
    """Where the newest ``window`` messages begin, moved back to the start of the group they cut."""
    count = groups[-1][1] if groups else 0
    if not 0 < window < count:
        return 0 if window else count
    return groups[bisect_right(groups, count - window, key=itemgetter(0)) - 1][0]
