"""The tasks that agents of a framework work at: one for all runs, or one for each conversation."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.tasks.agent_memory import AgentMemory

if TYPE_CHECKING:
    from collections.abc import Collection

    from langmem_tiers.common.namespaces import NamespacePath

TASK_LABEL = "agent"
"""The last label of a namespace of tasks: chats may be kept in the one without it."""


@dataclass(slots=True)
class _Slot:
    memory: AgentMemory | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class TaskRegistry:
    """The memories of tasks, each made once and held while its conversation goes on.

    Args:
        engine: Where they are kept.
        unguarded_tools: Tools that may be called as often as one likes.
        held: Tasks at hand in this process; what is beyond is read again when its conversation goes on.
    """

    def __init__(
        self, engine: MemoryEngine, unguarded_tools: Collection[str] = (), *, held: int = 256
    ) -> None:
        self.engine = engine
        self._unguarded_tools = unguarded_tools
        self._max_open_tasks = held
        self._slots: OrderedDict[tuple[NamespacePath, str], _Slot] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def open_task(self, namespace: NamespacePath, task: str, *, afresh: bool = False) -> AgentMemory:
        """The memory of a task.

        Args:
            namespace: Whose; its tasks are in the one with the label ``"agent"`` behind it.
            task: What it is called.
            afresh: Whether to look for what another process did at it since.
        """
        place = ((*namespace, TASK_LABEL), task)
        with self._lock:
            slot = self._slots.setdefault(place, _Slot())
            self._slots.move_to_end(place)
            if len(self._slots) > self._max_open_tasks:
                self._slots.popitem(last=False)
        with slot.lock:  # a long task that is read again holds up its own conversation alone
            if slot.memory is None or (afresh and self._is_stale(slot.memory)):
                slot.memory = AgentMemory(
                    engine=self.engine, namespace=place[0], task=task, unguarded_tools=self._unguarded_tools
                )
            return slot.memory

    def _is_stale(self, memory: AgentMemory) -> bool:
        return self.engine.session(memory.namespace, memory.task).count() != memory.working.cycle_count


def resolve_task_source(
    memory: object, engine: object, namespace: object, unguarded_tools: Collection[str]
) -> tuple[AgentMemory, None] | tuple[None, TaskRegistry]:
    """Where the tasks of runs are kept: in one memory, or in one for each conversation.

    Raises:
        InvalidConfigError: Neither is given, or both, or something else.
    """
    if (memory is None) == (engine is None):
        raise InvalidConfigError(
            "a task is kept in one place: pass memory= for one task of all runs, or engine= for one of each "
            "conversation"
        )
    if engine is not None:
        if not isinstance(engine, MemoryEngine):
            raise InvalidConfigError(f"engine must be a MemoryEngine, got a {type(engine).__name__}")
        return None, TaskRegistry(engine, unguarded_tools)
    checked = check_agent_memory(memory)
    if namespace is not None:
        raise InvalidConfigError("a memory has its namespace: leave namespace= out, or pass engine=")
    if unguarded_tools:
        raise InvalidConfigError("a memory has its unguarded tools: pass AgentMemory(unguarded_tools=...)")
    return checked, None


def check_agent_memory(memory: object) -> AgentMemory:
    """The memory, or an error that says what to pass.

    Raises:
        InvalidConfigError: It is none.
    """
    if not isinstance(memory, AgentMemory):
        raise InvalidConfigError(
            f"a {type(memory).__name__} is no AgentMemory: pass AgentMemory(engine=..., task='...')"
        )
    return memory
