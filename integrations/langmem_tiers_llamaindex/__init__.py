"""Memory for LlamaIndex; see "What works today" in the README."""

from langmem_tiers_llamaindex.embeddings import LlamaIndexEmbedder

__all__ = ["LlamaIndexEmbedder"]
