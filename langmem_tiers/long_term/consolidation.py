"""Consolidation: archives old, unimportant entries and merges overlapping episodes.

It works in batches, each in a transaction. An interrupted consolidation continues with the next batch, and a lease
ensures that only one process runs it. Decay is computed when entries are read, so entries that stay are not
written. The search index is not rebuilt: entries that a search finds are checked for archiving when they are read.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.decay import compute_decay_since
from langmem_tiers.long_term.models import ConsolidationReport

if TYPE_CHECKING:
    from langmem_tiers.common.leases import Lease
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import LearningConfig
    from langmem_tiers.episodes.service import Episodes
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.records import DecayCandidate
    from langmem_tiers.long_term.repository import LongTermRepository

CONSOLIDATION_BATCH_SIZE = 1000


def consolidate(
    dependencies: LongTermDependencies,
    episodes: Episodes,
    config: LearningConfig,
    lease: Lease,
    namespace: NamespacePath,
    *,
    max_batches: int | None = None,
) -> ConsolidationReport:
    """Consolidate the memory of a namespace.

    Args:
        dependencies: Dependencies of the long-term tiers.
        episodes: Episodes of the namespace.
        config: Limits and half-life of entries.
        lease: Lease of this job.
        namespace: Namespace to consolidate.
        max_batches: Stop after this number of batches. The next call continues from there.
    """
    if max_batches is not None:
        check_whole(max_batches, 1, "max_batches")
    if not lease.acquire():
        return ConsolidationReport(is_complete=False, is_elsewhere=True)
    try:
        # Access counts slow decay, so counts that are only in memory must be written first.
        dependencies.access_counter.flush()
        report = _archive_all(dependencies, config, lease, namespace, max_batches)
        return (
            _merge_episodes(dependencies.store, episodes, namespace, report) if report.is_complete else report
        )
    finally:
        lease.release()


def _archive_all(
    dependencies: LongTermDependencies,
    config: LearningConfig,
    lease: Lease,
    namespace: NamespacePath,
    max_batches: int | None,
) -> ConsolidationReport:
    store, report = dependencies.store, ConsolidationReport()
    after, batches = int((store.get_consolidation_state(namespace) or {}).get("after", 0)), 0
    cutoff = dependencies.now() - timedelta(days=config.archive_after_days)
    while batch := store.list_decay_candidates(
        namespace, created_before=cutoff, after=after, limit=CONSOLIDATION_BATCH_SIZE
    ):
        report = _archive_batch(dependencies, config, namespace, report, batch)
        after, batches = batch[-1].key, batches + 1
        if len(batch) < CONSOLIDATION_BATCH_SIZE:
            break
        store.save_consolidation_state(namespace, {"after": after})
        if max_batches is not None and batches >= max_batches:
            return replace(report, is_complete=False)
        # The lease expired during a long batch and another process took it. That process continues from the saved
        # state.
        if not lease.acquire():
            return replace(report, is_complete=False, is_elsewhere=True)
    return report


def _merge_episodes(
    store: LongTermRepository, episodes: Episodes, namespace: NamespacePath, report: ConsolidationReport
) -> ConsolidationReport:
    merged, saved = episodes.merge()
    archived, dropped = episodes.archive_excess()
    # Finished: the next consolidation starts from the beginning.
    if store.get_consolidation_state(namespace) is not None:
        store.save_consolidation_state(namespace, None)
    return replace(
        report,
        memories_merged=merged,
        memories_archived=report.memories_archived + archived,
        tokens_reclaimed=report.tokens_reclaimed + saved + dropped,
    )


def _archive_batch(
    dependencies: LongTermDependencies,
    config: LearningConfig,
    namespace: NamespacePath,
    report: ConsolidationReport,
    candidates: tuple[DecayCandidate, ...],
) -> ConsolidationReport:
    now = dependencies.now()
    keys = [
        candidate.key
        for candidate in candidates
        if candidate.importance
        * compute_decay_since(candidate.last_access_at, candidate.access_count, now, config.half_life_days)
        < config.archive_below
    ]
    count, tokens = dependencies.store.archive(namespace, keys, now) if keys else (0, 0)
    return replace(
        report,
        memories_archived=report.memories_archived + count,
        tokens_reclaimed=report.tokens_reclaimed + tokens,
        looked_at=report.looked_at + len(candidates),
    )
