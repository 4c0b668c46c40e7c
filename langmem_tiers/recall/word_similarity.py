"""Similarity of two words by an embedder, with a cache of their vectors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_MAX_WORDS = 20_000


class WordSimilarity:
    """Cosine of two words, for comparing statements. Thread-safe.

    Example: ``compare(old, new, WordSimilarity(embedder.embed_documents))``.
    """

    def __init__(
        self, embed: Callable[[Sequence[str]], NDArray[Any]], *, most_words: int = _MAX_WORDS
    ) -> None:
        """Create an empty cache.

        Args:
            embed: Function that returns one vector per text.
            most_words: Maximum number of cached vectors. The least recently used are evicted. Default: 20,000.
        """
        if most_words < 2:
            raise ValueError(
                f"most_words must be at least 2, got {most_words!r}: a comparison needs two words"
            )
        self._embed = embed
        self._max_words = most_words
        self._vectors: OrderedDict[str, NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"WordSimilarity({len(self._vectors)} of {self._max_words} words)"

    def __call__(self, a: str, b: str) -> float:
        """Return the cosine of two words, from -1 to 1. 0 if one of the vectors is zero."""
        vector_a, vector_b = self._get_vector(a), self._get_vector(b)
        # Rounding may exceed the limits slightly.
        return max(-1.0, min(1.0, float(vector_a @ vector_b)))

    def _get_vector(self, word: str) -> NDArray[Any]:
        with self._lock:
            cached = self._vectors.get(word)
            if cached is not None:
                self._vectors.move_to_end(word)
                return cached
        # Not under the lock: an embedder may be slow. At worst two threads embed the same word.
        vector = self._embed_unit_vector(word)
        with self._lock:
            self._vectors[word] = vector
            while len(self._vectors) > self._max_words:
                self._vectors.popitem(last=False)
        return vector

    def _embed_unit_vector(self, word: str) -> NDArray[Any]:
        vector: NDArray[Any] = self._embed([word])[0]
        length = float((vector @ vector) ** 0.5)
        if length:
            vector = vector / length
        return vector
