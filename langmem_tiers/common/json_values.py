"""Lossless JSON: values that would not round-trip are rejected by name."""

from __future__ import annotations

import json
import math
from typing import TypeAlias

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
