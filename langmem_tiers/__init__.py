"""Tiered, lossless memory for LangChain agents, LlamaIndex chat engines and notebooks.

>>> from langmem_tiers import MemoryEngine
>>> with MemoryEngine() as engine:
...     session = engine.session("alice", "monday")
...     _ = session.add("user", "My cat is called Tom.")
...     session.latest()[0].content
'My cat is called Tom.'
"""

from langmem_tiers.core.clock import Clock, SystemClock
from langmem_tiers.core.config import CacheConfig, Durability, EngineConfig
from langmem_tiers.core.context import Context, Recalled
from langmem_tiers.core.entries import Change, Chunk, Entry, Pool, Tier
from langmem_tiers.core.errors import (
    EngineClosedError,
    InvalidConfigError,
    InvalidInputError,
    InvalidMessageError,
    InvalidNameError,
    LangmemTiersError,
    MessageConflictError,
    MessageNotFoundError,
    MissingExtraError,
    NotFoundError,
    SchemaVersionError,
    SessionNotFoundError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from langmem_tiers.core.ids import IdSource, TimeSortedIds
from langmem_tiers.core.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.core.names import NamespacePath
from langmem_tiers.core.ports import (
    Embedder,
    LanguageModel,
    MessageStore,
    SessionStore,
    TokenCounter,
)
from langmem_tiers.core.reports import (
    AddReport,
    CompressReport,
    DeleteReport,
    MessagePage,
    SearchHit,
    SessionInfo,
    SessionPage,
)
from langmem_tiers.engine import MemoryEngine, Namespace
from langmem_tiers.scoring.tokens import (
    CharCounter,
    ContentAwareCounter,
    ContentType,
    TiktokenCounter,
    TokenEstimate,
    count_messages,
    tiktoken_or_estimate,
)
from langmem_tiers.tiers.short_term import Session
from langmem_tiers.version import __version__

__all__ = [
    "AddReport",
    "CacheConfig",
    "Change",
    "CharCounter",
    "Chunk",
    "Clock",
    "CompressReport",
    "ContentAwareCounter",
    "ContentType",
    "Context",
    "DeleteReport",
    "Durability",
    "Embedder",
    "EngineClosedError",
    "EngineConfig",
    "Entry",
    "IdSource",
    "InvalidConfigError",
    "InvalidInputError",
    "InvalidMessageError",
    "InvalidNameError",
    "LangmemTiersError",
    "LanguageModel",
    "MemoryEngine",
    "Message",
    "MessageConflictError",
    "MessageDraft",
    "MessageNotFoundError",
    "MessagePage",
    "MessageStore",
    "MissingExtraError",
    "Namespace",
    "NamespacePath",
    "NotFoundError",
    "Pool",
    "Recalled",
    "Role",
    "SchemaVersionError",
    "SearchHit",
    "Session",
    "SessionInfo",
    "SessionNotFoundError",
    "SessionPage",
    "SessionStore",
    "StorageBusyError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageReadOnlyError",
    "StorageUnavailableError",
    "SystemClock",
    "Tier",
    "TiktokenCounter",
    "TimeSortedIds",
    "TokenCounter",
    "TokenEstimate",
    "ToolCall",
    "__version__",
    "count_messages",
    "tiktoken_or_estimate",
]
