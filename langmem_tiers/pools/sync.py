"""Copies what is new in a pool into the long-term memory of one of its members."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langmem_tiers.errors import StorageBusyError
from langmem_tiers.long_term.conflicts.resolution import settle
from langmem_tiers.long_term.entry_factory import new_entry
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.pools.contribution import ALIKE, LONG_TERM, TRIES
from langmem_tiers.pools.models import PoolDelivery, SyncReport
from langmem_tiers.recall.entry_search import Sought

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LastingParts
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import KeptEntry
    from langmem_tiers.pools.models import Origin, PoolInfo, PoolNews, PoolStore

_AT_ONCE = 100


@dataclass
class _Batch:
    """What one delivery comes to, while it is put together."""

    copied: list[tuple[Entry, Origin]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    close: dict[str, datetime] = field(default_factory=dict)
    relate: list[Relation] = field(default_factory=list)
    restore: list[str] = field(default_factory=list)
    revisions: set[int] = field(default_factory=set)
    known: int = 0
    own: int = 0


def sync(parts: LastingParts, store: PoolStore, pool: PoolInfo, namespace: NamespacePath) -> SyncReport:
    """Copy what is new; each once, and none that the member has contributed itself."""
    report = SyncReport(pool=pool.name, namespace=namespace)
    tries = 0
    while True:
        now = parts.now()
        news = store.news(pool.id, namespace, now, limit=_AT_ONCE)
        if news.now == news.was:
            return report
        batch = _compared(parts, pool, namespace, news, now)
        if len(batch.revisions) < 2 and store.deliver(pool.id, namespace, _delivery(news, batch), now):
            report, tries = _added(report, batch), 0
        elif (tries := tries + 1) == TRIES:
            raise StorageBusyError(
                f"others write to {namespace!r} all the time: sync again later, it goes on where it stopped"
            )


def _compared(
    parts: LastingParts, pool: PoolInfo, namespace: NamespacePath, news: PoolNews, now: datetime
) -> _Batch:
    # With what the member knows, not with each other: in the pool that was done when they were contributed.
    batch = _Batch()
    for kept, origin in news.entries:
        if origin.namespace == namespace:
            batch.own += 1
            continue
        new = _copy(parts, pool, namespace, kept, now)
        assert new.valid_from is not None  # noqa: S101 - every entry that is kept has one
        meant = EntryFilters(meets=(new.valid_from, new.valid_until), archived=True)
        sought = Sought(namespace=namespace, text=new.content, tiers=LONG_TERM, filters=meant, limit=ALIKE)
        alike = parts.search.similar(sought)
        batch.revisions.add(alike.revision)
        settled = settle(new, [one.entry for one in alike.found], now, kin=parts.kin, is_copy=True)
        batch.restore += settled.restore
        if not settled.receipt.is_stored:
            batch.known += 1
            continue
        assert settled.receipt.entry is not None  # noqa: S101 - it is stored
        batch.copied.append(
            (settled.receipt.entry, replace(origin, copied_at=now, ends_at=kept.entry.valid_until))
        )
        batch.sources.append(kept.key)
        batch.relate += settled.relate
        for name, until in settled.close.items():
            batch.close[name] = min(until, batch.close.get(name, until))
    return batch


def _copy(
    parts: LastingParts, pool: PoolInfo, namespace: NamespacePath, kept: KeptEntry, now: datetime
) -> Entry:
    return replace(
        kept.entry,
        id=parts.new_id(),
        namespace=namespace,
        created_at=now,
        source=f"pool:{pool.name}",
        access_count=0,
        last_access_at=now,
    )


def _delivery(news: PoolNews, batch: _Batch) -> PoolDelivery:
    return PoolDelivery(
        news=news,
        sources=tuple(batch.sources),
        write=MemoryWrite(
            put=tuple(new_entry(entry) for entry, _ in batch.copied),
            close=batch.close,
            relate=tuple(batch.relate),
            restore=tuple(dict.fromkeys(batch.restore)),
            revision=next(iter(batch.revisions), None),
        ),
        origins={entry.id: origin for entry, origin in batch.copied},
    )


def _added(report: SyncReport, batch: _Batch) -> SyncReport:
    return replace(
        report,
        copied=(*report.copied, *(entry for entry, _ in batch.copied)),
        known=report.known + batch.known,
        own=report.own + batch.own,
        superseded=(*report.superseded, *batch.close),
    )
