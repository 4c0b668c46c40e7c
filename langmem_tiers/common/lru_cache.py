"""A size-bounded cache, safe under threads and forks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from cachetools import TTLCache

from langmem_tiers.common.fork_safety import register_fork_aware

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from langmem_tiers.config import CacheConfig

_Value = TypeVar("_Value")


class SizedLruCache(Generic[_Value]):
    """Cache of values with sizes. Evicts the least recently used, and each value after a time to live."""

    def __init__(self, config: CacheConfig, timer: Callable[[], float]) -> None:
        self._lock = threading.RLock()  # reentrant: another fork hook may read the cache while forking
        register_fork_aware(self)
        self._entries: TTLCache[Hashable, tuple[_Value, int]] = TTLCache(
            maxsize=config.max_characters,
            ttl=config.ttl_seconds,
            timer=timer,
            getsizeof=lambda entry: entry[1],
        )

    def get(self, key: Hashable) -> _Value | None:
        """Return the cached value, or None."""
        with self._lock:
            entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: Hashable, value: _Value, weight: int) -> None:
        """Cache a value in place of the previous one, unless it alone exceeds the size limit."""
        with self._lock:
            if weight > self._entries.maxsize:
                self._entries.pop(key, None)  # an oversized value would evict all others
            else:
                self._entries[key] = (value, weight)

    def invalidate(self, key: Hashable | None = None) -> None:
        """Remove one key, or all."""
        with self._lock:
            if key is None:
                self._entries.clear()
            else:
                self._entries.pop(key, None)

    def before_fork(self) -> None:
        """Lock, so that no thread is changing the cache during the fork."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Release the lock."""
        self._lock.release()
