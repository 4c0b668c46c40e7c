"""Conversion of tool calls to cycles of a task, and of the guard's advice to tool outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import TextBlock
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import Context

from langmem_tiers import AgentAction, ExecutionOutcome
from langmem_tiers.integration_kit import (
    ANSWER_TOOL,
    BLOCK_LIFTED,
    format_advice,
    format_stop_message,
    to_plain_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.agent.workflow import ToolCallResult
    from pydantic import BaseModel

    from langmem_tiers.integration_kit import GuardAdvice


_BLOCKED_KEY = (
    "langmem_tiers_blocked"  # marks the raw output of a blocked call, which is serialized with a Context
)


@dataclass(frozen=True, slots=True)
class IgnoredBlocks:
    """Number of consecutive rounds in which a model requested only blocked calls."""

    rounds: int = 0
    last_message: str = ""
    """Message of the last block."""

    def add_round(self, results: Iterable[ToolCallResult]) -> IgnoredBlocks:
        """Return the count after another round."""
        round_results = list(results)
        blocks = [
            message
            for result in round_results
            if (message := _find_block_message(result.tool_output)) is not None
        ]
        refused = sum(
            result.tool_name == ANSWER_TOOL and result.tool_output.raw_output != BLOCK_LIFTED
            for result in round_results
        )
        # Start over if any call was executed, or if the round only has rejected reasons without a preceding block.
        if len(blocks) + refused < len(round_results) or not (blocks or self.rounds):
            return IgnoredBlocks()
        return IgnoredBlocks(self.rounds + 1, blocks[-1] if blocks else self.last_message)

    def get_stop_message(self, most: int) -> str | None:
        """Return the final message of the run after ``most`` rounds, else None; 0 means no limit."""
        return format_stop_message(most, self.last_message) if 0 < most <= self.rounds else None


def build_blocked_output(call: WatchedCall, advice: GuardAdvice, *, can_answer: bool) -> ToolOutput:
    """Return the output of a call that the guard blocked."""
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
"""Name of the framework's tool for handing off to another agent; reserved by the framework."""


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """Tool call requested by a model."""

    action: AgentAction
    url: str | None
    """URL from the arguments; None for the current page of the task."""
    reason: str = ""
    """Reason of a handoff. Not part of the action: agents in a handoff loop give a new reason each time."""
    started_at: float = field(default_factory=perf_counter)

    @property
    def duration_ms(self) -> float:
        """Milliseconds since the start of the call."""
        return (perf_counter() - self.started_at) * 1000

    def describe_observation(self, value: object) -> str:
        """Return the result as a text, without the reason that the model gave."""
        text = describe_value(value)
        return text.replace(self.reason, "...") if self.reason else text


def build_watched_call(
    name: str, schema: type[BaseModel] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> WatchedCall:
    """Build the call of a tool; positional and keyword arguments give the same action."""
    arguments = {key: value for key, value in kwargs.items() if not isinstance(value, Context)}
    if args:
        positional = [value for value in args if not isinstance(value, Context)]
        names = [] if schema is None else [*schema.model_fields][: len(positional)]
        if arguments.keys() & names:  # an argument is given twice; the tool itself raises an error
            names = []
        arguments |= dict(zip(names, positional, strict=False))
        if len(positional) > len(names):
            arguments["args"] = positional[len(names) :]
    reason = arguments.pop("reason", "") if name == HANDOFF else ""
    # Plain copies: repeated calls compare equal, and a tool may change the objects that it receives.
    return WatchedCall(AgentAction(name, to_plain_value(arguments)), _find_url(arguments), str(reason))


def describe_value(value: object) -> str:
    """Return a value as a text; an exception without a text is its type."""
    return str(value) or (type(value).__name__ if isinstance(value, Exception) else "")


def to_outcome(error: object) -> ExecutionOutcome:
    """Return the outcome of a call with this error; None means success."""
    if error is None:
        return ExecutionOutcome.SUCCESS
    return ExecutionOutcome.TIMEOUT if isinstance(error, TimeoutError) else ExecutionOutcome.FAILURE


def append_text(output: ToolOutput, words: str) -> ToolOutput:
    """Return a copy of an output with a text appended."""
    # A copy, because a tool may keep and reuse its output. Images and other blocks keep their position.
    blocks = list(output.blocks)
    last = blocks.pop() if blocks and isinstance(blocks[-1], TextBlock) else None
    text = f"{last.text}\n\n{words}" if isinstance(last, TextBlock) and last.text else words
    return output.model_copy(update={"blocks": [*blocks, TextBlock(text=text)]})


def _find_url(arguments: dict[str, Any]) -> str | None:
    url = arguments.get("url")
    if isinstance(url, str) and url:
        return url
    return next((value for value in arguments.values() if isinstance(value, str) and _is_url(value)), None)


def _is_url(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://")) and not any(map(str.isspace, text))
