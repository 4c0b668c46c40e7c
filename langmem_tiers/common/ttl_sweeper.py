"""A thread that erases what has expired, every so often."""

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
    """Calls a sweep again and again until it is stopped, or its engine is closed.

    Args:
        sweep: What to call.
    """

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work; a forked child starts without it."""
        return self._thread is not None and self._thread.is_alive() and not self._stop.is_set()

    def start(self, interval_seconds: float) -> None:
        """Start the thread, unless it runs."""
        check_positive(interval_seconds, "interval_seconds")
        if self.is_running:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._stop, interval_seconds), name="langmem-tiers-sweeper", daemon=True
        )
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """End the thread after what it is doing now. Says whether it has ended."""
        self._stop.set()
        thread = self._thread
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
            except Exception as error:  # noqa: BLE001 - the next round may go better
                _log.warning("sweeping expired items failed: %s", type(error).__name__)
