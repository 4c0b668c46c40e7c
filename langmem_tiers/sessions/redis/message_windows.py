"""Windows in Redis: the newest messages of a session, with the session version that they belong to.

A window is a sorted set. Its first member is the head (``~version~count~bytes~whole``), the others are messages.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.fork_safety import register_fork_aware
from langmem_tiers.common.messages import Message, MessageToolCall, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langmem_tiers.config import RedisConfig
    from langmem_tiers.sessions.redis.connection import RedisConnection
    from langmem_tiers.sessions.session_version import SessionVersion, SessionWrite


_DIGEST_HEX_DIGITS = 16
# Redis scores are doubles, which represent integers exactly up to 2**53. The rest is space for messages after the
# latest possible time.
_MAX_SCORE = 2**53 - 2**40


def to_window_member(key: str, message: Message) -> bytes:
    """Encode a message as a member of the window with this key."""
    body = json.dumps(
        [
            message.id,
            message.role.value,
            message.content,
            message.created_at.isoformat(),
            message.token_count,
            message.token_counter,
            message.is_compressed,
            message.name,
            [[call.id, call.name, call.arguments] for call in message.tool_calls],
            message.tool_call_id,
            message.payload_json,
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode("utf-8", "surrogatepass")
    return _compute_digest(key, body) + body


def from_window_member(key: str, member: object) -> Message:
    """Decode a message of a window.

    Raises:
        ValueError: The member is not a message, or belongs to another window.
    """
    if not isinstance(member, bytes) or member[:_DIGEST_HEX_DIGITS] != _compute_digest(
        key, member[_DIGEST_HEX_DIGITS:]
    ):
        raise ValueError("a window in redis contains a member that is not a message of this session")
    fields = json.loads(member[_DIGEST_HEX_DIGITS:].decode("utf-8", "surrogatepass"))
    return Message(
        id=fields[0],
        role=Role(fields[1]),
        content=fields[2],
        created_at=datetime.fromisoformat(fields[3]),
        token_count=fields[4],
        token_counter=fields[5],
        is_compressed=fields[6],
        name=fields[7],
        tool_calls=tuple(MessageToolCall(*call) for call in fields[8]),
        tool_call_id=fields[9],
        payload_json=fields[10],
    )


def to_score(message: Message) -> int:
    """Return the time of the message as a score: microseconds since 1970, within the exact range of a double."""
    return max(-_MAX_SCORE, min(_MAX_SCORE, to_microseconds(message.created_at)))


def to_scores(messages: Sequence[Message]) -> list[int]:
    """Return strictly increasing scores, so that the order in the window is the order of the record."""
    scores: list[int] = []
    for message in messages:
        time = to_score(message)
        scores.append(max(time, scores[-1] + 1) if scores else time)
    return scores


def _compute_digest(key: str, body: bytes) -> bytes:
    # The digest includes the key, so that a window renamed to the key of another session is invalid there.
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_HEX_DIGITS // 2)
    digest.update(body)
    return digest.hexdigest().encode()


TOMBSTONE = b"~gone"
"""Head of a window whose session was erased. It keeps other processes from filling the window again.

Followed by ``~`` and a revision, it means that the session exists, but its state before this revision was erased.
"""

_READ_HEAD_SCRIPT = """
local head = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '-inf')[1] or ''
local stamp, count, bytes, whole = string.match(head, '^~([^~]+)~(%d+)~(%d+)~([01])$')
"""

# Reads the newest ARGV[2] messages if the window has the version ARGV[1]: {head, '1', message, ...}; else {head}.
READ_SCRIPT = (
    _READ_HEAD_SCRIPT
    + """
