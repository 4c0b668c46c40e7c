"""Clocks and polling. The engine passes the time to its components; only this module reads the system clock."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Source of the current time for the engine."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, for cache lifetimes."""
        ...


class SystemClock:
    """Clock of the operating system."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        return time.monotonic()


def to_microseconds(moment: datetime) -> int:
    """Return the exact number of microseconds since 1970 (UTC)."""
    # Integer arithmetic: timestamp() is a float and loses microseconds.
    return (moment - _EPOCH) // timedelta(microseconds=1)


_PAUSE_SECONDS = 0.02


def wait_until(is_done: Callable[[], bool], patience_seconds: float) -> bool:
    """Poll until ``is_done()`` is true; return False if the time limit passes first."""
    # Attempts are counted instead of reading a clock: only the clock module reads the time.
    for attempt in range(int(patience_seconds / _PAUSE_SECONDS) + 1):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        if is_done():
            return True
    return False


_NUMBER = re.compile(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", re.IGNORECASE)


def reject_numeric_time(value: object) -> object:
    """Return a value that may be a time unchanged; reject numbers.

    Raises:
        ValueError: The value is a number. Parsers read it as seconds since 1970, so 2025 would be a time in 1970.
    """
    if value is not None and (not isinstance(value, str) or _NUMBER.fullmatch(value)):
        raise ValueError("a time must be a text with date and UTC offset, such as 2026-01-31T09:30:00Z")
    return value
