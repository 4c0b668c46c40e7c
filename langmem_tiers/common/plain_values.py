"""Any value as plain JSON of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

_Value = TypeVar("_Value")


_MAX_DEPTH = 50


_MOST_VALUES = 20_000


_MOST_BITS = 1000


def plain_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value as JSON can hold it: what is none by its text; what holds itself, or is far too much, cut."""
    return _Plain().of(value)


class _Plain:
    """Makes one value plain; so much of it, and no more."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES
        self._inside: set[int] = set()

    def of(self, value: object) -> Any:  # noqa: ANN401 - any JSON value
        self._left -= 1
        try:
            return self._of(value)
        except Exception:  # noqa: BLE001 - whatever an object of the caller's raises, its cycle is recorded
            return f"<{type(value).__name__}>"

    def _of(self, value: object) -> Any:  # noqa: ANN401 - any JSON value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # not what a kind of its own makes of it
        if isinstance(value, int):
            return value if value.bit_length() <= _MOST_BITS else f"<a number of {value.bit_length()} bits>"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self._nested(value)
        return _text(value)

    def _nested(
        self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
    ) -> dict[str, Any] | list[Any] | str:
        if id(value) in self._inside or len(self._inside) >= _MAX_DEPTH or self._left <= 0:
            return "..."
        self._inside.add(id(value))
        try:
            if isinstance(value, Mapping):
                return {_text(key): self.of(one) for key, one in self._most(value.items())}
            is_set = isinstance(value, set | frozenset)
            return [self.of(one) for one in self._most(sorted(value, key=_text) if is_set else value)]
        finally:
            self._inside.discard(id(value))

    def _most(self, values: Iterable[_Value]) -> Iterator[_Value]:
        for one in values:
            if self._left <= 0:
                return
            yield one


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - whatever an object of the caller's raises, its cycle is recorded
        return f"<{type(value).__name__}>"
