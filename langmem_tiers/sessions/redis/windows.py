"""The newest messages of sessions in Redis, each window with the state of the session that it shows."""

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
from langmem_tiers.common.messages import Message, Role, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langmem_tiers.config import RedisConfig
    from langmem_tiers.sessions.redis.connection import RedisConnection
    from langmem_tiers.sessions.session_version import SessionVersion, SessionWrite


_DIGEST_HEX_DIGITS = 16  # hex digits
_MAX_SCORE = (
    2**53 - 2**40
)  # Redis counts in doubles: whole up to 2**53, and there is room behind the farthest time


def to_window_member(key: str, message: Message) -> bytes:
    """A message of the window under that key."""
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
    """The message, or a ``ValueError`` for what is none, or of another window."""
    if not isinstance(member, bytes) or member[:_DIGEST_HEX_DIGITS] != _compute_digest(
        key, member[_DIGEST_HEX_DIGITS:]
    ):
        raise ValueError("redis holds what is no message of ours")
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
        tool_calls=tuple(ToolCall(*call) for call in fields[8]),
        tool_call_id=fields[9],
        payload_json=fields[10],
    )


def to_score(message: Message) -> int:
    """The message's time as a score: microseconds since 1970."""
    return max(-_MAX_SCORE, min(_MAX_SCORE, to_microseconds(message.created_at)))


def to_scores(messages: Sequence[Message]) -> list[int]:
    """Their times, each behind the one before it, so that their order is that of the record."""
    scores: list[int] = []
    for message in messages:
        time = to_score(message)
        scores.append(max(time, scores[-1] + 1) if scores else time)
    return scores


