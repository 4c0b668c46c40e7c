"""Which task a run works at: one for all of them, or one for each thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from langmem_tiers.agent_memory import AgentMemory
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.engine import MemoryEngine
from langmem_tiers_langchain.identity import Identity, Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.messages import BaseMessage

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers_langchain.identity import Owner

LABEL = "agent"
"""The last label of a namespace of tasks: a chat of the same thread may be kept in the one without it."""
_HELD = 256
"""Tasks at hand in this process; what is beyond is read again when its thread goes on."""


class ThreadTasks:
    """The tasks of threads, each called like its thread.

    Args:
        engine: Where they are kept.
        namespace: Whose, as for ``TieredMemoryMiddleware``.
    """

    def __init__(self, engine: MemoryEngine, namespace: Owner) -> None:
        self._engine = engine
        self._identity = Identity(namespace)
        self._held: OrderedDict[Place, AgentMemory] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, runtime: Any, messages: Iterable[BaseMessage], *, afresh: bool = False) -> AgentMemory:  # noqa: ANN401 - of any graph
        """The memory of the thread that runs.

        Args:
            runtime: Of the run.
            messages: Its state.
            afresh: Whether to look for what another process did at the task since.
        """
        place = self._identity.place(runtime, messages)
        with self._lock:
            memory = self._held.get(place)
            if memory is None or (afresh and self._is_behind(memory)):
                memory = AgentMemory(
                    engine=self._engine, namespace=tasks_of(place.namespace), task=place.session
                )
            self._held[place] = memory
            self._held.move_to_end(place)
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
            return memory

    def _is_behind(self, memory: AgentMemory) -> bool:
        return self._engine.session(memory.namespace, memory.task).count() != memory.working.cycle_count


def tasks_of(namespace: NamespacePath) -> NamespacePath:
    """The namespace in which the tasks of a namespace are."""
    return (*namespace, LABEL)


def checked_place(
    memory: object, engine: object, namespace: Owner
) -> tuple[AgentMemory | None, ThreadTasks | None]:
    """Where the tasks of runs are kept: in one memory, or in one for each thread.

    Raises:
        InvalidConfigError: Neither is given, or both, or something else.
    """
    if (memory is None) == (engine is None):
        raise InvalidConfigError(
            "a task is kept in one place: pass memory= for one task of all runs, or engine= for one of each thread"
        )
    if engine is not None:
        if not isinstance(engine, MemoryEngine):
            raise InvalidConfigError(f"engine must be a MemoryEngine, got a {type(engine).__name__}")
        return None, ThreadTasks(engine, namespace)
    if not isinstance(memory, AgentMemory):
        raise InvalidConfigError(f"memory must be an AgentMemory, got a {type(memory).__name__}")
    if namespace is not None:
        raise InvalidConfigError("a memory has its namespace: leave namespace= out, or pass engine=")
    return memory, None
