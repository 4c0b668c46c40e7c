"""Task memories of agents: one task for all runs, or one task per conversation."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.tasks.agent_memory import AgentMemory

if TYPE_CHECKING:
    from collections.abc import Collection

    from langmem_tiers.common.namespaces import NamespacePath

TASK_LABEL = "agent"
"""Label appended to the namespace of tasks, to separate tasks from the chats in the same namespace."""


@dataclass(slots=True)
class _Slot:
    memory: AgentMemory | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class TaskRegistry:
    """Cache of open task memories by namespace and task name.

    Args:
        engine: Engine that stores the tasks.
        unguarded_tools: Tools that may be called without limit.
        held: Maximum number of open tasks in this process. A task that was evicted is read again from the
            database on its next use. Default: 256.
    """

    def __init__(
        self, engine: MemoryEngine, unguarded_tools: Collection[str] = (), *, max_open_tasks: int = 256
    ) -> None:
        self.engine = engine
        self._unguarded_tools = unguarded_tools
        self._slots: SizedLruCache[_Slot] = SizedLruCache(max_open_tasks)

    def __len__(self) -> int:
        return len(self._slots)

    def open_task(self, namespace: NamespacePath, task: str, *, reload: bool = False) -> AgentMemory:
        """Return the memory of a task, opening it if needed.

        Args:
            namespace: Namespace of the conversation; the label ``"agent"`` is appended for the task.
            task: Name of the task.
            reload: True to reload the task if another process changed it.
        """
        key = ((*namespace, TASK_LABEL), task)
        slot = self._slots.setdefault(key, _Slot())
        # One lock per task: reading a long task from the database blocks only its own conversation.
        with slot.lock:
            if slot.memory is None or (reload and self._is_stale(slot.memory)):
                slot.memory = AgentMemory(
                    engine=self.engine, namespace=key[0], task=task, unguarded_tools=self._unguarded_tools
                )
            return slot.memory

    def _is_stale(self, memory: AgentMemory) -> bool:
        # Each cycle is one message of the session, so a different count means that another process wrote to it.
        return self.engine.session(memory.namespace, memory.task).count() != memory.working.cycle_count


def resolve_task_source(
    memory: object, engine: object, namespace: object, unguarded_tools: Collection[str]
) -> tuple[AgentMemory, None] | tuple[None, TaskRegistry]:
    """Return the single task memory, or a registry with one task per conversation.

    Raises:
        InvalidConfigError: Neither or both of ``memory`` and ``engine`` are given, or an argument does not
            apply to a memory.
    """
    if (memory is None) == (engine is None):
        raise InvalidConfigError(
            "expected exactly one of memory= and engine=: pass memory= for one task of all runs, or engine= for "
            "one task per conversation"
        )
    if engine is not None:
        if not isinstance(engine, MemoryEngine):
            raise InvalidConfigError(
                f"engine must be a MemoryEngine, got {type(engine).__name__}: pass MemoryEngine(url)"
            )
        return None, TaskRegistry(engine, unguarded_tools)
    checked = check_agent_memory(memory)
    if namespace is not None:
        raise InvalidConfigError(
            "namespace= cannot be combined with memory=, which has a namespace: omit it, or pass engine="
        )
    if unguarded_tools:
        raise InvalidConfigError(
            "unguarded_tools= cannot be combined with memory=: pass AgentMemory(unguarded_tools=...)"
        )
    return checked, None


def check_agent_memory(memory: object) -> AgentMemory:
    """Return the memory.

    Raises:
        InvalidConfigError: The value is not an AgentMemory.
    """
    if not isinstance(memory, AgentMemory):
        raise InvalidConfigError(
            f"expected an AgentMemory, got {type(memory).__name__}: pass AgentMemory(engine=..., task='...')"
        )
    return memory
