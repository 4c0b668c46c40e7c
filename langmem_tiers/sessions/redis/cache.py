"""Redis cache between the engine and its database: copies of the newest messages of each session."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.clock import wait_until
from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.errors import StorageUnavailableError
from langmem_tiers.sessions.message_repository import build_session_not_found_error
from langmem_tiers.sessions.models import IN_LIST, VersionedMessages
from langmem_tiers.sessions.redis.connection import RedisConnection, RedisStatus
from langmem_tiers.sessions.redis.message_windows import RedisWindows, WindowKind
from langmem_tiers.sessions.session_version import SessionVersionRepository, SessionWrite, to_session_version
from langmem_tiers.storage.migrations import get_database_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from redis import Redis

    from langmem_tiers.common.messages import Message
    from langmem_tiers.config import RedisConfig
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.sessions.models import AppendResult, ListChange, Listing
    from langmem_tiers.sessions.session_version import SessionVersion
    from langmem_tiers.sessions.stores import MessageStore, TranscriptStore
    from langmem_tiers.storage.database import Database


_BUSY_FLAGS = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
_STATUS_FIELDS = ("aof_last_bgrewrite_status", "rdb_last_bgsave_status")


def rewrite_redis_files(client: Redis, patience_seconds: float) -> str | None:
    """Have Redis rewrite its persistence files, if it has any; return a problem and its remedy, or None."""
    redis: Any = importlib.import_module("redis")
    for name, command in (("BGREWRITEAOF", client.bgrewriteaof), ("BGSAVE", client.bgsave)):
        try:
            if not _needs_rewrite(client, name):
                continue
            if not _wait_until_idle(client, patience_seconds):
                return f"Redis is busy writing its files: run {name} on the server later"
            command()
            if not _wait_until_idle(client, patience_seconds):
                return f"{name} is still running on the server: wait until it has finished"
        except redis.ResponseError as error:
            return f"Redis refused the command ({type(error).__name__}): run {name} on the server"
    info = client.info("persistence")
    failed = [name for name in _STATUS_FIELDS if info.get(name, "ok") != "ok"]
    return (
        f"Redis could not rewrite them ({', '.join(failed)}): see the log of the server" if failed else None
    )


def _needs_rewrite(client: Redis, name: str) -> bool:
    info = client.info("persistence")
    if name == "BGREWRITEAOF":
        return bool(info.get("aof_enabled"))
    if client.config_get("save").get("save"):
        return True
    # No scheduled snapshots. A snapshot saved after the server was started was requested manually.
    started_at = client.time()[0] - client.info("server")["uptime_in_seconds"]
    return bool(info.get("rdb_last_save_time", 0) > started_at + 1)


def _wait_until_idle(client: Redis, patience_seconds: float) -> bool:
    def is_busy() -> bool:
        info = client.info("persistence")
        return any(info.get(name) for name in _BUSY_FLAGS)

    return wait_until(lambda: not is_busy(), patience_seconds)


_MAX_SESSIONS = 10_000
# Restoring a backup of the database, up to the same revision and under a running process, takes longer than this.
_VERSION_TTL_SECONDS = 60.0


class RedisCache:
    """Redis cache of one database; wraps its stores.

    Args:
        config: URL and limits of Redis.
        database: The cached database.
        timer: Monotonic clock in seconds.
    """

    def __init__(self, config: RedisConfig, database: Database, timer: Callable[[], float]) -> None:
        self._label = config.label
        self._ttl_seconds = config.ttl_seconds
        self._connection = RedisConnection(config, timer)
        self._windows = RedisWindows(self._connection, config, get_database_id(database))
        self._tails = TailCache(self._windows, SessionVersionRepository(database), timer)

    def wrap_message_store(self, record: MessageStore) -> RedisMessageStore:
        """Return a message store that reads the newest messages from Redis."""
        return RedisMessageStore(record, self._tails)

    def wrap_transcript_store(self, lists: TranscriptStore) -> RedisTranscriptStore:
        """Return a transcript store that reads the end of lists from Redis and keeps the cache up to date."""
        return RedisTranscriptStore(lists, self._tails)

    def extend(self, written: Sequence[SessionWrite]) -> None:
        """Append the messages of a batch to the windows of its sessions, whose rows were locked meanwhile."""
        self._tails.extend_all(written)

    def record_session_row(self, row: AnyRow) -> None:
        """Remember the version in a session's row, which saves a query before the first write."""
        self._tails.record_version(row.pk, to_session_version(row))

    def invalidate_sessions(self, sessions: Iterable[int]) -> bool:
        """Remove the windows of erased sessions; return False if Redis is unavailable for now."""
        return self._windows.delete(dict.fromkeys(sessions))

    def invalidate_before_revision(self, session: int, revision: int) -> bool:
        """Remove cached states of a session before a revision; return False if Redis is unavailable for now."""
        return self._windows.delete({session: revision})

    def confirm_deleted(self, _erased: ErasedIds) -> dict[str, int]:
        """Make sure that all windows with erased data are removed from Redis.

        Raises:
            StorageUnavailableError: Some could not be removed.
        """
        if not self._windows.delete({}):
            raise StorageUnavailableError(
                f"Redis at {self._label!r} is unavailable and may still contain erased data of "
                f"{self._windows.pending_deletion_count} sessions: it is removed once Redis is available again, "
                f"or expires after {self._ttl_seconds} s"
            )
        return {}

    def scrub(self, patience_seconds: float) -> str | None:
        """Have Redis rewrite its files, which may contain erased data; return a problem and its remedy, or None."""
        # Redis is unavailable, which confirm_deleted() has reported.
        if self._windows.pending_deletion_count:
            return None
        # In a tuple, because execute() returns None for a failure.
        outcome = self._connection.execute(
            lambda: (rewrite_redis_files(self._connection.client, patience_seconds),)
        )
        problem = "Redis is unavailable: repeat the call to forget()" if outcome is None else outcome[0]
        return (
            None
            if problem is None
            else f"files of Redis at {self._label!r} may contain erased data: {problem}"
        )

    def status(self) -> RedisStatus:
        """Return the status. Pings Redis, unless it failed a moment ago."""
        is_connected = self._connection.ping()
        return RedisStatus(
            label=self._label,
            is_connected=is_connected,
            hits=self._windows.hits,
            misses=self._windows.misses,
            failures=self._connection.failures,
            skipped=self._connection.skipped,
            unremoved=self._windows.pending_deletion_count,
        )

    def close(self) -> None:
        """Try again to remove windows with erased data, and close the connections."""
        if self._windows.pending_deletion_count:
            self._windows.delete({})
        self._connection.close()


