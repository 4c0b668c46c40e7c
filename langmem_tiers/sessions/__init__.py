"""Sessions: the append-only record of each conversation, and the view of it that goes into prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.sessions.analysis import IMPORTANCE_SIGNALS, RELEVANCE_SIGNALS, Analyzer
    from langmem_tiers.sessions.batch_models import (
        Acknowledge,
        CrashReport,
        RecoverReport,
        UnsavedMessages,
        WriterConfig,
        WriterReport,
    )
    from langmem_tiers.sessions.batch_writer import BatchWriter
    from langmem_tiers.sessions.budget_partition import Partition, partition_messages
    from langmem_tiers.sessions.compression_plan import Plan, PlanAction, PlanActionKind, PlanReport
    from langmem_tiers.sessions.models import (
        AddReport,
        CompressReport,
        DeleteReport,
        Listing,
        MessagePage,
        ReplaceReport,
        SessionInfo,
        SessionPage,
    )
    from langmem_tiers.sessions.redis.connection import RedisStatus
    from langmem_tiers.sessions.redundancy import find_redundant
    from langmem_tiers.sessions.transcript import Transcript
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".analysis": "IMPORTANCE_SIGNALS RELEVANCE_SIGNALS Analyzer",
            ".batch_models": (
                "Acknowledge CrashReport RecoverReport UnsavedMessages WriterConfig WriterReport"
            ),
            ".batch_writer": "BatchWriter",
            ".budget_partition": "Partition partition_messages",
            ".compression_plan": "Plan PlanAction PlanActionKind PlanReport",
            ".models": (
                "AddReport CompressReport DeleteReport Listing MessagePage ReplaceReport "
                "SessionInfo SessionPage"
            ),
            ".redis.connection": "RedisStatus",
            ".redundancy": "find_redundant",
            ".transcript": "Transcript",
        },
    )

__all__ = [
    "IMPORTANCE_SIGNALS",
    "RELEVANCE_SIGNALS",
    "Acknowledge",
    "AddReport",
    "Analyzer",
    "BatchWriter",
    "CompressReport",
    "CrashReport",
    "DeleteReport",
    "Listing",
    "MessagePage",
    "Partition",
    "Plan",
    "PlanAction",
    "PlanActionKind",
    "PlanReport",
    "RecoverReport",
    "RedisStatus",
    "ReplaceReport",
    "SessionInfo",
    "SessionPage",
    "Transcript",
    "UnsavedMessages",
    "WriterConfig",
    "WriterReport",
    "find_redundant",
    "partition_messages",
]
