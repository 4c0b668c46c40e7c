"""The same thing one after another, different things at once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator

_inside: ContextVar[frozenset[Hashable]] = ContextVar("langmem_tiers_turns", default=frozenset())


class Turns:
    """Gives out turns by key, to threads and to tasks of an event loop.

    What is done within a turn may take the same turn again: it has it already.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[Any]] = {}

    @contextmanager
    def taken(self, key: Hashable) -> Iterator[None]:
        """Wait for the turn of a thread."""
        key = (id(self), key)
        if key in _inside.get():
            yield
            return
        with self._kept(key, threading.Lock) as lock, lock, _noted(key):
            yield

    @asynccontextmanager
    async def ataken(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the turn of a task; those of another event loop have turns of their own."""
        key = (id(self), id(asyncio.get_running_loop()), key)
        if key in _inside.get():
            yield
            return
        with self._kept(key, asyncio.Lock) as lock:
            async with lock:
                with _noted(key):
                    yield

    @contextmanager
    def _kept(self, key: Hashable, make: Callable[[], Any]) -> Iterator[Any]:
        with self._lock:
            held = self._waiting.setdefault(key, [make(), 0])
            held[1] += 1
        try:
            yield held[0]
        finally:
            with self._lock:
                held[1] -= 1
                if not held[1]:
                    del self._waiting[key]


@contextmanager
def _noted(key: Hashable) -> Iterator[None]:
    token = _inside.set(_inside.get() | {key})
    try:
        yield
    finally:
        _inside.reset(token)