if stamp ~= ARGV[1] then return {head} end
local wanted, held = tonumber(ARGV[2]), tonumber(count)
if whole == '0' and wanted > held then return {head} end
if redis.call('ZCARD', KEYS[1]) ~= held + 1 then return {head} end
local found = {}
if held > 0 then found = redis.call('ZRANGE', KEYS[1], -math.min(wanted, held), -1) end
table.insert(found, 1, '1')
table.insert(found, 1, head)
return found
"""
)

# Fills a window with messages read from the database. It writes only if the head is still the one seen before that
# read: otherwise another process has changed the window or the session was erased.
# ARGV: the head seen before, the new head, seconds to live, then score and message of each.
FILL_SCRIPT = (
    _READ_HEAD_SCRIPT
    + """
if head ~= ARGV[1] or head == '~gone' then return 0 end
local since = string.match(head, '^~gone~(%d+)$')
if since and tonumber(string.match(ARGV[2], '^~(%d+)')) < tonumber(since) then return 0 end
redis.call('DEL', KEYS[1])
for i = 4, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('ZADD', KEYS[1], '-inf', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""
)

# Appends messages that were just written to the database, to windows of the version right before the write and to no
# others. The first messages of a session create its window.
# ARGV: the version before, the version after, '1' for the first messages of a session, maximum number of messages,
# maximum bytes, seconds to live, then time and message of each.
EXTEND_SCRIPT = """
local function extend(key, is_first)
  local head = redis.call('ZRANGEBYSCORE', key, '-inf', '-inf')[1] or ''
  local stamp, count, bytes, whole = string.match(head, '^~([^~]+)~(%d+)~(%d+)~([01])$')
  local last = nil
  if head == '' then
    if not is_first then return end
    redis.call('DEL', key)
    count, bytes, whole = 0, 0, '1'
  else
    if stamp ~= ARGV[1] or redis.call('ZCARD', key) ~= tonumber(count) + 1 then return end
    redis.call('ZREM', key, head)
    last = tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
  end
  for i = 7, #ARGV, 2 do
    local score = tonumber(ARGV[i])
    if last and score <= last then score = last + 1 end
    last = score
    redis.call('ZADD', key, string.format('%.0f', score), ARGV[i + 1])
    count, bytes = count + 1, bytes + #ARGV[i + 1]
  end
  while count > tonumber(ARGV[4]) or bytes > tonumber(ARGV[5]) do
    local oldest = redis.call('ZRANGE', key, 0, 0)[1]
    redis.call('ZREM', key, oldest)
    count, bytes, whole = count - 1, bytes - #oldest, '0'
  end
  local now_held = string.format('~%s~%.0f~%.0f~%s', ARGV[2], count, bytes, whole)
  redis.call('ZADD', key, '-inf', now_held)
  redis.call('EXPIRE', key, ARGV[6])
end
for place, key in ipairs(KEYS) do extend(key, place == 1 and ARGV[3] == '1') end
return 1
"""


_HEAD_PATTERN = re.compile(rb"~([^~]+)~(\d+)~(\d+)~([01])")
# Far longer than any process takes between reading the database and filling a window.
_TOMBSTONE_SECONDS = 3600
_KEYS_PER_CALL = 500
_Reply = TypeVar("_Reply")


class WindowKind(Enum):
    """Kind of a window; the value is the suffix of its key."""

    RECORD = ""
    """End of the record, including summaries."""
    LIST = ":list"
    """End of the message list that a framework maintains."""


@dataclass(frozen=True, slots=True)
class WindowContent:
    """Result of reading a window."""

    messages: tuple[Message, ...] | None
    """Requested messages; None if the window does not have them for this version."""
    head: bytes
    """Head of the window, to pass to ``RedisWindows.put()``."""


