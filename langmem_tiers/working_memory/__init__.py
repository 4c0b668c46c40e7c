"""Working memory: what agents hold in this process, saved to their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.working_memory.models import FlushReport, WorkingMemory, WorkingReport, WorkingStatus
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "FlushReport WorkingMemory WorkingReport WorkingStatus",
        },
    )

__all__ = [
    "FlushReport",
    "WorkingMemory",
    "WorkingReport",
    "WorkingStatus",
]
