"""Access counts of entries, collected in memory and written in batches: a recall never waits for a write."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.common.workers import BackgroundWorker
from langmem_tiers.errors import StorageError
from langmem_tiers.long_term.records import Access

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.long_term.repository import LongTermRepository

_log = logging.getLogger("langmem_tiers")
_FLUSH_AFTER_ACCESSES = 200  # accesses that trigger a write in the background


class AccessCounter:
    """Counts uses of entries. This process sees new counts at once, other processes after they are written.

    Args:
        store: Store to write the counts to.
    """

    def __init__(self, store: LongTermRepository) -> None:
        self._store = store
        self._background = BackgroundWorker()
        self._reset()
        fork_safety.register_fork_aware(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[NamespacePath, dict[int, Access]] = {}
        self._in_flight: dict[NamespacePath, dict[int, Access]] = {}
        self._flush_lock = threading.Lock()
        self._pending_count = 0

    def record(self, namespace: NamespacePath, keys: Iterable[int], now: datetime) -> None:
        """Count one use of each entry."""
        with self._lock:
            accesses = self._pending.setdefault(namespace, {})
            for key in keys:
                before = accesses.get(key)
                count, last_at = (0, now) if before is None else (before.count, before.last_at)
                accesses[key] = Access(count + 1, max(last_at, now))
                self._pending_count += 1
            is_enough = self._pending_count >= _FLUSH_AFTER_ACCESSES
        if is_enough:
            self._background.submit("uses", self.flush)

    def with_pending_accesses(self, stored: StoredEntry) -> StoredEntry:
        """Return the entry with the counts that are not written yet."""
        entry = stored.entry
        # Pending and in flight: while a flush is running, its counts are no longer pending but may not be stored yet.
        for accesses_by_namespace in (self._pending, self._in_flight):
            access = accesses_by_namespace.get(entry.namespace, {}).get(stored.key)
            if access is not None:
                last_at = max(entry.last_access_at or access.last_at, access.last_at)
                entry = replace(entry, access_count=entry.access_count + access.count, last_access_at=last_at)
        return stored if entry is stored.entry else replace(stored, entry=entry)

    def flush(self) -> None:
        """Write all collected counts. Counts that cannot be written now are kept for the next time."""
        # One flush at a time: a caller that waited for the lock knows that all earlier counts are written.
        with self._flush_lock:
            with self._lock:
                unwritten, self._pending, self._pending_count = self._pending, {}, 0
                self._in_flight = unwritten
            while unwritten:
                namespace, accesses = next(iter(unwritten.items()))
                try:
                    self._store.touch(namespace, accesses)
                except StorageError as error:
                    _log.warning("access counts of entries will be written later: %s", type(error).__name__)
                    self._requeue(unwritten)
                    return
                # ``_in_flight`` is the same dict, so readers stop adding these counts.
                del unwritten[namespace]

    def _requeue(self, unwritten: dict[NamespacePath, dict[int, Access]]) -> None:
        with self._lock:
            self._in_flight = {}
            for namespace, accesses in unwritten.items():
                pending = self._pending.setdefault(namespace, {})
                for key, access in accesses.items():
                    newer = pending.get(key)
                    pending[key] = (
                        access
                        if newer is None
                        else Access(access.count + newer.count, max(access.last_at, newer.last_at))
                    )
        # _pending_count is not raised: the next write in the background happens after 200 new accesses, so a
        # failing store is not called at each access.

    def close(self) -> None:
        """Stop the background worker and write all collected counts."""
        self._background.stop()
        self.flush()

    def before_fork(self) -> None:
        """Do nothing: the parent process writes the collected counts."""

    def after_fork(self) -> None:
        """Do nothing in the parent process."""

    def after_fork_in_child(self) -> None:
        """Reset the state in the child process: a thread that does not exist there may hold a lock."""
        self._reset()
