"""The optimizer's background thread."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.namespaces import NamespacePath

_log = logging.getLogger("langmem_tiers")


class ChangedNamespaces:
    """Namespaces that were written to. Without a lock: a process may fork while another thread notes one."""

    def __init__(self) -> None:
        self._namespaces: dict[NamespacePath, None] = {}

    def add(self, namespace: NamespacePath) -> None:
        """Something was written there."""
        self._namespaces[namespace] = None

    def pop_all(self) -> list[NamespacePath]:
        """Those noted since the last time, each once."""
        taken = []
        for _ in range(len(self._namespaces)):
            try:
                taken.append(self._namespaces.popitem()[0])
            except KeyError:  # another taker was faster
                break
        return taken


class BackgroundRunner:
    """Calls for each namespace that changed, every so often, in a thread of its own.

    A call that fails is counted and logged, and made again the next time.

    Args:
        run: What to call.
        changes: What changed.
        interval_seconds: How long to wait between two rounds.

    Attributes:
        failures: How many calls failed so far.
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
        """Whether the thread is at work; a forked child starts without it."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_stop_requested(self) -> bool:
        """Whether the caller is the thread itself and should come to an end."""
        return self._stop.is_set() and threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self.is_running and not self._stop.is_set():
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._loop, args=(self._stop,), name="langmem-tiers-optimizer", daemon=True
        )
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """End the thread after what it is doing now. Says whether it has ended."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)
        return not self.is_running

    def run_pending(self, stop: threading.Event | None = None) -> None:
        """Call for everything that changed since the last round."""
        for namespace in self._changes.pop_all():
            if stop is not None and stop.is_set():
                self._changes.add(namespace)
                continue
            try:
                if (
                    self._run(namespace) is None
                ):  # another runner is at work there: the next round looks again
                    self._changes.add(namespace)
            except Exception as error:  # noqa: BLE001 - the next round may go better; memory never kills the agent
                self.failures += 1
                self._changes.add(namespace)
                _log.warning("the optimizer failed on %s: %s", "/".join(namespace), type(error).__name__)

    def _loop(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_seconds):
            self.run_pending(stop)
