"""What waits for a writer: who adds, who waits for room, and who waits until all is stored."""

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


_MAX_WAIT_RATIO = 0.5  # of what the latest batch took


@dataclass(slots=True, eq=False)
class PendingAdd:
    """What one ``add()`` handed in."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    echoes: tuple[Message, ...]
    future: Future[AddReport]
    is_new: bool = True
    """Whether its ids are believed to be new."""
    added_at: float = field(default=0.0)

    def to_unsaved(self, problem: str | None = None) -> UnsavedMessages:
        """What is told of it if it is not stored."""
        return UnsavedMessages(self.namespace, self.session, self.messages, problem)


class BatchQueue:
    """First in, first out; one thread takes, any number puts.

    Args:
        config: How much makes a batch, and how much may wait.
        monotonic: Where the time comes from.
    """

    def __init__(self, config: WriterConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._acknowledges_queued = config.acknowledge is Acknowledge.QUEUED
        self.reset(is_shut=False)

    def reset(self, *, is_shut: bool) -> None:
        """Hold nothing, wait for nobody."""
        self.lock = threading.RLock()
        self._work_available = threading.Condition(self.lock)
        self._room_available = threading.Condition(self.lock)
        self._batch_finished = threading.Condition(self.lock)
        self._queue: deque[PendingAdd] = deque()
        self._in_progress: list[PendingAdd] = []
        self._refused: dict[PendingAdd, str] = {}
        self._added_count = self._done_count = self._flush_target = 0  # calls of put(), in order
        self._queued_messages = self._pending_messages = 0  # messages
        self._concurrent_adders = 1  # who added during the latest batch, or waited for it
        self._batch_started_at = self._last_batch_seconds = 0.0  # the latest batch
        self._is_closed, self._has_given_up = is_shut, False
        self.problem: str | None = None
        self._stored = self._duplicates = self._batches = self._retries = 0

    @property
    def pending(self) -> int:
        """Messages that are neither stored nor refused."""
        return self._pending_messages

    def put(self, one: PendingAdd, timeout_seconds: float, note: Callable[[PendingAdd], None]) -> None:
        """Take it once there is room for it."""
        size, most = len(one.messages), self._config.max_pending
        with self.lock:
            if not self._room_available.wait_for(
                lambda: self._is_closed or self._pending_messages + size <= most, timeout_seconds
            ):
                raise StorageBusyError(
                    f"{self._pending_messages} messages wait to be stored and no room came free within "
                    f"{timeout_seconds:g} s{self.format_problem()}: try again, or raise max_pending; nothing was taken"
                )
            if self._is_closed:
                raise EngineClosedError("the writer is closed: get a new one from engine.writer()")
            note(one)
            one.future.set_running_or_notify_cancel()  # from here on it will happen
            one.added_at = self._monotonic()
            self._queue.append(one)
            self._added_count += 1
            was, self._queued_messages = self._queued_messages, self._queued_messages + size
            self._pending_messages += size
            # Whoever takes is woken when there is something, and when there is enough.
            if (
                not was
                or was < self._config.max_messages <= self._queued_messages
                or len(self._queue) == self._concurrent_adders
            ):
                self._work_available.notify()

    def take_batch(self) -> Sequence[PendingAdd]:
        """The next batch, once it is time for it; nothing at the end."""
        with self.lock:
            self._work_available.wait_for(lambda: self._queue or self._is_closed)
            deadline = self._compute_deadline() if self._queue else 0.0
            while self._queue and not self._is_due():
                left = deadline - self._monotonic()
                if left <= 0 or not self._work_available.wait(left):
                    break
            self._batch_started_at = self._monotonic()
            self._in_progress, size = [], 0
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
        # Those who were just told come back in a moment: a batch without them would keep them waiting for another.
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
        """What is left of the batch that was taken."""
        with self.lock:
            self._in_progress = list(left)

    def pause(self, seconds: float) -> bool:
        """Wait before the next try; False if there is to be none."""
        with self.lock:
            self._retries += 1
            self._work_available.wait_for(lambda: self._has_given_up, seconds)
            return not self._has_given_up

    def record_failure(self, error: Exception) -> None:
        """The store could not do it this time."""
        with self.lock:
            self.problem = f"{type(error).__name__}: {error}"

    def refuse(self, one: PendingAdd, error: Exception) -> None:
        """The store will not take it."""
        with self.lock:
            self._refused[one] = f"{type(error).__name__}: {error}"
            self._remove_finished([one])
        with suppress(InvalidStateError):
            one.future.set_exception(error)

    def discard_refused(self, some: Iterable[PendingAdd]) -> None:
        """Hold no longer what was refused of these: it is elsewhere."""
        with self.lock:
            for one in some:
                self._refused.pop(one, None)

    def delete_refused(self, erased: ErasedIds) -> bool:
        """Hold no longer what was refused of what is erased; whether there was something."""
        with self.lock:
            before = sum(len(one.messages) for one in self._refused)
            for one in list(self._refused):
                one.messages = tuple(
                    message
                    for message in one.messages
                    if not erased.holds(one.namespace, one.session, message.id)
                )
                if not one.messages:
                    del self._refused[one]
            return sum(len(one.messages) for one in self._refused) < before

    def finish_batch(
        self,
        batch: Sequence[PendingAdd],
        batches: Sequence[SessionBatch],
        done: Sequence[SessionAppendResult],
    ) -> None:
        """A batch is stored: tell those who wait for it."""
        reports = _build_reports(batch, batches, done)
        with self.lock:
            self.problem = None
            self._batches += 1
            self._concurrent_adders = len(batch) + len(self._queue)
            self._last_batch_seconds = self._monotonic() - self._batch_started_at
            self._stored += sum(len(one.stored) for one in reports)
            self._duplicates += sum(len(one.duplicates) for one in reports)
            self._remove_finished(batch)
        for one, report in zip(batch, reports, strict=True):
            with suppress(InvalidStateError):  # given up by then, and stored all the same
                one.future.set_result(report)

    def _remove_finished(self, some: Sequence[PendingAdd]) -> None:
        gone = set(some)
        self._in_progress = [one for one in self._in_progress if one not in gone]
        self._done_count += len(some)
        self._pending_messages -= sum(len(one.messages) for one in some)
        self._room_available.notify_all()
        self._batch_finished.notify_all()

    def wait_until_drained(self, timeout_seconds: float) -> bool:
        """Wait until everything that was added before is stored or refused; whether it is."""
        with self.lock:
            target = self._flush_target = self._added_count
            self._work_available.notify()
            return self._batch_finished.wait_for(lambda: self._done_count >= target, timeout_seconds)

    def close(self) -> None:
        """Take nothing more."""
        with self.lock:
            self._is_closed = True
            self._work_available.notify()
            self._room_available.notify_all()

    def give_up(self) -> None:
        """Try no more what failed."""
        with self.lock:
            self._has_given_up = True
            self._work_available.notify()

    def list_unsaved(self) -> tuple[UnsavedMessages, ...]:
        """What waits, oldest first, and what was refused."""
        with self.lock:
            waiting = [one.to_unsaved() for one in (*self._in_progress, *self._queue)]
            return (*waiting, *(one.to_unsaved(problem) for one, problem in self._refused.items()))

    def fail_unsaved(self) -> tuple[UnsavedMessages, ...]:
        """The end: what is not stored, told to those who wait for it as well."""
        with self.lock:
            left, unsaved = [*self._in_progress, *self._queue], self.list_unsaved()
        error = UnsavedError(
            f"the writer was closed before these were stored{self.format_problem()}: see its report"
        )
        for one in left:
            with suppress(InvalidStateError):
                one.future.set_exception(error)
        return unsaved

    def format_problem(self) -> str:
        """The latest problem, to be told inside a sentence."""
        return "" if self.problem is None else f" ({self.problem})"

    def build_report(self) -> WriterReport:
        """What was done so far."""
        with self.lock:
            return WriterReport(
                stored=self._stored,
                duplicates=self._duplicates,
                pending=self._pending_messages,
                refused=sum(len(one.messages) for one in self._refused),
                batches=self._batches,
                retries=self._retries,
                problem=self.problem,
            )

    @staticmethod
    def group_by_session(batch: Sequence[PendingAdd]) -> list[SessionBatch]:
        """One batch for each session, in the order in which they were added to."""
        gathered: dict[tuple[NamespacePath, str], list[Message]] = {}
        for one in batch:
            gathered.setdefault((one.namespace, one.session), []).extend(one.messages)
        return [SessionBatch(*place, messages) for place, messages in gathered.items()]


def _build_reports(
    batch: Sequence[PendingAdd], batches: Sequence[SessionBatch], done: Sequence[SessionAppendResult]
) -> list[AddReport]:
    results = {(of.namespace, of.session): one for of, one in zip(batches, done, strict=True)}
    new = {place: {one.id: one for one in result.stored} for place, result in results.items()}
    known = {place: {one.id: one for one in result.duplicates} for place, result in results.items()}
    reports = []
    for one in batch:
        place = (one.namespace, one.session)
        stored, duplicates = [], []
        for message in one.messages:
            first = new[place].pop(message.id, None)  # the same id may come again in another add
            if first is not None:
                stored.append(first)
            else:
                duplicates.append(known[place][message.id])
        reports.append(AddReport(stored=tuple(stored), duplicates=tuple(duplicates), echoes=one.echoes))
    return reports
