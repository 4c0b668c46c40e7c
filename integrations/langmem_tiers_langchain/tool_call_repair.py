"""Repair tool calls for providers: each call has exactly one result, directly after the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_tiers.integration_kit import NO_RESULT_TEXT
from langmem_tiers_langchain.convert import SOURCE_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def repair_tool_calls(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return the messages with a result directly after every tool call.

    A late result moves to its call, a result without a call is dropped, and a missing result is replaced by a
    placeholder. The original messages are not changed.
    """
    filled = [_fill_call_ids(message) for message in messages]
    results, calls_by_index = _match_results(filled)
    repaired: list[BaseMessage] = []
    for index, message in enumerate(filled):
        if isinstance(message, ToolMessage):
            continue  # inserted after its call below, or dropped
        repaired.append(message)
        if index in calls_by_index:
            found = results.get(index, {})
            repaired += [
                found.get(call["id"]) or _build_missing_result(message, call)
                for call in calls_by_index[index]
            ]
    return repaired


def list_unique_calls(message: BaseMessage) -> list[dict[str, Any]]:
    """Return the tool calls of a message, each id once, including calls that could not be parsed."""
    if not isinstance(message, AIMessage):
        return []
    calls: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
    return list({call["id"]: call for call in calls}.values())


def _match_results(
    messages: Sequence[BaseMessage],
) -> tuple[dict[int, dict[str, ToolMessage]], dict[int, list[dict[str, Any]]]]:
    # Return results and calls, both by the index of the calling message.
    results: dict[int, dict[str, ToolMessage]] = {}
    open_calls: dict[str, int] = {}  # ids may be reused: a result belongs to the latest call with its id
    calls_by_index: dict[int, list[dict[str, Any]]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            start = open_calls.pop(message.tool_call_id, None)
            if start is not None:
                results.setdefault(start, {})[message.tool_call_id] = message
        elif calls := list_unique_calls(message):
            calls_by_index[index] = calls
            open_calls.update((call["id"], index) for call in calls)
    return results, calls_by_index


def _fill_call_ids(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage) or all(call["id"] for call in list_unique_calls(message)):
        return message
    # Derived from the message, so that the ids are the same on every call.
    changed = {
        field: [
            {**call, "id": call["id"] or f"call-{message.id}-{field}-{index}"}
            for index, call in enumerate(calls)
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
