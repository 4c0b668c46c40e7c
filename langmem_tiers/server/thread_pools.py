"""Where the engine works: in threads of a few pools, so that what takes long holds nothing else up."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from langmem_tiers.server.error_responses import Problem, build_unavailable_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.server.config import ServerConfig

T = TypeVar("T")
_LONG_THREADS = 2
_LONG_TIMEOUT_FACTOR = 10
_MONITOR_SECONDS = 5.0


class JobClass(StrEnum):
    """How long something takes."""

    QUICK = "quick"
    LONG = "long"
    """Passes over much: forgetting, optimizing."""
    MONITOR = "watch"
    """Must be answered whatever else is under way."""


class _ThreadPool:
    """Some threads, and those who wait for one."""

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"langmem-tiers-{name}")
        self._slots = threading.BoundedSemaphore(threads + waiting)
        self._timeout_seconds = seconds

    async def run(self, work: Callable[[], T], *, writes: bool) -> T:
        if not self._slots.acquire(blocking=False):
            raise build_unavailable_problem("busy", "too many requests are waiting: try again in a moment")
        context = contextvars.copy_context()
        try:
            submitted = self._threads.submit(context.run, work)
        except BaseException:
            self._slots.release()
            raise
        # A thread that takes too long keeps its place until it is done: its client does not wait for that.
        submitted.add_done_callback(lambda _: self._slots.release())
        future = asyncio.wrap_future(submitted)
        done, _ = await asyncio.wait({future}, timeout=self._timeout_seconds)
        if done:
            return await future
        has_begun = not submitted.cancel()
        future.cancel()
        raise (
            self._build_write_timeout_problem(has_begun=has_begun)
            if writes
            else self._build_timeout_problem("try again later, or ask for less")
        )

    def _build_timeout_problem(self, what_next: str) -> Problem:
        return build_unavailable_problem(
            "timeout", f"it took more than {self._timeout_seconds:g} s: {what_next}"
        )

    def _build_write_timeout_problem(self, *, has_begun: bool) -> Problem:
        if not has_begun:
            return self._build_timeout_problem("it was not begun and is called off, try again later")
        return Problem(  # without a word on when to come again: programs would write twice
            503,
            "timeout",
            f"it takes more than {self._timeout_seconds:g} s and may still be done: "
            "look before you send it again, or send messages with ids",
        )


class ThreadPools:
    """The pools of a server."""

    def __init__(self, config: ServerConfig) -> None:
        most, seconds = config.max_waiting, config.timeout_seconds
        self._pools = {
            JobClass.QUICK: _ThreadPool("quick", config.max_threads, most, seconds),
            JobClass.LONG: _ThreadPool("long", _LONG_THREADS, most, _LONG_TIMEOUT_FACTOR * seconds),
            JobClass.MONITOR: _ThreadPool("watch", 1, most, min(_MONITOR_SECONDS, seconds)),
        }

    async def run(self, pace: JobClass, work: Callable[[], T], *, writes: bool = False) -> T:
        """Do it in a thread.

        Args:
            pace: How long it takes.
            work: What is to be done.
            writes: Whether doing it twice is another thing than doing it once.

        Raises:
            Problem: Too many wait already, or it took too long.
        """
        return await self._pools[pace].run(work, writes=writes)
