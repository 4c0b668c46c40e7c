"""Task of an agent's runs: one for all runs, or one per conversation."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langmem_tiers.integration_kit import LockRegistry, check_namespace
from langmem_tiers_llamaindex.task_calls import IgnoredBlocks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from llama_index.core.agent.workflow import ToolCallResult
    from llama_index.core.agent.workflow.agent_context import AgentContext

    from langmem_tiers import AgentMemory
    from langmem_tiers.integration_kit import TaskRegistry

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

    def open_task(self, name: str, *, afresh: bool = False) -> AgentMemory:
        """Return the task with a name; ``afresh`` reloads it if another process changed it."""
        return self._registry.open_task(self._namespace, name, afresh=afresh)


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
        task = self.memory if self.tasks is None or name is None else self.tasks.open_task(name, afresh=True)
        if task is not None:
            task.learn_from_success()  # from earlier runs
            if not self.counts_across_turns:
                task.new_turn()
