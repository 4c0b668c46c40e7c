"""Vectors of an embedding model: their validation, and the similarity of two words with a cache."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray


def validate_vectors(
    vectors: object, count: int, dimension: int | None, *, model: str = "the embedding model"
) -> NDArray[np.float32]:
    """Return the vectors as a new float32 table, one row per text.

    Args:
        vectors: Output of the model: lists of numbers, or an array.
        count: Number of texts.
        dimension: Required length of each vector. None accepts any length.
        model: Name of the model in errors.

    Raises:
        InvalidInputError: The number or the length of the vectors is wrong, or they contain other than finite numbers.
    """
    import numpy as np  # noqa: PLC0415 - importing the package stays quick

    length = _get_length(vectors)
    if length not in {None, count}:
        raise InvalidInputError(
            f"{model} returned {length} vectors for {count} texts: it must return one per text, in order"
        )
    if count == 0:
        return np.empty((0, dimension or 0), dtype=np.float32)
    table = _to_float_table(vectors, model)
    if dimension is not None and table.shape[1] != dimension:
        raise InvalidInputError(
            f"{model} returned vectors of {table.shape[1]} numbers, expected {dimension}: correct dimension=, "
            "or pass another identity= if the model has changed"
        )
    _check_finite(table, model)
    return table


def _get_length(vectors: object) -> int | None:
    try:
        return len(vectors) if isinstance(vectors, Sized) else None
    except TypeError:
        # A numpy array without dimensions has __len__, but no length.
        return None


def _to_float_table(vectors: object, model: str) -> NDArray[np.float32]:
    import numpy as np  # noqa: PLC0415 - as above

    try:
        array = np.asarray(vectors)
    except (ValueError, TypeError, RuntimeError):
        # Vectors of different lengths, or tensors on an accelerator.
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiu" or array.ndim != 2 or array.shape[1] == 0:
        raise InvalidInputError(
            f"{model} returned invalid vectors: each must be a list of numbers, all of equal length"
        )
    # A number that is too large for float32 becomes infinite, which _check_finite() rejects.
    with np.errstate(over="ignore"):
        return np.array(array, dtype=np.float32, order="C")


def _check_finite(table: NDArray[np.float32], model: str) -> None:
    import numpy as np  # noqa: PLC0415 - as above

    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite)) + 1
        raise InvalidInputError(
            f"{model} returned a vector that is not finite for text {first} of {len(table)}: "
            "check the model, or leave that text out"
        )


_MAX_WORDS = 20_000


class WordSimilarity:
    """Cosine of two words, for comparing statements. Thread-safe.

    Example: ``compare(old, new, WordSimilarity(embedder.embed_documents))``.
    """

    def __init__(
        self, embed: Callable[[Sequence[str]], NDArray[Any]], *, max_words: int = _MAX_WORDS
    ) -> None:
        """Create an empty cache.

        Args:
            embed: Function that returns one vector per text.
            max_words: Maximum number of cached vectors. The least recently used are evicted. Default: 20,000.
        """
        if max_words < 2:
            raise ValueError(f"max_words must be at least 2, got {max_words!r}: a comparison needs two words")
        self._embed = embed
        self._max_words = max_words
        self._vectors: SizedLruCache[NDArray[Any]] = SizedLruCache(max_words)

    def __repr__(self) -> str:
        return f"WordSimilarity({len(self._vectors)} of {self._max_words} words)"

    def __call__(self, a: str, b: str) -> float:
        """Return the cosine of two words, from -1 to 1. 0 if one of the vectors is zero."""
        vector_a, vector_b = self._get_vector(a), self._get_vector(b)
        # Rounding may exceed the limits slightly.
        return max(-1.0, min(1.0, float(vector_a @ vector_b)))

    def _get_vector(self, word: str) -> NDArray[Any]:
        vector = self._vectors.get(word)
        # No lock while embedding, which may be slow. At worst two threads embed the same word.
        if vector is None:
            vector = self._embed_unit_vector(word)
            self._vectors.put(word, vector)
        return vector

    def _embed_unit_vector(self, word: str) -> NDArray[Any]:
        vector: NDArray[Any] = self._embed([word])[0]
        length = float((vector @ vector) ** 0.5)
        if length:
            vector = vector / length
        return vector
