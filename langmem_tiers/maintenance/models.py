"""Keeping a database in shape: wiped, compacted, measured; and the reports of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import date, datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedCounts, ScrubResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics(Displayable):
    """What a table holds and takes."""

    name: str
    rows: int
    bytes: int
    """With its indexes."""
    is_estimate: bool
    """Whether ``rows`` is what the database guesses; counting would read the whole table."""
    bytes_are_estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatistics(Displayable):
    """What a tier holds."""

    count: int
    bytes: int
    """Of its texts, vectors and marks, about."""
    is_estimate: bool = False
    """Whether ``count`` is a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Displayable):
    """What a database holds and takes, cheap enough to be asked for every minute."""

    taken_at: datetime
    namespaces: int
    sessions: int
    messages: int
    tokens: int
    """Of all messages, by the counters that counted them."""
    tiers: Mapping[str, TierStatistics]
    tables: tuple[TableStatistics, ...]
    total_bytes: int
    """Of the whole database; of a SQLite file with its log."""
    free_bytes: int | None = None
    """Of them unused, where that is known."""
    estimated: tuple[str, ...] = ()
    """Names of the figures above that are guesses."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON, with the time as text."""
        return asdict(self) | {"taken_at": self.taken_at.isoformat()}


@dataclass(frozen=True, slots=True)
class TierUsage:
    """What a tier of one namespace holds."""

    entries: int = 0
    tokens: int = 0

    def __add__(self, other: TierUsage) -> TierUsage:
        return TierUsage(self.entries + other.entries, self.tokens + other.tokens)

    def __sub__(self, other: TierUsage) -> TierUsage:
        return TierUsage(self.entries - other.entries, self.tokens - other.tokens)


@dataclass(frozen=True, slots=True, order=True)
class DailyUsage:
    """What was said on a day, in UTC."""

    day: date
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUsage:
    """What one namespace holds."""

    sessions: int
    messages: int
    tokens: int
    """Of all messages, by the counters that counted them."""
    tiers: Mapping[str, TierUsage]
    knowledge: int
    growth: tuple[DailyUsage, ...]
    """By day, oldest first, days without a message left out."""
    growth_is_whole: bool
    """Whether it reaches back as far as was asked for; of very many messages only the newest are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCompactionReport(Displayable):
    """What compacting did."""

    bytes_before: int = 0
    bytes_after: int = 0
    steps: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport(Displayable):
    """What a run of maintenance did."""

    started_at: datetime
    ended_at: datetime
    erased: ErasedCounts
    """By retention."""
    remade: int = 0
    """Summaries, chunks and episodes that are told anew from what is left."""
    expired_items: int = 0
    compacted: DatabaseCompactionReport | None = None
    statistics: Statistics | None = None
    problems: tuple[str, ...] = field(default=())
    is_complete: bool = True
    """Whether it came to its end; if not, the next one goes on where it stopped."""
    is_elsewhere: bool = False
    """Whether another process is at it, so that nothing was done here."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON, with times as text."""
        found = asdict(self) | {
            "started_at": self.started_at.isoformat(),
            "ended_at": self.ended_at.isoformat(),
        }
        found["statistics"] = None if self.statistics is None else self.statistics.as_dict()
        return found


class MaintenanceStore(Protocol):
    """Keeps the database itself in shape."""

    def scrub(self, erased: ErasedCounts | None = None, *, from_pools: bool = True) -> ScrubResult:
        """Let the files of the database hold nothing of what was erased.

        Args:
            erased: What that was; everything is gone over, if left out.
            from_pools: Whether pools, or what others synced of them, may have lost something too.
        """
        ...

    def compact(self, go_on: Callable[[], bool] = ...) -> DatabaseCompactionReport:
        """Merge full-text indexes, bring the planner's statistics up to date, give unused room back where cheap.

        Args:
            go_on: Asked before each step.
        """
        ...

    def statistics(self, now: datetime) -> Statistics:
        """What the database holds and takes."""
        ...

    def get_namespace_usage(self, namespace: NamespacePath, since: datetime) -> NamespaceUsage | None:
        """What a namespace holds, and what was said in it since then; None if there is no such namespace."""
        ...