def _compute_digest(key: str, body: bytes) -> bytes:
    # With the key: a window that was moved to another session is none there.
    found = hashlib.blake2b(key.encode(), digest_size=_DIGEST_HEX_DIGITS // 2)
    found.update(body)
    return found.hexdigest().encode()


TOMBSTONE = b"~gone"
"""In place of what a window holds: its session was erased, and nobody may bring it back.

With ``~`` and a revision behind it, the session is still there and what it was before that revision is not.
"""

_READ_HEAD_SCRIPT = """
local head = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '-inf')[1] or ''
local stamp, count, bytes, whole = string.match(head, '^~([^~]+)~(%d+)~(%d+)~([01])$')
"""

# The newest ARGV[2] messages, if they are held as of the stamp ARGV[1]: {head, '1', message, ...}; else {head}.
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

# A window that was read from the database in place of the one that was there when it was found missing.
# ARGV: the head that was seen, the new head, seconds to live, then score and message of each.
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

# What was just written to the database, behind the windows of the state right before it and no other.
# ARGV: the stamp before, the stamp after, '1' for a session's first messages, messages and bytes at most,
# seconds to live, then time and message of each. Of a session's first messages the first window is made.
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
_TOMBSTONE_SECONDS = 3600  # far longer than anybody takes between reading a database and filling a window
_KEYS_PER_CALL = 500
_Reply = TypeVar("_Reply")


class WindowKind(Enum):
    """What a window shows the end of, by how its key ends."""

    RECORD = ""
    """All that was said, with the summaries."""
    LIST = ":list"
    """The list that a framework keeps of the session."""


@dataclass(frozen=True, slots=True)
class WindowContent:
    """What Redis holds of a session."""

    messages: tuple[Message, ...] | None
    """Those that were asked for; None if they are not there as of that state."""
    head: bytes
    """What says so, for whoever fills the window next."""


class RedisWindows:
    """Windows by the session's key.

    The key is the session's own in the database, which no other session ever gets: it stays when a session gets
    another name, and it tells nobody a name.

    Args:
        link: To Redis.
        config: How much is cached, and for how long.
        database_id: Whose sessions.

    Attributes:
        hits: Reads that were answered.
        misses: Reads that were not.
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
        """Whether it is worth asking; if not, that is counted as a question that was spared."""
        return self._connection.is_up or self._connection.record_skip()

    @property
    def pending_deletion_count(self) -> int:
        """How many sessions of which something was erased Redis was not told of yet."""
        return len(self._pending_deletions)

    def build_key(self, session: int, of: WindowKind = WindowKind.RECORD) -> str:
        """The key of a session's window."""
        return f"{self._key_prefix}{session}{of.value}"

    def get(
        self, session: int, stamp: SessionVersion, limit: int, of: WindowKind = WindowKind.RECORD
    ) -> WindowContent | None:
        """The newest ``limit`` messages as of that state; None if Redis did not answer."""
        key, state = self.build_key(session, of), str(stamp)
        found = self._execute(
            lambda: _parse_reply(self._read_script([key], [state, limit]), key, state, limit), key
        )
        with self._lock:
            if found is not None and found.messages is not None:
                self.hits += 1
            else:
                self.misses += 1
        return found

    def put(
        self,
        session: int,
        stamp: SessionVersion,
        messages: Sequence[Message],
        of: WindowKind = WindowKind.RECORD,
        *,
        head: bytes,
        whole: bool,
    ) -> None:
        """Hold what was read from the database, unless the window is another than the one that was seen.

        Args:
            session: Whose.
            stamp: The state that the messages were read at.
            messages: The newest, oldest first.
            of: Which of its windows.
            head: Of the window that was seen.
            whole: Whether these are all that the session has.
        """
        key = self.build_key(session, of)
        held = self._encode_newest(session, messages)
        kept = messages[len(messages) - len(held) :]
        size = sum(map(len, held))
        is_whole = int(whole and len(held) == len(messages))
        arguments: list[Any] = [head, f"~{stamp}~{len(held)}~{size}~{is_whole}", self._config.ttl_seconds]
        for score, member in zip(to_scores(kept), held, strict=True):
            arguments += (score, member)
        self._execute(lambda: self._fill_script([key], arguments), key)

    def extend(self, written: Sequence[SessionWrite]) -> None:
        """Add what was just written to the windows of the state before, all at once; any other is left as it is."""
        calls = [call for one in written if (call := self._build_extension(one)) is not None]
        if len(calls) == 1:
            keys, arguments = calls[0]
            self._execute(lambda: self._extend_script(keys, arguments), *keys)
        elif calls:
            self._execute(lambda: self._extend_pipelined(calls), *(key for keys, _ in calls for key in keys))

    def delete(self, sessions: Mapping[int, int | None]) -> bool:
        """Remove windows of which something was erased, and let nobody bring them back who read them before.

        Args:
            sessions: Keys, each with the revision from which on it may be cached again; None for one that is gone.

        Returns:
            False if Redis did not answer; it is told when it does.
        """
        with self._lock:
            self._pending_deletions.update(sessions)
        return self._flush_deletions()

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def _execute(self, question: Callable[[], _Reply], *keys: str) -> _Reply | None:
        if self._pending_deletions and self._connection.is_up:
            self._flush_deletions()

        def ask() -> _Reply:
            try:
                return question()
            except OSError:
                raise
            except Exception as error:
                # A server that answers holds something else there than a window: away with it. redis-py's own
                # errors of connections and time limits are no OSError.
                if type(error).__name__ not in ("ConnectionError", "TimeoutError"):
                    with suppress(Exception):
                        self._connection.client.unlink(*keys)
                raise

        return self._connection.execute(ask)

    def _build_extension(self, written: SessionWrite) -> tuple[list[str], list[Any]] | None:
        config, added = self._config, written.added
        held = self._encode_newest(written.key, added)
        if len(held) < len(added):  # more than a window: whoever reads it next fills it
            return None
        is_first = int(written.before.revision == 0)
        arguments: list[Any] = [str(written.before), str(written.after), is_first]
        arguments += (config.window, config.max_window_bytes, config.ttl_seconds)
        for message, member in zip(added, held, strict=True):
            arguments += (to_score(message), member)
        return [self.build_key(written.key, of) for of in WindowKind], arguments

    def _extend_pipelined(self, calls: Sequence[tuple[list[str], list[Any]]]) -> None:
        with self._connection.client.pipeline(transaction=False) as pipe:
            for keys, arguments in calls:
                self._extend_script(keys, arguments, client=pipe)
            pipe.execute()

    def _flush_deletions(self) -> bool:
        with self._lock:
            waiting = list(self._pending_deletions.items())
        for start in range(0, len(waiting), _KEYS_PER_CALL):
            some = waiting[start : start + _KEYS_PER_CALL]
            if self._connection.execute(lambda some=some: self._write_tombstones(some)) is None:  # type: ignore[misc]
                return False
            with self._lock:
                for session, since in some:
                    if self._pending_deletions.get(session, -1) == since:
                        del self._pending_deletions[session]
        return True

    def _write_tombstones(self, sessions: Sequence[tuple[int, int | None]]) -> bool:
        with self._connection.client.pipeline(transaction=True) as pipe:
            for session, since in sessions:
                head = TOMBSTONE if since is None else b"%b~%d" % (TOMBSTONE, since)
                for key in (self.build_key(session, of) for of in WindowKind):
                    pipe.delete(key)
                    pipe.zadd(key, {head: float("-inf")})
                    pipe.expire(key, _TOMBSTONE_SECONDS)
            pipe.execute()
        return True

    def _encode_newest(self, session: int, messages: Sequence[Message]) -> list[bytes]:
        # The newest that a window takes, oldest first.
        held: list[bytes] = []
        key = self.build_key(session)
        room = self._config.max_window_bytes
        for message in reversed(messages[-self._config.window :]):
            member = to_window_member(key, message)
            room -= len(member)
            if room < 0:
                break
            held.append(member)
        return held[::-1]


def _parse_reply(answer: Any, key: str, stamp: str, limit: int) -> WindowContent:  # noqa: ANN401 - whatever the server says
    if not isinstance(answer, list) or not answer or not isinstance(answer[0], bytes):
        raise ValueError("redis answered a question that was not asked")
    if len(answer) == 1:
        return WindowContent(None, answer[0])
    head, members = _HEAD_PATTERN.fullmatch(answer[0]), answer[2:]
    # What runs in Redis has looked at all this; a server that only looks like one has not.
    if head is None or head[1] != stamp.encode():
        raise ValueError("redis gave a window of another state")
    held = int(head[2])
    if len(members) != min(limit, held) or (limit > held and head[4] != b"1"):
        raise ValueError("redis gave a part of what it holds")
    whose = key.removesuffix(WindowKind.LIST.value)
    return WindowContent(tuple(from_window_member(whose, member) for member in members), answer[0])
