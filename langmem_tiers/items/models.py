"""Items: JSON values under a namespace and a key, and filters on them.

Filters compare with strict types. True is not 1, "1" is not 1, and 1 equals 1.0. Numbers are compared only with
numbers, and strings only with strings. A missing field matches no condition, not even ``$ne``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.item_records import ItemText


ANY_LABEL = "*"
"""Wildcard that matches any single label in a ``NamespaceMatch``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Displayable):
    """A stored value. Changing ``value`` does not change the database: it is a copy."""

    namespace: NamespacePath
    key: str
    value: dict[str, Any]
    created_at: datetime
    """Creation time of the key's first value. Later writes keep it."""
    updated_at: datetime
    expires_at: datetime | None = None
    """Expiry time. None means never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemHit(Displayable):
    """An item found by a search."""

    item: Item
    score: float | None = None
    """Relevance to the query, at most 1. None without a query and for items that have no searchable text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """A requested write or deletion of one key. ``Items.write`` validates it."""

    namespace: NamespacePath
    key: str
    value: Mapping[str, Any] | None
    """JSON object to store. None deletes the key."""
    texts: Sequence[str] | None = None
    """Searchable texts. None uses the whole value; an empty sequence excludes the item from queries."""
    ttl_seconds: float | None = None
    """Lifetime in seconds since the last write or the last read with ``refresh``. None means forever."""


@dataclass(frozen=True, slots=True)
class NamespaceMatch:
    """A condition on namespaces, label by label. ``*`` matches any single label."""

    kind: Literal["prefix", "suffix"]
    path: NamespacePath

    @property
    def fixed_prefix(self) -> NamespacePath:
        """Labels before the first wildcard that all matching namespaces share. Empty for a suffix."""
        if self.kind == "suffix":
            return ()
        return self.path[: self.path.index(ANY_LABEL)] if ANY_LABEL in self.path else self.path

    def matches(self, namespace: NamespacePath) -> bool:
        """Return True if the namespace satisfies the condition."""
        count = len(self.path)
        if len(namespace) < count:
            return False
        part = namespace[:count] if self.kind == "prefix" else namespace[len(namespace) - count :]
        return all(expected in (ANY_LABEL, label) for expected, label in zip(self.path, part, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemWrite:
    """A validated change, ready to be written."""

    namespace: NamespacePath
    key: str
    value_json: str | None
    texts: tuple[ItemText, ...] = ()
    ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """An item with its row key, revision and lifetime."""

    pk: int
    revision: int
    item: Item
    ttl_seconds: float | None


class StoredItemValue(NamedTuple):
    """The columns of an item that a filter needs."""

    pk: int
    revision: int
    value: dict[str, Any]


class ScanPosition(NamedTuple):
    """The last item that a scan has read. The next page starts after it."""

    updated_at: datetime
    pk: int


Filter: TypeAlias = Mapping[str, Any]
"""Conditions by field: a value, operators such as ``$gt``, or a nested filter."""
_MISSING = object()


def check_filter(wanted: object) -> None:
    """Check that a filter is valid.

    Raises:
        InvalidInputError: The filter is not a mapping, or has an unknown operator or a key that is not a string.
    """
    if not isinstance(wanted, Mapping):
        raise InvalidInputError(f"a filter must be a dict, got {type(wanted).__name__}: use e.g. {{'a': 1}}")
    for name, part in wanted.items():
        if not isinstance(name, str):
            raise InvalidInputError(
                f"a filter has the key {name!r}, which is a {type(name).__name__}, not a str: use {str(name)!r}"
            )
        if isinstance(part, Mapping) and _has_operators(part):
            unknown = next((operator for operator in part if operator not in _OPERATORS), None)
            if unknown is not None:
                raise InvalidInputError(
                    f"a filter has the unknown operator {unknown!r} for {name!r}: "
                    f"use one or more of {', '.join(_OPERATORS)} and no other keys"
                )
        elif isinstance(part, Mapping):
            check_filter(part)


def matches(value: Mapping[str, Any], wanted: Filter) -> bool:
    """Return True if a value satisfies all conditions of a checked filter."""
    return all(_matches_part(value.get(name, _MISSING), part) for name, part in wanted.items())


def _matches_part(value: object, condition: object) -> bool:
    if value is _MISSING:
        return False
    if isinstance(condition, Mapping):
        if _has_operators(condition):
            return all(_OPERATORS[operator](value, other) for operator, other in condition.items())
        return isinstance(value, Mapping) and matches(value, condition)
    if isinstance(condition, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(condition)
            and all(_matches_part(*both) for both in zip(value, condition, strict=True))
        )
    return _is_same(value, condition)


def _has_operators(condition: Mapping[str, Any]) -> bool:
    return any(str(name).startswith("$") for name in condition)


def _is_same(left: object, right: object) -> bool:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(_is_same(*both) for both in zip(left, right, strict=True))
    # bool is a subclass of int: without this comparison, True would equal 1.
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _build_comparison(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def compare_same_type(value: object, other: object) -> bool:
        both_are_text = isinstance(value, str) and isinstance(other, str)
        return (both_are_text or (_is_number(value) and _is_number(other))) and compare(value, other)

    return compare_same_type


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
