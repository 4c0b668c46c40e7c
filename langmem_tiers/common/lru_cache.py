"""A size-bounded cache, safe under threads and forks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from cachetools import LRUCache, TTLCache

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.fork_safety import register_fork_aware

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cachetools import Cache

_Value = TypeVar("_Value")
_TIMER = SystemClock().monotonic


class SizedLruCache(Generic[_Value]):
    """Cache of values with sizes. Evicts the least recently used, and each value after a time to live.

    Args:
        max_size: Maximum total size of the values.
        ttl_seconds: Time to live of each value. Default: unlimited.
        timer: Monotonic clock in seconds.
    """

    def __init__(
        self, max_size: float, ttl_seconds: float | None = None, timer: Callable[[], float] = _TIMER
    ) -> None:
        self._lock = threading.RLock()  # reentrant: another fork hook may read the cache while forking
        register_fork_aware(self)
        self._entries: Cache[Hashable, tuple[_Value, int]] = (
            LRUCache(max_size, _get_size)
            if ttl_seconds is None
            else TTLCache(max_size, ttl_seconds, timer, _get_size)
        )

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> _Value | None:
        """Return the cached value, or None."""
        with self._lock:
            try:  # faster than get() of cachetools, which looks the key up twice
                return self._entries[key][0]
            except KeyError:
                return None

    def setdefault(self, key: Hashable, value: _Value) -> _Value:
        """Return the cached value; if there is none, cache this one and return it."""
        with self._lock:
            cached = self.get(key)
            if cached is None:
                self.put(key, value)
            return value if cached is None else cached

    def put(self, key: Hashable, value: _Value, weight: int = 1) -> None:
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


def _get_size(entry: tuple[object, int]) -> int:
    return entry[1]
