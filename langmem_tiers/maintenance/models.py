"""Reports of maintenance, and statistics of a database."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from langmem_tiers.erasure.models import ErasedCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics(Displayable):
    """Row count and size of a table."""

    name: str
    rows: int
    bytes: int
    """Size including indexes."""
    is_estimate: bool
    """True if ``rows`` is an estimate of the database; counting would read the whole table."""
    bytes_are_estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatistics(Displayable):
    """Number and size of the entries of a tier."""

    count: int
    bytes: int
    """Approximate size of texts, vectors and metadata."""
    is_estimate: bool = False
    """True if ``count`` is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Displayable):
    """Contents and size of a database, cheap enough to read every minute."""

    taken_at: datetime
    namespaces: int
    sessions: int
    messages: int
    tokens: int
    """Tokens of all messages, as counted when they were stored."""
    tiers: Mapping[str, TierStatistics]
    tables: tuple[TableStatistics, ...]
    total_bytes: int
    """Size of the database; for SQLite, of the file and its write-ahead log."""
    free_bytes: int | None = None
    """Unused part of ``total_bytes``, or None if unknown."""
    estimated: tuple[str, ...] = ()
    """Names of the statistics that are estimates."""

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON values, with the time as text."""
        return asdict(self) | {"taken_at": self.taken_at.isoformat()}


@dataclass(frozen=True, slots=True)
class TierUsage:
    """Contents of a tier of one namespace."""

    entries: int = 0
    tokens: int = 0

    def __add__(self, other: TierUsage) -> TierUsage:
        return TierUsage(self.entries + other.entries, self.tokens + other.tokens)

    def __sub__(self, other: TierUsage) -> TierUsage:
        return TierUsage(self.entries - other.entries, self.tokens - other.tokens)


@dataclass(frozen=True, slots=True, order=True)
class DailyUsage:
    """Messages of one day, in UTC."""

    day: date
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUsage:
    """Contents of one namespace."""

    sessions: int
    messages: int
    tokens: int
    """Tokens of all messages, as counted when they were stored."""
    tiers: Mapping[str, TierUsage]
    knowledge: int
    growth: tuple[DailyUsage, ...]
    """Messages by day, oldest first, without days that have none."""
    growth_is_whole: bool
    """True if ``growth`` covers the requested period; if there are very many messages, only the newest are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCompactionReport(Displayable):
    """Result of compacting a database."""

    bytes_before: int = 0
    bytes_after: int = 0
    steps: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport(Displayable):
    """Result of one maintenance run."""

    started_at: datetime
    ended_at: datetime
    erased: ErasedCounts
    """Records erased by retention."""
    remade: int = 0
    """Number of summaries, chunks and episodes rebuilt without the erased messages."""
    expired_items: int = 0
    compacted: DatabaseCompactionReport | None = None
    statistics: Statistics | None = None
    problems: tuple[str, ...] = field(default=())
    is_complete: bool = True
    """True if the run finished; otherwise the next run continues where it stopped."""
    is_elsewhere: bool = False
    """True if nothing was done because another process is running maintenance."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, with times as text."""
        record = asdict(self) | {
            "started_at": self.started_at.isoformat(),
            "ended_at": self.ended_at.isoformat(),
        }
        record["statistics"] = None if self.statistics is None else self.statistics.as_dict()
        return record
