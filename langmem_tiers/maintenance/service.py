"""Maintenance: erase old messages and expired items, compact the database and collect statistics.

It works in atomic steps of a few hundred messages, so other writers never wait long. If a run is interrupted, the next
run continues with the rest.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langmem_tiers.common.namespaces import format_namespace
from langmem_tiers.erasure.erasure_plan import find_old_groups
from langmem_tiers.erasure.models import ErasedCounts, ErasedIds, ScrubResult
from langmem_tiers.erasure.scrub import PendingScrub
from langmem_tiers.erasure.service import ErasureResult, erase_messages, invalidate_caches
from langmem_tiers.errors import EngineClosedError, InvalidConfigError, LangmemTiersError, StorageError
from langmem_tiers.maintenance.models import DatabaseCompactionReport, MaintenanceReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langmem_tiers.common.leases import Lease
    from langmem_tiers.config import MaintenanceConfig
    from langmem_tiers.erasure.records import MessageRef, SessionRef
    from langmem_tiers.services import EngineServices


_HINT = "five fields (minute, hour, day, month, weekday), for example '0 3 * * *' for 03:00 each day"


class Schedule:
    """Times of a cron expression.

    Args:
        config: Configuration with the cron expression and its time zone.

    Raises:
        InvalidConfigError: The cron expression is invalid or never due, or the time zone is unknown.
    """

    def __init__(self, config: MaintenanceConfig) -> None:
        self.cron_line = config.schedule
        try:
            self._zone = ZoneInfo(config.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidConfigError(
                f"unknown time_zone {config.time_zone!r}: use a name such as 'UTC' or 'Europe/Berlin'"
            ) from None
        # Validates the expression now, not at the first run. Any date works.
        self.find_next(datetime(2024, 1, 1, tzinfo=UTC))

    def find_next(self, moment: datetime) -> datetime:
        """Return the first time after a moment, in UTC."""
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only needed if maintenance is used

        try:
            found: datetime = next(CronSim(self.cron_line, moment.astimezone(self._zone)))
        except CronSimError as error:
            raise InvalidConfigError(
                f"schedule {self.cron_line!r} is not a cron expression ({error}): use {_HINT}"
            ) from None
        except StopIteration:
            raise InvalidConfigError(f"schedule {self.cron_line!r} is never due: use {_HINT}") from None
        return found.astimezone(UTC)


_log = logging.getLogger("langmem_tiers")
_SESSION_PAGE_SIZE = 100
_MESSAGE_BATCH_SIZE = 500
# The thread does not sleep until the next run: the clock may be changed, or the machine suspended.
_POLL_SECONDS = 30.0
_LEASE_NAME = "maintenance"


@dataclass(slots=True)
class _RetentionResult:
    erasure: ErasureResult
    progress: Callable[[int], None] | None
    is_complete: bool = True
    problems: dict[str, None] = field(default_factory=dict)
    """Steps that failed, without duplicates: a dict keeps the order."""


class Maintenance:
    """Maintenance on demand, or in a background thread on a schedule. Get it from ``engine.maintenance``.

    Nothing runs in the background until ``start()`` is called. Only one process runs maintenance at a time, and only
    one process runs each scheduled time.

    Args:
        services: Services of the engine.
        sweep: Function that deletes expired items and returns their number.

    Attributes:
        failures: Number of failed background runs.
        last: Report of the last run of this process.
    """

    def __init__(self, services: EngineServices, sweep: Callable[[], int]) -> None:
        self._services = services
        self._sweep = sweep
        self._schedule = Schedule(services.config.maintenance)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._poll_seconds = _POLL_SECONDS
        self.failures = 0
        self.last: MaintenanceReport | None = None

    @property
    def is_running(self) -> bool:
        """True if the background thread is running; a forked child process starts without it."""
        return self._thread is not None and self._thread.is_alive()

    def next_run(self) -> datetime:
        """Return the next scheduled time, in UTC."""
        return self._schedule.find_next(self._services.now())

    def start(self) -> None:
        """Run on the schedule in a background thread until ``stop()``."""
        if self.is_running and not self._stop.is_set():
            return
        # A new event for each thread: a thread that is still stopping must not see the event cleared.
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._loop,
            args=(self._stop, self.next_run()),
            name="langmem-tiers-maintenance",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> bool:
        """Stop the thread after its current step; return True if it has ended."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._services.config.busy_timeout_seconds)
        return not self.is_running

    def run(self, progress: Callable[[int], None] | None = None) -> MaintenanceReport:
        """Run now: retention, expired items, compaction, statistics.

        Args:
            progress: Called after each step with the number of messages erased so far.

        Returns:
            Report of the run. ``is_elsewhere`` is True if another process is running maintenance and nothing was done.
        """
        services, lease = self._services, self._services.get_lease(_LEASE_NAME)
        started = services.now()
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
        """Remove the bytes of all erased data from the files of the database, as ``forget()`` does.

        This rewrites the SQLite file or the tables of PostgreSQL; other connections wait meanwhile.
        """
        pending = PendingScrub(self._services.tuning, self._services.now)
        # Remembers the records that are abandoned now. Only these may be deleted afterwards: a record that is written
        # during the scrub is for rows that the scrub may have missed.
        pending.is_full_scrub_due(erases=True)
        result = self._services.maintenance_store.scrub(None)
        if not result.left:
            pending.complete(all_of_it=True)
        return result

    def _run(
        self, lease: Lease, started: datetime, progress: Callable[[int], None] | None
    ) -> MaintenanceReport:
        services, problems = self._services, list[str]()
        retained = self._apply_retention(lease, started, _RetentionResult(ErasureResult(), progress))
        problems += retained.problems
        expired = self._sweep()
        compacted: DatabaseCompactionReport | None = None
        if services.config.maintenance.compaction and retained.is_complete:
            try:
                compacted = services.maintenance_store.compact(
                    lambda: not self._is_stopping and lease.acquire()
                )
                problems += compacted.problems
            except StorageError as error:
                problems.append(f"the database was not compacted: {error}")
        return MaintenanceReport(
            started_at=started,
            ended_at=services.now(),
            erased=retained.erasure.counts,
            remade=retained.erasure.remade,
            expired_items=expired,
            compacted=compacted,
            statistics=services.maintenance_store.statistics(services.now()),
            problems=tuple(problems),
            is_complete=retained.is_complete,
        )

    def _apply_retention(self, lease: Lease, now: datetime, done: _RetentionResult) -> _RetentionResult:
        days = self._services.config.maintenance.retention_days
        if days is None:
            return done
        # A session whose first messages are still in working memory must not be deleted as empty.
        self._services.working.flush()
        cutoff, after = now - timedelta(days=days), 0
        while sessions := self._services.erasure.list_old_sessions(
            cutoff, after=after, limit=_SESSION_PAGE_SIZE
        ):
            for session in sessions:
                try:
                    continues = self._erase_old_messages(session, cutoff, lease, done)
                except StorageError as error:
                    # One session that fails must not keep the others from being processed.
                    label = f"session {session.name!r} of {format_namespace(session.namespace)!r}"
                    done.problems[f"{label} was not changed: {error}"] = None
                    continues = True
                if not continues:
                    done.is_complete = False
                    return done
            after = sessions[-1].key
        return done

    def _erase_old_messages(
        self, session: SessionRef, cutoff: datetime, lease: Lease, done: _RetentionResult
    ) -> bool:
        services = self._services
        groups = find_old_groups(services.erasure.find_messages(session, None, cutoff))
        for batch in _split_batches(groups):
            # Acquiring the lease again renews it. It fails if this process was suspended and another one took over.
            if self._is_stopping or not lease.acquire():
                return False
            self._record_erasure(done, erase_messages(services, session, batch, with_long_term=False))
        if services.erasure.delete_if_empty(session, cutoff):
            counts = ErasedCounts(sessions=1)
            erased = ErasedIds(sessions=((session.namespace, session.name),))
            self._record_erasure(done, ErasureResult(counts=counts, erased=erased))
        return True

    def _record_erasure(self, done: _RetentionResult, result: ErasureResult) -> None:
        # The ids are not added up: over a long run they would need much memory.
        done.erasure += ErasureResult(counts=result.counts, remade=result.remade)
        invalidate_caches(self._services, result.erased)
        for eraser in tuple(self._services.erasers):
            try:
                eraser(result.erased)
            except Exception as error:  # noqa: BLE001 - a copy that remains expires by its own time limit
                # The text of a foreign exception may contain the erased content.
                reason = str(error) if isinstance(error, LangmemTiersError) else type(error).__name__
                done.problems[f"external copies were not erased: {reason}"] = None
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
            except Exception as error:  # noqa: BLE001 - the next run may succeed; memory never stops the agent
                self.failures += 1
                _log.warning("maintenance failed: %s", type(error).__name__)
            due = self.next_run()

    def _claim_run(self, due: datetime) -> bool:
        # The lease uses the scheduled time as its clock, not the current time. A process that comes later for the same
        # scheduled time therefore always finds it taken, however long this run takes.
        holder = self._services.get_lease(_LEASE_NAME).holder
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
