"""Background thread of the optimizer."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.namespaces import NamespacePath

_log = logging.getLogger("langmem_tiers")


class ChangedNamespaces:
    """Set of namespaces that were written to since the last run.

    It uses no lock: if the process forks while another thread holds one, the lock stays locked in the child process.
    """

    def __init__(self) -> None:
        # Setting a key and popitem() are atomic operations of a dict.
        self._namespaces: dict[NamespacePath, None] = {}

    def add(self, namespace: NamespacePath) -> None:
        """Record that a namespace was written to."""
        self._namespaces[namespace] = None

    def pop_all(self) -> list[NamespacePath]:
        """Return and remove all namespaces recorded so far."""
        popped = []
        # Bounded by the size at the start: with a steady stream of writes, an endless loop would never return.
        for _ in range(len(self._namespaces)):
            try:
                popped.append(self._namespaces.popitem()[0])
            except KeyError:  # another thread was faster
                break
        return popped


class BackgroundRunner:
    """Background thread that periodically calls a function for each namespace that changed.

    A call that fails is counted, logged and repeated in the next round.

    Args:
        run: Function to call with a namespace. It returns None if another process works on the namespace.
        changes: Namespaces that changed.
        interval_seconds: Pause between two rounds.

    Attributes:
        failures: Number of failed calls.
    """

    def __init__(
        self, run: Callable[[NamespacePath], object], changes: ChangedNamespaces, interval_seconds: float
    ) -> None:
        self._run = run
        self._changes = changes
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures = 0

    @property
    def is_running(self) -> bool:
        """True if the thread is running; a forked child process starts without it."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_stop_requested(self) -> bool:
        """True if the caller is the background thread and should stop."""
        return self._stop.is_set() and threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread unless it is running."""
        if self.is_running and not self._stop.is_set():
            return
        # A new event for each thread: a thread that is still stopping must not see the event cleared.
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._loop, args=(self._stop,), name="langmem-tiers-optimizer", daemon=True
        )
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop the thread after its current call; return True if it has ended."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)
        return not self.is_running

    def run_pending(self, stop: threading.Event | None = None) -> None:
        """Call the function for each namespace that changed since the last round."""
        for namespace in self._changes.pop_all():
            # Put the remaining namespaces back, so that they are not lost if the thread is started again.
            if stop is not None and stop.is_set():
                self._changes.add(namespace)
                continue
            try:
                # None: another process works on this namespace, so check it again in the next round.
                if self._run(namespace) is None:
                    self._changes.add(namespace)
            except Exception as error:  # noqa: BLE001 - the next round may succeed; memory never stops the agent
                self.failures += 1
                self._changes.add(namespace)
                _log.warning("the optimizer failed on %s: %s", "/".join(namespace), type(error).__name__)

    def _loop(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_seconds):
            self.run_pending(stop)
