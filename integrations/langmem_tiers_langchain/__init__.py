"""Memory for LangChain and LangGraph; see "LangChain and LangGraph" in the README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.integration_kit import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers_langchain.classic import TieredConversationMemory
    from langmem_tiers_langchain.convert import part_tokens, to_draft, to_message
    from langmem_tiers_langchain.history import TieredChatMessageHistory
    from langmem_tiers_langchain.middleware import MiddlewareStats, TieredMemoryMiddleware
    from langmem_tiers_langchain.models import LangChainEmbedder, LangChainModel, OfflineEmbeddings
    from langmem_tiers_langchain.retriever import TieredMemoryRetriever
    from langmem_tiers_langchain.store import TieredStore
    from langmem_tiers_langchain.tasks import TieredTaskMiddleware
    from langmem_tiers_langchain.tools import create_manage_memory_tool, create_search_memory_tool
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".classic": "TieredConversationMemory",
            ".convert": "part_tokens to_draft to_message",
            ".models": "LangChainEmbedder LangChainModel OfflineEmbeddings",
            ".history": "TieredChatMessageHistory",
            ".middleware": "MiddlewareStats TieredMemoryMiddleware",
            ".retriever": "TieredMemoryRetriever",
            ".store": "TieredStore",
            ".tasks": "TieredTaskMiddleware",
            ".tools": "create_manage_memory_tool create_search_memory_tool",
        },
        extra="langchain",
        extra_packages=("langchain", "langchain_core", "langgraph"),
    )

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
