"""Background threads: one runs small jobs in order, one erases expired data periodically."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.common.checks import check_positive
from langmem_tiers.errors import EngineClosedError

if TYPE_CHECKING:
    from collections.abc import Callable


_log = logging.getLogger("langmem_tiers")
_IDLE_SECONDS = 30.0
"""Idle time after which the thread ends; the next job starts a new one."""


class BackgroundWorker:
    """A thread that runs jobs one after the other, started on demand."""

    def __init__(self) -> None:
        self._stop_event = threading.Event()
        self._reset()
        fork_safety.register_fork_aware(self)

    def _reset(self) -> None:
        self._jobs: queue.Queue[tuple[object, Callable[[], None]] | None] = queue.Queue()
        self._queued_names: set[object] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_stopping(self) -> bool:
        """True if running jobs should finish early."""
        return self._stop_event.is_set()

    def submit(self, name: object, work: Callable[[], None]) -> None:
        """Queue a job, unless one with the same name is already waiting."""
        with self._lock:
            if self.is_stopping or name in self._queued_names:
                return
            self._queued_names.add(name)
            self._jobs.put((name, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="langmem-tiers-recall", daemon=True)
                self._thread.start()

    def stop(self, patience_seconds: float = 10.0) -> None:
        """Finish the current job and discard the waiting ones."""
        self._stop_event.set()
        with self._lock:
            thread = self._thread
            self._jobs.put(None)
        if thread is not None:
            thread.join(patience_seconds)

    def before_fork(self) -> None:
        """Do nothing; the child starts a thread of its own."""

    def after_fork(self) -> None:
        """Do nothing in the parent."""

    def after_fork_in_child(self) -> None:
        """Reset the state: the thread and its jobs exist only in the parent."""
        self._reset()

    def _run(self) -> None:
        while (job := self._next_job()) is not None and not self.is_stopping:
            name, work = job
            # Before the job runs: a job submitted during it covers newer data and must be queued.
            with self._lock:
                self._queued_names.discard(name)
            try:
                work()
            except Exception:  # noqa: BLE001 - no caller waits for the job, and the next one may succeed
                _log.warning("background job of recall failed: %r", name, exc_info=True)

    def _next_job(self) -> tuple[object, Callable[[], None]] | None:
        # The timeout ends the thread of an engine that is garbage-collected without close().
        while True:
            try:
                return self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # submit() may have queued a job since the timeout, and relies on the running thread.
                    if self._jobs.empty():
                        self._thread = None
                        return None


class Sweeper:
    """Calls a function periodically until it is stopped or its engine is closed.

    Args:
        sweep: Function to call.
    """

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """True while the thread runs; a forked child starts without it."""
        return self._thread is not None and self._thread.is_alive() and not self._stop.is_set()

    def start(self, interval_seconds: float) -> None:
        """Start the thread, unless it is running."""
        check_positive(interval_seconds, "interval_seconds")
        if self.is_running:
            return
        # A new event per thread: clearing the old one could revive a thread that has not ended yet.
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._stop, interval_seconds), name="langmem-tiers-sweeper", daemon=True
        )
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop the thread after its current sweep; return True if it has ended."""
        self._stop.set()
        thread = self._thread
        # A sweep may close its own engine; a thread cannot join itself.
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_seconds)
        return not thread.is_alive()

    def _run(self, stop: threading.Event, interval_seconds: float) -> None:
        while not stop.wait(interval_seconds):
            try:
                self._sweep()
            except EngineClosedError:
                return
            except Exception as error:  # noqa: BLE001 - a failed sweep must not stop the next ones
                _log.warning("sweeping expired items failed: %s", type(error).__name__)
