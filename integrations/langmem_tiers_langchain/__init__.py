"""Memory for LangChain and LangGraph; see "What works today" in the README."""

from langmem_tiers_langchain.embeddings import LangChainEmbedder

__all__ = ["LangChainEmbedder"]
