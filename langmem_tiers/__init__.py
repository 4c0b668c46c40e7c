"""Tiered, lossless memory for LangChain agents, LlamaIndex chat engines and notebooks.

>>> from langmem_tiers import MemoryEngine
>>> with MemoryEngine() as engine:
...     session = engine.session("alice", "monday")
...     _ = session.add("user", "My cat is called Tom.")
...     session.latest()[0].content
'My cat is called Tom.'
"""

from langmem_tiers.backup.models import (
    BackupProgress,
    BackupReport,
    BackupScope,
    BackupStore,
    RestoreReport,
    SnapshotReport,
)
from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.common.clock import Clock, SystemClock
from langmem_tiers.common.entries import Change, Chunk, Entry, EntryState, Tier
from langmem_tiers.common.ids import IdSource, TimeSortedIds
from langmem_tiers.common.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.common.namespaces import NamespacePath
from langmem_tiers.common.ports import (
    BatchStore,
    Embedder,
    EntryStore,
    KnowledgeStore,
    LanguageModel,
    MessageStore,
    SessionStore,
    TokenCounter,
    TuningStore,
)
from langmem_tiers.common.recall_strategy import HybridWeights, Strategy, TfIdfWeights
from langmem_tiers.common.scorer import Score, Scorer, Signal, Subject
from langmem_tiers.compression.compressor import CompressedText, Compressor
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.compression.layout import Summary
from langmem_tiers.compression.summarizer import Summarizer, SummaryReport
from langmem_tiers.compression.tool_output.compressor import ContextCompressor
from langmem_tiers.compression.tool_output.models import CompressedExtraction, CompressionContentType
from langmem_tiers.config import (
    CacheConfig,
    Durability,
    EmbeddingConfig,
    EngineConfig,
    LearningConfig,
    MaintenanceConfig,
    OptimizerConfig,
    PostgresConfig,
    RecallConfig,
    RedisConfig,
    SummaryConfig,
    SummaryStrategy,
    VectorScan,
    WorkingConfig,
)
from langmem_tiers.context.entry_lookup import FoundEntry
from langmem_tiers.context.models import MemoryContext
from langmem_tiers.context.preview import Preview
from langmem_tiers.context_files.compaction import CompactionReport, compact
from langmem_tiers.context_files.diff import ContextDiff
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
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.episodes.models import Episode, EpisodeDraft, EpisodeKind, NarrativeArc
from langmem_tiers.episodes.patterns import MOMENT_PATTERNS, MomentPattern
from langmem_tiers.episodes.service import Episodes
from langmem_tiers.erasure.models import (
    ErasedCounts,
    ErasedIds,
    Eraser,
    ErasureReceipt,
    ErasureRequest,
    ScrubResult,
)
from langmem_tiers.erasure.records import ErasureStore
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
from langmem_tiers.facts.learner import LearnReport
from langmem_tiers.facts.models import ExtractedFact, FactState
from langmem_tiers.facts.patterns import EXTRA_PATTERNS, EXTRACTION_PATTERNS, ExtractionPattern
from langmem_tiers.facts.service import Facts
from langmem_tiers.items.models import Item, ItemChange, ItemHit, ItemStore, NamespaceMatch
from langmem_tiers.items.service import Items
from langmem_tiers.knowledge.models import (
    DecayReport,
    Knowledge,
    KnowledgeCategory,
    KnowledgeHit,
    KnowledgeReport,
    PastKnowledge,
)
from langmem_tiers.knowledge.service import KnowledgeBase
from langmem_tiers.long_term.models import (
    ConsolidationReport,
    EntryDraft,
    EntryFilters,
    EntryKind,
    Outcome,
    Receipt,
    Related,
    Relation,
    RelationKind,
)
from langmem_tiers.long_term.records import MemoryStore
from langmem_tiers.long_term.service import LongTerm
from langmem_tiers.maintenance.models import (
    DatabaseCompactionReport,
    MaintenanceReport,
    MaintenanceStore,
    NamespaceUsage,
    Statistics,
    TableStatistics,
    TierStatistics,
)
from langmem_tiers.maintenance.service import Maintenance
from langmem_tiers.namespace import Namespace
from langmem_tiers.pools.models import (
    Contributor,
    PoolErasure,
    PoolHit,
    PoolMember,
    PoolStore,
    SyncReport,
)
from langmem_tiers.pools.service import Pool, Pools
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
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder
from langmem_tiers.recall.item_records import ItemIndex
from langmem_tiers.recall.models import Hit, Recall, RecallFilters
from langmem_tiers.recall.records import IndexStore, VectorStore
from langmem_tiers.scoring_config import Scoring
from langmem_tiers.session import Session
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
from langmem_tiers.sessions.redis.models import RedisStatus
from langmem_tiers.sessions.redundancy import find_redundant
from langmem_tiers.tasks.agent_memory import AgentMemory
from langmem_tiers.tasks.guard import Guard
from langmem_tiers.tasks.guard_advice import AdviceLevel, GuardAdvice
from langmem_tiers.tasks.history import CyclePage, CyclePlace, TaskCycle, TaskInfo, TaskPage
from langmem_tiers.tasks.loop_detection.detector import Loop, LoopKind, LoopReport, Step, find_loops
from langmem_tiers.tasks.models import AgentAction as AgentAction
from langmem_tiers.tasks.models import (
    ExecutionOutcome,
    LearnedPattern,
    MemoryEntry,
    MemoryPriority,
    Observation,
    OperationMode,
    StateSnapshot,
    Thought,
)
from langmem_tiers.tasks.sitemap import SitemapGraph, SitemapLimits, SitemapPage
from langmem_tiers.telemetry.instruments import EngineGauges, Metrics, Tracer
from langmem_tiers.text.facts import Fact, FactKind, FactPattern
from langmem_tiers.text.patterns import FACT_PATTERNS
from langmem_tiers.text.token_counting import (
    CharCounter,
    ContentAwareCounter,
    ContentType,
    TiktokenCounter,
    TokenEstimate,
    TokenEstimator,
    count_messages,
    tiktoken_or_estimate,
)
from langmem_tiers.tuning.models import EfficiencyReport, TuningParameters, TuningSnapshot, TuningSnapshotPage
from langmem_tiers.tuning.service import Optimizer
from langmem_tiers.version import __version__
from langmem_tiers.working_memory.models import FlushReport, WorkingMemory, WorkingReport, WorkingStatus

