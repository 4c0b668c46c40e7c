"""Task of an agent's runs: one for all runs, or one per conversation."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from contextvars import ContextVar
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
    LockRegistry,
    check_namespace,
    format_advice,
    format_stop_message,
    to_plain_value,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from llama_index.core.agent.workflow import ToolCallResult
    from llama_index.core.agent.workflow.agent_context import AgentContext
    from pydantic import BaseModel

    from langmem_tiers import AgentMemory
    from langmem_tiers.integration_kit import GuardAdvice, TaskRegistry


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

    def get_stop_message(self, max_blocked: int) -> str | None:
        """Return the final message of the run after ``max_blocked`` rounds, else None; 0 means no limit."""
        return format_stop_message(max_blocked, self.last_message) if 0 < max_blocked <= self.rounds else None


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


TASK_KEY = "langmem_tiers_task"
"""Key of the task name in the store of a Context."""
_THOUGHT_KEY = "langmem_tiers_thought"
_IGNORED_KEY = "langmem_tiers_ignored"
_log = logging.getLogger("langmem_tiers")


class ConversationTasks:
    """Tasks of conversations by name.

    Args:
        tasks: Registry of open tasks.
        namespace: Owner of the tasks.
    """

    def __init__(self, tasks: TaskRegistry, namespace: str | Iterable[str] | None) -> None:
        self._registry = tasks
        self._namespace = () if namespace is None else check_namespace(namespace)

    def create_name(self) -> str:
        """Return a new unique task name."""
        return self._registry.engine.new_id()

    def open_task(self, name: str, *, reload: bool = False) -> AgentMemory:
        """Return the task with a name; ``reload`` reloads it if another process changed it."""
        return self._registry.open_task(self._namespace, name, reload=reload)


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """Tool call that an agent is currently making."""

    watcher: TaskWatcher
    tool: str
    task: str | None
    """Name of the task; None if one task is used for all runs."""
    thought: str
    """Text of the model that accompanied the call."""


_active_call: ContextVar[ActiveCall | None] = ContextVar("langmem_tiers_doing", default=None)


@dataclass(slots=True)
class TaskWatcher:
    """Shared state of tools and agents that are watched together."""

    memory: AgentMemory | None
    """Task for all runs; None if each conversation has a task."""
    tasks: ConversationTasks | None = None
    """Tasks of conversations; None if one task is used for all runs."""
    reports_errors: bool = False
    """True if an exception is returned as an output when the guard has advice."""
    counts_across_turns: bool = False
    stop_after: int = 0
    locks: LockRegistry = field(default_factory=LockRegistry)
    """Locks that serialize identical concurrent calls, so that the guard sees each of them."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __deepcopy__(self, _: dict[int, Any]) -> TaskWatcher:
        return self  # copies of an agent share the task

    @property
    def active_call(self) -> ActiveCall | None:
        """Current tool call of an agent of this watcher, if any."""
        active = _active_call.get()
        return active if active is not None and active.watcher is self else None

    def get_task(self) -> AgentMemory | None:
        """Return the current task; None outside a conversation."""
        if self.tasks is None:
            return self.memory
        active = self.active_call
        return None if active is None or active.task is None else self.tasks.open_task(active.task)

    async def begin_run(self, ctx: AgentContext) -> None:
        """Prepare the task for a new run."""
        await ctx.store.set(_IGNORED_KEY, None)
        try:
            name = await self._get_task_name(ctx)
            await asyncio.to_thread(self._begin_turn, name)
        except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
            # Only the error type: the message of a database driver may contain a URL with a password.
            _log.warning("memory failed at the beginning of a run: %s", type(error).__name__)
            _log.debug("memory failed at the beginning of a run", exc_info=error)

    async def save_thought(self, ctx: AgentContext, thought: str) -> None:
        """Save the text that the model returned with its tool calls."""
        await ctx.store.set(_THOUGHT_KEY, thought)

    @asynccontextmanager
    async def track_call(self, ctx: AgentContext, tool: str) -> AsyncIterator[None]:
        """Mark a tool call of an agent as active within the block."""
        thought = await ctx.store.get(_THOUGHT_KEY, default=None)
        token = _active_call.set(ActiveCall(self, tool, await self._get_task_name(ctx), thought or ""))
        try:
            yield
        finally:
            _active_call.reset(token)

    async def count_round(self, ctx: AgentContext, results: Iterable[ToolCallResult]) -> None:
        """Count a finished round of tool calls."""
        ignored = (await self._load_ignored(ctx)).add_round(results)
        await ctx.store.set(_IGNORED_KEY, [ignored.rounds, ignored.last_message])

    async def get_stop_message(self, ctx: AgentContext) -> str | None:
        """Return the final message if the run has to end because of blocked calls, else None."""
        return (await self._load_ignored(ctx)).get_stop_message(self.stop_after)

    async def _load_ignored(self, ctx: AgentContext) -> IgnoredBlocks:
        stored = await ctx.store.get(_IGNORED_KEY, default=None)
        return IgnoredBlocks(*stored) if stored else IgnoredBlocks()

    async def _get_task_name(self, ctx: AgentContext) -> str | None:
        if self.tasks is None:
            return None
        name: str | None = await ctx.store.get(TASK_KEY, default=None)
        if name is None:
            name = self.tasks.create_name()
            await ctx.store.set(TASK_KEY, name)
        return name

    def _begin_turn(self, name: str | None) -> None:
        task = self.memory if self.tasks is None or name is None else self.tasks.open_task(name, reload=True)
        if task is not None:
            task.learn_from_success()  # from earlier runs
            if not self.counts_across_turns:
                task.new_turn()
