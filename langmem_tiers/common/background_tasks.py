"""Small work that nobody waits for: counting accesses, embedding what is left."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("langmem_tiers")
_IDLE_SECONDS = 30.0
"""After which a thread that has nothing to do ends; the next work starts another."""


class BackgroundWorker:
    """One thread that does one thing after the other, started when there is something to do."""

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
        """Whether work should come to an end."""
        return self._stop_event.is_set()

    def submit(self, name: object, work: Callable[[], None]) -> None:
        """Do it soon; what is waiting under the same name already is not queued twice."""
        with self._lock:
            if self.is_stopping or name in self._queued_names:
                return
            self._queued_names.add(name)
            self._jobs.put((name, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="langmem-tiers-recall", daemon=True)
                self._thread.start()

    def stop(self, patience_seconds: float = 10.0) -> None:
        """Finish what is being done, leave the rest."""
        self._stop_event.set()
        with self._lock:
            thread = self._thread
            self._jobs.put(None)
        if thread is not None:
            thread.join(patience_seconds)

    def before_fork(self) -> None:
        """Nothing to do: the child starts a thread of its own."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """The thread stayed in the parent, with its work."""
        self._reset()

    def _run(self) -> None:
        while (job := self._next_job()) is not None and not self.is_stopping:
            name, work = job
            with self._lock:
                self._queued_names.discard(name)
            try:
                work()
            except Exception:  # noqa: BLE001 - nobody waits for it, and the next time it may work
                _log.warning("background work of recall failed: %r", name, exc_info=True)

    def _next_job(self) -> tuple[object, Callable[[], None]] | None:
        # An engine that is dropped without close() must not leave a thread behind for good.
        while True:
            try:
                return self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._thread = None
                        return None
