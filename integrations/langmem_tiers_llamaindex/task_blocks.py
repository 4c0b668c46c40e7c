"""Calls that the guard blocked: what the model is told of them, and when it has ignored them for too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.tools import ToolOutput

from langmem_tiers.integration_kit.tool_messages import (
    ANSWER_TOOL,
    BLOCK_LIFTED,
    format_advice,
    format_stop_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.agent.workflow import ToolCallResult

    from langmem_tiers.tasks.guard_advice import GuardAdvice
    from langmem_tiers_llamaindex.task_calls import WatchedCall

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
