"""A writer that many threads share: what they add meanwhile is stored in one transaction.

A commit waits for the disk, so a hundred messages in one cost little more than one. Whatever the store says, nothing
that was taken is dropped: a batch that fails stays in front of all others and is tried again, under the same ids, until
it is stored or the writer is closed. What the store will not take at all, such as an id that stands for another
message, is told to whoever waits for it and stays in ``unsaved``.
"""

from __future__ import annotations

import atexit
import logging
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.common.closeable import Closeable
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.common.prompt_fences import is_only_fenced
from langmem_tiers.errors import EngineClosedError, InvalidInputError, StorageError, UnsavedError
from langmem_tiers.sessions.batch_models import (
    Acknowledge,
    CrashReport,
    RecoverReport,
    UnsavedMessages,
    WriterConfig,
    WriterReport,
    check_report_path,
)
from langmem_tiers.sessions.batch_queue import BatchQueue, PendingAdd
from langmem_tiers.sessions.models import AddReport
from langmem_tiers.sessions.service import check_drafts, complete_drafts
from langmem_tiers.telemetry.instruments import Operation

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.common.ports import BatchStore
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.sessions.batch_models import UnsavedFileStore
    from langmem_tiers.sessions.models import SessionAppendResult, SessionBatch
    from langmem_tiers.sessions.service import SessionDependencies


def add_to_sessions(
    parts: SessionDependencies, store: BatchStore, batches: Sequence[SessionBatch], *, new_ids: bool
) -> tuple[SessionAppendResult, ...]:
    """Store batches in one transaction, and note it as ``session.add`` does.

    Args:
        parts: What sessions stand on.
        store: Where to.
        batches: One for each session.
        new_ids: That no session knows any of the ids, as far as can be told.
    """
    with parts.instruments.measure(Operation.ADD) as watch:
        done = store.append_all(batches, parts.now(), new_ids=new_ids)
        watch.record(
            messages=sum(len(one.stored) for one in done),
            duplicates=sum(len(one.duplicates) for one in done),
            sessions=len(batches),
        )
    for batch, one in zip(batches, done, strict=True):
        if one.stored:
            parts.cache.extend(one.key, one)
            parts.on_change(batch.namespace)
    return done


_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 5.0  # seconds between two tries of a batch that failed


class BatchWorker:
    """The work of a writer's own thread.

    Args:
        parts: What sessions stand on.
        store: Where to.
        queue: What waits.
        tidy: Called after each batch.
    """

    def __init__(
        self, parts: SessionDependencies, store: BatchStore, queue: BatchQueue, tidy: Callable[[], None]
    ) -> None:
        self._dependencies = parts
        self._store = store
        self._queue = queue
        self._on_batch_stored = tidy

    def run(self) -> None:
        """Store batch after batch, until there are none any more or what failed is given up."""
        while batch := self._queue.take_batch():
            pause, is_again = _MIN_PAUSE_SECONDS, False
            while batch:
                batch = self._attempt(batch, is_again=is_again)
                if batch:
                    self._queue.keep_in_progress(batch)
                    if not self._queue.pause(pause):
                        return
                    pause, is_again = min(pause * 2, _MAX_PAUSE_SECONDS), True
            self._on_batch_stored()

    def _attempt(self, batch: Sequence[PendingAdd], *, is_again: bool) -> Sequence[PendingAdd]:
        """Store a batch; what is left of it for another time."""
        try:
            self._commit(batch, is_again=is_again)
        except (StorageError, EngineClosedError) as error:
            self._queue.record_failure(error)
            if isinstance(error, EngineClosedError):
                self._queue.give_up()  # it will not open again
            return batch
        except Exception as error:  # noqa: BLE001 - told to whoever waits; the others must not suffer from it
            if len(batch) == 1:
                self._queue.refuse(batch[0], error)
                return ()
        else:
            return ()
        for place, one in enumerate(batch):  # one of them will not be taken: which?
            if self._attempt([one], is_again=is_again):
                return batch[place:]
        return ()

    def _commit(self, batch: Sequence[PendingAdd], *, is_again: bool) -> None:
        batches = BatchQueue.group_by_session(batch)
        new_ids = not is_again and all(one.is_new for one in batch)
        done = add_to_sessions(self._dependencies, self._store, batches, new_ids=new_ids)
        self._queue.finish_batch(batch, batches, done)