class RedisWindows:
    """Windows by session key.

    The key of a session in the database is never reused. It does not change when the session is renamed, and it does
    not reveal the name.

    Args:
        link: Connection to Redis.
        config: Size limits and TTL.
        database_id: Identity of the database that contains the sessions.

    Attributes:
        hits: Number of reads served from a window.
        misses: Number of other reads.
    """

    def __init__(self, link: RedisConnection, config: RedisConfig, database_id: str) -> None:
        self.hits = 0
        self.misses = 0
        self._connection = link
        self._config = config
        self._key_prefix = f"{config.prefix}:episodic:{database_id}:"
        self._read_script = link.client.register_script(READ_SCRIPT)
        self._fill_script = link.client.register_script(FILL_SCRIPT)
        self._extend_script = link.client.register_script(EXTEND_SCRIPT)
        self._pending_deletions: dict[int, int | None] = {}
        self._lock = threading.RLock()
        register_fork_aware(self)

    def is_available(self) -> bool:
        """Return True if Redis can be asked; otherwise count a skipped command."""
        return self._connection.is_up or self._connection.record_skip()

    @property
    def pending_deletion_count(self) -> int:
        """Number of sessions with erased data whose windows could not be removed yet."""
        return len(self._pending_deletions)

    def build_key(self, session: int, kind: WindowKind = WindowKind.RECORD) -> str:
        """Return the Redis key of a session's window."""
        return f"{self._key_prefix}{session}{kind.value}"

    def get(
        self, session: int, stamp: SessionVersion, limit: int, kind: WindowKind = WindowKind.RECORD
    ) -> WindowContent | None:
        """Read the newest ``limit`` messages of a session version; None if Redis is unavailable."""
        key, version = self.build_key(session, kind), str(stamp)
        content = self._execute(
            lambda: _parse_reply(self._read_script([key], [version, limit]), key, version, limit), key
        )
        with self._lock:
            if content is not None and content.messages is not None:
                self.hits += 1
            else:
                self.misses += 1
        return content

    def put(
        self,
        session: int,
        stamp: SessionVersion,
        messages: Sequence[Message],
        kind: WindowKind = WindowKind.RECORD,
        *,
        head: bytes,
        whole: bool,
    ) -> None:
        """Fill a window with messages from the database, unless the window has changed since it was read.

        Args:
            session: Key of the session.
            stamp: Version of the session at which the messages were read.
            messages: The newest messages, oldest first.
            kind: Kind of the window.
            head: Head of the window when it was read.
            whole: True if these are all messages of the session.
        """
        key = self.build_key(session, kind)
        members = self._encode_newest(session, messages)
        cached = messages[len(messages) - len(members) :]
        size = sum(map(len, members))
        is_whole = int(whole and len(members) == len(messages))
        arguments: list[Any] = [head, f"~{stamp}~{len(members)}~{size}~{is_whole}", self._config.ttl_seconds]
        for score, member in zip(to_scores(cached), members, strict=True):
            arguments += (score, member)
        self._execute(lambda: self._fill_script([key], arguments), key)

    def extend(self, written: Sequence[SessionWrite]) -> None:
        """Append messages that were just written, to windows of the version right before; skip other windows."""
        calls = [call for write in written if (call := self._build_extension(write)) is not None]
        if len(calls) == 1:
            keys, arguments = calls[0]
            self._execute(lambda: self._extend_script(keys, arguments), *keys)
        elif calls:
            self._execute(lambda: self._extend_pipelined(calls), *(key for keys, _ in calls for key in keys))

    def delete(self, sessions: Mapping[int, int | None]) -> bool:
        """Remove windows with erased data, and keep other processes from filling them with data read before.

        Args:
            sessions: For each session key, the revision from which it may be cached again; None if the session
                was erased.

        Returns:
            False if Redis is unavailable. The windows are removed as soon as it is available again.
        """
        with self._lock:
            self._pending_deletions.update(sessions)
        return self._flush_deletions()

    def before_fork(self) -> None:
        """Acquire the lock, so that no thread is changing the state."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Release the lock."""
        self._lock.release()

    def _execute(self, command: Callable[[], _Reply], *keys: str) -> _Reply | None:
        # Pending deletions go first: otherwise a window with erased data could be read.
        if self._pending_deletions and self._connection.is_up:
            self._flush_deletions()

        def run() -> _Reply:
            try:
                return command()
            except OSError:
                raise
            except Exception as error:
                # The server replied, so the key contains something other than a valid window: delete it. The
                # connection and time-out errors of redis-py are not subclasses of OSError, and redis-py is an
                # optional dependency, so they are recognized by name.
                if type(error).__name__ not in ("ConnectionError", "TimeoutError"):
                    with suppress(Exception):
                        self._connection.client.unlink(*keys)
                raise

        return self._connection.execute(run)

    def _build_extension(self, written: SessionWrite) -> tuple[list[str], list[Any]] | None:
        config, added = self._config, written.added
        members = self._encode_newest(written.key, added)
        # More than fits into a window: the next reader fills it.
        if len(members) < len(added):
            return None
        is_first = int(written.before.revision == 0)
        arguments: list[Any] = [str(written.before), str(written.after), is_first]
        arguments += (config.window, config.max_window_bytes, config.ttl_seconds)
        for message, member in zip(added, members, strict=True):
            arguments += (to_score(message), member)
        return [self.build_key(written.key, kind) for kind in WindowKind], arguments

    def _extend_pipelined(self, calls: Sequence[tuple[list[str], list[Any]]]) -> None:
        with self._connection.client.pipeline(transaction=False) as pipe:
            for keys, arguments in calls:
                self._extend_script(keys, arguments, client=pipe)
            pipe.execute()

    def _flush_deletions(self) -> bool:
        with self._lock:
            pending = list(self._pending_deletions.items())
        for start in range(0, len(pending), _KEYS_PER_CALL):
            chunk = pending[start : start + _KEYS_PER_CALL]
            if self._connection.execute(lambda chunk=chunk: self._write_tombstones(chunk)) is None:  # type: ignore[misc]
                return False
            with self._lock:
                # Another thread may have requested a newer deletion of the same session: keep that one.
                for session, since in chunk:
                    if self._pending_deletions.get(session, -1) == since:
                        del self._pending_deletions[session]
        return True

    def _write_tombstones(self, sessions: Sequence[tuple[int, int | None]]) -> bool:
        with self._connection.client.pipeline(transaction=True) as pipe:
            for session, since in sessions:
                head = TOMBSTONE if since is None else b"%b~%d" % (TOMBSTONE, since)
                for key in (self.build_key(session, kind) for kind in WindowKind):
                    pipe.delete(key)
                    pipe.zadd(key, {head: float("-inf")})
                    pipe.expire(key, _TOMBSTONE_SECONDS)
            pipe.execute()
        return True

    def _encode_newest(self, session: int, messages: Sequence[Message]) -> list[bytes]:
        # The newest messages that fit into a window, oldest first.
        members: list[bytes] = []
        key = self.build_key(session)
        free_bytes = self._config.max_window_bytes
        for message in reversed(messages[-self._config.window :]):
            member = to_window_member(key, message)
            free_bytes -= len(member)
            if free_bytes < 0:
                break
            members.append(member)
        return members[::-1]


def _parse_reply(reply: Any, key: str, version: str, limit: int) -> WindowContent:  # noqa: ANN401 - any reply of the server
    if not isinstance(reply, list) or not reply or not isinstance(reply[0], bytes):
        raise ValueError("unexpected reply from redis")
    if len(reply) == 1:
        return WindowContent(None, reply[0])
    head, members = _HEAD_PATTERN.fullmatch(reply[0]), reply[2:]
    # The script has checked all of this. Check again, because a proxy or a faulty server may return anything.
    if head is None or head[1] != version.encode():
        raise ValueError("redis returned a window of another version")
    count = int(head[2])
    if len(members) != min(limit, count) or (limit > count and head[4] != b"1"):
        raise ValueError("redis returned an incomplete window")
    # Members of both kinds of windows are encoded with the key of the record window.
    record_key = key.removesuffix(WindowKind.LIST.value)
    return WindowContent(tuple(from_window_member(record_key, member) for member in members), reply[0])
