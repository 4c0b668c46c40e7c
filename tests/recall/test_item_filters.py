"""Item filters never confuse types and never raise for missing values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import InvalidInputError
from langmem_tiers.items.models import check_filter, matches

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab1", max_size=2)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
)
VALUES = st.dictionaries(st.text("ab", max_size=1), JSON, max_size=3)


def build_filter(value: Any) -> Any:
    """A filter for exactly this part: an empty dict would fit every dict."""
    return {"$eq": value}


@given(VALUES)
def test_a_value_matches_a_filter_of_its_own_parts(value: dict[str, Any]) -> None:
    assert matches(value, {name: build_filter(part) for name, part in value.items()})


@given(VALUES, st.text("ab", max_size=1), SCALARS)
def test_equal_and_not_equal_split_the_values_that_have_the_key(
    value: dict[str, Any], name: str, other: Any
) -> None:
    found = [matches(value, {name: {operator: other}}) for operator in ("$eq", "$ne")]
    assert sum(found) == (name in value)


@given(VALUES, st.text("ab", max_size=1), SCALARS, st.sampled_from(["$gt", "$gte", "$lt", "$lte"]))
def test_a_comparison_never_raises_and_matches_only_equal_types(
    value: dict[str, Any], name: str, other: Any, operator: str
) -> None:
    if matches(value, {name: {operator: other}}):
        kinds = {isinstance(part, str) for part in (value[name], other)}
        assert len(kinds) == 1
        assert not any(isinstance(part, bool) for part in (value[name], other))


@given(VALUES, st.text("ab", max_size=1), st.integers(-3, 3))
def test_comparisons_of_numbers_agree_with_each_other(value: dict[str, Any], name: str, other: int) -> None:
    part = value.get(name)
    is_number = isinstance(part, int | float) and not isinstance(part, bool)
    below, above = (matches(value, {name: {operator: other}}) for operator in ("$lt", "$gte"))
    assert below + above == is_number


@pytest.mark.parametrize("wrong", ["a", 1, [("a", 1)], {1: 2}, {"a": {"$in": [1]}}, {"a": {"b": {"$x": 1}}}])
def test_an_invalid_filter_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInputError):
        check_filter(wrong)
