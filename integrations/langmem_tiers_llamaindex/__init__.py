"""Memory for LlamaIndex; see "LlamaIndex" in the README."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from langmem_tiers.errors import MissingExtraError

if TYPE_CHECKING:
    from langmem_tiers_llamaindex.block import TieredMemoryBlock
    from langmem_tiers_llamaindex.chat_store import TieredChatStore
    from langmem_tiers_llamaindex.convert import message_tokens, to_draft, to_message
    from langmem_tiers_llamaindex.embeddings import LlamaIndexEmbedder
    from langmem_tiers_llamaindex.engines import attach
    from langmem_tiers_llamaindex.events import MemoryFailedEvent, MemoryRetrievedEvent, MemoryStoredEvent
    from langmem_tiers_llamaindex.memory import TieredMemory
    from langmem_tiers_llamaindex.models import LlamaIndexModel
    from langmem_tiers_llamaindex.offline_embedding import OfflineEmbedding
    from langmem_tiers_llamaindex.retriever import TieredMemoryRetriever
    from langmem_tiers_llamaindex.sync_chat_store import TieredSyncChatStore
    from langmem_tiers_llamaindex.tasks import watch_agent, watch_tools
    from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter
    from langmem_tiers_llamaindex.tools import TieredMemoryToolSpec
    from langmem_tiers_llamaindex.watched_tools import WatchedTool

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

_MODULES = {
    "LlamaIndexCounter": "token_counter",
    "LlamaIndexEmbedder": "embeddings",
    "LlamaIndexModel": "models",
    "MemoryFailedEvent": "events",
    "MemoryRetrievedEvent": "events",
    "MemoryStoredEvent": "events",
    "OfflineEmbedding": "offline_embedding",
    "TieredChatStore": "chat_store",
    "TieredMemory": "memory",
    "TieredMemoryBlock": "block",
    "TieredMemoryRetriever": "retriever",
    "TieredMemoryToolSpec": "tools",
    "TieredSyncChatStore": "sync_chat_store",
    "WatchedTool": "watched_tools",
    "attach": "engines",
    "message_tokens": "convert",
    "to_draft": "convert",
    "to_message": "convert",
    "watch_agent": "tasks",
    "watch_tools": "tasks",
}
_FRAMEWORK_PACKAGES = ("llama_index", "llama_index_instrumentation")


def __getattr__(name: str) -> object:
    # Lazy imports: the framework takes seconds to import, so each name loads only the module that it needs.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        # Only a missing framework means a missing extra; any other missing module is a real defect.
        if (error.name or "").partition(".")[0] not in _FRAMEWORK_PACKAGES:
            raise
        raise MissingExtraError(
            f"{name} needs {error.name!r}, which is not installed: pip install 'langmem-tiers[llama-index]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
