"""What a model is told of its task, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langmem_tiers.common.prompt_fences import TASK_FENCE_OPENING, neutralize_fence_tags, wrap_in_fence
from langmem_tiers_langchain.marks import SOURCE_METADATA
from langmem_tiers_langchain.shorten import prepend_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.tasks.agent_memory import AgentMemory

_MAX_TRIES = 5
"""What is made harmless may take a little more than before."""


def render_task(memory: AgentMemory, budget_tokens: int, *, with_history: bool) -> str:
    """What there is to say about a task, fenced; empty if there is nothing, or no room for it.

    Args:
        memory: Of the task.
        budget_tokens: What it may take with its fence.
        with_history: Whether what was done is told as well, not only warnings.
    """
    room = budget_tokens - memory.counter.count(wrap_in_fence([], TASK_FENCE_OPENING))
    for _ in range(_MAX_TRIES):
        if room <= 0 or not (said := _render_content(memory, room, with_history=with_history)):
            break
        text = wrap_in_fence([neutralize_fence_tags(said)], TASK_FENCE_OPENING)
        if (excess := memory.counter.count(text) - budget_tokens) <= 0:
            return text
        room -= excess
    return ""


def insert_before_turn(messages: Sequence[BaseMessage], text: str) -> list[Any]:
    """The messages with a text at the beginning of the newest turn of the user or of tools.

    It is inside the turn's first message: a system message there is refused by some providers, anything between a
    call and its result by all. What comes before stays as it was, which providers cache.
    """
    place = len(messages)
    while place and isinstance(messages[place - 1], ToolMessage):
        place -= 1
    if place == len(messages) and messages and isinstance(messages[-1], HumanMessage):
        place -= 1
    if place == len(messages):
        return [*messages, HumanMessage(text, additional_kwargs=dict(SOURCE_METADATA))]
    return [*messages[:place], prepend_text(messages[place], text), *messages[place + 1 :]]


def _render_content(memory: AgentMemory, room: int, *, with_history: bool) -> str:
    if with_history and memory.working.cycle_count:
        return memory.format_for_prompt(max_tokens=room)
    said = "\n".join(memory.warnings())
    while said and (tokens := memory.counter.count(said)) > room:
        said = said[: min(len(said) - 1, len(said) * room // tokens)]
    return said
