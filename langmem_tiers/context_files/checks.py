"""Validation of context values. Each check returns the value or raises an error that names its position."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH = 100
"""Maximum nesting depth of free-form JSON values."""
# Many JSON readers store numbers as doubles, which represent integers exactly only up to 2**53.
_MAX_INTEGER = 2**53
# Finite doubles are below 2**1024.
_MAX_INTEGER_BITS = 1024
_MIN_TIMESTAMP_SECONDS, _MAX_TIMESTAMP_SECONDS = (
    -62_135_596_800,
    253_402_300_799,
)  # the years 1 to 9999, in seconds since 1970
# Two surrogates in a row, as some programs produce for one character outside the Basic Multilingual Plane.
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def set_field(to: object, name: str, value: object) -> None:
    """Set a field of a frozen dataclass in its ``__post_init__``."""
    object.__setattr__(to, name, value)


def set_extra(to: Any, hidden: Iterable[str] = ()) -> None:  # noqa: ANN401 - any part of a context
    """Validate and copy ``extra``; its names must not collide with fields of the dataclass.

    Args:
        to: The dataclass instance that is being created.
        hidden: Fields that are never written to a file, and therefore may occur in ``extra``.
    """
    extra = check_object(to.extra, "extra")
    taken = (set(to.__dataclass_fields__) - {"extra", *hidden}) & set(extra)
    if taken:
        raise InvalidInputError(
            f"extra contains {min(taken)!r}, which is a field of {type(to).__name__}: set the field"
        )
    set_field(to, "extra", extra)


def check_text(value: object, where: str) -> str:
    """Return a string with each surrogate pair joined to its character.

    A JSON file cannot distinguish the pair from the character, so the string would not compare equal after loading.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{where} must be a string, got {type(value).__name__}: use a str")
    return _SURROGATE_PAIR.sub(lambda m: m[0].encode("utf-16", "surrogatepass").decode("utf-16"), value)


def check_not_empty(value: object, where: str) -> str:
    """Return a string that is not empty."""
    text = check_text(value, where)
    if not text:
        raise InvalidInputError(f"{where} must not be empty, got {value!r}: pass a value")
    return text


def check_number(value: object, where: str) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(
            f"{where} must be a finite number, got {type(value).__name__}: use an int or a float"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"{where} must be a finite number, got {value!r}: leave it out")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise InvalidInputError(f"{where} has more than {_MAX_INTEGER_BITS} bits: store it as a string")
    return value


def check_unix_seconds(value: object, where: str) -> float:
    """Return seconds since 1970 within the years 1 to 9999."""
    number = check_number(value, where)
    if not _MIN_TIMESTAMP_SECONDS <= number <= _MAX_TIMESTAMP_SECONDS:
        raise InvalidInputError(
            f"{where} must be in seconds since 1970, within the years 1 to 9999, got {number!r}: "
            "divide milliseconds by 1000"
        )
    return number


def check_count(value: object, where: str) -> int:
    """Return a non-negative integer that every JSON reader represents exactly."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INTEGER:
        # repr() of an integer with more than 4,300 digits raises ValueError; show only the type of a large one.
        is_shown = isinstance(value, float) or (
            isinstance(value, int) and value.bit_length() <= _MAX_INTEGER_BITS
        )
        got = repr(value) if is_shown else f"an invalid {type(value).__name__}"
        raise InvalidInputError(
            f"{where} must be a whole number from 0 to {_MAX_INTEGER}, got {got}: correct it"
        )
    return value


def check_list(value: object, where: str) -> list[Any] | tuple[Any, ...]:
    """Return a list or tuple."""
    if not isinstance(value, list | tuple):
        raise InvalidInputError(f"{where} must be a list, got {type(value).__name__}: pass a list")
    return value


def check_parts(value: object, kind: type, where: str) -> tuple[Any, ...]:
    """Return a list of ``kind`` instances as a tuple."""
    return tuple(
        check_part(part, kind, f"{where}[{index}]") for index, part in enumerate(check_list(value, where))
    )


def check_part(value: object, kind: type, where: str) -> object:
    """Return an instance of ``kind``."""
    if not isinstance(value, kind):
        raise InvalidInputError(
            f"{where} must be a {kind.__name__}, got {type(value).__name__}: create a {kind.__name__}"
        )
    return value


def check_object(value: object, where: str) -> dict[str, Any]:
    """Return a deep copy of a JSON object, so that later changes by the caller have no effect."""
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be a dict, got {type(value).__name__}: use plain JSON")
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
        raise InvalidInputError(f"{where[:80]} is nested deeper than {MAX_DEPTH} levels: flatten it")
    if isinstance(value, list):
        return [_copy_json(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            check_text(key, where): _copy_json(item, f"{where}[{key[:40]!r}]", depth + 1)
            for key, item in value.items()
        }
    raise InvalidInputError(
        f"{where} contains a {type(value).__name__}, which does not survive a JSON round trip: "
        "use dict with string keys, list, str, number, bool or None"
    )
