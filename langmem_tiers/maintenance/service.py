"""Maintenance: what is too old goes, what has expired goes, the database is compacted and measured.

In steps that are whole by themselves, a few hundred messages each, so that nobody waits long. Whoever stops in the
middle leaves nothing half done; the next run goes on with what is left.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.leases import Lease
from langmem_tiers.common.namespaces import format_namespace
from langmem_tiers.erasure.erasure_plan import find_old_groups
from langmem_tiers.erasure.models import ErasedCounts, ErasedIds, ScrubResult
from langmem_tiers.erasure.scrub import PendingScrub
from langmem_tiers.erasure.service import ErasureResult, erase_messages, invalidate_caches
from langmem_tiers.errors import EngineClosedError, LangmemTiersError, StorageError
from langmem_tiers.maintenance.models import DatabaseCompactionReport, MaintenanceReport
from langmem_tiers.maintenance.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from langmem_tiers.erasure.records import MessageRef, SessionRef
    from langmem_tiers.services import EngineServices

_log = logging.getLogger("langmem_tiers")
_SESSION_PAGE_SIZE = 100
_MESSAGE_BATCH_SIZE = 500
_POLL_SECONDS = 30.0  # a clock may be set, and a machine may sleep
_LEASE_NAME = "maintenance"


@dataclass(slots=True)
class _RetentionResult:
    erasure: ErasureResult
    progress: Callable[[int], None] | None
    is_complete: bool = True
    problems: dict[str, None] = field(default_factory=dict)
    """What could not be erased, each said once."""


class Maintenance:
    """Runs by call, or in a thread of its own at the times of the schedule. Get it from ``engine.maintenance``.

    Nothing runs by itself until ``start()`` is called. Of several processes one runs at a time, and for each time of
    the schedule only one does.

    Args:
        parts: The stores and workers.
        sweep: Erases expired items; how many.

    Attributes:
        failures: How many runs in the background failed.
        last: What the last run of this process did.
    """

    def __init__(self, parts: EngineServices, sweep: Callable[[], int]) -> None:
        self._services = parts
        self._sweep = sweep
        self._schedule = Schedule(parts.config.maintenance)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._poll_seconds = _POLL_SECONDS
        self.failures = 0
        self.last: MaintenanceReport | None = None

    @property
    def is_running(self) -> bool:
        """Whether the background thread is at work; a forked child starts without it."""
        return self._thread is not None and self._thread.is_alive()

    def next_run(self) -> datetime:
        """When the schedule is next due, in UTC."""
        return self._schedule.find_next(self._services.now())

    def start(self) -> None:
        """Run at the times of the schedule, in a thread of its own, until ``stop()``."""
        if self.is_running and not self._stop.is_set():
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._loop,
            args=(self._stop, self.next_run()),
            name="langmem-tiers-maintenance",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> bool:
        """End the thread after the step that it is at. Says whether it has ended."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._services.config.busy_timeout_seconds)
        return not self.is_running

    def run(self, progress: Callable[[int], None] | None = None) -> MaintenanceReport:
        """Do it now: retention, expired items, compaction, statistics.

        Args:
            progress: Told how many messages are erased so far, after each step.

        Returns:
            What was done; with ``is_elsewhere`` and nothing done, if another process is at it.
        """
        parts, lease = self._services, Lease(self._services, _LEASE_NAME)
        started = parts.now()
        if not lease.acquire():
            return MaintenanceReport(
                started_at=started,
                ended_at=started,
                erased=ErasedCounts(),
                is_complete=False,
                is_elsewhere=True,
            )
        try:
            self.last = self._run(lease, started, progress)
        finally:
            lease.release()
        return self.last

    def scrub(self) -> ScrubResult:
        """Wipe the bytes of all that was erased from the files of the database, as ``forget()`` does.

        A SQLite file and the tables of PostgreSQL are written anew for that, and others wait meanwhile.
        """
        owed = PendingScrub(self._services)
        owed.is_full_scrub_due(erases=True)  # what others left until now
        wiped = self._services.maintenance_store.scrub(None)
        if not wiped.left:
            owed.complete(all_of_it=True)
        return wiped

    def _run(
        self, lease: Lease, started: datetime, progress: Callable[[int], None] | None
    ) -> MaintenanceReport:
        parts, problems = self._services, list[str]()
        retained = self._apply_retention(lease, started, _RetentionResult(ErasureResult(), progress))
        problems += retained.problems
        expired = self._sweep()
        compacted: DatabaseCompactionReport | None = None
        if parts.config.maintenance.compaction and retained.is_complete:
            try:
                compacted = parts.maintenance_store.compact(lambda: not self._is_stopping and lease.acquire())
                problems += compacted.problems
            except StorageError as error:
                problems.append(f"the database was not compacted: {error}")
        return MaintenanceReport(
            started_at=started,
            ended_at=parts.now(),
            erased=retained.erasure.counts,
            remade=retained.erasure.remade,
            expired_items=expired,
            compacted=compacted,
            statistics=parts.maintenance_store.statistics(parts.now()),
            problems=tuple(problems),
            is_complete=retained.is_complete,
        )

    def _apply_retention(self, lease: Lease, now: datetime, done: _RetentionResult) -> _RetentionResult:
        days = self._services.config.maintenance.retention_days
        if days is None:
            return done
        self._services.working.flush()  # a session to which something is about to be said is not empty
        cutoff, after = now - timedelta(days=days), 0
        while sessions := self._services.erasure.list_old_sessions(
            cutoff, after=after, limit=_SESSION_PAGE_SIZE
        ):
            for session in sessions:
                try:
                    goes_on = self._erase_old_messages(session, cutoff, lease, done)
                except StorageError as error:  # the others are still to be looked at
                    told = f"session {session.name!r} of {format_namespace(session.namespace)!r}"
                    done.problems[f"{told} was left as it is: {error}"] = None
                    goes_on = True
                if not goes_on:
                    done.is_complete = False
                    return done
            after = sessions[-1].key
        return done

    def _erase_old_messages(
        self, session: SessionRef, cutoff: datetime, lease: Lease, done: _RetentionResult
    ) -> bool:
        parts = self._services
        groups = find_old_groups(parts.erasure.find_messages(session, None, cutoff))
        for batch in _split_batches(groups):
            if self._is_stopping or not lease.acquire():
                return False
            self._record_erasure(done, erase_messages(parts, session, batch, lasting=False))
        if parts.erasure.delete_if_empty(session, cutoff):
            counts = ErasedCounts(sessions=1)
            erased = ErasedIds(sessions=((session.namespace, session.name),))
            self._record_erasure(done, ErasureResult(counts=counts, erased=erased))
        return True

    def _record_erasure(self, done: _RetentionResult, gone: ErasureResult) -> None:
        done.erasure += ErasureResult(counts=gone.counts, remade=gone.remade)
        invalidate_caches(self._services, gone.erased)
        for eraser in tuple(self._services.erasers):
            try:
                eraser(gone.erased)
            except Exception as error:  # noqa: BLE001 - a copy that is left leaves by its own time limit
                told = str(error) if isinstance(error, LangmemTiersError) else type(error).__name__
                done.problems[f"copies elsewhere were not erased: {told}"] = None
        if done.progress is not None:
            done.progress(done.erasure.counts.messages)

    @property
    def _is_stopping(self) -> bool:
        return self._stop.is_set() and threading.current_thread() is self._thread

    def _loop(self, stop: threading.Event, due: datetime) -> None:
        while not stop.is_set():
            now = self._services.now()
            if now < due:
                stop.wait(min((due - now).total_seconds(), self._poll_seconds))
                continue
            try:
                if self._claim_run(due):
                    self.run()
            except EngineClosedError:
                return
            except Exception as error:  # noqa: BLE001 - the next run may go better; memory never kills the agent
                self.failures += 1
                _log.warning("maintenance failed: %s", type(error).__name__)
            due = self.next_run()

    def _claim_run(self, due: datetime) -> bool:
        # A lease by the time of the schedule, not by the clock: who comes later for the same time finds it taken.
        holder = Lease(self._services, _LEASE_NAME).holder
        until = due + timedelta(microseconds=1)
        return self._services.tuning.acquire_lease(f"{_LEASE_NAME}: due", holder, due, until)


def _split_batches(groups: Sequence[tuple[MessageRef, ...]]) -> Iterator[tuple[MessageRef, ...]]:
    batch: list[MessageRef] = []
    for group in groups:
        if batch and len(batch) + len(group) > _MESSAGE_BATCH_SIZE:
            yield tuple(batch)
            batch = []
        batch += group
    if batch:
        yield tuple(batch)