class TailCache:
    """Reads the newest messages of sessions from Redis if they are current, and from the database otherwise.

    A window is used only if it has the current version of the session's row, so writes of other processes are never
    missed. It is extended only from the version right before a write. So writers that overtake each other leave an
    outdated window, but never a wrong one.
    """

    def __init__(
        self, windows: RedisWindows, stamps: SessionVersionRepository, timer: Callable[[], float]
    ) -> None:
        self.windows = windows
        self.versions = stamps
        # The last known versions of sessions; other processes may have written since.
        self._last_versions: SizedLruCache[SessionVersion] = SizedLruCache(
            _MAX_SESSIONS, _VERSION_TTL_SECONDS, timer
        )

    def get_version_before_write(self, key: int) -> SessionVersion | None:
        """Return the version of a session before a write, or None if Redis is unavailable.

        The last known version saves a query. If other processes write to the session too, it may be outdated, which
        ``extend()`` detects after the write.
        """
        if not self.windows.is_available():
            return None
        known = self._last_versions.get(key)
        if known is not None:
            return known
        version = self.versions.get(key)
        if version is not None:
            self.record_version(key, version)
        return version

    def extend(
        self,
        key: int,
        before: SessionVersion | None,
        added: Sequence[Message],
        revision: int | None,
        now: datetime,
        was_at: datetime | None = None,
    ) -> None:
        """Append messages that were just written to the windows, unless other processes wrote in between.

        Args:
            key: Key of the session.
            before: A former version of the session.
            added: The messages.
            revision: Revision of the session after the write.
            now: Time of the write.
            was_at: Time of the previous write, if known. With it, the version right before the write is certain.
        """
        if before is None or not added or revision is None:
            return
        if was_at is not None:
            before = before.advance(revision - 1, was_at)
        # The known version was outdated: another process wrote in between.
        if revision != before.revision + 1:
            self.invalidate(key)
            return
        after = before.advance(revision, now)
        self.record_version(key, after)
        self.windows.extend([SessionWrite(key, before, after, added)])

    def record_version(self, key: int, stamp: SessionVersion) -> None:
        """Remember the version of a session."""
        self._last_versions.put(key, stamp)

    def extend_all(self, written: Sequence[SessionWrite]) -> None:
        """Append messages to many windows at once; the rows of the sessions were locked during the writes."""
        if not self.windows.is_available():
            return
        for write in written:
            self.record_version(write.key, write.after)
        self.windows.extend(written)

    def invalidate(self, key: int) -> None:
        """Forget the known version of a session, so that it is read again before the next write."""
        self._last_versions.invalidate(key)

    def get_latest(
        self, key: int, limit: int, kind: WindowKind, read: Callable[[], VersionedMessages]
    ) -> VersionedMessages:
        """Return the newest ``limit`` messages from Redis, or read them from the database.

        Args:
            key: Key of the session.
            limit: Maximum number of messages.
            kind: Kind of the window.
            read: Reads the messages from the database.
        """
        if limit < 1 or not self.windows.is_available():
            return read()
        version = self.versions.get(key)
        if version is None:
            raise build_session_not_found_error()
        content = self.windows.get(key, version, limit, kind)
        if content is not None and content.messages is not None:
            return VersionedMessages(content.messages, version.revision)
        tail = read()
        # Fill the window only if the session was not written to between reading its version and its messages.
        if content is not None and tail.revision == version.revision:
            whole = len(tail.messages) < limit
            self.windows.put(key, version, tail.messages, kind, head=content.head, whole=whole)
        return tail


