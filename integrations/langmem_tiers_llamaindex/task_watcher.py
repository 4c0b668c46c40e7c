"""Which task a run of an agent works at: one for all runs, or one for each conversation."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.integration_kit.lock_registry import LockRegistry
from langmem_tiers_llamaindex.task_calls import IgnoredBlocks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from llama_index.core.agent.workflow import ToolCallResult
    from llama_index.core.agent.workflow.agent_context import AgentContext

    from langmem_tiers.integration_kit.task_registry import TaskRegistry
    from langmem_tiers.tasks.agent_memory import AgentMemory

TASK_KEY = "langmem_tiers_task"
"""Where a Context has the name of its task."""
_THOUGHT_KEY = "langmem_tiers_thought"
_IGNORED_KEY = "langmem_tiers_ignored"
_log = logging.getLogger("langmem_tiers")


class ConversationTasks:
    """The tasks of conversations, by their names.

    Args:
        tasks: Holds them.
        namespace: Whose.
    """

    def __init__(self, tasks: TaskRegistry, namespace: str | Iterable[str] | None) -> None:
        self._registry = tasks
        self._namespace = () if namespace is None else check_namespace(namespace)

    def create_name(self) -> str:
        """A name for a task that has none."""
        return self._registry.engine.new_id()

    def open_task(self, name: str, *, afresh: bool = False) -> AgentMemory:
        """The task of a name; afresh, with what another process did at it since."""
        return self._registry.open_task(self._namespace, name, afresh=afresh)


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """The call that an agent makes just now."""

    watcher: TaskWatcher
    tool: str
    task: str | None
    """What its task is called, if there is one for each conversation."""
    thought: str
    """What the model said with it."""


_active_call: ContextVar[ActiveCall | None] = ContextVar("langmem_tiers_doing", default=None)


@dataclass(slots=True)
class TaskWatcher:
    """What the tools and agents have in common that are watched together."""

    memory: AgentMemory | None
    """The task of all runs."""
    tasks: ConversationTasks | None = None
    """In its place: those of conversations."""
    reports_errors: bool = False
    """Whether an exception becomes an output when there is a word of the guard to go with it."""
    counts_across_turns: bool = False
    stop_after: int = 0
    locks: LockRegistry = field(default_factory=LockRegistry)
    """Equal calls at once are made one after the other, so that the guard sees each of them."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __deepcopy__(self, _: dict[int, Any]) -> TaskWatcher:
        return self  # copies of an agent work at the same task

    @property
    def active_call(self) -> ActiveCall | None:
        """The call that an agent of this watch makes just now."""
        doing = _active_call.get()
        return doing if doing is not None and doing.watcher is self else None

    def get_task(self) -> AgentMemory | None:
        """The task that is worked at just now; none if no conversation is."""
        if self.tasks is None:
            return self.memory
        doing = self.active_call
        return None if doing is None or doing.task is None else self.tasks.open_task(doing.task)

    async def begin_run(self, ctx: AgentContext) -> None:
        """A run begins: the user asks for something."""
        await ctx.store.set(_IGNORED_KEY, None)
        try:
            name = await self._get_task_name(ctx)
            await asyncio.to_thread(self._begin_turn, name)
        except Exception as error:  # noqa: BLE001 - whatever memory raises, the agent goes on
            # Only its kind: what a driver raises may quote an address with its password.
            _log.warning("memory failed at the beginning of a run: %s", type(error).__name__)
            _log.debug("memory failed at the beginning of a run", exc_info=error)

    async def save_thought(self, ctx: AgentContext, thought: str) -> None:
        """The model has said what it wants, and why."""
        await ctx.store.set(_THOUGHT_KEY, thought)

    @asynccontextmanager
    async def track_call(self, ctx: AgentContext, tool: str) -> AsyncIterator[None]:
        """Within it, an agent calls a tool."""
        thought = await ctx.store.get(_THOUGHT_KEY, default=None)
        token = _active_call.set(ActiveCall(self, tool, await self._get_task_name(ctx), thought or ""))
        try:
            yield
        finally:
            _active_call.reset(token)

    async def count_round(self, ctx: AgentContext, results: Iterable[ToolCallResult]) -> None:
        """A round of calls is over."""
        ignored = (await self._load_ignored(ctx)).add_round(results)
        await ctx.store.set(_IGNORED_KEY, [ignored.rounds, ignored.last_message])

    async def get_stop_message(self, ctx: AgentContext) -> str | None:
        """What ends the run, if its model asks for nothing but what is blocked."""
        return (await self._load_ignored(ctx)).get_stop_message(self.stop_after)

    async def _load_ignored(self, ctx: AgentContext) -> IgnoredBlocks:
        held = await ctx.store.get(_IGNORED_KEY, default=None)
        return IgnoredBlocks(*held) if held else IgnoredBlocks()

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
            task.learn_from_success()  # from the runs before
            if not self.counts_across_turns:
                task.new_turn()
