"""Background thread that periodically erases expired data."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_positive
from langmem_tiers.errors import EngineClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("langmem_tiers")


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
