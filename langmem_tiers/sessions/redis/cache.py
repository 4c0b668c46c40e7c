"""Redis between the engine and its database: a copy of what was said last, and never the only one."""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from langmem_tiers.common.fork_safety import register_fork_aware
from langmem_tiers.common.waiting import wait_until
from langmem_tiers.errors import StorageUnavailableError
from langmem_tiers.sessions.message_repository import build_session_not_found_error
from langmem_tiers.sessions.models import IN_LIST, VersionedMessages
from langmem_tiers.sessions.redis.connection import RedisConnection
from langmem_tiers.sessions.redis.models import RedisStatus
from langmem_tiers.sessions.redis.windows import RedisWindows, WindowKind
from langmem_tiers.sessions.session_version import SessionWrite, SqlSessionVersions, to_session_version
from langmem_tiers.storage.migrations import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from redis import Redis

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.ports import MessageStore, TranscriptStore
    from langmem_tiers.config import RedisConfig
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.sessions.models import AppendResult, ListChange, Listing
    from langmem_tiers.sessions.session_version import SessionVersion
    from langmem_tiers.storage.database import Database


_BUSY_FLAGS = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
_STATUS_FIELDS = ("aof_last_bgrewrite_status", "rdb_last_bgsave_status")


def rewrite_redis_files(client: Redis, patience_seconds: float) -> str | None:
    """Have Redis write its files anew, if it has any; what was not done, and what to do about it."""
    redis: Any = importlib.import_module("redis")
    for name, command in (("BGREWRITEAOF", client.bgrewriteaof), ("BGSAVE", client.bgsave)):
        try:
            if not _needs_rewrite(client, name):
                continue
            if not _wait_until_idle(client, patience_seconds):
                return f"it is at work on its files: run {name} there, later"
            command()
            if not _wait_until_idle(client, patience_seconds):
                return f"{name} is still at work there: wait until it is done"
        except redis.ResponseError as error:
            return f"it refused ({type(error).__name__}): run {name} there"
    told = client.info("persistence")
    failed = [name for name in _STATUS_FIELDS if told.get(name, "ok") != "ok"]
    return f"it failed there ({', '.join(failed)}): see its log" if failed else None


def _needs_rewrite(client: Redis, name: str) -> bool:
    told = client.info("persistence")
    if name == "BGREWRITEAOF":
        return bool(told.get("aof_enabled"))
    if client.config_get("save").get("save"):
        return True
    started = client.time()[0] - client.info("server")["uptime_in_seconds"]
    return bool(told.get("rdb_last_save_time", 0) > started + 1)  # by hand, since then


def _wait_until_idle(client: Redis, patience_seconds: float) -> bool:
    def is_at_work() -> bool:
        told = client.info("persistence")
        return any(told.get(name) for name in _BUSY_FLAGS)

    return wait_until(lambda: not is_at_work(), patience_seconds)


_MAX_SESSIONS = 10_000
_VERSION_TTL_SECONDS = (
    60.0  # no backup of a database is restored in less, to the same revision, under a process at work
)


