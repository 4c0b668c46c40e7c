"""JSON values: checks without loss, and the conversion of any value to plain JSON of bounded size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from langmem_tiers.errors import InvalidMessageError

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

_SCALARS = (str, int, float, type(None))  # bool is an int
_MAX_DEPTH = 200


def to_json(value: object, what: str) -> str:
    """Return the value as compact JSON text, or raise InvalidMessageError with the path of the invalid part.

    Tuples, sets, dates and non-string keys are rejected because JSON would return them as
    other types.
    """
    try:
        _check_json(value, what, 0)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidMessageError):
            raise
        raise InvalidMessageError(
            f"{what} cannot be serialized as JSON ({error}): pass plain data"
        ) from error


def is_same_json(left: str | None, right: str | None) -> bool:
    """Return True if two JSON texts represent the same value."""
    if left is None or right is None or left == right:
        return left == right
    return _canonicalize(left) == _canonicalize(right)


def _canonicalize(text: str) -> str:
    # Texts are compared, because == on the parsed values treats 1, 1.0 and true as equal.
    return json.dumps(json.loads(text), sort_keys=True)


def _check_json(value: object, where: str, depth: int) -> None:
    if isinstance(value, float) and math.isnan(value):
        raise InvalidMessageError(f"{where} is nan, which is not equal to itself: use None or a string")
    # Infinity is allowed: Python writes and reads it as Infinity.
    if isinstance(value, _SCALARS):
        return
    if depth > _MAX_DEPTH:
        raise InvalidMessageError(
            f"{where[:80]}... is nested deeper than {_MAX_DEPTH}: flatten it or pass it as JSON text"
        )
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise InvalidMessageError(
                    f"{where} has the key {key!r}, which is not a str: use {str(key)!r}"
                )
            _check_json(part, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            _check_json(part, f"{where}[{index}]", depth + 1)
    else:
        raise InvalidMessageError(
            f"{where} is a {type(value).__name__}, which does not round-trip through JSON: "
            "convert it to dict, list, str, number, bool or None"
        )


_Value = TypeVar("_Value")


_MAX_PLAIN_DEPTH = 50


_MAX_VALUES = 20_000


_MAX_BITS = 1000


def to_plain_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Convert a value to plain JSON; other objects become text, and cyclic or oversized parts are cut."""
    return _PlainConverter().convert(value)


class _PlainConverter:
    """Converts one value, up to a maximum number of nested values."""

    def __init__(self) -> None:
        self._remaining_values = _MAX_VALUES
        self._open_ids: set[int] = set()

    def convert(self, value: object) -> Any:  # noqa: ANN401 - any JSON value
        self._remaining_values -= 1
        try:
            return self._convert(value)
        except Exception:  # noqa: BLE001 - a caller's object may raise anything; the record must not fail
            return f"<{type(value).__name__}>"

    def _convert(self, value: object) -> Any:  # noqa: ANN401 - any JSON value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # the plain text, even if a subclass overrides __str__
        # Python refuses to convert integers of more than 4,300 digits to text, and JSON needs the text.
        if isinstance(value, int):
            return value if value.bit_length() <= _MAX_BITS else f"<a number of {value.bit_length()} bits>"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self._convert_nested_value(value)
        return _to_text(value)

    def _convert_nested_value(
        self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
    ) -> dict[str, Any] | list[Any] | str:
        # _open_ids contains the enclosing containers: it detects cycles, and its size is the nesting depth.
        if (
            id(value) in self._open_ids
            or len(self._open_ids) >= _MAX_PLAIN_DEPTH
            or self._remaining_values <= 0
        ):
            return "..."
        self._open_ids.add(id(value))
        try:
            if isinstance(value, Mapping):
                return {
                    _to_text(key): self.convert(item) for key, item in self._take_remaining(value.items())
                }
            is_set = isinstance(value, set | frozenset)
            # Sets have no stable order; sorted, the same set always gives the same JSON.
            return [
                self.convert(item)
                for item in self._take_remaining(sorted(value, key=_to_text) if is_set else value)
            ]
        finally:
            self._open_ids.discard(id(value))

    def _take_remaining(self, values: Iterable[_Value]) -> Iterator[_Value]:
        for value in values:
            if self._remaining_values <= 0:
                return
            yield value


def _to_text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}>"
