"""How an engine treats a PostgreSQL server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from langmem_tiers.core.checks import check_positive, check_whole
from langmem_tiers.core.errors import InvalidConfigError


class VectorScan(StrEnum):
    """In what order pgvector goes on when what it found is of others."""

    STRICT = "strict_order"
    """By distance, exactly."""
    RELAXED = "relaxed_order"
    """About by distance: quicker. Recall sorts what it gets, so this loses next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """How an engine treats a PostgreSQL server; nothing of it matters on SQLite."""

    pool_size: int | None = None
    """Connections that this process holds; ``EngineConfig.pool_size``, if left out. All processes together must stay
    below the server's ``max_connections``."""
    max_overflow: int = 0
    """Connections beyond that while many ask at once; they are closed afterwards."""
    pool_timeout_seconds: float | None = None
    """How long a caller waits for a connection; ``EngineConfig.busy_timeout_seconds``, if left out."""
    ping_after_seconds: float = 30.0
    """A connection that rested for longer is tried before it is used."""
    reconnect_seconds: float = 30.0
    """How long a server that was reached before and went away is waited for, as while it restarts; 0 does not wait."""
    ef_search: int = 200
    """What the HNSW index looks at for one query at the least, up to 1,000: more finds better and takes longer."""
    vector_scan: VectorScan = VectorScan.RELAXED
    exact_numbers: int = 5_000_000
    """Up to so many numbers in all, vectors of a namespace are compared one by one, which finds them all: 20,000
    vectors of 256. Beyond that the HNSW index is asked."""
    max_scan_tuples: int = 20_000
    """Where the HNSW index gives up looking for vectors of one tenant among those of all; the search goes through the
    tenant's own vectors then."""

    def __post_init__(self) -> None:
        if self.pool_size is not None:
            check_whole(self.pool_size, 1, "pool_size", most=10_000)
        check_whole(self.max_overflow, 0, "max_overflow", most=10_000)
        if self.pool_timeout_seconds is not None:
            check_positive(self.pool_timeout_seconds, "pool_timeout_seconds", most=86_400)
        check_positive(self.ping_after_seconds, "ping_after_seconds", most=86_400)
        if self.reconnect_seconds != 0 or isinstance(self.reconnect_seconds, bool):
            check_positive(self.reconnect_seconds, "reconnect_seconds", most=86_400)
        check_whole(self.ef_search, 1, "ef_search", most=1000)
        check_whole(self.exact_numbers, 0, "exact_numbers")
        check_whole(self.max_scan_tuples, 1, "max_scan_tuples", most=2**31 - 1)
        try:
            object.__setattr__(self, "vector_scan", VectorScan(self.vector_scan))
        except ValueError as error:
            known = ", ".join(VectorScan)
            raise InvalidConfigError(
                f"unknown vector_scan {self.vector_scan!r}: use one of {known}"
            ) from error
