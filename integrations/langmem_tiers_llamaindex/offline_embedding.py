"""The engine's offline embedder for LlamaIndex."""

from __future__ import annotations

import asyncio

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import Field, PrivateAttr

from langmem_tiers import OfflineEmbedder

_NEAR_ZERO = 1e-6


class _PicklableEmbedder(OfflineEmbedder):
    """Embedder that is recreated when it is unpickled or copied, because it has a lock and bundled weights."""

    def __reduce__(self) -> tuple[type[_PicklableEmbedder], tuple[()]]:
        return type(self), ()


class OfflineEmbedding(BaseEmbedding):
    """Built-in embedder for LlamaIndex indexes: no network, no API key, no download.

    A vector has 256 dimensions, is the same on every machine, and takes microseconds. The model was trained on
    English. Texts in scripts without spaces between words all get the same vector, far from all others.

    Args:
        embed_batch_size: Number of texts per batch.
    """

    model_name: str = Field(default=OfflineEmbedder.identity, description="Name of the embedding model.")
    _embedder: _PicklableEmbedder = PrivateAttr(default_factory=_PicklableEmbedder)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in serialized data."""
        return "OfflineEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows = self._embedder.embed_documents(texts)
        # LlamaIndex divides by the length of a vector: zeros would give NaN similarities and a random order.
        rows[~rows.any(axis=1)] = _NEAR_ZERO
        vectors: list[list[float]] = rows.tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
