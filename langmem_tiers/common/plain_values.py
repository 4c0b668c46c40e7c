"""Conversion of any value to plain JSON of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

_Value = TypeVar("_Value")


_MAX_DEPTH = 50


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
        if id(value) in self._open_ids or len(self._open_ids) >= _MAX_DEPTH or self._remaining_values <= 0:
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
