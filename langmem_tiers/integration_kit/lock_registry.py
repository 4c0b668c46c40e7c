"""The same thing one after another, different things at once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator

_held_keys: ContextVar[frozenset[Hashable]] = ContextVar("langmem_tiers_turns", default=frozenset())


class LockRegistry:
    """Gives out turns by key, to threads and to tasks of an event loop.

    What is done within a turn may take the same turn again: it has it already.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Hashable, list[Any]] = {}

    @contextmanager
    def lock(self, key: Hashable) -> Iterator[None]:
        """Wait for the turn of a thread."""
        key = (id(self), key)
        if key in _held_keys.get():
            yield
            return
        with self._borrow_lock(key, threading.Lock) as lock, lock, _mark_as_held(key):
            yield

    @asynccontextmanager
    async def alock(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the turn of a task; those of another event loop have turns of their own."""
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
            held = self._locks.setdefault(key, [make(), 0])
            held[1] += 1
        try:
            yield held[0]
        finally:
            with self._lock:
                held[1] -= 1
                if not held[1]:
                    del self._locks[key]


@contextmanager
def _mark_as_held(key: Hashable) -> Iterator[None]:
    token = _held_keys.set(_held_keys.get() | {key})
    try:
        yield
    finally:
        _held_keys.reset(token)
