"""Checks of what a context is made of: the value, or an error that names it and its place."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH = 100
"""How deep a value of free form may be nested."""
_MAX_INTEGER = 2**53  # beyond, not every reader of JSON counts exactly
_MAX_INTEGER_BITS = 1024  # about what a float can hold
_MIN_TIMESTAMP_SECONDS, _MAX_TIMESTAMP_SECONDS = (
    -62_135_596_800,
    253_402_300_799,
)  # the years 1 to 9999, in seconds since 1970
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def set_field(to: object, name: str, value: object) -> None:
    """Set a field of a frozen value while it is built."""
    object.__setattr__(to, name, value)


def set_extra(to: Any, hidden: Iterable[str] = ()) -> None:  # noqa: ANN401 - any part of a context
    """Check and copy the fields that are not known, and see that none of them is.

    Args:
        to: What is built.
        hidden: Fields that are in no file.
    """
    extra = check_object(to.extra, "extra")
    taken = (set(to.__dataclass_fields__) - {"extra", *hidden}) & set(extra)
    if taken:
        raise InvalidInputError(
            f"extra holds {min(taken)!r}, which is a field of {type(to).__name__}: set the field"
        )
    set_field(to, "extra", extra)


def check_text(value: object, where: str) -> str:
    """A text, with each pair of halves as the character that it stands for: no file tells them apart."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{where} must be a text, got a {type(value).__name__}: use a str")
    return _SURROGATE_PAIR.sub(lambda m: m[0].encode("utf-16", "surrogatepass").decode("utf-16"), value)


def check_not_empty(value: object, where: str) -> str:
    """A text that is not empty."""
    text = check_text(value, where)
    if not text:
        raise InvalidInputError(f"{where} must not be empty, got {value!r}: name it")
    return text


def check_number(value: object, where: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(
            f"{where} must be a finite number, got a {type(value).__name__}: use an int or a float"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"{where} must be a finite number, got {value!r}: leave it out")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise InvalidInputError(f"{where} has more than {_MAX_INTEGER_BITS} bits: write it as a text")
    return value


def check_unix_seconds(value: object, where: str) -> float:
    """Seconds since 1970."""
    number = check_number(value, where)
    if not _MIN_TIMESTAMP_SECONDS <= number <= _MAX_TIMESTAMP_SECONDS:
        raise InvalidInputError(
            f"{where} must be seconds since 1970 within the years 1 to 9999, got {number!r}: "
            "divide milliseconds by 1000"
        )
    return number


def check_count(value: object, where: str) -> int:
    """A whole number that every reader of JSON takes exactly."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INTEGER:
        is_shown = isinstance(value, float) or (
            isinstance(value, int) and value.bit_length() <= _MAX_INTEGER_BITS
        )
        got = repr(value) if is_shown else f"a {type(value).__name__} that is none"
        raise InvalidInputError(
            f"{where} must be a whole number from 0 to {_MAX_INTEGER}, got {got}: correct it"
        )
    return value


def check_list(value: object, where: str) -> list[Any] | tuple[Any, ...]:
    """A list."""
    if not isinstance(value, list | tuple):
        raise InvalidInputError(f"{where} must be a list, got a {type(value).__name__}: put it into one")
    return value


def check_parts(value: object, kind: type, where: str) -> tuple[Any, ...]:
    """A list of parts."""
    return tuple(
        check_part(one, kind, f"{where}[{index}]") for index, one in enumerate(check_list(value, where))
    )


def check_part(value: object, kind: type, where: str) -> object:
    """A part of a context."""
    if not isinstance(value, kind):
        raise InvalidInputError(f"{where} must be a {kind.__name__}, got a {type(value).__name__}: build one")
    return value


def check_object(value: object, where: str) -> dict[str, Any]:
    """A JSON object, copied: whoever handed it in may change it."""
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be a dict, got a {type(value).__name__}: use plain JSON")
    copied: dict[str, Any] = _copy_json(value, where, 0)
    return copied


def _copy_json(value: object, where: str, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(value, where)
    if isinstance(value, int | float):
        return check_number(value, where)
    if depth >= MAX_DEPTH:
        raise InvalidInputError(f"{where[:80]} is nested deeper than {MAX_DEPTH}: flatten it")
    if isinstance(value, list):
        return [_copy_json(one, f"{where}[{index}]", depth + 1) for index, one in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            check_text(key, where): _copy_json(one, f"{where}[{key[:40]!r}]", depth + 1)
            for key, one in value.items()
        }
    raise InvalidInputError(
        f"{where} holds a {type(value).__name__} that JSON cannot give back equal: "
        "use dict with texts as keys, list, str, number, bool or None"
    )
