"""JSON that comes back equal: what would change on the way is refused by name."""

from __future__ import annotations

import json
import math
from typing import TypeAlias

from langmem_tiers.errors import InvalidMessageError

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

_SCALARS = (str, int, float, type(None))  # bool is an int
_MAX_DEPTH = 200


def to_json(value: object, what: str) -> str:
    """The value as compact JSON text, or an error that names the part that is not JSON.

    Tuples, sets, dates and keys that are no strings are refused: they would come back as
    something else.
    """
    try:
        _check_json(value, what, 0)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidMessageError):
            raise
        raise InvalidMessageError(
            f"{what} cannot be written as JSON ({error}): hand in plain data"
        ) from error


def is_same_json(left: str | None, right: str | None) -> bool:
    """Whether two JSON texts mean the same value."""
    if left is None or right is None or left == right:
        return left == right
    return _canonicalize(left) == _canonicalize(right)


def _canonicalize(text: str) -> str:
    return json.dumps(
        json.loads(text), sort_keys=True
    )  # 1, 1.0 and true stay apart, as == would not keep them


def _check_json(value: object, where: str, depth: int) -> None:
    if isinstance(value, float) and math.isnan(value):
        raise InvalidMessageError(
            f"{where} is nan, which equals nothing, not even itself: use None or a string"
        )
    if isinstance(value, _SCALARS):
        return
    if depth > _MAX_DEPTH:
        raise InvalidMessageError(
            f"{where[:80]}... is nested deeper than {_MAX_DEPTH}: flatten it or hand in its JSON text"
        )
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise InvalidMessageError(f"{where} has the key {key!r}, which is no str: use {str(key)!r}")
            _check_json(part, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            _check_json(part, f"{where}[{index}]", depth + 1)
    else:
        raise InvalidMessageError(
            f"{where} is a {type(value).__name__}, which JSON cannot give back equal: "
            "convert it to dict, list, str, number, bool or None"
        )
