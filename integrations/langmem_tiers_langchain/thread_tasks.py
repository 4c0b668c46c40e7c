"""Which task a run works at where each thread has one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers_langchain.identity import RunLocator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.messages import BaseMessage

    from langmem_tiers.integration_kit.task_registry import TaskRegistry
    from langmem_tiers.tasks.agent_memory import AgentMemory
    from langmem_tiers_langchain.identity import Owner


class ThreadTasks:
    """The tasks of threads, each called like its thread.

    Args:
        tasks: Holds them.
        namespace: Whose, as for ``TieredMemoryMiddleware``.
    """

    def __init__(self, tasks: TaskRegistry, namespace: Owner) -> None:
        self._registry = tasks
        self._locator = RunLocator(namespace)

    def open_task(
        self,
        runtime: Any,  # noqa: ANN401 - of any graph
        messages: Iterable[BaseMessage],
        *,
        afresh: bool = False,
    ) -> AgentMemory:
        """The memory of the thread that runs.

        Args:
            runtime: Of the run.
            messages: Its state.
            afresh: Whether to look for what another process did at the task since.
        """
        place = self._locator.locate(runtime, messages)
        return self._registry.open_task(place.namespace, place.session, afresh=afresh)
