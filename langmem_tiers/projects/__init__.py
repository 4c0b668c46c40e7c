"""Projects: MemorySystem, one object for a project's conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.projects.memory_system import MemorySystem
    from langmem_tiers.projects.models import (
        ContextAllocation,
        ContextBudget,
        ContextBuildResult,
        ContextItem,
        Conversation,
        ConversationStatus,
        MemorySystemConfig,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".memory_system": "MemorySystem",
            ".models": (
                "ContextAllocation ContextBudget ContextBuildResult ContextItem Conversation "
                "ConversationStatus MemorySystemConfig"
            ),
        },
    )

__all__ = [
    "ContextAllocation",
    "ContextBudget",
    "ContextBuildResult",
    "ContextItem",
    "Conversation",
    "ConversationStatus",
    "MemorySystem",
    "MemorySystemConfig",
]
