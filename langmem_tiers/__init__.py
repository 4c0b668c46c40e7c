"""Tiered, lossless memory for LangChain agents, LlamaIndex chat engines and notebooks.

>>> from langmem_tiers import MemoryEngine
>>> with MemoryEngine() as engine:
...     session = engine.session("alice", "monday")
...     _ = session.add("user", "My cat is called Tom.")
...     session.latest()[0].content
'My cat is called Tom.'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports
from langmem_tiers.errors import (
    BackupError,
    BackupFileError,
    BudgetExceededError,
    ContextConflictError,
    DamagedBackupError,
    EmbeddingError,
    EngineClosedError,
    EntryNotFoundError,
    InvalidConfigError,
    InvalidInputError,
    InvalidMessageError,
    InvalidNameError,
    LangmemTiersError,
    MessageConflictError,
    MessageNotFoundError,
    MissingExtraError,
    NewerBackupError,
    NotABackupError,
    NotAllowedError,
    NotFoundError,
    PlanOutdatedError,
    PoolExistsError,
    PoolNotFoundError,
    RestoreConflictError,
    SchemaVersionError,
    SessionNotFoundError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
    UnsavedError,
)
from langmem_tiers.version import __version__

if TYPE_CHECKING:
    from langmem_tiers.backup import BackupReport, RestoreReport
    from langmem_tiers.chunks import Chunk
    from langmem_tiers.common import (
        Clock,
        Embedder,
        Entry,
        LanguageModel,
        Message,
        MessageDraft,
        MessageToolCall,
        Role,
        Tier,
        TokenBudget,
        TokenCounter,
    )
    from langmem_tiers.compression import Compressor, ContextCompressor, Summarizer
    from langmem_tiers.config import (
        CacheConfig,
        EmbeddingConfig,
        EngineConfig,
        LearningConfig,
        MaintenanceConfig,
        OptimizerConfig,
        PostgresConfig,
        RecallConfig,
        RedisConfig,
        SummaryConfig,
        WorkingConfig,
    )
    from langmem_tiers.context import MemoryContext
    from langmem_tiers.context_files import ContextFiles
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.erasure import ErasureReceipt
    from langmem_tiers.facts import LearnReport
    from langmem_tiers.knowledge import Knowledge, KnowledgeCategory
    from langmem_tiers.long_term import EntryDraft, EntryKind, Receipt
    from langmem_tiers.maintenance import MaintenanceReport, Statistics
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.projects import MemorySystem, MemorySystemConfig
    from langmem_tiers.recall import Hit, OfflineEmbedder, Recall, RecallFilters, Scoring, Strategy
    from langmem_tiers.session import Session
    from langmem_tiers.sessions import AddReport, WriterConfig
    from langmem_tiers.tasks import (
        AgentAction,
        AgentMemory,
        ExecutionOutcome,
        Guard,
        Step,
        Thought,
        find_loops,
    )
    from langmem_tiers.text import CharCounter, ContentAwareCounter, TiktokenCounter
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".backup": "BackupReport RestoreReport",
            ".chunks": "Chunk",
            ".common": (
                "Clock Embedder Entry LanguageModel Message MessageDraft MessageToolCall Role Tier "
                "TokenBudget TokenCounter"
            ),
            ".compression": "Compressor ContextCompressor Summarizer",
            ".config": (
                "CacheConfig EmbeddingConfig EngineConfig LearningConfig "
                "MaintenanceConfig OptimizerConfig PostgresConfig RecallConfig RedisConfig "
                "SummaryConfig WorkingConfig"
            ),
            ".context": "MemoryContext",
            ".context_files": "ContextFiles",
            ".engine": "MemoryEngine",
            ".erasure": "ErasureReceipt",
            ".facts": "LearnReport",
            ".knowledge": "Knowledge KnowledgeCategory",
            ".long_term": "EntryDraft EntryKind Receipt",
            ".maintenance": "MaintenanceReport Statistics",
            ".namespace": "Namespace",
            ".projects": "MemorySystem MemorySystemConfig",
            ".recall": "Hit OfflineEmbedder Recall RecallFilters Scoring Strategy",
            ".session": "Session",
            ".sessions": "AddReport WriterConfig",
            ".tasks": "AgentAction AgentMemory ExecutionOutcome Guard Step Thought find_loops",
            ".text": "CharCounter ContentAwareCounter TiktokenCounter",
        },
    )

__all__ = [
    "AddReport",
    "AgentAction",
    "AgentMemory",
    "BackupError",
    "BackupFileError",
    "BackupReport",
    "BudgetExceededError",
    "CacheConfig",
    "CharCounter",
    "Chunk",
    "Clock",
    "Compressor",
    "ContentAwareCounter",
    "ContextCompressor",
    "ContextConflictError",
    "ContextFiles",
    "DamagedBackupError",
    "Embedder",
    "EmbeddingConfig",
    "EmbeddingError",
    "EngineClosedError",
    "EngineConfig",
    "Entry",
    "EntryDraft",
    "EntryKind",
    "EntryNotFoundError",
    "ErasureReceipt",
    "ExecutionOutcome",
    "Guard",
    "Hit",
    "InvalidConfigError",
    "InvalidInputError",
    "InvalidMessageError",
    "InvalidNameError",
    "Knowledge",
    "KnowledgeCategory",
    "LangmemTiersError",
    "LanguageModel",
    "LearnReport",
    "LearningConfig",
    "MaintenanceConfig",
    "MaintenanceReport",
    "MemoryContext",
    "MemoryEngine",
    "MemorySystem",
    "MemorySystemConfig",
    "Message",
    "MessageConflictError",
    "MessageDraft",
    "MessageNotFoundError",
    "MessageToolCall",
    "MissingExtraError",
    "Namespace",
    "NewerBackupError",
    "NotABackupError",
    "NotAllowedError",
    "NotFoundError",
    "OfflineEmbedder",
    "OptimizerConfig",
    "PlanOutdatedError",
    "PoolExistsError",
    "PoolNotFoundError",
    "PostgresConfig",
    "Recall",
    "RecallConfig",
    "RecallFilters",
    "Receipt",
    "RedisConfig",
    "RestoreConflictError",
    "RestoreReport",
    "Role",
    "SchemaVersionError",
    "Scoring",
    "Session",
    "SessionNotFoundError",
    "Statistics",
    "Step",
    "StorageBusyError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageReadOnlyError",
    "StorageUnavailableError",
    "Strategy",
    "Summarizer",
    "SummaryConfig",
    "Thought",
    "Tier",
    "TiktokenCounter",
    "TokenBudget",
    "TokenCounter",
    "UnsavedError",
    "WorkingConfig",
    "WriterConfig",
    "__version__",
    "find_loops",
]
