"""Calls that the guard blocked: what the model is told of them, and when it has ignored them for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.prebuilt.tool_node import ToolCallRequest

    from langmem_tiers.tiers.task.guard_advice import GuardAdvice

ANSWER_TOOL = "answer_guard"
"""The tool with which an agent answers a block."""
_BLOCKED = "langmem_tiers_blocked"  # in the additional_kwargs of such a result
_HOW_TO_ANSWER = f"To answer, call {ANSWER_TOOL} with the reason, in three words or more."


def told(advice: GuardAdvice, request: ToolCallRequest) -> ToolMessage:
    """The result of a call that was not made."""
    return ToolMessage(
        f"{advice.message} {_HOW_TO_ANSWER}",
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error",
        additional_kwargs={_BLOCKED: True},
    )


def ending(messages: Sequence[BaseMessage], most: int) -> dict[str, Any] | None:
    """The end of a run whose model asked for nothing but what is blocked, so many times in a row.

    Args:
        messages: Of the run.
        most: Times that it may; 0 for as often as it likes.
    """
    if not most or _ignored(messages) < most:
        return None
    said = str(messages[-1].text).removesuffix(_HOW_TO_ANSWER).strip()
    return {"jump_to": "end", "messages": [AIMessage(f"Stopped after {most} blocked tries. {said}")]}


def _ignored(messages: Sequence[BaseMessage]) -> int:
    rounds = 0
    for message in reversed(messages):
        if isinstance(message, AIMessage) and message.tool_calls:
            rounds += 1
        elif not message.additional_kwargs.get(_BLOCKED):
            break
    return rounds
