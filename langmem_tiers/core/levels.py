"""The two upper levels: working memories in this process, and Redis as a shared cache of recent messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from langmem_tiers.core.checks import check_positive, check_whole
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.core.showing import Told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.names import NamespacePath

_SCHEMES = ("redis", "rediss", "unix")
_LONGEST_PREFIX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """Redis as a shared cache of each session's newest messages; never the only copy of anything.

    Every read compares what is cached with the session's row, so a Redis that is down, slow, empty or wrong makes
    reads slower and never wrong.
    """

    url: str = field(default="redis://localhost:6379", repr=False)
    """``redis://user:password@host:port/0``, ``rediss://...`` with TLS, or ``unix:///path/to/socket``."""
    prefix: str = "langmem-tiers"
    """How all keys begin."""
    ttl_seconds: int = 86_400
    """For how long a session that nobody writes to stays cached."""
    window: int = 100
    """How many of a session's newest messages are cached at most."""
    max_window_bytes: int = 1_000_000
    """What they may take in Redis; of larger ones fewer are cached."""
    timeout_seconds: float = 0.25
    """How long to wait for a connection, and for an answer."""
    retry_seconds: float = 5.0
    """How long a Redis that failed is left alone."""

    def __post_init__(self) -> None:
        _check_redis_url(self.url)
        _check_prefix(self.prefix)
        check_whole(self.ttl_seconds, 1, "ttl_seconds", most=10**9)
        check_whole(self.window, 1, "window", most=10_000)
        check_whole(self.max_window_bytes, 1, "max_window_bytes")
        check_positive(self.timeout_seconds, "timeout_seconds", most=3600)
        check_positive(self.retry_seconds, "retry_seconds", most=86_400)

    @property
    def label(self) -> str:
        """The URL for people: nothing that may hold a secret, so no password and no query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStatus(Told):
    """How Redis serves this engine, counted since the engine was opened."""

    label: str
    """Which Redis, without the password."""
    is_connected: bool
    hits: int
    """Reads that were answered from Redis."""
    misses: int
    """Reads for which Redis had nothing, or nothing of now."""
    failures: int
    """Times that it did not answer, or answered what is no answer."""
    skipped: int
    """Times that it was not asked, because it had failed a moment ago."""
    unremoved: int
    """Sessions of which something erased may still lie in Redis; it goes when that answers again, or by its TTL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingConfig:
    """What working memories may take in this process."""

    max_agents: int = 1000
    """How many are held; the least recently used is stored and leaves first."""
    max_megabytes: int = 500
    """What all of them take, measured."""
    ttl_seconds: float = 1800.0
    """One that nobody used for so long is stored and leaves."""
    flush_tokens: int = 32_000
    """One that takes more tokens is stored to its session."""

    def __post_init__(self) -> None:
        check_whole(self.max_agents, 1, "max_agents")
        check_whole(self.max_megabytes, 1, "max_megabytes")
        check_positive(self.ttl_seconds, "ttl_seconds")
        check_whole(self.flush_tokens, 1, "flush_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemory:
    """What an agent has at hand in one conversation, as of one moment."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    """Oldest first; those that were stored to the session have left, but for calls that wait for a result."""
    tool_results: Mapping[str, Message]
    """Results of tools among them, by the id of their call."""
    scratchpad: str
    token_count: int
    """Of the messages."""
    unsaved: int
    """How many of the messages are not in the session yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingReport(Told):
    """What became of a message that was put into a working memory."""

    message: Message
    is_new: bool
    """False if the memory held it already, by its id."""
    flushed: int
    """How many messages were stored to the session because there were too many tokens."""
    token_count: int
    """Of the working memory, after it."""
    problem: str | None = None
    """Why they could not be stored; they are held and stored later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport(Told):
    """What was stored out of working memories."""

    messages: int
    """Newly in their sessions."""
    agents: int
    """From how many working memories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingStatus(Told):
    """What working memories take."""

    agents: int
    megabytes: float
    """Measured."""
    unsaved: int
    """Messages that are in no session yet."""


def _check_redis_url(url: object) -> None:
    if not isinstance(url, str):
        raise InvalidConfigError(
            f"a Redis URL must be a str, got a {type(url).__name__}: use 'redis://localhost:6379'"
        )
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        raise InvalidConfigError(
            "that is no Redis URL, or its port is none: use 'redis://localhost:6379', and write marks in a password "
            "as %40, %2F, ..."
        ) from None
    if parts.scheme not in _SCHEMES:
        raise InvalidConfigError(
            f"unknown kind of Redis URL {parts.scheme!r}: use redis://, rediss:// (TLS) or unix://"
        )
    if not port_is_one or not _names_a_place(parts):
        raise InvalidConfigError(
            f"the {parts.scheme}:// URL names no Redis: use 'redis://host:6379/0' or 'unix:///path/to/socket'"
        )


def _names_a_place(parts: SplitResult) -> bool:
    if parts.scheme == "unix":
        return len(parts.path) > 1
    return bool(parts.hostname) and (parts.path in ("", "/") or parts.path[1:].isdecimal())


def _check_prefix(prefix: object) -> None:
    if not isinstance(prefix, str) or not 0 < len(prefix) <= _LONGEST_PREFIX or not prefix.isprintable():
        raise InvalidConfigError(
            f"prefix must be a text of 1 to {_LONGEST_PREFIX} printable characters, got {prefix!r}: "
            "use e.g. 'langmem-tiers'"
        )
