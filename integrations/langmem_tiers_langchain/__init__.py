"""Memory for LangChain and LangGraph; see "LangChain and LangGraph" in the README."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from langmem_tiers.errors import MissingExtraError

if TYPE_CHECKING:
    from langmem_tiers_langchain.classic import TieredConversationMemory
    from langmem_tiers_langchain.convert import part_tokens, to_draft, to_message
    from langmem_tiers_langchain.embeddings import LangChainEmbedder
    from langmem_tiers_langchain.history import TieredChatMessageHistory
    from langmem_tiers_langchain.middleware import MiddlewareStats, TieredMemoryMiddleware
    from langmem_tiers_langchain.models import LangChainModel
    from langmem_tiers_langchain.offline_embeddings import OfflineEmbeddings
    from langmem_tiers_langchain.retriever import TieredMemoryRetriever
    from langmem_tiers_langchain.store import TieredStore
    from langmem_tiers_langchain.tasks import TieredTaskMiddleware
    from langmem_tiers_langchain.tools import create_manage_memory_tool, create_search_memory_tool

__all__ = [
    "LangChainEmbedder",
    "LangChainModel",
    "MiddlewareStats",
    "OfflineEmbeddings",
    "TieredChatMessageHistory",
    "TieredConversationMemory",
    "TieredMemoryMiddleware",
    "TieredMemoryRetriever",
    "TieredStore",
    "TieredTaskMiddleware",
    "create_manage_memory_tool",
    "create_search_memory_tool",
    "part_tokens",
    "to_draft",
    "to_message",
]

_MODULES = {
    "LangChainEmbedder": "embeddings",
    "LangChainModel": "models",
    "MiddlewareStats": "middleware",
    "OfflineEmbeddings": "offline_embeddings",
    "TieredChatMessageHistory": "history",
    "TieredConversationMemory": "classic",
    "TieredMemoryMiddleware": "middleware",
    "TieredMemoryRetriever": "retriever",
    "TieredStore": "store",
    "TieredTaskMiddleware": "tasks",
    "create_manage_memory_tool": "tools",
    "create_search_memory_tool": "tools",
    "part_tokens": "convert",
    "to_draft": "convert",
    "to_message": "convert",
}
_FRAMEWORK_PACKAGES = ("langchain", "langchain_core", "langgraph")


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
            f"{name} needs {error.name!r}, which is not installed: pip install 'langmem-tiers[langchain]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
