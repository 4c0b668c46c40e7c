"""Context files: a session's state as JSON on disk or in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.context_files.compaction import CompactionReport, compact
    from langmem_tiers.context_files.models import (
        ActiveTask,
        ContextData,
        HistoryEntry,
        KnownEnvironment,
        Recovery,
        TokenUsage,
        ToolStats,
    )
    from langmem_tiers.context_files.service import ContextFiles
    from langmem_tiers.context_files.store_models import (
        CompactionConfig,
        ContextDeleteReport,
        ContextFilesConfig,
        ContextStore,
        ContextVersion,
        SaveReport,
    )
    from langmem_tiers.context_files.versions import ContextDiff
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".compaction": "CompactionReport compact",
            ".versions": "ContextDiff",
            ".models": "ActiveTask ContextData HistoryEntry KnownEnvironment Recovery TokenUsage ToolStats",
            ".service": "ContextFiles",
            ".store_models": (
                "CompactionConfig ContextDeleteReport ContextFilesConfig ContextStore "
                "ContextVersion SaveReport"
            ),
        },
    )

__all__ = [
    "ActiveTask",
    "CompactionConfig",
    "CompactionReport",
    "ContextData",
    "ContextDeleteReport",
    "ContextDiff",
    "ContextFiles",
    "ContextFilesConfig",
    "ContextStore",
    "ContextVersion",
    "HistoryEntry",
    "KnownEnvironment",
    "Recovery",
    "SaveReport",
    "TokenUsage",
    "ToolStats",
    "compact",
]
