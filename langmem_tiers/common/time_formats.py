"""Times as programs write them."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", re.IGNORECASE)


def reject_numeric_time(value: object) -> object:
    """A value that may be a time, unchanged.

    Raises:
        ValueError: It is a number: nobody who writes 2025 means 1970.
    """
    if value is not None and (not isinstance(value, str) or _NUMBER.fullmatch(value)):
        raise ValueError("a time is a text with its day and offset, such as 2026-01-31T09:30:00Z")
    return value
