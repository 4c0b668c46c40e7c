"""Copies what is new in a pool into the long-term memory of one of its members."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langmem_tiers.errors import StorageBusyError
from langmem_tiers.long_term.conflicts.resolution import resolve_conflicts
from langmem_tiers.long_term.entry_factory import to_new_entry
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.pools.contribution import MAX_ATTEMPTS, MAX_SIMILAR_ENTRIES, POOL_TIERS
from langmem_tiers.pools.models import PoolDelivery, SyncReport
from langmem_tiers.recall.entry_search import EntrySearchRequest

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.pools.models import Origin, PoolInfo, PoolStore, PoolUpdates

_BATCH_SIZE = 100


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


def sync_pool(
    parts: LongTermDependencies, store: PoolStore, pool: PoolInfo, namespace: NamespacePath
) -> SyncReport:
    """Copy what is new; each once, and none that the member has contributed itself."""
    report = SyncReport(pool=pool.name, namespace=namespace)
    tries = 0
    while True:
        now = parts.now()
        news = store.get_updates(pool.id, namespace, now, limit=_BATCH_SIZE)
        if news.latest_revision == news.synced_revision:
            return report
        batch = _compare_updates(parts, pool, namespace, news, now)
        if len(batch.revisions) < 2 and store.deliver(pool.id, namespace, _build_delivery(news, batch), now):
            report, tries = _add_batch(report, batch), 0
        elif (tries := tries + 1) == MAX_ATTEMPTS:
            raise StorageBusyError(
                f"others write to {namespace!r} all the time: sync again later, it goes on where it stopped"
            )


def _compare_updates(
    parts: LongTermDependencies, pool: PoolInfo, namespace: NamespacePath, news: PoolUpdates, now: datetime
) -> _Batch:
    # With what the member knows, not with each other: in the pool that was done when they were contributed.
    batch = _Batch()
    for kept, origin in news.entries:
        if origin.namespace == namespace:
            batch.own += 1
            continue
        new = _copy_entry(parts, pool, namespace, kept, now)
        assert new.valid_from is not None  # noqa: S101 - every entry that is kept has one
        meant = EntryFilters(overlaps=(new.valid_from, new.valid_until), archived=True)
        sought = EntrySearchRequest(
            namespace=namespace, text=new.content, tiers=POOL_TIERS, filters=meant, limit=MAX_SIMILAR_ENTRIES
        )
        alike = parts.search.find_similar(sought)
        batch.revisions.add(alike.revision)
        settled = resolve_conflicts(
            new, [one.entry for one in alike.entries], now, kin=parts.word_similarity, is_copy=True
        )
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


def _copy_entry(
    parts: LongTermDependencies, pool: PoolInfo, namespace: NamespacePath, kept: StoredEntry, now: datetime
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


def _build_delivery(news: PoolUpdates, batch: _Batch) -> PoolDelivery:
    return PoolDelivery(
        updates=news,
        sources=tuple(batch.sources),
        write=MemoryWrite(
            put=tuple(to_new_entry(entry) for entry, _ in batch.copied),
            close=batch.close,
            relate=tuple(batch.relate),
            restore=tuple(dict.fromkeys(batch.restore)),
            revision=next(iter(batch.revisions), None),
        ),
        origins={entry.id: origin for entry, origin in batch.copied},
    )


def _add_batch(report: SyncReport, batch: _Batch) -> SyncReport:
    return replace(
        report,
        copied=(*report.copied, *(entry for entry, _ in batch.copied)),
        known=report.known + batch.known,
        own=report.own + batch.own,
        superseded=(*report.superseded, *batch.close),
    )
