"""A cache that is bounded by what it weighs, safe among threads and across a fork."""

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
    """Things by key. The least recently used leave first, and all leave after a while."""

    def __init__(self, config: CacheConfig, timer: Callable[[], float]) -> None:
        self._lock = threading.RLock()  # a fork hook of others may read
        register_fork_aware(self)
        self._entries: TTLCache[Hashable, tuple[_Value, int]] = TTLCache(
            maxsize=config.max_characters,
            ttl=config.ttl_seconds,
            timer=timer,
            getsizeof=lambda held: held[1],
        )

    def get(self, key: Hashable) -> _Value | None:
        """What is held."""
        with self._lock:
            held = self._entries.get(key)
        return None if held is None else held[0]

    def put(self, key: Hashable, thing: _Value, weight: int) -> None:
        """Hold a thing in place of the one before it; not one that alone is too heavy."""
        with self._lock:
            if weight > self._entries.maxsize:
                self._entries.pop(key, None)  # one giant must not empty the cache
            else:
                self._entries[key] = (thing, weight)

    def invalidate(self, key: Hashable | None = None) -> None:
        """Forget one, or all."""
        with self._lock:
            if key is None:
                self._entries.clear()
            else:
                self._entries.pop(key, None)

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()
