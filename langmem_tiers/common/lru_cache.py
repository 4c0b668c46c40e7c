"""A cache that is bounded by what it weighs, safe among threads and across a fork."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from cachetools import TTLCache

from langmem_tiers.common.fork_safety import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from langmem_tiers.config import CacheConfig

Held = TypeVar("Held")


class WeighedCache(Generic[Held]):
    """Things by key. The least recently used leave first, and all leave after a while."""

    def __init__(self, config: CacheConfig, timer: Callable[[], float]) -> None:
        self._lock = threading.RLock()  # a fork hook of others may read
        watch(self)
        self._things: TTLCache[Hashable, tuple[Held, int]] = TTLCache(
            maxsize=config.max_characters,
            ttl=config.ttl_seconds,
            timer=timer,
            getsizeof=lambda held: held[1],
        )

    def get(self, key: Hashable) -> Held | None:
        """What is held."""
        with self._lock:
            held = self._things.get(key)
        return None if held is None else held[0]

    def put(self, key: Hashable, thing: Held, weight: int) -> None:
        """Hold a thing in place of the one before it; not one that alone is too heavy."""
        with self._lock:
            if weight > self._things.maxsize:
                self._things.pop(key, None)  # one giant must not empty the cache
            else:
                self._things[key] = (thing, weight)

    def drop(self, key: Hashable | None = None) -> None:
        """Forget one, or all."""
        with self._lock:
            if key is None:
                self._things.clear()
            else:
                self._things.pop(key, None)

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()
