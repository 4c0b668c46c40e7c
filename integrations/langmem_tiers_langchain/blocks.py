"""Calls that the guard blocked: what the model is told of them, and when it has ignored them for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_tiers.integration_kit.tool_messages import (
    ANSWER_TOOL,
    BLOCK_NOT_LIFTED,
    format_advice,
    format_stop_message,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.prebuilt.tool_node import ToolCallRequest

    from langmem_tiers.tasks.guard_advice import GuardAdvice

_BLOCKED_KEY = "langmem_tiers_blocked"  # in the additional_kwargs of such a result


def build_blocked_result(advice: GuardAdvice, request: ToolCallRequest) -> ToolMessage:
    """The result of a call that was not made."""
    return ToolMessage(
        format_advice(advice),
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error",
        additional_kwargs={_BLOCKED_KEY: True},
    )


def build_stop_update(messages: Sequence[BaseMessage], most: int) -> dict[str, Any] | None:
    """The end of a run whose model asked for nothing but what is blocked, so many times in a row.

    Args:
        messages: Of the run.
        most: Times that it may; 0 for as often as it likes.
    """
    if (
        not most
        or _count_ignored_rounds(messages) < most
        or not any(one.additional_kwargs.get(_BLOCKED_KEY) for one in messages)
    ):
        return None
    blocked = next(one for one in reversed(messages) if one.additional_kwargs.get(_BLOCKED_KEY))
    return {"jump_to": "end", "messages": [AIMessage(format_stop_message(most, str(blocked.text)))]}


def _count_ignored_rounds(messages: Sequence[BaseMessage]) -> int:
    rounds = 0
    for message in reversed(messages):
        if isinstance(message, AIMessage) and message.tool_calls:
            rounds += 1
        elif not _is_refusal(message):
            break
    return rounds


def _is_refusal(message: BaseMessage) -> bool:
    is_answer = isinstance(message, ToolMessage) and message.name == ANSWER_TOOL
    return bool(message.additional_kwargs.get(_BLOCKED_KEY)) or (
        is_answer and message.text == BLOCK_NOT_LIFTED
    )
