"""Clocks. The engine passes the time to its components; only this module reads the system clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

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
