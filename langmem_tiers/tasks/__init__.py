"""Agent task memory: cycles, loops, failures, patterns, site maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.tasks.agent_memory import AgentMemory
    from langmem_tiers.tasks.guard import AdviceLevel, Guard, GuardAdvice
    from langmem_tiers.tasks.history import CyclePage, CyclePlace, TaskCycle, TaskInfo, TaskPage
    from langmem_tiers.tasks.loop_detection.detector import Loop, LoopKind, LoopReport, Step, find_loops
    from langmem_tiers.tasks.models import (
        AgentAction,
        Cycle,
        ExecutionOutcome,
        LearnedPattern,
        MemoryPriority,
        NavigationSnapshot,
        Observation,
        OperationMode,
        Thought,
    )
    from langmem_tiers.tasks.sitemap import SitemapGraph, SitemapLimits, SitemapPage
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".agent_memory": "AgentMemory",
            ".guard": "AdviceLevel Guard GuardAdvice",
            ".history": "CyclePage CyclePlace TaskCycle TaskInfo TaskPage",
            ".loop_detection.detector": "Loop LoopKind LoopReport Step find_loops",
            ".models": (
                "AgentAction Cycle ExecutionOutcome LearnedPattern MemoryPriority "
                "NavigationSnapshot Observation OperationMode Thought"
            ),
            ".sitemap": "SitemapGraph SitemapLimits SitemapPage",
        },
    )

__all__ = [
    "AdviceLevel",
    "AgentAction",
    "AgentMemory",
    "Cycle",
    "CyclePage",
    "CyclePlace",
    "ExecutionOutcome",
    "Guard",
    "GuardAdvice",
    "LearnedPattern",
    "Loop",
    "LoopKind",
    "LoopReport",
    "MemoryPriority",
    "NavigationSnapshot",
    "Observation",
    "OperationMode",
    "SitemapGraph",
    "SitemapLimits",
    "SitemapPage",
    "Step",
    "TaskCycle",
    "TaskInfo",
    "TaskPage",
    "Thought",
    "find_loops",
]
