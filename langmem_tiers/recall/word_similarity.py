"""How near two words are in meaning, by an embedder, with the vectors of words that were met kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_MAX_WORDS = 20_000


class WordSimilarity:
    """The cosine of two words, for comparing statements: ``compare(old, new, Kinship(embedder.embed_documents))``."""

    def __init__(
        self, embed: Callable[[Sequence[str]], NDArray[Any]], *, most_words: int = _MAX_WORDS
    ) -> None:
        """Keep the vectors of words.

        Args:
            embed: One row per text.
            most_words: How many vectors are kept, those that were asked for last.
        """
        if most_words < 2:
            raise ValueError(f"most_words must be at least 2, to compare two words, not {most_words!r}")
        self._embed = embed
        self._max_words = most_words
        self._vectors: OrderedDict[str, NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Kinship({len(self._vectors)} of {self._max_words} words)"

    def __call__(self, a: str, b: str) -> float:
        """The cosine of two words, in [-1, 1]; 0 if there is no vector for one of them."""
        one, other = self._get_vector(a), self._get_vector(b)
        return max(-1.0, min(1.0, float(one @ other)))

    def _get_vector(self, word: str) -> NDArray[Any]:
        with self._lock:
            found = self._vectors.get(word)
            if found is not None:
                self._vectors.move_to_end(word)
                return found
        made = self._embed_unit_vector(word)
        with self._lock:
            self._vectors[word] = made
            while len(self._vectors) > self._max_words:
                self._vectors.popitem(last=False)
        return made

    def _embed_unit_vector(self, word: str) -> NDArray[Any]:
        vector: NDArray[Any] = self._embed([word])[0]
        length = float((vector @ vector) ** 0.5)
        if length:
            vector = vector / length
        return vector
