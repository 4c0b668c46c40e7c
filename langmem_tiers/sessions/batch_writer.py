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
from langmem_tiers.common.closeable import Closing
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.common.prompt_fences import is_only_fenced
from langmem_tiers.errors import EngineClosedError, InvalidInputError, StorageError, UnsavedError
from langmem_tiers.sessions.batch_models import (
    Acknowledge,
    CrashReport,
    RecoverReport,
    Unsaved,
    WriterConfig,
    WriterReport,
    check_path,
)
from langmem_tiers.sessions.batch_queue import BatchQueue, Waiting
from langmem_tiers.sessions.models import AddReport
from langmem_tiers.sessions.service import check_drafts, seal
from langmem_tiers.telemetry.instruments import Verb

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.common.ports import BatchStore
    from langmem_tiers.erasure.models import Erased
    from langmem_tiers.sessions.batch_models import UnsavedFiles
    from langmem_tiers.sessions.models import AppendedTo, SessionBatch
    from langmem_tiers.sessions.service import ShortTermParts


def add_to_sessions(
    parts: ShortTermParts, store: BatchStore, batches: Sequence[SessionBatch], *, new_ids: bool
) -> tuple[AppendedTo, ...]:
    """Store batches in one transaction, and note it as ``session.add`` does.

    Args:
        parts: What sessions stand on.
        store: Where to.
        batches: One for each session.
        new_ids: That no session knows any of the ids, as far as can be told.
    """
    with parts.instruments.watch(Verb.ADD) as watch:
        done = store.append_all(batches, parts.now(), new_ids=new_ids)
        watch.note(
            messages=sum(len(one.stored) for one in done),
            duplicates=sum(len(one.duplicates) for one in done),
            sessions=len(batches),
        )
    for batch, one in zip(batches, done, strict=True):
        if one.stored:
            parts.cache.extend(one.key, one)
            parts.changed(batch.namespace)
    return done


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds between two tries of a batch that failed


