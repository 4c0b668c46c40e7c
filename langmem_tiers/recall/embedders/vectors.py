"""Validation of the vectors that an embedding model returns."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
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
        given = np.asarray(vectors)
    except (ValueError, TypeError, RuntimeError):
        # Vectors of different lengths, or tensors on an accelerator.
        given = np.empty(0, dtype=object)
    if given.dtype.kind not in "fiu" or given.ndim != 2 or given.shape[1] == 0:
        raise InvalidInputError(
            f"{model} returned invalid vectors: each must be a list of numbers, all of equal length"
        )
    # A number that is too large for float32 becomes infinite, which _check_finite() rejects.
    with np.errstate(over="ignore"):
        return np.array(given, dtype=np.float32, order="C")


def _check_finite(table: NDArray[np.float32], model: str) -> None:
    import numpy as np  # noqa: PLC0415 - as above

    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite)) + 1
        raise InvalidInputError(
            f"{model} returned a vector that is not finite for text {first} of {len(table)}: "
            "check the model, or leave that text out"
        )
