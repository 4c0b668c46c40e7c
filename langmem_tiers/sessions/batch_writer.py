"""Batch writer shared by many threads: concurrent adds are stored in one transaction.

A commit waits for the disk, so a hundred messages per commit cost little more than one. Accepted messages are never
dropped: a failed batch stays at the head of the queue and is retried with the same ids until it is stored or the writer
is closed. Messages that the store rejects, for example because of an id conflict, are reported to the caller and stay
in ``unsaved``.
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
from langmem_tiers.sessions.write_ahead_file import (
    lock_unsaved_file,
    open_unsaved_file,
    read_unsaved_file,
    rewrite_unsaved_file,
)
from langmem_tiers.telemetry.instruments import Operation

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from weakref import WeakSet

    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.sessions.batch_repository import BatchRepository
    from langmem_tiers.sessions.models import SessionAppendResult, SessionBatch
    from langmem_tiers.sessions.service import SessionDependencies


def add_to_sessions(
    dependencies: SessionDependencies,
    store: BatchRepository,
    batches: Sequence[SessionBatch],
    *,
    new_ids: bool,
) -> tuple[SessionAppendResult, ...]:
    """Store batches in one transaction, and update metrics and caches like ``session.add``.

    Args:
        dependencies: Stores and helpers of sessions.
        store: Repository that stores the batches.
        batches: One batch per session.
        new_ids: Pass True if all ids are most likely new; saves a lookup.
    """
    with dependencies.instruments.measure(Operation.ADD) as watch:
        results = store.append_all(batches, dependencies.now(), new_ids=new_ids)
        watch.record(
            messages=sum(len(result.stored) for result in results),
            duplicates=sum(len(result.duplicates) for result in results),
            sessions=len(batches),
        )
    for batch, result in zip(batches, results, strict=True):
        if result.stored:
            dependencies.cache.extend(result.key, result)
            dependencies.on_change(batch.namespace)
    return results


# Pause before a failed batch is retried: doubles from the first to the second value.
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 5.0


class BatchWorker:
    """Stores the batches of a writer; runs in the writer's own thread.

    Args:
        dependencies: Stores and helpers of sessions.
        store: Repository that stores the batches.
        queue: The queue of the writer.
        tidy: Called after each stored batch.
    """

    def __init__(
        self,
        dependencies: SessionDependencies,
        store: BatchRepository,
        queue: BatchQueue,
        tidy: Callable[[], None],
    ) -> None:
        self._dependencies = dependencies
        self._store = store
        self._queue = queue
        self._on_batch_stored = tidy

    def run(self) -> None:
        """Store batches until the queue is closed and empty, or retrying is given up."""
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
        """Try to store a batch; return the part that has to be retried."""
        try:
            self._commit(batch, is_again=is_again)
        except (StorageError, EngineClosedError) as error:
            self._queue.record_failure(error)
            # A closed engine does not open again: retrying is pointless.
            if isinstance(error, EngineClosedError):
                self._queue.give_up()
            return batch
        except Exception as error:  # noqa: BLE001 - reported to the caller; must not affect the other adds
            if len(batch) == 1:
                self._queue.refuse(batch[0], error)
                return ()
        else:
            return ()
        # The store rejected the batch because of one of its adds. Store them one by one to find out which: only
        # that one fails. If the database fails meanwhile, the rest is retried later.
        for index, pending in enumerate(batch):
            if self._attempt([pending], is_again=is_again):
                return batch[index:]
        return ()

    def _commit(self, batch: Sequence[PendingAdd], *, is_again: bool) -> None:
        batches = BatchQueue.group_by_session(batch)
        # A failed attempt may have been stored although its reply was lost, so a retry has to look up the ids.
        new_ids = not is_again and all(pending.is_new for pending in batch)
        results = add_to_sessions(self._dependencies, self._store, batches, new_ids=new_ids)
        self._queue.finish_batch(batch, batches, results)


_log = logging.getLogger("langmem_tiers")
# Size at which the report file is rewritten without the messages that are stored by now.
_MAX_FILE_BYTES = 8 << 20


class BatchWriter(Closeable):
    """Thread-safe writer for any session. Get it from ``engine.writer()``, and close it or use ``with``."""

    def __init__(
        self,
        dependencies: SessionDependencies,
        store: BatchRepository,
        config: WriterConfig,
    ) -> None:
        self._dependencies = dependencies
        self._config = config
        self._queue = BatchQueue(config, dependencies.clock.monotonic)
        self._worker = BatchWorker(dependencies, store, self._queue, self._compact_file)
        self._thread: threading.Thread | None = None
        self._start_lock, self._close_lock = threading.Lock(), threading.RLock()
        self._report: CrashReport | None = None
        self._file = None if config.report_path is None else open_unsaved_file(config.report_path)
        fork_safety.register_fork_aware(self)
        atexit.register(self._close_at_exit)

    def __repr__(self) -> str:
        return f"BatchWriter(acknowledge={self._config.acknowledge.value!r}, pending={self._queue.pending})"

    @property
    def unsaved(self) -> tuple[UnsavedMessages, ...]:
        """Accepted messages that are not stored: pending ones, oldest first, then rejected ones."""
        return self._queue.list_unsaved()

    @property
    def report(self) -> WriterReport:
        """Counters since the writer was created."""
        return self._queue.build_report()

    def add(
        self,
        namespace: str | Iterable[str],
        session: str,
        *messages: MessageDraft,
        timeout_seconds: float | None = None,
    ) -> AddReport | None:
        """Store messages of one session in order, all of them or none.

        Args:
            namespace: The namespace.
            session: Name of the session; it is created if needed.
            messages: The messages.
            timeout_seconds: Time limit for waiting for free space in the queue, and for the batch.
                Default: the time limit of the writer.

        Returns:
            A report once the messages are durable; None with ``acknowledge="queued"``.

        Raises:
            StorageBusyError: The queue stayed full. Nothing was accepted.
            UnsavedError: The messages were not stored in time. They are queued and will be stored: do not add
                them again.
            MessageConflictError: An id belongs to a stored message with other content. Nothing was stored.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        future = self.submit(namespace, session, *messages, timeout_seconds=wait)
        if self._config.acknowledge is Acknowledge.QUEUED:
            return None
        try:
            return future.result(wait)
        except LateError as error:
            # The future timed out, or the batch failed with a storage error that is a TimeoutError itself.
            if isinstance(error, StorageError):
                raise
            raise UnsavedError(
                f"{len(messages)} messages were not stored within {wait:g} s{self._queue.format_problem()}: "
                "they are queued and will be stored, do not add them again; see writer.unsaved"
            ) from None

    def submit(
        self,
        namespace: str | Iterable[str],
        session: str,
        *messages: MessageDraft,
        timeout_seconds: float | None = None,
    ) -> Future[AddReport]:
        """Queue messages like ``add()``, without waiting for the batch.

        Returns:
            A future that is done when the messages are durable.

        Raises:
            StorageBusyError: The queue stayed full. Nothing was accepted.
        """
        path, name = check_namespace(namespace), check_name(session)
        drafts = check_drafts(messages)
        completed = complete_drafts(self._dependencies, drafts)
        new_messages = tuple(message for message in completed if not is_only_fenced(message.content))
        echoes = tuple(message for message in completed if is_only_fenced(message.content))
        future: Future[AddReport] = Future()
        if not new_messages:
            future.set_result(AddReport(stored=(), duplicates=(), echoes=echoes))
            return future
        self._enqueue(PendingAdd(path, name, new_messages, echoes, future), timeout_seconds)
        return future

    def flush(self, timeout_seconds: float | None = None) -> WriterReport:
        """Store everything added before this call. A closed writer has nothing to flush: see its crash report.

        Raises:
            UnsavedError: Some messages could not be stored in time. They stay queued.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        if self._report is None and not self._queue.wait_until_drained(wait):
            raise UnsavedError(
                f"{self._queue.pending} messages were not stored within {wait:g} s{self._queue.format_problem()}: "
                "they are queued and will be stored; see writer.unsaved"
            )
        return self.report

    def delete_erased(self, erased: ErasedIds) -> None:
        """Delete erased messages from the rejected ones and from the report file."""
        # After close() the report file belongs to the user.
        if self._report is not None:
            return
        with self._queue.lock:
            is_changed = self._queue.delete_refused(erased)
            # The file may contain messages that were stored since they were written to it, and erased now.
            if self._file is not None and (is_changed or self._file.size_bytes):
                self._file.replace(self._queue.list_unsaved())

    def recover(self, path: str | os.PathLike[str]) -> RecoverReport:
        """Store the messages of a crash report, and remove the file.

        Messages that were stored before are recognized by their ids. Rejected messages stay in the file.

        Args:
            path: The report file of a closed writer, or of a process that was killed.

        Raises:
            InvalidInputError: The file does not exist, is damaged, or a writer is using it. Nothing was stored.
        """
        checked = check_report_path(path)
        with lock_unsaved_file(checked):
            return self._recover_from(checked)

    def _recover_from(self, path: Path) -> RecoverReport:
        pending = [
            PendingAdd(unsaved.namespace, unsaved.session, unsaved.messages, (), Future(), is_new=False)
            for unsaved in read_unsaved_file(path)
        ]
        for add in pending:
            self._enqueue(add, None)
        self.flush()
        refused = [
            add.to_unsaved(f"{type(error).__name__}: {error}")
            for add in pending
            if (error := add.future.exception()) is not None
        ]
        reports = [add.future.result() for add in pending if add.future.exception() is None]
        # The rejected messages stay in the file, so they need not stay in `unsaved` too.
        self._queue.discard_refused(pending)
        rewrite_unsaved_file(path, refused)
        return RecoverReport(
            stored=sum(len(report.stored) for report in reports),
            duplicates=sum(len(report.duplicates) for report in reports),
            refused=sum(len(unsaved.messages) for unsaved in refused),
        )

    def close(self, timeout_seconds: float | None = None) -> CrashReport:
        """Store pending messages and close the writer.

        Returns:
            A report of the messages that could not be stored in time. They are also in the report file, if one
            was configured.

        Raises:
            UnsavedError: Messages were not stored, and no report file was configured. They are in ``unsaved``.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        self._queue.close()
        with self._close_lock:
            if self._report is not None:
                return self._report
            return self._shut_down(wait)

    def _shut_down(self, wait: float) -> CrashReport:
        # Messages may have been added when no thread could be started, for example at interpreter shutdown.
        self._start_thread()
        self._queue.wait_until_drained(wait)
        self._queue.give_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            # The thread may be blocked by the database. Do not wait long: its batch counts as unsaved.
            self._thread.join(1.0)
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
                "set report_path to have them written to a file"
            )
        if report:
            _log.warning(
                "%d messages were not stored; they are in the report file: store them with writer.recover(path)",
                report.messages,
            )
        return report

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - the process exits anyway; the log has the error
            _log.error("closing a batch writer at process exit failed: %s", error)

    def _enqueue(self, pending: PendingAdd, timeout_seconds: float | None) -> None:
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        # More than max_pending would never fit into the queue: fail now instead of waiting for the time-out.
        if len(pending.messages) > self._config.max_pending:
            raise InvalidInputError(
                f"{len(pending.messages)} messages in one call exceed max_pending={self._config.max_pending}: "
                "add them in smaller parts"
            )
        self._queue.put(pending, wait, self._write_ahead)
        self._start_thread()

    def _write_ahead(self, pending: PendingAdd) -> None:
        # Called before the add is acknowledged: an acknowledged message is in the file even if the process dies.
        if self._file is not None and self._config.acknowledge is Acknowledge.QUEUED:
            self._file.append(pending.to_unsaved())

    def _start_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        # At interpreter shutdown no thread can be started. close() tries again.
        with self._start_lock, suppress(RuntimeError):
            if (self._thread is None or not self._thread.is_alive()) and self._queue.pending:
                thread = threading.Thread(target=self._worker.run, name="langmem-tiers-writer", daemon=True)
                thread.start()
                self._thread = thread

    def _compact_file(self) -> None:
        # Stored messages in the file are harmless, since recover() recognizes them by id. So rewrite the file only
        # now and then, and ignore errors.
        with self._queue.lock, suppress(StorageError):
            if self._file is None or not self._file.size_bytes:
                return
            if not self._queue.pending or self._file.size_bytes > _MAX_FILE_BYTES:
                self._file.replace(self._queue.list_unsaved())

    def before_fork(self) -> None:
        """Acquire the queue's lock, so that no thread is in the middle of an add."""
        self._queue.lock.acquire()

    def after_fork(self) -> None:
        """Release the queue's lock."""
        self._queue.lock.release()

    def after_fork_in_child(self) -> None:
        """Reset the writer in a child process: pending messages and the report file belong to the parent."""
        # A file has one writer only, so the copy of a writer with a file is closed.
        self._queue.reset(is_shut=self._file is not None)
        # reset() made a new lock, and after_fork() will release it as in the parent.
        self._queue.lock.acquire()
        self._thread, self._start_lock, self._close_lock = None, threading.Lock(), threading.RLock()
        if self._file is not None:
            self._file.close(quietly=True)
            self._file = None


def delete_erased_from_writers(writers: WeakSet[BatchWriter], erased: ErasedIds) -> dict[str, int]:
    """Delete erased messages from the writers and their report files."""
    for writer in list_writers(writers):
        writer.delete_erased(erased)
    return {}


def list_writers(writers: WeakSet[BatchWriter]) -> list[BatchWriter]:
    """Return the writers. Safe while other threads open writers."""
    while True:
        try:
            return list(writers)
        except RuntimeError:
            # Another thread opened a writer during the iteration.
            continue
