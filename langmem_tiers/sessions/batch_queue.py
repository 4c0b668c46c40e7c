"""Queue between the threads that add messages and the thread of a batch writer."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.errors import EngineClosedError, StorageBusyError, UnsavedError
from langmem_tiers.sessions.batch_models import Acknowledge, UnsavedMessages, WriterReport
from langmem_tiers.sessions.models import AddReport, SessionBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.sessions.batch_models import WriterConfig
    from langmem_tiers.sessions.models import SessionAppendResult


# With acknowledge="stored": longest wait for further adds, as a share of the duration of the latest batch.
_MAX_WAIT_RATIO = 0.5


@dataclass(slots=True, eq=False)
class PendingAdd:
    """The messages of one ``add()`` call, and the future that reports their result."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    echoes: tuple[Message, ...]
    future: Future[AddReport]
    is_new: bool = True
    """True if the ids are most likely new."""
    added_at: float = field(default=0.0)
    """Monotonic time when the queue accepted it."""

    def to_unsaved(self, problem: str | None = None) -> UnsavedMessages:
        """Convert it for a report, with the reason if the messages were rejected."""
        return UnsavedMessages(self.namespace, self.session, self.messages, problem)


class BatchQueue:
    """First-in-first-out queue with one consumer thread and any number of producers.

    Args:
        config: Size of batches and limit of pending messages.
        monotonic: Monotonic clock in seconds.
    """

    def __init__(self, config: WriterConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._acknowledges_queued = config.acknowledge is Acknowledge.QUEUED
        self.reset(is_shut=False)

    def reset(self, *, is_shut: bool) -> None:
        """Set the initial state, empty; closed if ``is_shut``."""
        self.lock = threading.RLock()
        self._work_available = threading.Condition(self.lock)
        self._room_available = threading.Condition(self.lock)
        self._batch_finished = threading.Condition(self.lock)
        self._queue: deque[PendingAdd] = deque()
        self._in_progress: list[PendingAdd] = []
        self._refused: dict[PendingAdd, str] = {}
        # Counts of put() calls in order: accepted, finished, and up to which flush() wants them finished.
        self._added_count = self._done_count = self._flush_target = 0
        # Messages: waiting in the queue, and not stored yet including the batch in progress.
        self._queued_messages = self._pending_messages = 0
        # Adds that were in the latest batch or queued during it: an estimate of the number of active producers.
        self._concurrent_adders = 1
        self._batch_started_at = self._last_batch_seconds = 0.0
        self._is_closed, self._has_given_up = is_shut, False
        self.problem: str | None = None
        self._stored = self._duplicates = self._batches = self._retries = 0

    @property
    def pending(self) -> int:
        """Number of messages that are neither stored nor rejected."""
        return self._pending_messages

    def put(self, add: PendingAdd, timeout_seconds: float, write_ahead: Callable[[PendingAdd], None]) -> None:
        """Accept an add once there is free space for it.

        Args:
            add: The add.
            timeout_seconds: Time limit for waiting for free space.
            write_ahead: Called before the add is accepted. If it raises, the add is not accepted.

        Raises:
            StorageBusyError: The queue stayed full.
            EngineClosedError: The writer is closed.
        """
        size, max_pending = len(add.messages), self._config.max_pending
        with self.lock:
            if not self._room_available.wait_for(
                lambda: self._is_closed or self._pending_messages + size <= max_pending, timeout_seconds
            ):
                raise StorageBusyError(
                    f"the queue is full: {self._pending_messages} messages are pending and none was stored within "
                    f"{timeout_seconds:g} s{self.format_problem()}: try again, or raise max_pending; "
                    "nothing was accepted"
                )
            if self._is_closed:
                raise EngineClosedError("the writer is closed: get a new one from engine.writer()")
            write_ahead(add)
            # From here on the add cannot be canceled any more.
            add.future.set_running_or_notify_cancel()
            add.added_at = self._monotonic()
            self._queue.append(add)
            self._added_count += 1
            before, self._queued_messages = self._queued_messages, self._queued_messages + size
            self._pending_messages += size
            # Wake the consumer only if it has a reason to act: the queue was empty, a batch became full, or all
            # active producers have added something. Waking it on each add would cost more than it gains.
            if (
                not before
                or before < self._config.max_messages <= self._queued_messages
                or len(self._queue) == self._concurrent_adders
            ):
                self._work_available.notify()

    def take_batch(self) -> Sequence[PendingAdd]:
        """Wait for the next batch and return it; an empty one if the queue is closed and empty."""
        with self.lock:
            self._work_available.wait_for(lambda: self._queue or self._is_closed)
            deadline = self._compute_deadline() if self._queue else 0.0
            while self._queue and not self._is_due():
                left = deadline - self._monotonic()
                if left <= 0 or not self._work_available.wait(left):
                    break
            self._batch_started_at = self._monotonic()
            self._in_progress, size = [], 0
            # The messages of one add stay together, so a single large add may exceed the size of a batch.
            while self._queue and (
                not size or size + len(self._queue[0].messages) <= self._config.max_messages
            ):
                self._in_progress.append(self._queue.popleft())
                size += len(self._in_progress[-1].messages)
            self._queued_messages -= size
            return list(self._in_progress)

    def _compute_deadline(self) -> float:
        longest = self._config.max_wait_ms / 1000
        if self._acknowledges_queued:
            return self._queue[0].added_at + longest
        # The producers of the latest batch were just notified and will add again in a moment. A batch that starts
        # without them would make them wait for the one after it.
        return self._monotonic() + min(longest, self._last_batch_seconds * _MAX_WAIT_RATIO)

    def _is_due(self) -> bool:
        if (
            self._queued_messages >= self._config.max_messages
            or self._is_closed
            or self._flush_target > self._done_count
        ):
            return True
        return not self._acknowledges_queued and len(self._queue) >= self._concurrent_adders

    def keep_in_progress(self, left: Sequence[PendingAdd]) -> None:
        """Set the part of the current batch that still has to be stored."""
        with self.lock:
            self._in_progress = list(left)

    def pause(self, seconds: float) -> bool:
        """Wait before a retry; return False if retrying was given up."""
        with self.lock:
            self._retries += 1
            self._work_available.wait_for(lambda: self._has_given_up, seconds)
            return not self._has_given_up

    def record_failure(self, error: Exception) -> None:
        """Record the error of a failed transaction that will be retried."""
        with self.lock:
            self.problem = f"{type(error).__name__}: {error}"

    def refuse(self, add: PendingAdd, error: Exception) -> None:
        """Mark an add as rejected by the store, and report the error to its caller."""
        with self.lock:
            self._refused[add] = f"{type(error).__name__}: {error}"
            self._remove_finished([add])
        with suppress(InvalidStateError):
            add.future.set_exception(error)

    def discard_refused(self, adds: Iterable[PendingAdd]) -> None:
        """Remove these from the rejected adds, because their messages are kept elsewhere."""
        with self.lock:
            for add in adds:
                self._refused.pop(add, None)

    def delete_refused(self, erased: ErasedIds) -> bool:
        """Delete erased messages from the rejected adds; return True if there were any."""
        with self.lock:
            before = sum(len(add.messages) for add in self._refused)
            for add in list(self._refused):
                add.messages = tuple(
                    message
                    for message in add.messages
                    if not erased.holds(add.namespace, add.session, message.id)
                )
                if not add.messages:
                    del self._refused[add]
            return sum(len(add.messages) for add in self._refused) < before

    def finish_batch(
        self,
        batch: Sequence[PendingAdd],
        batches: Sequence[SessionBatch],
        results: Sequence[SessionAppendResult],
    ) -> None:
        """Record a stored batch and notify the callers that wait for it.

        Args:
            batch: The adds of the batch.
            batches: The same messages grouped by session, as passed to the store.
            results: The result of the store for each session.
        """
        reports = _build_reports(batch, batches, results)
        with self.lock:
            self.problem = None
            self._batches += 1
            self._concurrent_adders = len(batch) + len(self._queue)
            self._last_batch_seconds = self._monotonic() - self._batch_started_at
            self._stored += sum(len(report.stored) for report in reports)
            self._duplicates += sum(len(report.duplicates) for report in reports)
            self._remove_finished(batch)
        for add, report in zip(batch, reports, strict=True):
            # close() may have reported the add as unsaved while its transaction was still running.
            with suppress(InvalidStateError):
                add.future.set_result(report)

    def _remove_finished(self, adds: Sequence[PendingAdd]) -> None:
        finished = set(adds)
        self._in_progress = [add for add in self._in_progress if add not in finished]
        self._done_count += len(adds)
        self._pending_messages -= sum(len(add.messages) for add in adds)
        self._room_available.notify_all()
        self._batch_finished.notify_all()

    def wait_until_drained(self, timeout_seconds: float) -> bool:
        """Wait until everything added before is stored or rejected; return False on time-out."""
        with self.lock:
            target = self._flush_target = self._added_count
            self._work_available.notify()
            return self._batch_finished.wait_for(lambda: self._done_count >= target, timeout_seconds)

    def close(self) -> None:
        """Accept no further adds; the consumer still stores the pending ones."""
        with self.lock:
            self._is_closed = True
            self._work_available.notify()
            self._room_available.notify_all()

    def give_up(self) -> None:
        """Stop retrying failed batches."""
        with self.lock:
            self._has_given_up = True
            self._work_available.notify()

    def list_unsaved(self) -> tuple[UnsavedMessages, ...]:
        """List pending messages, oldest first, then rejected ones."""
        with self.lock:
            pending = [add.to_unsaved() for add in (*self._in_progress, *self._queue)]
            return (*pending, *(add.to_unsaved(problem) for add, problem in self._refused.items()))

    def fail_unsaved(self) -> tuple[UnsavedMessages, ...]:
        """Fail the futures of all pending adds; return the pending and rejected messages."""
        with self.lock:
            left, unsaved = [*self._in_progress, *self._queue], self.list_unsaved()
        error = UnsavedError(
            f"the writer was closed before the messages were stored{self.format_problem()}: see its crash report"
        )
        for add in left:
            with suppress(InvalidStateError):
                add.future.set_exception(error)
        return unsaved

    def format_problem(self) -> str:
        """Return the latest error in parentheses for a message, or an empty string."""
        return "" if self.problem is None else f" ({self.problem})"

    def build_report(self) -> WriterReport:
        """Return the counters of the writer."""
        with self.lock:
            return WriterReport(
                stored=self._stored,
                duplicates=self._duplicates,
                pending=self._pending_messages,
                refused=sum(len(add.messages) for add in self._refused),
                batches=self._batches,
                retries=self._retries,
                problem=self.problem,
            )

    @staticmethod
    def group_by_session(batch: Sequence[PendingAdd]) -> list[SessionBatch]:
        """Group the adds of a batch by session; sessions and messages keep the order of the adds."""
        messages_by_session: dict[tuple[NamespacePath, str], list[Message]] = {}
        for add in batch:
            messages_by_session.setdefault((add.namespace, add.session), []).extend(add.messages)
        return [SessionBatch(*path, messages) for path, messages in messages_by_session.items()]


def _build_reports(
    batch: Sequence[PendingAdd], batches: Sequence[SessionBatch], results: Sequence[SessionAppendResult]
) -> list[AddReport]:
    # Split the results, which are per session, into one report for each add.
    by_session = {(key.namespace, key.session): result for key, result in zip(batches, results, strict=True)}
    new = {path: {message.id: message for message in result.stored} for path, result in by_session.items()}
    known = {
        path: {message.id: message for message in result.duplicates} for path, result in by_session.items()
    }
    reports = []
    for add in batch:
        path = (add.namespace, add.session)
        stored, duplicates = [], []
        for message in add.messages:
            # Two adds of a batch may contain the same id: the first one stored it, the other is a duplicate.
            first = new[path].pop(message.id, None)
            if first is not None:
                stored.append(first)
            else:
                duplicates.append(known[path][message.id])
        reports.append(AddReport(stored=tuple(stored), duplicates=tuple(duplicates), echoes=add.echoes))
    return reports
