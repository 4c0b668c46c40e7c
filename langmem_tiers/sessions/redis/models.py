"""How Redis serves an engine."""

from __future__ import annotations

from dataclasses import dataclass

from langmem_tiers.display.displayable import Displayable


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStatus(Displayable):
    """How Redis serves this engine, counted since the engine was opened."""

    label: str
    """Which Redis, without the password."""
    is_connected: bool
    hits: int
    """Reads that were answered from Redis."""
    misses: int
    """Reads for which Redis had nothing, or nothing of now."""
    failures: int
    """Times that it did not answer, or answered what is no answer."""
    skipped: int
    """Times that it was not asked, because it had failed a moment ago."""
    unremoved: int
    """Sessions of which something erased may still lie in Redis; it goes when that answers again, or by its TTL."""
