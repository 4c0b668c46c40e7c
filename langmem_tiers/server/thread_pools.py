"""Thread pools for calls of the engine, separated by duration so that slow calls do not delay others."""

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
    """Expected duration of a job."""

    QUICK = "quick"
    LONG = "long"
    """Jobs that process much data: forgetting, optimizing."""
    MONITOR = "watch"
    """Health checks and metrics, which must be answered even if all other threads are busy."""


class _ThreadPool:
    """Threads with a bounded queue."""

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"langmem-tiers-{name}")
        self._slots = threading.BoundedSemaphore(threads + waiting)
        self._timeout_seconds = seconds

    async def run(self, work: Callable[[], T], *, writes: bool) -> T:
        if not self._slots.acquire(blocking=False):
            raise build_unavailable_problem("busy", "too many requests are waiting: try again in a moment")
        # Threads of a pool do not inherit context variables, such as the current trace.
        context = contextvars.copy_context()
        try:
            submitted = self._threads.submit(context.run, work)
        except BaseException:
            self._slots.release()
            raise
        # Released by the job, not by the request: after a time-out the thread is still busy, so its slot must not be
        # given to another request.
        submitted.add_done_callback(lambda _: self._slots.release())
        future = asyncio.wrap_future(submitted)
        # asyncio.wait() does not cancel the future at the time-out, so the code below can find out whether it began.
        done, _ = await asyncio.wait({future}, timeout=self._timeout_seconds)
        if done:
            return await future
        has_begun = not submitted.cancel()
        future.cancel()
        raise (
            self._build_write_timeout_problem(has_begun=has_begun)
            if writes
            else self._build_timeout_problem("try again later, or request less")
        )

    def _build_timeout_problem(self, next_step: str) -> Problem:
        return build_unavailable_problem(
            "timeout", f"the request took more than {self._timeout_seconds:g} s: {next_step}"
        )

    def _build_write_timeout_problem(self, *, has_begun: bool) -> Problem:
        if not has_begun:
            return self._build_timeout_problem("it was canceled before it started, try again later")
        # No Retry-After header: clients that retry by themselves would write twice.
        return Problem(
            503,
            "timeout",
            f"the request takes more than {self._timeout_seconds:g} s and may still succeed: "
            "check the result before you send it again, or send messages with ids",
        )


class ThreadPools:
    """The thread pools of a server, one for each job class."""

    def __init__(self, config: ServerConfig) -> None:
        waiting, seconds = config.max_waiting, config.timeout_seconds
        self._pools = {
            JobClass.QUICK: _ThreadPool("quick", config.max_threads, waiting, seconds),
            JobClass.LONG: _ThreadPool("long", _LONG_THREADS, waiting, _LONG_TIMEOUT_FACTOR * seconds),
            JobClass.MONITOR: _ThreadPool("watch", 1, waiting, min(_MONITOR_SECONDS, seconds)),
        }

    async def run(self, job_class: JobClass, work: Callable[[], T], *, writes: bool = False) -> T:
        """Run a function in a thread and return its result.

        Args:
            job_class: Expected duration, which selects the thread pool.
            work: Function to run.
            writes: The function is not safe to repeat after a time-out.

        Raises:
            Problem: Too many requests are waiting, or the time-out expired.
        """
        return await self._pools[job_class].run(work, writes=writes)
