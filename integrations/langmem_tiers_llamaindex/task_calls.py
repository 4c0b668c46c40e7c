"""A tool call as a cycle of a task: what it was, what came of it, and what its agent is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import TextBlock
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import Context

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.integration_kit.tool_messages import (
    ANSWER_TOOL,
    BLOCK_LIFTED,
    format_advice,
    format_stop_message,
)
from langmem_tiers.tasks.models import AgentAction, ExecutionOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.agent.workflow import ToolCallResult
    from pydantic import BaseModel

    from langmem_tiers.tasks.guard_advice import GuardAdvice


_BLOCKED_KEY = (
    "langmem_tiers_blocked"  # in the raw output of such a call: that is written down with a Context
)


@dataclass(frozen=True, slots=True)
class IgnoredBlocks:
    """Rounds in a row in which a model asked for nothing but what is blocked."""

    rounds: int = 0
    last_message: str = ""
    """The word of the last block."""

    def add_round(self, results: Iterable[ToolCallResult]) -> IgnoredBlocks:
        """The same after one more round."""
        told = list(results)
        blocks = [said for one in told if (said := _find_block_message(one.tool_output)) is not None]
        refused = sum(
            one.tool_name == ANSWER_TOOL and one.tool_output.raw_output != BLOCK_LIFTED for one in told
        )
        if len(blocks) + refused < len(told) or not (blocks or self.rounds):
            return IgnoredBlocks()
        return IgnoredBlocks(self.rounds + 1, blocks[-1] if blocks else self.last_message)

    def get_stop_message(self, most: int) -> str | None:
        """What ends the run, if there were so many of them; 0 for never."""
        return format_stop_message(most, self.last_message) if 0 < most <= self.rounds else None


def build_blocked_output(call: WatchedCall, advice: GuardAdvice, *, can_answer: bool) -> ToolOutput:
    """The output of a call that was not made."""
    return ToolOutput(
        tool_name=call.action.tool_name,
        content=format_advice(advice, can_answer=can_answer),
        raw_input=dict(call.action.parameters),
        raw_output={_BLOCKED_KEY: advice.message},
        is_error=True,
    )


def _find_block_message(output: ToolOutput) -> str | None:
    raw: Any = output.raw_output
    return raw.get(_BLOCKED_KEY) if isinstance(raw, dict) else None


HANDOFF = "handoff"
"""The framework's name for the tool that hands off to another agent; no other tool of an agent can have it."""


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """What a model asked for."""

    action: AgentAction
    url: str | None
    """Where, if the arguments say so; else it is where the task is."""
    reason: str = ""
    """Why, where that is an argument: two agents that hand off to each other find a new one each time."""
    started_at: float = field(default_factory=perf_counter)

    @property
    def duration_ms(self) -> float:
        """Milliseconds since it began."""
        return (perf_counter() - self.started_at) * 1000

    def describe_observation(self, value: object) -> str:
        """What came of it, in words; without the reason, which came from the model."""
        text = describe_value(value)
        return text.replace(self.reason, "...") if self.reason else text


def build_watched_call(
    name: str, schema: type[BaseModel] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> WatchedCall:
    """The call of a tool with these arguments; the same, whether they are given by name or by place."""
    given = {key: value for key, value in kwargs.items() if not isinstance(value, Context)}
    if args:
        placed = [value for value in args if not isinstance(value, Context)]
        names = [] if schema is None else [*schema.model_fields][: len(placed)]
        if given.keys() & names:  # the tool itself refuses that
            names = []
        given |= dict(zip(names, placed, strict=False))
        if len(placed) > len(names):
            given["args"] = placed[len(names) :]
    reason = given.pop("reason", "") if name == HANDOFF else ""
    # As plain values: the same call is known again, and a tool may change what it was handed.
    return WatchedCall(AgentAction(name, to_plain_value(given)), _find_url(given), str(reason))


def describe_value(value: object) -> str:
    """What was seen, in words."""
    return str(value) or (type(value).__name__ if isinstance(value, Exception) else "")


def to_outcome(error: object) -> ExecutionOutcome:
    """How a call ended that gave this error, or none."""
    if error is None:
        return ExecutionOutcome.SUCCESS
    return ExecutionOutcome.TIMEOUT if isinstance(error, TimeoutError) else ExecutionOutcome.FAILURE


def append_text(output: ToolOutput, words: str) -> ToolOutput:
    """An output with words below it."""
    # A copy: a tool may keep what it gave. Pictures and the like stay where they are.
    blocks = list(output.blocks)
    last = blocks.pop() if blocks and isinstance(blocks[-1], TextBlock) else None
    text = f"{last.text}\n\n{words}" if isinstance(last, TextBlock) and last.text else words
    return output.model_copy(update={"blocks": [*blocks, TextBlock(text=text)]})


def _find_url(given: dict[str, Any]) -> str | None:
    named = given.get("url")
    if isinstance(named, str) and named:
        return named
    return next((one for one in given.values() if isinstance(one, str) and _is_url(one)), None)


def _is_url(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://")) and not any(map(str.isspace, text))
