"""A tool call as a cycle of a task: what it was, what came of it, and what its agent is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import TextBlock
from llama_index.core.workflow import Context

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.tasks.models import AgentAction, ExecutionOutcome

if TYPE_CHECKING:
    from llama_index.core.tools import ToolOutput
    from pydantic import BaseModel

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
