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
from langmem_tiers.common.namespaces import shown
from langmem_tiers.erasure.erasure_plan import old_groups
from langmem_tiers.erasure.models import Erased, ErasedCounts, Scrubbed
from langmem_tiers.erasure.scrub import WipeOwed
from langmem_tiers.erasure.service import Gone, erase_messages, let_go_of
from langmem_tiers.errors import EngineClosedError, LangmemTiersError, StorageError
from langmem_tiers.maintenance.models import Compacted, MaintenanceReport
from langmem_tiers.maintenance.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from langmem_tiers.erasure.records import Place, SessionName
    from langmem_tiers.services import MemoryParts

_log = logging.getLogger("langmem_tiers")
_SESSIONS_AT_ONCE = 100
_MESSAGES_AT_ONCE = 500
_LOOKS_EACH_SECONDS = 30.0  # a clock may be set, and a machine may sleep
_LEASE = "maintenance"


@dataclass(slots=True)
class _Done:
    gone: Gone
    progress: Callable[[int], None] | None
    is_complete: bool = True
    left: dict[str, None] = field(default_factory=dict)
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

    def __init__(self, parts: MemoryParts, sweep: Callable[[], int]) -> None:
        self._parts = parts
        self._sweep = sweep
        self._schedule = Schedule(parts.config.maintenance)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._looks_each_seconds = _LOOKS_EACH_SECONDS
        self.failures = 0
        self.last: MaintenanceReport | None = None

    @property
    def is_running(self) -> bool:
        """Whether the background thread is at work; a forked child starts without it."""
        return self._thread is not None and self._thread.is_alive()

    def next_run(self) -> datetime:
        """When the schedule is next due, in UTC."""
        return self._schedule.after(self._parts.now())

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
            thread.join(self._parts.config.busy_timeout_seconds)
        return not self.is_running

    def run(self, progress: Callable[[int], None] | None = None) -> MaintenanceReport:
        """Do it now: retention, expired items, compaction, statistics.

        Args:
            progress: Told how many messages are erased so far, after each step.

        Returns:
            What was done; with ``is_elsewhere`` and nothing done, if another process is at it.
        """
        parts, lease = self._parts, Lease(self._parts, _LEASE)
        started = parts.now()
        if not lease.hold():
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
            lease.give_back()
        return self.last

    def scrub(self) -> Scrubbed:
        """Wipe the bytes of all that was erased from the files of the database, as ``forget()`` does.

        A SQLite file and the tables of PostgreSQL are written anew for that, and others wait meanwhile.
        """
        owed = WipeOwed(self._parts)
        owed.is_all(erases=True)  # what others left until now
        wiped = self._parts.upkeep.scrub(None)
        if not wiped.left:
            owed.settle(all_of_it=True)
        return wiped

    def _run(
        self, lease: Lease, started: datetime, progress: Callable[[int], None] | None
    ) -> MaintenanceReport:
        parts, problems = self._parts, list[str]()
        retained = self._retain(lease, started, _Done(Gone(), progress))
        problems += retained.left
        expired = self._sweep()
        compacted: Compacted | None = None
        if parts.config.maintenance.compaction and retained.is_complete:
            try:
                compacted = parts.upkeep.compact(lambda: not self._stops and lease.hold())
                problems += compacted.problems
            except StorageError as error:
                problems.append(f"the database was not compacted: {error}")
        return MaintenanceReport(
            started_at=started,
            ended_at=parts.now(),
            erased=retained.gone.counts,
            remade=retained.gone.remade,
            expired_items=expired,
            compacted=compacted,
            statistics=parts.upkeep.statistics(parts.now()),
            problems=tuple(problems),
            is_complete=retained.is_complete,
        )

    def _retain(self, lease: Lease, now: datetime, done: _Done) -> _Done:
        days = self._parts.config.maintenance.retention_days
        if days is None:
            return done
        self._parts.working.flush()  # a session to which something is about to be said is not empty
        cutoff, after = now - timedelta(days=days), 0
        while sessions := self._parts.erasure.old_sessions(cutoff, after=after, limit=_SESSIONS_AT_ONCE):
            for session in sessions:
                try:
                    goes_on = self._aged(session, cutoff, lease, done)
                except StorageError as error:  # the others are still to be looked at
                    told = f"session {session.name!r} of {shown(session.namespace)!r}"
                    done.left[f"{told} was left as it is: {error}"] = None
                    goes_on = True
                if not goes_on:
                    done.is_complete = False
                    return done
            after = sessions[-1].key
        return done

    def _aged(self, session: SessionName, cutoff: datetime, lease: Lease, done: _Done) -> bool:
        parts = self._parts
        groups = old_groups(parts.erasure.places(session, None, cutoff))
        for batch in _batches(groups):
            if self._stops or not lease.hold():
                return False
            self._note(done, erase_messages(parts, session, batch, lasting=False))
        if parts.erasure.drop_empty(session, cutoff):
            counts = ErasedCounts(sessions=1)
            erased = Erased(sessions=((session.namespace, session.name),))
            self._note(done, Gone(counts=counts, erased=erased))
        return True

    def _note(self, done: _Done, gone: Gone) -> None:
        done.gone += Gone(counts=gone.counts, remade=gone.remade)
        let_go_of(self._parts, gone.erased)
        for eraser in tuple(self._parts.erasers):
            try:
                eraser(gone.erased)
            except Exception as error:  # noqa: BLE001 - a copy that is left leaves by its own time limit
                told = str(error) if isinstance(error, LangmemTiersError) else type(error).__name__
                done.left[f"copies elsewhere were not erased: {told}"] = None
        if done.progress is not None:
            done.progress(done.gone.counts.messages)

    @property
    def _stops(self) -> bool:
        return self._stop.is_set() and threading.current_thread() is self._thread

    def _loop(self, stop: threading.Event, due: datetime) -> None:
        while not stop.is_set():
            now = self._parts.now()
            if now < due:
                stop.wait(min((due - now).total_seconds(), self._looks_each_seconds))
                continue
            try:
                if self._is_ours(due):
                    self.run()
            except EngineClosedError:
                return
            except Exception as error:  # noqa: BLE001 - the next run may go better; memory never kills the agent
                self.failures += 1
                _log.warning("maintenance failed: %s", type(error).__name__)
            due = self.next_run()

    def _is_ours(self, due: datetime) -> bool:
        # A lease by the time of the schedule, not by the clock: who comes later for the same time finds it taken.
        holder = Lease(self._parts, _LEASE).holder
        until = due + timedelta(microseconds=1)
        return self._parts.tuning.acquire(f"{_LEASE}: due", holder, due, until)


def _batches(groups: Sequence[tuple[Place, ...]]) -> Iterator[tuple[Place, ...]]:
    batch: list[Place] = []
    for group in groups:
        if batch and len(batch) + len(group) > _MESSAGES_AT_ONCE:
            yield tuple(batch)
            batch = []
        batch += group
    if batch:
        yield tuple(batch)