class RedisCache:
    """The level of Redis above one database: puts itself before its stores.

    Args:
        config: Where Redis is.
        database: What it caches.
        timer: Seconds that never run backwards.
    """

    def __init__(self, config: RedisConfig, database: Database, timer: Callable[[], float]) -> None:
        self._label = config.label
        self._ttl_seconds = config.ttl_seconds
        self._connection = RedisConnection(config, timer)
        self._windows = RedisWindows(self._connection, config, identity_of(database))
        self._tails = TailCache(self._windows, SqlSessionVersions(database), timer)

    def wrap_message_store(self, record: MessageStore) -> RedisMessageStore:
        """The record of the database, with its newest messages cached."""
        return RedisMessageStore(record, self._tails)

    def wrap_transcript_store(self, lists: TranscriptStore) -> RedisTranscriptStore:
        """The lists of the database, so that what is written by them comes into the cache."""
        return RedisTranscriptStore(lists, self._tails)

    def extend(self, written: Sequence[SessionWrite]) -> None:
        """Add to the windows what was written to many sessions at once, from the states that they were locked in."""
        self._tails.extend_all(written)

    def record_session_row(self, row: AnyRow) -> None:
        """The row of a session was read: what is known of it spares a question before the first write."""
        self._tails.record_version(row.pk, to_session_version(row))

    def invalidate_sessions(self, sessions: Iterable[int]) -> bool:
        """Remove what is cached of erased sessions, by their keys; False if Redis did not answer yet."""
        return self._windows.delete(dict.fromkeys(sessions))

    def invalidate_before_revision(self, session: int, revision: int) -> bool:
        """Remove what is cached of a session from before a revision; False if Redis did not answer yet."""
        return self._windows.delete({session: revision})

    def confirm_deleted(self, _erased: ErasedIds) -> dict[str, int]:
        """See that Redis was told of all that was erased.

        Raises:
            StorageUnavailableError: It was not.
        """
        if not self._windows.delete({}):
            raise StorageUnavailableError(
                f"Redis at {self._label!r} does not answer and may hold "
                f"{self._windows.pending_deletion_count} sessions: they are "
                f"removed once it does, and gone after {self._ttl_seconds} s anyway"
            )
        return {}

    def scrub(self, patience_seconds: float) -> str | None:
        """Have Redis write its files anew, which hold what was erased; what was not done, and what to do about it."""
        if self._windows.pending_deletion_count:
            return None  # it does not answer: let_go() has said so
        told = self._connection.execute(
            lambda: (rewrite_redis_files(self._connection.client, patience_seconds),)
        )
        problem = "it does not answer: forget the same again" if told is None else told[0]
        return None if problem is None else f"files of Redis at {self._label!r} may hold it: {problem}"

    def status(self) -> RedisStatus:
        """How it serves. Asks Redis, unless it failed a moment ago."""
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
        """Tell Redis what it could not be told before, and give its connections back."""
        if self._windows.pending_deletion_count:
            self._windows.delete({})
        self._connection.close()


class TailCache:
    """The newest messages of sessions, from Redis as long as it has them as they are now.

    A window is used only for the state that the session's row has now, so nothing that others write is missed,
    and it is extended only from the state right before a write, so writers that overtake each other leave an
    older window and never a wrong one.
    """

    def __init__(self, windows: RedisWindows, stamps: SqlSessionVersions, timer: Callable[[], float]) -> None:
        self.windows = windows
        self.versions = stamps
        # The last known states of sessions, which others may have gone on from.
        self._last_versions: TTLCache[int, SessionVersion] = TTLCache(
            _MAX_SESSIONS, _VERSION_TTL_SECONDS, timer
        )
        self._lock = threading.RLock()
        register_fork_aware(self)

    def get_version_before_write(self, key: int) -> SessionVersion | None:
        """The state of a session that is about to be written to, if the window is to be extended from there.

        Where nobody else writes, that is the state in which we left it, which spares a look. Else it may be an older
        one. What is known after the write tells.
        """
        if not self.windows.is_available():
            return None
        with self._lock:
            seen = self._last_versions.get(key)
        if seen is not None:
            return seen
        stamp = self.versions.get(key)
        if stamp is not None:
            self.record_version(key, stamp)
        return stamp

    def extend(
        self,
        key: int,
        before: SessionVersion | None,
        added: Sequence[Message],
        revision: int | None,
        now: datetime,
        was_at: datetime | None = None,
    ) -> None:
        """Add what was just written to the windows; not if more than that happened since.

        Args:
            key: The session.
            before: A state of it.
            added: What was written.
            revision: Of the session, after that.
            now: When.
            was_at: When it was last written to before, if that is known: it tells the state right before.
        """
        if before is None or not added or revision is None:
            return
        if was_at is not None:
            before = before.advance(revision - 1, was_at)
        if revision != before.revision + 1:
            self.invalidate(key)
            return
        after = before.advance(revision, now)
        self.record_version(key, after)
        self.windows.extend([SessionWrite(key, before, after, added)])

    def record_version(self, key: int, stamp: SessionVersion) -> None:
        """Remember a state of a session, which others may go on from."""
        with self._lock:
            self._last_versions[key] = stamp

    def extend_all(self, written: Sequence[SessionWrite]) -> None:
        """Add to many windows at once what was written while the rows of the sessions were locked."""
        if not self.windows.is_available():
            return
        for one in written:
            self.record_version(one.key, one.after)
        self.windows.extend(written)

    def invalidate(self, key: int) -> None:
        """Look anew at the state of a session before the next write."""
        with self._lock:
            self._last_versions.pop(key, None)

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def get_latest(
        self, key: int, limit: int, of: WindowKind, read: Callable[[], VersionedMessages]
    ) -> VersionedMessages:
        """The newest ``limit`` messages, from Redis or as they are read from the database."""
        if limit < 1 or not self.windows.is_available():
            return read()
        stamp = self.versions.get(key)
        if stamp is None:
            raise build_session_not_found_error()
        found = self.windows.get(key, stamp, limit, of)
        if found is not None and found.messages is not None:
            return VersionedMessages(found.messages, stamp.revision)
        tail = read()
        if found is not None and tail.revision == stamp.revision:
            whole = len(tail.messages) < limit
            self.windows.put(key, stamp, tail.messages, of, head=found.head, whole=whole)
        return tail


