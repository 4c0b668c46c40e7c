"""Copies new pool entries into the long-term memory of a member."""

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
    from langmem_tiers.pools.models import Origin, PoolInfo, PoolUpdates
    from langmem_tiers.pools.repository import PoolRepository

_BATCH_SIZE = 100


@dataclass
class _Batch:
    """Content of one delivery while it is collected."""

    copied: list[tuple[Entry, Origin]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    close: dict[str, datetime] = field(default_factory=dict)
    relate: list[Relation] = field(default_factory=list)
    restore: list[str] = field(default_factory=list)
    revisions: set[int] = field(default_factory=set)
    known: int = 0
    own: int = 0


def sync_pool(
    dependencies: LongTermDependencies, store: PoolRepository, pool: PoolInfo, namespace: NamespacePath
) -> SyncReport:
    """Copy new entries to a member. Each is copied once, except the member's own contributions."""
    report = SyncReport(pool=pool.name, namespace=namespace)
    tries = 0
    while True:
        now = dependencies.now()
        updates = store.get_updates(pool.id, namespace, now, limit=_BATCH_SIZE)
        # Nothing new, or nothing left.
        if updates.latest_revision == updates.synced_revision:
            return report
        batch = _compare_updates(dependencies, pool, namespace, updates, now)
        # Two revisions mean that the member's memory changed while the batch was compared: compare again.
        if len(batch.revisions) < 2 and store.deliver(
            pool.id, namespace, _build_delivery(updates, batch), now
        ):
            report, tries = _add_batch(report, batch), 0
        elif (tries := tries + 1) == MAX_ATTEMPTS:
            raise StorageBusyError(
                f"concurrent writes to {namespace!r}: sync again later; it continues where it stopped"
            )


def _compare_updates(
    dependencies: LongTermDependencies,
    pool: PoolInfo,
    namespace: NamespacePath,
    updates: PoolUpdates,
    now: datetime,
) -> _Batch:
    # Compared with the member's memory, not with each other: that was done when they were contributed.
    batch = _Batch()
    for stored, origin in updates.entries:
        # Own contributions are already in the member's memory.
        if origin.namespace == namespace:
            batch.own += 1
            continue
        new = _copy_entry(dependencies, pool, namespace, stored, now)
        assert new.valid_from is not None  # noqa: S101 - every stored entry has one
        filters = EntryFilters(overlaps=(new.valid_from, new.valid_until), archived=True)
        search = EntrySearchRequest(
            namespace=namespace,
            text=new.content,
            tiers=POOL_TIERS,
            filters=filters,
            limit=MAX_SIMILAR_ENTRIES,
        )
        similar = dependencies.search.find_similar(search)
        batch.revisions.add(similar.revision)
        resolution = resolve_conflicts(
            new,
            [match.entry for match in similar.entries],
            now,
            kin=dependencies.word_similarity,
            is_copy=True,
        )
        batch.restore += resolution.restore
        if not resolution.receipt.is_stored:
            batch.known += 1
            continue
        assert resolution.receipt.entry is not None  # noqa: S101 - is_stored guarantees it
        batch.copied.append(
            (resolution.receipt.entry, replace(origin, copied_at=now, ends_at=stored.entry.valid_until))
        )
        batch.sources.append(stored.key)
        batch.relate += resolution.relate
        for name, until in resolution.close.items():
            # If several new entries end the same old one, the earliest end counts.
            batch.close[name] = min(until, batch.close.get(name, until))
    return batch


def _copy_entry(
    dependencies: LongTermDependencies,
    pool: PoolInfo,
    namespace: NamespacePath,
    stored: StoredEntry,
    now: datetime,
) -> Entry:
    return replace(
        # The copy has its own id and access counts, but keeps its content and validity.
        stored.entry,
        id=dependencies.new_id(),
        namespace=namespace,
        created_at=now,
        source=f"pool:{pool.name}",
        access_count=0,
        last_access_at=now,
    )


def _build_delivery(updates: PoolUpdates, batch: _Batch) -> PoolDelivery:
    return PoolDelivery(
        updates=updates,
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
