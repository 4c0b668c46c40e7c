"""Validation of time values in requests."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", re.IGNORECASE)


def reject_numeric_time(value: object) -> object:
    """Return a value that may be a time unchanged; reject numbers.

    Raises:
        ValueError: The value is a number. Parsers read it as seconds since 1970, so 2025 would be a time in 1970.
    """
    if value is not None and (not isinstance(value, str) or _NUMBER.fullmatch(value)):
        raise ValueError("a time must be a text with date and UTC offset, such as 2026-01-31T09:30:00Z")
    return value
