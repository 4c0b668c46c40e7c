"""Decay: the remaining weight of a memory that is not used, computed on demand and never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.entries import Entry

HALF_LIFE_DAYS = 30.0
BOOST_PER_ACCESS = 0.1
"""Weight added per access."""
MAX_ACCESS_BOOST = 0.5
"""Maximum weight added for all accesses."""
_DAY_SECONDS = 86_400


def compute_decay(
    days_since_access: float, access_count: int, half_life_days: float = HALF_LIFE_DAYS
) -> float:
    """Return the remaining weight from 0 to 1: halved per half-life, raised by each access.

    Args:
        days_since_access: Days since the last access, or since it was stored.
        access_count: Number of accesses.
        half_life_days: Days after which half of the weight is left.
    """
    base: float = 0.5 ** (max(0.0, days_since_access) / half_life_days)
    return min(1.0, base + min(access_count * BOOST_PER_ACCESS, MAX_ACCESS_BOOST))


def compute_decay_since(
    last_access_at: datetime, access_count: int, now: datetime, half_life_days: float = HALF_LIFE_DAYS
) -> float:
    """Return the remaining weight, given the time of the last access."""
    days = (now - last_access_at).total_seconds() / _DAY_SECONDS
    return compute_decay(days, access_count, half_life_days)


def compute_entry_decay(entry: Entry, now: datetime, half_life_days: float = HALF_LIFE_DAYS) -> float:
    """Return the remaining weight of an entry."""
    return compute_decay_since(
        entry.last_access_at or entry.created_at, entry.access_count, now, half_life_days
    )
