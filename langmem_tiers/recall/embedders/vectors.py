"""Vectors of an embedding model, checked before anybody compares them."""

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
    """The vectors as a table of their own, one row for each text.

    Args:
        vectors: What the model gave: lists of numbers, or an array.
        count: How many texts it was given.
        dimension: The length that each vector must have; any, if None.
        model: What to call the model in an error.

    Raises:
        InvalidInputError: They are too few or too many, of another length, or not finite numbers.
    """
    import numpy as np  # noqa: PLC0415 - importing the package stays quick

    given = _get_length(vectors)
    if given not in {None, count}:
        raise InvalidInputError(
            f"{model} gave {given} vectors for {count} texts: it must give one for each, in order"
        )
    if count == 0:
        return np.empty((0, dimension or 0), dtype=np.float32)
    table = _to_float_table(vectors, model)
    if dimension is not None and table.shape[1] != dimension:
        raise InvalidInputError(
            f"{model} gave vectors of {table.shape[1]} numbers, not {dimension}: correct dimension=, "
            "or give a model that changed another identity="
        )
    _check_finite(table, model)
    return table


def _get_length(vectors: object) -> int | None:
    try:
        return len(vectors) if isinstance(vectors, Sized) else None
    except TypeError:  # a single number as an array
        return None


def _to_float_table(vectors: object, model: str) -> NDArray[np.float32]:
    import numpy as np  # noqa: PLC0415 - as above

    try:
        given = np.asarray(vectors)
    except (ValueError, TypeError, RuntimeError):  # of different lengths, or on a device
        given = np.empty(0, dtype=object)
    if given.dtype.kind not in "fiu" or given.ndim != 2 or given.shape[1] == 0:
        raise InvalidInputError(
            f"{model} gave something else than vectors of one length: each must be a list of numbers"
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
        return np.array(given, dtype=np.float32, order="C")


def _check_finite(table: NDArray[np.float32], model: str) -> None:
    import numpy as np  # noqa: PLC0415 - as above

    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite)) + 1
        raise InvalidInputError(
            f"{model} gave a vector that is not finite for text {first} of {len(table)}: "
            "check the model, or leave that text out"
        )
