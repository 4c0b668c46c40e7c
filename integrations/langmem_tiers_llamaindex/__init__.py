"""Memory for LlamaIndex; see "LlamaIndex" in the README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.integration_kit import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers_llamaindex.block import TieredMemoryBlock
    from langmem_tiers_llamaindex.chat_store import TieredChatStore, TieredSyncChatStore
    from langmem_tiers_llamaindex.convert import message_tokens, to_draft, to_message
    from langmem_tiers_llamaindex.engine_references import attach
    from langmem_tiers_llamaindex.events import MemoryFailedEvent, MemoryRetrievedEvent, MemoryStoredEvent
    from langmem_tiers_llamaindex.memory import TieredMemory
    from langmem_tiers_llamaindex.models import LlamaIndexEmbedder, LlamaIndexModel, OfflineEmbedding
    from langmem_tiers_llamaindex.retriever import TieredMemoryRetriever
    from langmem_tiers_llamaindex.tasks import watch_agent, watch_tools
    from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter
    from langmem_tiers_llamaindex.tools import TieredMemoryToolSpec
    from langmem_tiers_llamaindex.watched_tools import WatchedTool
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".block": "TieredMemoryBlock",
            ".chat_store": "TieredChatStore TieredSyncChatStore",
            ".convert": "message_tokens to_draft to_message",
            ".engine_references": "attach",
            ".events": "MemoryFailedEvent MemoryRetrievedEvent MemoryStoredEvent",
            ".memory": "TieredMemory",
            ".models": "LlamaIndexEmbedder LlamaIndexModel OfflineEmbedding",
            ".retriever": "TieredMemoryRetriever",
            ".tasks": "watch_agent watch_tools",
            ".token_counter": "LlamaIndexCounter",
            ".tools": "TieredMemoryToolSpec",
            ".watched_tools": "WatchedTool",
        },
        extra="llama-index",
        extra_packages=("llama_index", "llama_index_instrumentation"),
    )

__all__ = [
    "LlamaIndexCounter",
    "LlamaIndexEmbedder",
    "LlamaIndexModel",
    "MemoryFailedEvent",
    "MemoryRetrievedEvent",
    "MemoryStoredEvent",
    "OfflineEmbedding",
    "TieredChatStore",
    "TieredMemory",
    "TieredMemoryBlock",
    "TieredMemoryRetriever",
    "TieredMemoryToolSpec",
    "TieredSyncChatStore",
    "WatchedTool",
    "attach",
    "message_tokens",
    "to_draft",
    "to_message",
    "watch_agent",
    "watch_tools",
]
