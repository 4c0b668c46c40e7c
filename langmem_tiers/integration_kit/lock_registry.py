"""Locks by key, for threads and for tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator

# Keys that the current thread or task holds; this makes the locks reentrant.
_held_keys: ContextVar[frozenset[Hashable]] = ContextVar("langmem_tiers_turns", default=frozenset())


class LockRegistry:
    """Serializes work that has the same key; work with different keys runs concurrently.

    The locks are reentrant: code that holds a lock may acquire it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each value is [lock, number of users]; the last user removes the entry.
        self._locks: dict[Hashable, list[Any]] = {}

    @contextmanager
    def lock(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of a key in a thread."""
        key = (id(self), key)  # _held_keys is shared by all registries
        if key in _held_keys.get():
            yield
            return
        with self._borrow_lock(key, threading.Lock) as lock, lock, _mark_as_held(key):
            yield

    @asynccontextmanager
    async def alock(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the lock of a key in a task; it does not exclude threads or tasks of another event loop."""
        # An asyncio.Lock belongs to the event loop that first waits for it.
        key = (id(self), id(asyncio.get_running_loop()), key)
        if key in _held_keys.get():
            yield
            return
        with self._borrow_lock(key, asyncio.Lock) as lock:
            async with lock:
                with _mark_as_held(key):
                    yield

    @contextmanager
    def _borrow_lock(self, key: Hashable, make: Callable[[], Any]) -> Iterator[Any]:
        with self._lock:
            slot = self._locks.setdefault(key, [make(), 0])
            slot[1] += 1
        try:
            yield slot[0]
        finally:
            with self._lock:
                slot[1] -= 1
                if not slot[1]:
                    del self._locks[key]


@contextmanager
def _mark_as_held(key: Hashable) -> Iterator[None]:
    token = _held_keys.set(_held_keys.get() | {key})
    try:
        yield
    finally:
        _held_keys.reset(token)
