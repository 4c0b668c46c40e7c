"""Decay: what is left of a memory that was not used for a while, computed when it is asked for and never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.entries import Entry

HALF_LIFE_DAYS = 30.0
BOOST_PER_ACCESS = 0.1
"""What each use adds."""
MAX_ACCESS_BOOST = 0.5
_DAY_SECONDS = 86_400


def compute_decay(
    days_since_access: float, access_count: int, half_life_days: float = HALF_LIFE_DAYS
) -> float:
    """What is left, from 0 to 1: half as much each half-life since the last use, and more for each use.

    Args:
        days_since_access: Days since it was last used, or since it was stored.
        access_count: How often it was used.
        half_life_days: After how many days half is left.
    """
    base: float = 0.5 ** (max(0.0, days_since_access) / half_life_days)
    return min(1.0, base + min(access_count * BOOST_PER_ACCESS, MAX_ACCESS_BOOST))


def compute_decay_since(
    last_access_at: datetime, access_count: int, now: datetime, half_life_days: float = HALF_LIFE_DAYS
) -> float:
    """The same by the time of the last use."""
    days = (now - last_access_at).total_seconds() / _DAY_SECONDS
    return compute_decay(days, access_count, half_life_days)


def compute_entry_decay(entry: Entry, now: datetime, half_life_days: float = HALF_LIFE_DAYS) -> float:
    """What is left of an entry."""
    return compute_decay_since(
        entry.last_access_at or entry.created_at, entry.access_count, now, half_life_days
    )
