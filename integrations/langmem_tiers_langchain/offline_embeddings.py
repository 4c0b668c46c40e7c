"""The engine's offline embedder for LangChain."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder


class OfflineEmbeddings(Embeddings):
    """The embedder that is always there, for any vector store of LangChain: no network, no key, no download.

    A text is 256 numbers, the same on every machine, in microseconds. It has learned from English; texts
    in scripts without spaces between words all get zeros.
    """

    def __init__(self) -> None:
        self._embedder = OfflineEmbedder()

    def __repr__(self) -> str:
        return f"OfflineEmbeddings({self._embedder.identity!r})"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        rows: list[list[float]] = self._embedder.embed_documents(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """One vector."""
        vector: list[float] = self._embedder.embed_query(text).tolist()
        return vector