class RedisMessageStore:
    """Message store that reads the newest messages from Redis and all others from the database."""

    def __init__(self, record: MessageStore, cached: TailCache) -> None:
        self._record = record
        self._tails = cached

    def append(
        self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False
    ) -> AppendResult:
        """Store the batch, then append it to the window."""
        before = self._tails.get_version_before_write(key)
        result = self._record.append(key, batch, now, new_ids=new_ids)
        # After a lost reply it is unknown which version preceded the write.
        if result.has_recovered_messages:
            self._tails.invalidate(key)
        else:
            self._tails.extend(key, before, result.stored, result.revision, now, result.previous_write_at)
        return result

    def list_latest(self, key: int, limit: int) -> VersionedMessages:
        """Return the newest ``limit`` messages of the record, oldest first."""
        return self._tails.get_latest(
            key, limit, WindowKind.RECORD, lambda: self._record.list_latest(key, limit)
        )

    def list_after(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Return messages following the message ``after``, oldest first."""
        return self._record.list_after(key, after=after, limit=limit)

    def list_before(self, key: int, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """Return the newest messages preceding the message ``before``, oldest first."""
        return self._record.list_before(key, before=before, limit=limit)

    def list_visible(self, key: int, limit: int) -> tuple[Message, ...]:
        """Return the active summary and the newest visible messages, oldest first."""
        return self._record.list_visible(key, limit)

    def get(self, key: int, message_id: str) -> Message | None:
        """Return one message, or None if the session does not have it."""
        return self._record.get(key, message_id)

    def find_known_ids(self, key: int, ids: Sequence[str]) -> AbstractSet[str]:
        """Return the subset of the ids that the record contains."""
        return self._record.find_known_ids(key, ids)

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Replace everything before the message ``before`` with ``summary``; False if compressed concurrently."""
        # This changes the version of the session, so the window becomes outdated by itself.
        return self._record.compress(key, summary, before=before, hidden=hidden, was_hidden=was_hidden)


class RedisTranscriptStore:
    """Transcript store that reads the end of the list from Redis and the rest from the database."""

    def __init__(self, lists: TranscriptStore, cached: TailCache) -> None:
        self._lists = lists
        self._tails = cached

    def list_messages(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> VersionedMessages:
        """List the messages in these states, oldest first."""
        return self._lists.list_messages(key, listings, limit=limit, offset=offset)

    def list_latest(self, key: int, listings: Sequence[Listing], limit: int) -> VersionedMessages:
        """Return the newest messages in these states, oldest first."""
        # Only the list as a whole is cached.
        if set(listings) != set(IN_LIST):
            return self._lists.list_latest(key, listings, limit)
        return self._tails.get_latest(
            key, limit, WindowKind.LIST, lambda: self._lists.list_latest(key, listings, limit)
        )

    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """Return the number of messages in these states."""
        return self._lists.count(key, listings)

    def apply_change(
        self, key: int, change: ListChange, now: datetime, *, revision: int | None
    ) -> int | None:
        """Apply a change in one transaction, then append its new messages to the window."""
        before = self._tails.get_version_before_write(key) if change.added else None
        new_revision = self._lists.apply_change(key, change, now, revision=revision)
        self._tails.extend(key, before, change.added, new_revision, now)
        return new_revision

    def apply_locked_change(
        self,
        key: int,
        listings: Sequence[Listing],
        make: Callable[[VersionedMessages], ListChange | None],
        now: datetime,
        *,
        limit: int | None = None,
    ) -> bool:
        """Compute and apply a change while the session is locked; return False for no change."""
        return self._lists.apply_locked_change(key, listings, make, now, limit=limit)
