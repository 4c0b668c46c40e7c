"""Tool calls and their results as providers take them: each call answered once, right behind it, nothing alone.

Agents store calls without results: of several calls in one message, one of a tool that returns directly ends the
turn before the others are written down, and so does the last step that an agent may take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import Message, ToolCall

_NO_RESULT_TEXT = "[no result: the call did not come to its end]"


def repair_messages(messages: Sequence[Message]) -> list[Message]:
    """The messages with every tool call answered right behind it.

    A result that came late moves to its call, one without a call is left out, and where none came a result says so,
    unless nothing but results follows: that call may still be running.
    """
    answers = _match_results(messages)
    newest = max((place for place, one in enumerate(messages) if one.tool_call_id is None), default=-1)
    whole: list[Message] = []
    for place, message in enumerate(messages):
        if message.tool_call_id is not None:
            continue  # behind its call, or left out
        given = answers.get(place, {})
        calls = {call.id: call for call in message.tool_calls if call.id not in given and place != newest}
        whole += [
            message,
            *given.values(),
            *(_build_missing_result(message, call) for call in calls.values()),
        ]
    return whole


def _match_results(messages: Sequence[Message]) -> dict[int, dict[str, Message]]:
    answers: dict[int, dict[str, Message]] = {}
    opened: dict[str, int] = {}  # an id may be used again: a result belongs to the latest call
    for place, message in enumerate(messages):
        opened.update((call.id, place) for call in message.tool_calls)
        start = opened.pop(message.tool_call_id or "", None)
        if message.tool_call_id is not None and start is not None:
            answers.setdefault(start, {})[message.tool_call_id] = message
    return answers


def _build_missing_result(message: Message, call: ToolCall) -> Message:
    return replace(
        message,
        id=f"{message.id}-{call.id}",
        role=Role.TOOL,
        content=_NO_RESULT_TEXT,
        tool_calls=(),
        tool_call_id=call.id,
        payload_json=None,
    )