__all__ = [
    "EXTRACTION_PATTERNS",
    "EXTRA_PATTERNS",
    "FACT_PATTERNS",
    "IMPORTANCE_SIGNALS",
    "MOMENT_PATTERNS",
    "RELEVANCE_SIGNALS",
    "Acknowledge",
    "ActiveTask",
    "AddReport",
    "AdviceLevel",
    "AgentAction",
    "AgentMemory",
    "Analyzer",
    "BackupError",
    "BackupFileError",
    "BackupProgress",
    "BackupReport",
    "BackupScope",
    "BackupStore",
    "BatchStore",
    "BatchWriter",
    "BudgetExceededError",
    "CacheConfig",
    "Change",
    "CharCounter",
    "Chunk",
    "Clock",
    "CompactionConfig",
    "CompactionReport",
    "CompressReport",
    "CompressedExtraction",
    "CompressedText",
    "CompressionContentType",
    "Compressor",
    "ConsolidationReport",
    "ContentAwareCounter",
    "ContentType",
    "ContextAllocation",
    "ContextBudget",
    "ContextBuildResult",
    "ContextCompressor",
    "ContextConflictError",
    "ContextData",
    "ContextDeleteReport",
    "ContextDiff",
    "ContextFiles",
    "ContextFilesConfig",
    "ContextItem",
    "ContextStore",
    "ContextVersion",
    "Contributor",
    "Conversation",
    "ConversationStatus",
    "CrashReport",
    "CyclePage",
    "CyclePlace",
    "DamagedBackupError",
    "DatabaseCompactionReport",
    "DecayReport",
    "DeleteReport",
    "Durability",
    "EfficiencyReport",
    "Embedder",
    "EmbeddingConfig",
    "EmbeddingError",
    "EngineClosedError",
    "EngineConfig",
    "EngineGauges",
    "Entry",
    "EntryDraft",
    "EntryFilters",
    "EntryKind",
    "EntryNotFoundError",
    "EntryState",
    "EntryStore",
    "Episode",
    "EpisodeDraft",
    "EpisodeKind",
    "Episodes",
    "ErasedCounts",
    "ErasedIds",
    "Eraser",
    "ErasureReceipt",
    "ErasureRequest",
    "ErasureStore",
    "ExecutionOutcome",
    "ExtractedFact",
    "ExtractionPattern",
    "Fact",
    "FactFinder",
    "FactKind",
    "FactPattern",
    "FactState",
    "Facts",
    "FlushReport",
    "FoundEntry",
    "Guard",
    "GuardAdvice",
    "HistoryEntry",
    "Hit",
    "HybridWeights",
    "IdSource",
    "IndexStore",
    "InvalidConfigError",
    "InvalidInputError",
    "InvalidMessageError",
    "InvalidNameError",
    "Item",
    "ItemChange",
    "ItemHit",
    "ItemIndex",
    "ItemStore",
    "Items",
    "Knowledge",
    "KnowledgeBase",
    "KnowledgeCategory",
    "KnowledgeHit",
    "KnowledgeReport",
    "KnowledgeStore",
    "KnownEnvironment",
    "LangmemTiersError",
    "LanguageModel",
    "LearnReport",
    "LearnedPattern",
    "LearningConfig",
    "Listing",
    "LongTerm",
    "Loop",
    "LoopKind",
    "LoopReport",
    "Maintenance",
    "MaintenanceConfig",
    "MaintenanceReport",
    "MaintenanceStore",
    "MemoryContext",
    "MemoryEngine",
    "MemoryEntry",
    "MemoryPriority",
    "MemoryStore",
    "MemorySystem",
    "MemorySystemConfig",
    "Message",
    "MessageConflictError",
    "MessageDraft",
    "MessageNotFoundError",
    "MessagePage",
    "MessageStore",
    "Metrics",
    "MissingExtraError",
    "MomentPattern",
    "Namespace",
    "NamespaceMatch",
    "NamespacePath",
    "NamespaceUsage",
    "NarrativeArc",
    "NewerBackupError",
    "NotABackupError",
    "NotAllowedError",
    "NotFoundError",
    "Observation",
    "OfflineEmbedder",
    "OperationMode",
    "Optimizer",
    "OptimizerConfig",
    "Outcome",
    "Partition",
    "PastKnowledge",
    "Plan",
    "PlanAction",
    "PlanActionKind",
    "PlanOutdatedError",
    "PlanReport",
    "Pool",
    "PoolErasure",
    "PoolExistsError",
    "PoolHit",
    "PoolMember",
    "PoolNotFoundError",
    "PoolStore",
    "Pools",
    "PostgresConfig",
    "Preview",
    "Recall",
    "RecallConfig",
    "RecallFilters",
    "Receipt",
    "RecoverReport",
    "Recovery",
    "RedisConfig",
    "RedisStatus",
    "Related",
    "Relation",
    "RelationKind",
    "ReplaceReport",
    "RestoreConflictError",
    "RestoreReport",
    "Role",
    "SaveReport",
    "SchemaVersionError",
    "Score",
    "Scorer",
    "Scoring",
    "ScrubResult",
    "Session",
    "SessionInfo",
    "SessionNotFoundError",
    "SessionPage",
    "SessionStore",
    "Signal",
    "SitemapGraph",
    "SitemapLimits",
    "SitemapPage",
    "SnapshotReport",
    "StateSnapshot",
    "Statistics",
    "Step",
    "StorageBusyError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageReadOnlyError",
    "StorageUnavailableError",
    "Strategy",
    "Subject",
    "Summarizer",
    "Summary",
    "SummaryConfig",
    "SummaryReport",
    "SummaryStrategy",
    "SyncReport",
    "SystemClock",
    "TableStatistics",
    "TaskCycle",
    "TaskInfo",
    "TaskPage",
    "TfIdfWeights",
    "Thought",
    "Tier",
    "TierStatistics",
    "TiktokenCounter",
    "TimeSortedIds",
    "TokenBudget",
    "TokenCounter",
    "TokenEstimate",
    "TokenEstimator",
    "TokenUsage",
    "ToolCall",
    "ToolStats",
    "Tracer",
    "TuningParameters",
    "TuningSnapshot",
    "TuningSnapshotPage",
    "TuningStore",
    "UnsavedError",
    "UnsavedMessages",
    "VectorScan",
    "VectorStore",
    "WorkingConfig",
    "WorkingMemory",
    "WorkingReport",
    "WorkingStatus",
    "WriterConfig",
    "WriterReport",
    "__version__",
    "compact",
    "count_messages",
    "find_loops",
    "find_redundant",
    "partition_messages",
    "tiktoken_or_estimate",
]
