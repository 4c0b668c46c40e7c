"""Consolidation: what is old and matters little is archived, episodes that overlap become one.

In batches, each of which is whole by itself. Whoever stops in the middle goes on there the next time, and of two
processes only one is at it. Decay is computed as entries are read, so nothing is written for those that stay, and what
is found by searching needs no rebuilding: whether an entry is archived is looked up when it is read.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.decay import compute_decay_since
from langmem_tiers.common.leases import Lease, LeaseKind
from langmem_tiers.long_term.models import ConsolidationReport

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import DecayCandidate
    from langmem_tiers.services import EngineServices

CONSOLIDATION_BATCH_SIZE = 1000


def consolidate(
    parts: EngineServices, namespace: NamespacePath, *, max_batches: int | None = None
) -> ConsolidationReport:
    """Consolidate the memory of a namespace.

    Args:
        parts: The stores and workers.
        namespace: Whose.
        max_batches: Stop after so many batches; the next call goes on from there.
    """
    if max_batches is not None:
        check_whole(max_batches, 1, "max_batches")
    lease = Lease.of(parts, LeaseKind.CONSOLIDATE, namespace)
    if not lease.acquire():
        return ConsolidationReport(is_complete=False, is_elsewhere=True)
    try:
        parts.long_term.access_counter.flush()
        return _run(parts, namespace, lease, max_batches)
    finally:
        lease.release()


def _run(
    parts: EngineServices, namespace: NamespacePath, lease: Lease, max_batches: int | None
) -> ConsolidationReport:
    store, report = parts.long_term.store, ConsolidationReport()
    after, batches = int((store.get_consolidation_state(namespace) or {}).get("after", 0)), 0
    cutoff = parts.now() - timedelta(days=parts.config.learning.archive_after_days)
    while some := store.list_decay_candidates(
        namespace, created_before=cutoff, after=after, limit=CONSOLIDATION_BATCH_SIZE
    ):
        report = _archive_batch(parts, namespace, report, some)
        after, batches = some[-1].key, batches + 1
        if len(some) < CONSOLIDATION_BATCH_SIZE:
            break
        store.save_consolidation_state(namespace, {"after": after})
        if max_batches is not None and batches >= max_batches:
            return replace(report, is_complete=False)
        if not lease.acquire():  # it took so long that another has begun: that one goes on from here
            return replace(report, is_complete=False, is_elsewhere=True)
    merged, saved = parts.get_episodes(namespace).merge()
    archived, dropped = parts.get_episodes(namespace).archive_excess()
    if store.get_consolidation_state(namespace) is not None:
        store.save_consolidation_state(namespace, None)
    return replace(
        report,
        memories_merged=merged,
        memories_archived=report.memories_archived + archived,
        tokens_reclaimed=report.tokens_reclaimed + saved + dropped,
    )


def _archive_batch(
    parts: EngineServices,
    namespace: NamespacePath,
    report: ConsolidationReport,
    some: tuple[DecayCandidate, ...],
) -> ConsolidationReport:
    now, config = parts.now(), parts.config.learning
    keys = [
        one.key
        for one in some
        if one.importance
        * compute_decay_since(one.last_access_at, one.access_count, now, config.half_life_days)
        < config.archive_below
    ]
    count, tokens = parts.long_term.store.archive(namespace, keys, now) if keys else (0, 0)
    return replace(
        report,
        memories_archived=report.memories_archived + count,
        tokens_reclaimed=report.tokens_reclaimed + tokens,
        looked_at=report.looked_at + len(some),
    )
