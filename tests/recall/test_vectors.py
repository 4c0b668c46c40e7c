"""The output of a model is validated before it is used as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from langmem_tiers import InvalidInputError
from langmem_tiers.recall.embedders.vectors import validate_vectors


@pytest.mark.parametrize(
    "given",
    [
        [[1, 2], [3, 4]],
        [[1.0, 2.0], [3.0, 4.0]],
        [np.array([1, 2]), np.array([3, 4])],
        ((1, 2.0), (3, 4)),
        np.array([[1, 2], [3, 4]], dtype=np.float64),
        np.array([[1, 2], [3, 4]], dtype=np.float32, order="F"),
        np.array([[1, 2], [3, 4]], dtype=np.int8),
    ],
    ids=lambda given: f"{type(given).__name__}-{getattr(given, 'dtype', '')}",
)
def test_lists_and_arrays_of_numbers_become_float32_rows(given: object) -> None:
    table = validate_vectors(given, 2, 2)
    assert table.dtype == np.float32
    assert table.flags.c_contiguous
    assert table.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_the_table_is_not_the_models_own_array() -> None:
    cached = np.ones((1, 3), dtype=np.float32)
    validate_vectors(cached, 1, 3)[0, 0] = 7.0
    assert cached.tolist() == [[1.0, 1.0, 1.0]]


def test_no_texts_give_an_empty_table_of_the_right_dimension() -> None:
    assert validate_vectors([], 0, 5).shape == (0, 5)


def test_any_dimension_is_accepted_if_none_is_required() -> None:
    assert validate_vectors([[0.0] * 7], 1, None).shape == (1, 7)


@pytest.mark.parametrize("given", [[], [[1.0]], [[1.0]] * 3, [[1.0], [1.0, 2.0], [3.0]]])
def test_another_count_is_refused_with_both_numbers(given: list[list[float]]) -> None:
    with pytest.raises(InvalidInputError, match=rf"returned {len(given)} vectors for 2 texts"):
        validate_vectors(given, 2, 1)


@pytest.mark.parametrize(
    "given",
    [
        [[1.0], [1.0, 2.0]],
        [[], []],
        [1.0, 2.0],
        [[[1.0]], [[2.0]]],
        [None, None],
        [["1.0"], ["2.0"]],
        [[True], [False]],
        [[1j], [2j]],
        None,
        np.array(1.0),
        (vector for vector in [[1.0], [2.0]]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_an_invalid_table_of_numbers_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="returned invalid vectors"):
        validate_vectors(given, 2, None)


def test_another_length_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidInputError, match="M returned vectors of 3 numbers, expected 4"):
        validate_vectors([[1.0, 2.0, 3.0]], 1, 4, model="M")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e39])
def test_a_non_finite_vector_is_refused_with_its_position(bad: float) -> None:
    with pytest.raises(InvalidInputError, match="not finite for text 2 of 3"):
        validate_vectors([[1.0], [bad], [bad]], 3, 1)


def test_a_vector_of_zeros_is_a_vector() -> None:
    assert validate_vectors([[0.0, 0.0]], 1, 2).tolist() == [[0.0, 0.0]]
