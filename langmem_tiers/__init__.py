"""Tiered, lossless memory for LangChain agents, LlamaIndex chat engines and notebooks.

>>> from langmem_tiers import MemoryEngine
>>> with MemoryEngine() as engine:
...     session = engine.session("alice", "monday")
...     _ = session.add("user", "My cat is called Tom.")
...     session.latest()[0].content
'My cat is called Tom.'
"""

from langmem_tiers.agent_memory import AgentMemory
from langmem_tiers.compression.compress import Compressed, Compressor
from langmem_tiers.compression.extraction import ContextCompressor
from langmem_tiers.compression.extraction_types import CompressedExtraction, CompressionContentType
from langmem_tiers.compression.facts import FactFinder
from langmem_tiers.compression.layout import Summary
from langmem_tiers.compression.summarize import Summarizer, SummaryReport
from langmem_tiers.context_files import ContextFiles
from langmem_tiers.core.backups import (
    BackupProgress,
    BackupReport,
    BackupScope,
    BackupStore,
    RestoreReport,
    SnapshotReport,
)
from langmem_tiers.core.budget import TokenBudget
from langmem_tiers.core.clock import Clock, SystemClock
from langmem_tiers.core.config import (
    CacheConfig,
    Durability,
    EmbeddingConfig,
    EngineConfig,
    LearningConfig,
    MaintenanceConfig,
    OptimizerConfig,
    RecallConfig,
    SummaryConfig,
    SummaryStrategy,
)
from langmem_tiers.core.context import Context
from langmem_tiers.core.context_data import (
    ActiveTask,
    ContextData,
    HistoryEntry,
    KnownEnvironment,
    Recovery,
    TokenUsage,
    ToolStats,
)
from langmem_tiers.core.context_files import (
    CompactionConfig,
    ContextDeleteReport,
    ContextFilesConfig,
    ContextStore,
    ContextVersion,
    SaveReport,
)
from langmem_tiers.core.entries import Change, Chunk, Entry, EntryState, Tier
from langmem_tiers.core.episodes import Episode, EpisodeDraft, EpisodeKind, NarrativeArc
from langmem_tiers.core.erasure import Erased, ErasedCounts, Eraser, ErasureReceipt, ErasureRequest
from langmem_tiers.core.erasure_store import ErasureStore
from langmem_tiers.core.errors import (
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
from langmem_tiers.core.extracted import ExtractedFact, FactState
from langmem_tiers.core.ids import IdSource, TimeSortedIds
from langmem_tiers.core.indexes import IndexStore, VectorStore
from langmem_tiers.core.items import Item, ItemChange, ItemHit, ItemIndex, ItemStore, NamespaceMatch
from langmem_tiers.core.knowledge import (
    DecayReport,
    Knowledge,
    KnowledgeCategory,
    KnowledgeHit,
    KnowledgeReport,
    PastKnowledge,
)
from langmem_tiers.core.levels import (
    FlushReport,
    RedisConfig,
    RedisStatus,
    WorkingConfig,
    WorkingMemory,
    WorkingReport,
    WorkingStatus,
)
from langmem_tiers.core.long_term import (
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
from langmem_tiers.core.memory_store import MemoryStore
from langmem_tiers.core.memory_system import (
    ContextAllocation,
    ContextBudget,
    ContextBuildResult,
    ContextItem,
    Conversation,
    ConversationStatus,
    MemorySystemConfig,
)
from langmem_tiers.core.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.core.names import NamespacePath
from langmem_tiers.core.pools import (
    Contributor,
    PoolErasure,
    PoolHit,
    PoolMember,
    PoolStore,
    SyncReport,
)
from langmem_tiers.core.ports import (
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
from langmem_tiers.core.postgres import PostgresConfig, VectorScan
from langmem_tiers.core.previews import Preview
from langmem_tiers.core.recall import Hit, HybridWeights, Recall, RecallFilters, Strategy, TfIdfWeights
from langmem_tiers.core.reports import (
    AddReport,
    CompressReport,
    DeleteReport,
    MessagePage,
    SessionInfo,
    SessionPage,
)
from langmem_tiers.core.tasks import Action as AgentAction
from langmem_tiers.core.tasks import (
    ExecutionOutcome,
    LearnedPattern,
    MemoryEntry,
    MemoryPriority,
    Observation,
    OperationMode,
    StateSnapshot,
    Thought,
)
from langmem_tiers.core.transcripts import Listing, ReplaceReport
from langmem_tiers.core.tuning import EfficiencyReport, Snapshot, SnapshotPage, TuningParameters
from langmem_tiers.core.upkeep import (
    Compacted,
    Holdings,
    MaintenanceReport,
    Scrubbed,
    Statistics,
    TableStatistics,
    TierStatistics,
    UpkeepStore,
)
from langmem_tiers.core.writing import (
    Acknowledge,
    CrashReport,
    RecoverReport,
    Unsaved,
    WriterConfig,
    WriterReport,
)
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.flows.analyze import Analyzer
from langmem_tiers.flows.batching import BatchWriter
from langmem_tiers.flows.compact import CompactionReport, compact
from langmem_tiers.flows.context_diff import ContextDiff
from langmem_tiers.flows.found import FoundEntry
from langmem_tiers.flows.learn import LearnReport
from langmem_tiers.flows.maintain import Maintenance
from langmem_tiers.flows.optimize import Optimizer
from langmem_tiers.flows.plans import Action, ActionKind, Plan, PlanReport
from langmem_tiers.flows.session import Session
from langmem_tiers.flows.task_history import CyclePage, CyclePlace, SeenCycle, TaskInfo, TaskPage
from langmem_tiers.memory_system import MemorySystem
from langmem_tiers.namespace import Namespace
from langmem_tiers.retrieval.offline import OfflineEmbedder
from langmem_tiers.scoring.fact_patterns import EXTRA_PATTERNS, EXTRACTION_PATTERNS, ExtractionPattern
from langmem_tiers.scoring.facts import Fact, FactKind, FactPattern
from langmem_tiers.scoring.importance import IMPORTANCE_SIGNALS
from langmem_tiers.scoring.loops import Loop, LoopKind, LoopReport, Step, find_loops
from langmem_tiers.scoring.moment_patterns import MOMENT_PATTERNS, MomentPattern
from langmem_tiers.scoring.partition import Partition, partition_messages
from langmem_tiers.scoring.patterns import FACT_PATTERNS
from langmem_tiers.scoring.redundancy import find_redundant
from langmem_tiers.scoring.relevance import RELEVANCE_SIGNALS
from langmem_tiers.scoring.signals import Score, Scorer, Signal, Subject
from langmem_tiers.scoring.tables import Scoring
from langmem_tiers.scoring.tokens import (
    CharCounter,
    ContentAwareCounter,
    ContentType,
    TiktokenCounter,
    TokenEstimate,
    count_messages,
    tiktoken_or_estimate,
)
from langmem_tiers.scoring.tokens.estimator import TokenEstimator
from langmem_tiers.telemetry.instruments import Figures, Metrics, Tracer
from langmem_tiers.tiers.episodic import Episodes
from langmem_tiers.tiers.facts import Facts
from langmem_tiers.tiers.items import Items
from langmem_tiers.tiers.knowledge import KnowledgeBase
from langmem_tiers.tiers.long_term import LongTerm
from langmem_tiers.tiers.pools import Pool, Pools
from langmem_tiers.tiers.task.guard import Guard
from langmem_tiers.tiers.task.guard_advice import AdviceLevel, GuardAdvice
from langmem_tiers.tiers.task.sitemap import SitemapGraph, SitemapLimits, SitemapPage
from langmem_tiers.version import __version__

__all__ = [
    "EXTRACTION_PATTERNS",
    "EXTRA_PATTERNS",
    "FACT_PATTERNS",
    "IMPORTANCE_SIGNALS",
    "MOMENT_PATTERNS",
    "RELEVANCE_SIGNALS",
    "Acknowledge",
    "Action",
    "ActionKind",
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
    "Compacted",
    "CompactionConfig",
    "CompactionReport",
    "CompressReport",
    "Compressed",
    "CompressedExtraction",
    "CompressionContentType",
    "Compressor",
    "ConsolidationReport",
    "ContentAwareCounter",
    "ContentType",
    "Context",
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
    "DecayReport",
    "DeleteReport",
    "Durability",
    "EfficiencyReport",
    "Embedder",
    "EmbeddingConfig",
    "EmbeddingError",
    "EngineClosedError",
    "EngineConfig",
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
    "Erased",
    "ErasedCounts",
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
    "Figures",
    "FlushReport",
    "FoundEntry",
    "Guard",
    "GuardAdvice",
    "HistoryEntry",
    "Hit",
    "Holdings",
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
    "Scrubbed",
    "SeenCycle",
    "Session",
    "SessionInfo",
    "SessionNotFoundError",
    "SessionPage",
    "SessionStore",
    "Signal",
    "SitemapGraph",
    "SitemapLimits",
    "SitemapPage",
    "Snapshot",
    "SnapshotPage",
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
    "TuningStore",
    "Unsaved",
    "UnsavedError",
    "UpkeepStore",
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
