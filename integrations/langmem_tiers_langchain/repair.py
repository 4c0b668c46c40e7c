"""Tool calls and their results as providers take them: each call answered once, right behind it, nothing alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_tiers_langchain.message_source import SOURCE_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_RESULT_TEXT = "[no result: the call did not come to its end]"


def repair_tool_calls(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages with every tool call answered right behind it.

    A result that came late moves to its call, one without a call is left out, and where none came a
    result says so. The messages that were handed in are not changed.
    """
    said = [_fill_call_ids(message) for message in messages]
    answers, calling = _match_results(said)
    whole: list[BaseMessage] = []
    for place, message in enumerate(said):
        if isinstance(message, ToolMessage):
            continue  # behind its call, or left out
        whole.append(message)
        if place in calling:
            given = answers.get(place, {})
            whole += [
                given.get(call["id"]) or _build_missing_result(message, call) for call in calling[place]
            ]
    return whole


def is_placeholder_result(message: BaseMessage) -> bool:
    """Whether it is a result that ``repaired`` made."""
    return isinstance(message, ToolMessage) and message.additional_kwargs == SOURCE_METADATA


def list_unique_calls(message: BaseMessage) -> list[dict[str, Any]]:
    """The tool calls of a message, each id once; providers are told of calls that could not be read as well."""
    if not isinstance(message, AIMessage):
        return []
    calls: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
    return list({call["id"]: call for call in calls}.values())


def _match_results(
    messages: Sequence[BaseMessage],
) -> tuple[dict[int, dict[str, ToolMessage]], dict[int, list[dict[str, Any]]]]:
    answers: dict[int, dict[str, ToolMessage]] = {}
    opened: dict[str, int] = {}  # an id may be used again: a result belongs to the latest call
    calling: dict[int, list[dict[str, Any]]] = {}
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            start = opened.pop(message.tool_call_id, None)
            if start is not None:
                answers.setdefault(start, {})[message.tool_call_id] = message
        elif calls := list_unique_calls(message):
            calling[place] = calls
            opened.update((call["id"], place) for call in calls)
    return answers, calling


def _fill_call_ids(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage) or all(call["id"] for call in list_unique_calls(message)):
        return message
    changed = {
        field: [
            {**call, "id": call["id"] or f"call-{message.id}-{field}-{place}"}
            for place, call in enumerate(calls)
        ]
        for field in ("tool_calls", "invalid_tool_calls")
        if (calls := getattr(message, field))
    }
    return message.model_copy(update=changed)


def _build_missing_result(message: BaseMessage, call: dict[str, Any]) -> ToolMessage:
    return ToolMessage(
        NO_RESULT_TEXT,
        tool_call_id=call["id"],
        name=call["name"] or None,
        status="error",
        id=f"{message.id}-{call['id']}",
        additional_kwargs=dict(SOURCE_METADATA),
    )
