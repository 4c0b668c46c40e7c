"""Where the engine works: in threads of a few pools, so that what takes long holds nothing else up."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from langmem_tiers.server.error_responses import Problem, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.server.config import ServerConfig

T = TypeVar("T")
_LONG_THREADS = 2
_LONG_FACTOR = 10
_WATCH_SECONDS = 5.0


class Pace(StrEnum):
    """How long something takes."""

    QUICK = "quick"
    LONG = "long"
    """Passes over much: forgetting, optimizing."""
    WATCH = "watch"
    """Must be answered whatever else is under way."""


class _Pool:
    """Some threads, and those who wait for one."""

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"langmem-tiers-{name}")
        self._places = threading.BoundedSemaphore(threads + waiting)
        self._seconds = seconds

    async def run(self, work: Callable[[], T], *, writes: bool) -> T:
        if not self._places.acquire(blocking=False):
            raise unavailable("busy", "too many requests are waiting: try again in a moment")
        context = contextvars.copy_context()
        try:
            submitted = self._threads.submit(context.run, work)
        except BaseException:
            self._places.release()
            raise
        # A thread that takes too long keeps its place until it is done: its client does not wait for that.
        submitted.add_done_callback(lambda _: self._places.release())
        future = asyncio.wrap_future(submitted)
        done, _ = await asyncio.wait({future}, timeout=self._seconds)
        if done:
            return await future
        has_begun = not submitted.cancel()
        future.cancel()
        raise (
            self._late_write(has_begun=has_begun)
            if writes
            else self._late("try again later, or ask for less")
        )

    def _late(self, what_next: str) -> Problem:
        return unavailable("timeout", f"it took more than {self._seconds:g} s: {what_next}")

    def _late_write(self, *, has_begun: bool) -> Problem:
        if not has_begun:
            return self._late("it was not begun and is called off, try again later")
        return Problem(  # without a word on when to come again: programs would write twice
            503,
            "timeout",
            f"it takes more than {self._seconds:g} s and may still be done: "
            "look before you send it again, or send messages with ids",
        )


class Workers:
    """The pools of a server."""

    def __init__(self, config: ServerConfig) -> None:
        most, seconds = config.max_waiting, config.timeout_seconds
        self._pools = {
            Pace.QUICK: _Pool("quick", config.max_threads, most, seconds),
            Pace.LONG: _Pool("long", _LONG_THREADS, most, _LONG_FACTOR * seconds),
            Pace.WATCH: _Pool("watch", 1, most, min(_WATCH_SECONDS, seconds)),
        }

    async def run(self, pace: Pace, work: Callable[[], T], *, writes: bool = False) -> T:
        """Do it in a thread.

        Args:
            pace: How long it takes.
            work: What is to be done.
            writes: Whether doing it twice is another thing than doing it once.

        Raises:
            Problem: Too many wait already, or it took too long.
        """
        return await self._pools[pace].run(work, writes=writes)
