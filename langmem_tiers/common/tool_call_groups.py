"""Tool call groups: an assistant message with tool calls and all their results.

Providers reject a call without its result and a result without its call. No window, cut or
summary may therefore split a group.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_tool_spans(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return the half-open ranges that must not be cut, one per message with tool calls.

    A call is pending until the user speaks, or until the assistant continues after a later result. The range
    of a pending call extends past the end of the list. A call id may be reused: a result belongs to the latest
    call.
    """
    ends: dict[int, int] = {}  # start of each group -> its end
    call_starts: dict[str, int] = {}  # call id -> start of the latest group with that id
    pending: dict[int, set[str]] = {}  # start of each group -> calls without a result yet
    last_result = -1
    for index, message in enumerate(messages):
        if pending and message.role is Role.ASSISTANT:
            # The assistant continued, so calls before the last result will not be answered any more.
            pending = {start: calls for start, calls in pending.items() if start > last_result}
        elif message.role is Role.TOOL:
            last_result = index
        if message.tool_calls:
            calls = {call.id for call in message.tool_calls}
            ends[index], pending[index] = index + 1, calls
            call_starts.update(dict.fromkeys(calls, index))
        elif message.tool_call_id is not None and message.tool_call_id in call_starts:
            start = call_starts[message.tool_call_id]
            ends[start] = index + 1
            pending.get(start, set()).discard(message.tool_call_id)
        elif message.role is Role.USER:
            pending.clear()
    # One past the length: a cut at the very end would also separate a pending call from its result.
    ends.update((start, len(messages) + 1) for start, calls in pending.items() if calls)
    return sorted(ends.items())


def find_safe_cut(messages: Sequence[Message], cut: int) -> int:
    """Return the largest index up to ``cut`` at which the list can be cut without splitting a group."""
    # In descending order, so that a cut moved to the start of one span is checked against the spans before it.
    for start, end in reversed(find_tool_spans(messages)):
        if start < cut < end:
            cut = start
    return cut


def remove_orphans(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages without results whose call is missing; each call matches one result."""
    orphans = set(find_orphans(messages))
    return tuple(message for index, message in enumerate(messages) if index not in orphans)


def find_orphans(messages: Sequence[Message | None]) -> list[int]:
    """Return the indexes of results whose call does not precede them."""
    open_calls: set[str] = set()
    orphans = []
    tool_messages = [
        (index, message)
        for index, message in enumerate(messages)
        if message is not None and (message.tool_calls or message.tool_call_id is not None)
    ]
    for index, message in tool_messages:
        open_calls.update(call.id for call in message.tool_calls)
        if message.tool_call_id is not None and message.tool_call_id not in open_calls:
            orphans.append(index)
        open_calls.discard(message.tool_call_id or "")  # a second result for the same call is an orphan
    return orphans


def group_tool_calls(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Split the list into contiguous half-open ranges that must not be cut."""
    groups: list[tuple[int, int]] = []
    done = 0
    for start, end in _merge_overlaps(find_tool_spans(messages)):
        groups += [(index, index + 1) for index in range(done, start)]
        done = min(end, len(messages))
        groups.append((start, done))
    return groups + [(index, index + 1) for index in range(done, len(messages))]


def _merge_overlaps(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def find_window_start(groups: Sequence[tuple[int, int]], window: int) -> int:
    """Return the start of the newest ``window`` messages, moved back to a group boundary."""
    count = groups[-1][1] if groups else 0
    if not 0 < window < count:
        return 0 if window else count
    return groups[bisect_right(groups, count - window, key=itemgetter(0)) - 1][0]
