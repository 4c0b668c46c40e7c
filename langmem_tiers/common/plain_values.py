"""Any value as plain JSON of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

_Value = TypeVar("_Value")


_MAX_DEPTH = 50


_MAX_VALUES = 20_000


_MAX_BITS = 1000


def to_plain_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value as JSON can hold it: what is none by its text; what holds itself, or is far too much, cut."""
    return _PlainConverter().convert(value)


class _PlainConverter:
    """Makes one value plain; so much of it, and no more."""

    def __init__(self) -> None:
        self._remaining_values = _MAX_VALUES
        self._open_ids: set[int] = set()

    def convert(self, value: object) -> Any:  # noqa: ANN401 - any JSON value
        self._remaining_values -= 1
        try:
            return self._convert(value)
        except Exception:  # noqa: BLE001 - whatever an object of the caller's raises, its cycle is recorded
            return f"<{type(value).__name__}>"

    def _convert(self, value: object) -> Any:  # noqa: ANN401 - any JSON value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # not what a kind of its own makes of it
        if isinstance(value, int):
            return value if value.bit_length() <= _MAX_BITS else f"<a number of {value.bit_length()} bits>"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self._convert_nested(value)
        return _to_text(value)

    def _convert_nested(
        self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
    ) -> dict[str, Any] | list[Any] | str:
        if id(value) in self._open_ids or len(self._open_ids) >= _MAX_DEPTH or self._remaining_values <= 0:
            return "..."
        self._open_ids.add(id(value))
        try:
            if isinstance(value, Mapping):
                return {_to_text(key): self.convert(one) for key, one in self._take_remaining(value.items())}
            is_set = isinstance(value, set | frozenset)
            return [
                self.convert(one)
                for one in self._take_remaining(sorted(value, key=_to_text) if is_set else value)
            ]
        finally:
            self._open_ids.discard(id(value))

    def _take_remaining(self, values: Iterable[_Value]) -> Iterator[_Value]:
        for one in values:
            if self._remaining_values <= 0:
                return
            yield one


def _to_text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - whatever an object of the caller's raises, its cycle is recorded
        return f"<{type(value).__name__}>"
