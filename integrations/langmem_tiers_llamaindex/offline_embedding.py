"""The engine's offline embedder for LlamaIndex."""

from __future__ import annotations

import asyncio

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import Field, PrivateAttr

from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder

_NEAR_ZERO = 1e-6


class _PicklableEmbedder(OfflineEmbedder):
    """Made anew where it is pickled or copied: it holds a lock, and weights that every machine has."""

    def __reduce__(self) -> tuple[type[_PicklableEmbedder], tuple[()]]:
        return type(self), ()


class OfflineEmbedding(BaseEmbedding):
    """The embedder that is always there, for any index of LlamaIndex: no network, no key, no download.

    A text is 256 numbers, the same on every machine, in microseconds. It has learned from English; texts
    in scripts without spaces between words are all alike, and near to nothing else.

    Args:
        embed_batch_size: Texts that are embedded at once.
    """

    model_name: str = Field(default=OfflineEmbedder.identity, description="The name of the embedding model.")
    _embedder: _PicklableEmbedder = PrivateAttr(default_factory=_PicklableEmbedder)

    @classmethod
    def class_name(cls) -> str:
        """Names the class where it is serialised."""
        return "OfflineEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows = self._embedder.embed_documents(texts)
        # LlamaIndex divides by a vector's length: zeros would make its similarities NaN, and its order chance.
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
