"""Filters on the values of items: equality, comparisons and nested parts, without confusion of types.

True is not 1, "1" is not 1, and 1 is 1.0. Only numbers are compared with numbers, and texts with
texts. What a value does not hold matches nothing, not even ``$ne``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from typing import TypeAlias

    Filter: TypeAlias = Mapping[str, Any]

_MISSING = object()


def check_filter(wanted: object) -> None:
    """Refuse a filter that no value could be held against.

    Raises:
        InvalidInputError: It is no mapping, or has an operator that does not exist.
    """
    if not isinstance(wanted, Mapping):
        raise InvalidInputError(
            f"a filter must be a dict, got a {type(wanted).__name__}: use e.g. {{'a': 1}}"
        )
    for name, part in wanted.items():
        if not isinstance(name, str):
            raise InvalidInputError(f"a filter has the key {name!r}, which is no str: use {str(name)!r}")
        if isinstance(part, Mapping) and _has_operators(part):
            unknown = next((operator for operator in part if operator not in _OPERATORS), None)
            if unknown is not None:
                raise InvalidInputError(
                    f"a filter has the unknown operator {unknown!r} for {name!r}: "
                    f"use {', '.join(_OPERATORS)}, one or more of them and nothing else beside"
                )
        elif isinstance(part, Mapping):
            check_filter(part)


def matches(value: Mapping[str, Any], wanted: Filter) -> bool:
    """Whether a value has all that a checked filter wants."""
    return all(_matches_part(value.get(name, _MISSING), part) for name, part in wanted.items())


def _matches_part(value: object, wanted: object) -> bool:
    if value is _MISSING:
        return False
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_OPERATORS[operator](value, other) for operator, other in wanted.items())
        return isinstance(value, Mapping) and matches(value, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_matches_part(*both) for both in zip(value, wanted, strict=True))
        )
    return _is_same(value, wanted)


def _has_operators(wanted: Mapping[str, Any]) -> bool:
    return any(str(name).startswith("$") for name in wanted)


def _is_same(left: object, right: object) -> bool:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(_is_same(*both) for both in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _build_comparison(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def holds(value: object, other: object) -> bool:
        both_are_text = isinstance(value, str) and isinstance(other, str)
        return (both_are_text or (_is_number(value) and _is_number(other))) and compare(value, other)

    return holds


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "$eq": _is_same,
    "$ne": lambda value, other: not _is_same(value, other),
    "$gt": _build_comparison(lambda value, other: value > other),
    "$gte": _build_comparison(lambda value, other: value >= other),
    "$lt": _build_comparison(lambda value, other: value < other),
    "$lte": _build_comparison(lambda value, other: value <= other),
}
