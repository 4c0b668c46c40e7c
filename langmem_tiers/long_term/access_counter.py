"""Uses of entries, noted in memory and written together: a recall is a read, and waits for no disk."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.common.background_tasks import BackgroundWorker
from langmem_tiers.errors import StorageError
from langmem_tiers.long_term.records import Access

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import MemoryStore, StoredEntry

_log = logging.getLogger("langmem_tiers")
_FLUSH_AFTER_ACCESSES = 200  # uses


class AccessCounter:
    """Counts uses of entries. What was counted here is seen here at once, and by others once it is written.

    Args:
        store: Where they are written.
    """

    def __init__(self, store: MemoryStore) -> None:
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
        """Count one use of each."""
        with self._lock:
            noted = self._pending.setdefault(namespace, {})
            for key in keys:
                before = noted.get(key)
                count, last_at = (0, now) if before is None else (before.count, before.last_at)
                noted[key] = Access(count + 1, max(last_at, now))
                self._pending_count += 1
            is_enough = self._pending_count >= _FLUSH_AFTER_ACCESSES
        if is_enough:
            self._background.submit("uses", self.flush)

    def with_pending_accesses(self, kept: StoredEntry) -> StoredEntry:
        """The entry with the uses that are not written yet."""
        entry = kept.entry
        for noted in (self._pending, self._in_flight):
            access = noted.get(entry.namespace, {}).get(kept.key)
            if access is not None:
                last_at = max(entry.last_access_at or access.last_at, access.last_at)
                entry = replace(entry, access_count=entry.access_count + access.count, last_access_at=last_at)
        return kept if entry is kept.entry else replace(kept, entry=entry)

    def flush(self) -> None:
        """Write what was noted; what cannot be written now is written another time."""
        with self._flush_lock:  # whoever waits here finds all written that was noted before
            with self._lock:
                left, self._pending, self._pending_count = self._pending, {}, 0
                self._in_flight = left
            while left:
                namespace, noted = next(iter(left.items()))
                try:
                    self._store.touch(namespace, noted)
                except StorageError as error:
                    _log.warning("uses of entries are written later: %s", type(error).__name__)
                    self._requeue(left)
                    return
                del left[namespace]

    def _requeue(self, left: dict[NamespacePath, dict[int, Access]]) -> None:
        with self._lock:
            self._in_flight = {}
            for namespace, noted in left.items():
                there = self._pending.setdefault(namespace, {})
                for key, access in noted.items():
                    newer = there.get(key)
                    there[key] = (
                        access
                        if newer is None
                        else Access(access.count + newer.count, max(access.last_at, newer.last_at))
                    )
        # Not counted again: the next ones that are noted begin anew, so a store that fails is not asked each time.

    def close(self) -> None:
        """Write what was noted, and note in the background no more."""
        self._background.stop()
        self.flush()

    def before_fork(self) -> None:
        """Nothing to do: what was noted the parent writes."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """A lock may be held by a thread that this process does not have."""
        self._reset()