class RedisMessageStore:
    """Serves the ``MessageStore`` port: the newest messages from Redis, the rest from the database behind it."""

    def __init__(self, record: MessageStore, cached: TailCache) -> None:
        self._record = record
        self._tails = cached

    def append(
        self, key: int, batch: Sequence[Message], now: datetime, *, new_ids: bool = False
    ) -> AppendResult:
        """Store the batch, then add it to the window."""
        before = self._tails.get_version_before_write(key)
        done = self._record.append(key, batch, now, new_ids=new_ids)
        if done.has_recovered_messages:
            self._tails.invalidate(key)
        else:
            self._tails.extend(key, before, done.stored, done.revision, now, done.previous_write_at)
        return done

    def list_latest(self, key: int, limit: int) -> VersionedMessages:
        """The newest ``limit`` messages of the record."""
        return self._tails.get_latest(
            key, limit, WindowKind.RECORD, lambda: self._record.list_latest(key, limit)
        )

    def list_after(self, key: int, *, after: str | None, limit: int) -> tuple[Message, ...]:
        """Messages behind the message ``after``, oldest first."""
        return self._record.list_after(key, after=after, limit=limit)

    def list_before(self, key: int, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """The newest of the messages before the message ``before``, oldest first."""
        return self._record.list_before(key, before=before, limit=limit)

    def list_visible(self, key: int, limit: int) -> tuple[Message, ...]:
        """What is shown, as of one moment."""
        return self._record.list_visible(key, limit)

    def get(self, key: int, message_id: str) -> Message | None:
        """One message, if the session holds it."""
        return self._record.get(key, message_id)

    def find_known_ids(self, key: int, ids: Sequence[str]) -> AbstractSet[str]:
        """Those of the ids that the record has."""
        return self._record.find_known_ids(key, ids)

    def compress(self, key: int, summary: Message, *, before: str, hidden: int, was_hidden: int) -> bool:
        """Put ``summary`` in front of the message ``before``; the window is of a state that is no more."""
        return self._record.compress(key, summary, before=before, hidden=hidden, was_hidden=was_hidden)


class RedisTranscriptStore:
    """Serves the ``TranscriptStore`` port: the end of the list from Redis, the rest from the database behind it."""

    def __init__(self, lists: TranscriptStore, cached: TailCache) -> None:
        self._lists = lists
        self._tails = cached

    def list_messages(
        self, key: int, listings: Sequence[Listing], *, limit: int | None = None, offset: int = 0
    ) -> VersionedMessages:
        """The messages that stand so in the list, oldest first."""
        return self._lists.list_messages(key, listings, limit=limit, offset=offset)

    def list_latest(self, key: int, listings: Sequence[Listing], limit: int) -> VersionedMessages:
        """The newest of these, oldest first; those of the list as a whole are cached."""
        if set(listings) != set(IN_LIST):
            return self._lists.list_latest(key, listings, limit)
        return self._tails.get_latest(
            key, limit, WindowKind.LIST, lambda: self._lists.list_latest(key, listings, limit)
        )

    def count(self, key: int, listings: Sequence[Listing]) -> int:
        """How many messages stand so in the list."""
        return self._lists.count(key, listings)

    def apply_change(
        self, key: int, change: ListChange, now: datetime, *, revision: int | None
    ) -> int | None:
        """Carry a change out in one transaction, then add what came with it to the window."""
        before = self._tails.get_version_before_write(key) if change.added else None
        done = self._lists.apply_change(key, change, now, revision=revision)
        self._tails.extend(key, before, change.added, done, now)
        return done

    def apply_locked_change(
        self,
        key: int,
        listings: Sequence[Listing],
        make: Callable[[VersionedMessages], ListChange | None],
        now: datetime,
        *,
        limit: int | None = None,
    ) -> bool:
        """Carry out what is made of the list while nobody else writes to the session."""
        return self._lists.apply_locked_change(key, listings, make, now, limit=limit)