_log = logging.getLogger("langmem_tiers")
_MAX_FILE_BYTES = 8 << 20  # of what is stored by now and still in the report


class BatchWriter(Closeable):
    """Adds to any session, from any thread. Get it from ``engine.writer()``, and close it or use ``with``."""

    def __init__(
        self, parts: SessionDependencies, store: BatchStore, files: UnsavedFileStore, config: WriterConfig
    ) -> None:
        self._dependencies = parts
        self._files = files
        self._config = config
        self._queue = BatchQueue(config, parts.clock.monotonic)
        self._worker = BatchWorker(parts, store, self._queue, self._compact_file)
        self._thread: threading.Thread | None = None
        self._start_lock, self._close_lock = threading.Lock(), threading.RLock()
        self._report: CrashReport | None = None
        self._file = None if config.report_path is None else files.open(config.report_path)
        fork_safety.register_fork_aware(self)
        atexit.register(self._close_at_exit)

    def __repr__(self) -> str:
        return f"BatchWriter(acknowledge={self._config.acknowledge.value!r}, pending={self._queue.pending})"

    @property
    def unsaved(self) -> tuple[UnsavedMessages, ...]:
        """What was taken and is not stored: what waits, oldest first, and what was refused."""
        return self._queue.list_unsaved()

    @property
    def report(self) -> WriterReport:
        """What it did so far."""
        return self._queue.build_report()

    def add(
        self,
        namespace: str | Iterable[str],
        session: str,
        *messages: MessageDraft,
        timeout_seconds: float | None = None,
    ) -> AddReport | None:
        """Store messages of one session, all of them or none, in the order in which they are added.

        Args:
            namespace: The tenant.
            session: The session; it is made if it is not there.
            messages: The messages.
            timeout_seconds: How long to wait for room, and for the batch; as the writer's settings say, if left out.

        Returns:
            What became of them, once they are durable; None where the writer acknowledges what is queued.

        Raises:
            StorageBusyError: No room came free in time; nothing was taken.
            UnsavedError: They were not stored in time. They wait under their ids and will be: do not add them again.
            MessageConflictError: An id is taken by a message that says something else; nothing was stored.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        future = self.submit(namespace, session, *messages, timeout_seconds=wait)
        if self._config.acknowledge is Acknowledge.QUEUED:
            return None
        try:
            return future.result(wait)
        except LateError as error:
            if isinstance(error, StorageError):
                raise
            raise UnsavedError(
                f"{len(messages)} messages were not stored within {wait:g} s"
                f"{self._queue.format_problem()}: they wait and will be, do not add them again; see writer.unsaved"
            ) from None

    def submit(
        self,
        namespace: str | Iterable[str],
        session: str,
        *messages: MessageDraft,
        timeout_seconds: float | None = None,
    ) -> Future[AddReport]:
        """As ``add()``, without waiting for the batch: a future that is done when the messages are durable."""
        path, name = check_namespace(namespace), check_name(session)
        drafts = check_drafts(messages)
        sealed = complete_drafts(self._dependencies, drafts)
        own = tuple(one for one in sealed if not is_only_fenced(one.content))
        echoes = tuple(one for one in sealed if is_only_fenced(one.content))
        future: Future[AddReport] = Future()
        if not own:
            future.set_result(AddReport(stored=(), duplicates=(), echoes=echoes))
            return future
        self._enqueue(PendingAdd(path, name, own, echoes, future), timeout_seconds)
        return future

    def flush(self, timeout_seconds: float | None = None) -> WriterReport:
        """Store everything that was added before; what a closed one did not store is in its report.

        Raises:
            UnsavedError: Some of it could not be stored in time; it waits.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        if self._report is None and not self._queue.wait_until_drained(wait):
            raise UnsavedError(
                f"{self._queue.pending} messages were not stored within {wait:g} s{self._queue.format_problem()}: "
                "they wait and will be; see writer.unsaved"
            )
        return self.report

    def delete_erased(self, erased: ErasedIds) -> None:
        """Hold nothing that was refused of what is erased, and have nothing in the file but what is not stored."""
        if self._report is not None:  # its file is in the hands of others
            return
        with self._queue.lock:
            had = self._queue.delete_refused(erased)
            if self._file is not None and (had or self._file.size_bytes):
                self._file.replace(self._queue.list_unsaved())

    def recover(self, path: str | os.PathLike[str]) -> RecoverReport:
        """Store what a crash report holds, whatever of it is stored by now; then the file is gone.

        What is refused stays in the file.

        Raises:
            InvalidInputError: The file is none, damaged, or of a writer that is at work; nothing was taken in.
        """
        where = check_report_path(path)
        with self._files.lock(where):
            return self._recover_from(where)

    def _recover_from(self, where: Path) -> RecoverReport:
        waiting = [
            PendingAdd(one.namespace, one.session, one.messages, (), Future(), is_new=False)
            for one in self._files.read(where)
        ]
        for one in waiting:
            self._enqueue(one, None)
        self.flush()
        refused = [
            one.to_unsaved(f"{type(error).__name__}: {error}")
            for one in waiting
            if (error := one.future.exception()) is not None
        ]
        done = [one.future.result() for one in waiting if one.future.exception() is None]
        self._queue.discard_refused(waiting)
        self._files.rewrite(where, refused)
        return RecoverReport(
            stored=sum(len(one.stored) for one in done),
            duplicates=sum(len(one.duplicates) for one in done),
            refused=sum(len(one.messages) for one in refused),
        )

    def close(self, timeout_seconds: float | None = None) -> CrashReport:
        """Store the rest and end; what cannot be stored in time is in the report, and in its file if it has one.

        Raises:
            UnsavedError: Something was not stored and there is no file for it; it is in ``unsaved`` still.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        self._queue.close()
        with self._close_lock:
            if self._report is not None:
                return self._report
            return self._shut_down(wait)

    def _shut_down(self, wait: float) -> CrashReport:
        self._start_thread()  # for what was added while threads could not be started
        self._queue.wait_until_drained(wait)
        self._queue.give_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)  # it may be waiting for the database: what it holds counts as unsaved
        atexit.unregister(self._close_at_exit)
        self._report = self._write_crash_report()
        return self._raise_or_warn(self._report)

    def _write_crash_report(self) -> CrashReport:
        problem, unsaved = self._queue.problem, self._queue.fail_unsaved()
        path = None
        if self._file is not None:
            self._file.replace(unsaved)
            self._file.close()
            path = self._config.report_path if unsaved else None
        return CrashReport(unsaved=unsaved, path=path, problem=problem)

    @staticmethod
    def _raise_or_warn(report: CrashReport) -> CrashReport:
        if report and report.path is None:
            raise UnsavedError(
                f"{report.messages} messages were not stored ({report.problem}): they are in writer.unsaved; "
                "give the writer a report_path to have them in a file"
            )
        if report:
            _log.warning(
                "%d messages were not stored and are in the report: take them in with writer.recover(path)",
                report.messages,
            )
        return report

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - the process ends either way, and says so
            _log.error("at the end of the process: %s", error)

    def _enqueue(self, one: PendingAdd, timeout_seconds: float | None) -> None:
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        if len(one.messages) > self._config.max_pending:
            raise InvalidInputError(
                f"{len(one.messages)} messages at once are more than max_pending, {self._config.max_pending}: "
                "add them in parts"
            )
        self._queue.put(one, wait, self._write_ahead)
        self._start_thread()

    def _write_ahead(self, one: PendingAdd) -> None:
        # Before anybody is told that it was taken.
        if self._file is not None and self._config.acknowledge is Acknowledge.QUEUED:
            self._file.append(one.to_unsaved())

    def _start_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._start_lock, suppress(RuntimeError):  # at the end of a process none can be started
            if (self._thread is None or not self._thread.is_alive()) and self._queue.pending:
                thread = threading.Thread(target=self._worker.run, name="langmem-tiers-writer", daemon=True)
                thread.start()
                self._thread = thread

    def _compact_file(self) -> None:
        with self._queue.lock, suppress(StorageError):  # too much in it is no harm: ids tell what is stored
            if self._file is None or not self._file.size_bytes:
                return
            if not self._queue.pending or self._file.size_bytes > _MAX_FILE_BYTES:
                self._file.replace(self._queue.list_unsaved())

    def before_fork(self) -> None:
        """Let no thread be in the middle of adding."""
        self._queue.lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._queue.lock.release()

    def after_fork_in_child(self) -> None:
        """What waits is the parent's to store, and so is the file."""
        self._queue.reset(is_shut=self._file is not None)
        self._queue.lock.acquire()  # given back after the fork, as in the parent
        self._thread, self._start_lock, self._close_lock = None, threading.Lock(), threading.RLock()
        if self._file is not None:
            self._file.close(quietly=True)
            self._file = None