class BatchStoring:
    """The work of a writer's own thread.

    Args:
        parts: What sessions stand on.
        store: Where to.
        queue: What waits.
        tidy: Called after each batch.
    """

    def __init__(
        self, parts: ShortTermParts, store: BatchStore, queue: BatchQueue, tidy: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._store = store
        self._queue = queue
        self._tidy = tidy

    def run(self) -> None:
        """Store batch after batch, until there are none any more or what failed is given up."""
        while batch := self._queue.take():
            pause, is_again = _FIRST_PAUSE, False
            while batch:
                batch = self._attempt(batch, is_again=is_again)
                if batch:
                    self._queue.keep(batch)
                    if not self._queue.pause(pause):
                        return
                    pause, is_again = min(pause * 2, _LONGEST_PAUSE), True
            self._tidy()

    def _attempt(self, batch: Sequence[Waiting], *, is_again: bool) -> Sequence[Waiting]:
        """Store a batch; what is left of it for another time."""
        try:
            self._commit(batch, is_again=is_again)
        except (StorageError, EngineClosedError) as error:
            self._queue.failed(error)
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

    def _commit(self, batch: Sequence[Waiting], *, is_again: bool) -> None:
        batches = BatchQueue.by_session(batch)
        new_ids = not is_again and all(one.is_new for one in batch)
        done = add_to_sessions(self._parts, self._store, batches, new_ids=new_ids)
        self._queue.done(batch, batches, done)


_log = logging.getLogger("langmem_tiers")
_MOST_FILE_BYTES = 8 << 20  # of what is stored by now and still in the report


class BatchWriter(Closing):
    """Adds to any session, from any thread. Get it from ``engine.writer()``, and close it or use ``with``."""

    def __init__(
        self, parts: ShortTermParts, store: BatchStore, files: UnsavedFiles, config: WriterConfig
    ) -> None:
        self._parts = parts
        self._files = files
        self._config = config
        self._queue = BatchQueue(config, parts.clock.monotonic)
        self._storing = BatchStoring(parts, store, self._queue, self._tidy_file)
        self._thread: threading.Thread | None = None
        self._starting, self._closing = threading.Lock(), threading.RLock()
        self._report: CrashReport | None = None
        self._file = None if config.report_path is None else files.open(config.report_path)
        fork_safety.watch(self)
        atexit.register(self._at_exit)

    def __repr__(self) -> str:
        return f"BatchWriter(acknowledge={self._config.acknowledge.value!r}, pending={self._queue.pending})"

    @property
    def unsaved(self) -> tuple[Unsaved, ...]:
        """What was taken and is not stored: what waits, oldest first, and what was refused."""
        return self._queue.unsaved()

    @property
    def report(self) -> WriterReport:
        """What it did so far."""
        return self._queue.report()

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
                f"{self._queue.because()}: they wait and will be, do not add them again; see writer.unsaved"
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
        sealed = seal(self._parts, drafts)
        own = tuple(one for one in sealed if not is_only_fenced(one.content))
        echoes = tuple(one for one in sealed if is_only_fenced(one.content))
        future: Future[AddReport] = Future()
        if not own:
            future.set_result(AddReport(stored=(), duplicates=(), echoes=echoes))
            return future
        self._put(Waiting(path, name, own, echoes, future), timeout_seconds)
        return future

    def flush(self, timeout_seconds: float | None = None) -> WriterReport:
        """Store everything that was added before; what a closed one did not store is in its report.

        Raises:
            UnsavedError: Some of it could not be stored in time; it waits.
        """
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        if self._report is None and not self._queue.drained(wait):
            raise UnsavedError(
                f"{self._queue.pending} messages were not stored within {wait:g} s{self._queue.because()}: "
                "they wait and will be; see writer.unsaved"
            )
        return self.report

    def let_go(self, erased: Erased) -> None:
        """Hold nothing that was refused of what is erased, and have nothing in the file but what is not stored."""
        if self._report is not None:  # its file is in the hands of others
            return
        with self._queue.lock:
            had = self._queue.drop_refused(erased)
            if self._file is not None and (had or self._file.size_bytes):
                self._file.replace(self._queue.unsaved())

    def recover(self, path: str | os.PathLike[str]) -> RecoverReport:
        """Store what a crash report holds, whatever of it is stored by now; then the file is gone.

        What is refused stays in the file.

        Raises:
            InvalidInputError: The file is none, damaged, or of a writer that is at work; nothing was taken in.
        """
        where = check_path(path)
        with self._files.held(where):
            return self._recovered(where)

    def _recovered(self, where: Path) -> RecoverReport:
        waiting = [
            Waiting(one.namespace, one.session, one.messages, (), Future(), is_new=False)
            for one in self._files.read(where)
        ]
        for one in waiting:
            self._put(one, None)
        self.flush()
        refused = [
            one.as_unsaved(f"{type(error).__name__}: {error}")
            for one in waiting
            if (error := one.future.exception()) is not None
        ]
        done = [one.future.result() for one in waiting if one.future.exception() is None]
        self._queue.forgive(waiting)
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
        self._queue.shut()
        with self._closing:
            if self._report is not None:
                return self._report
            return self._end(wait)

    def _end(self, wait: float) -> CrashReport:
        self._start()  # for what was added while threads could not be started
        self._queue.drained(wait)
        self._queue.give_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)  # it may be waiting for the database: what it holds counts as unsaved
        atexit.unregister(self._at_exit)
        self._report = self._crash_report()
        return self._told(self._report)

    def _crash_report(self) -> CrashReport:
        problem, unsaved = self._queue.problem, self._queue.abandon()
        path = None
        if self._file is not None:
            self._file.replace(unsaved)
            self._file.close()
            path = self._config.report_path if unsaved else None
        return CrashReport(unsaved=unsaved, path=path, problem=problem)

    @staticmethod
    def _told(report: CrashReport) -> CrashReport:
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

    def _at_exit(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - the process ends either way, and says so
            _log.error("at the end of the process: %s", error)

    def _put(self, one: Waiting, timeout_seconds: float | None) -> None:
        wait = self._config.timeout_seconds if timeout_seconds is None else timeout_seconds
        if len(one.messages) > self._config.max_pending:
            raise InvalidInputError(
                f"{len(one.messages)} messages at once are more than max_pending, {self._config.max_pending}: "
                "add them in parts"
            )
        self._queue.put(one, wait, self._noted)
        self._start()

    def _noted(self, one: Waiting) -> None:
        # Before anybody is told that it was taken.
        if self._file is not None and self._config.acknowledge is Acknowledge.QUEUED:
            self._file.append(one.as_unsaved())

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._starting, suppress(RuntimeError):  # at the end of a process none can be started
            if (self._thread is None or not self._thread.is_alive()) and self._queue.pending:
                thread = threading.Thread(target=self._storing.run, name="langmem-tiers-writer", daemon=True)
                thread.start()
                self._thread = thread

    def _tidy_file(self) -> None:
        with self._queue.lock, suppress(StorageError):  # too much in it is no harm: ids tell what is stored
            if self._file is None or not self._file.size_bytes:
                return
            if not self._queue.pending or self._file.size_bytes > _MOST_FILE_BYTES:
                self._file.replace(self._queue.unsaved())

    def before_fork(self) -> None:
        """Let no thread be in the middle of adding."""
        self._queue.lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._queue.lock.release()

    def after_fork_in_child(self) -> None:
        """What waits is the parent's to store, and so is the file."""
        self._queue.begin_anew(is_shut=self._file is not None)
        self._queue.lock.acquire()  # given back after the fork, as in the parent
        self._thread, self._starting, self._closing = None, threading.Lock(), threading.RLock()
        if self._file is not None:
            self._file.close(quietly=True)
            self._file = None
