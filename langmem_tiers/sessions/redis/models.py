"""Status of the Redis cache of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from langmem_tiers.display.displayable import Displayable


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStatus(Displayable):
    """Status of the Redis cache; counters start when the engine is opened."""

    label: str
    """URL without the password."""
    is_connected: bool
    hits: int
    """Reads served by Redis."""
    misses: int
    """Reads for which Redis had no current data."""
    failures: int
    """Commands that failed or got an invalid reply."""
    skipped: int
    """Commands that were not sent because of a recent failure."""
    unremoved: int
    """Sessions with erased data that Redis may still contain, until it is available again or the TTL expires."""
