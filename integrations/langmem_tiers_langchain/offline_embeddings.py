"""The engine's offline embedder for LangChain."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from langmem_tiers import OfflineEmbedder


class OfflineEmbeddings(Embeddings):
    """Built-in embedder for LangChain vector stores: no network, no API key, no download.

    A vector has 256 dimensions, is the same on every machine, and takes microseconds. The model was trained on
    English. Texts in scripts without spaces between words get zero vectors.
    """

    def __init__(self) -> None:
        self._embedder = OfflineEmbedder()

    def __repr__(self) -> str:
        return f"OfflineEmbeddings({self._embedder.identity!r})"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        rows: list[list[float]] = self._embedder.embed_documents(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text."""
        vector: list[float] = self._embedder.embed_query(text).tolist()
        return vector
