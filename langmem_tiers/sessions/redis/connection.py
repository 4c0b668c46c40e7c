"""Fault-tolerant Redis connection: time limits, failure counts, and a pause after each failure."""

from __future__ import annotations

import importlib
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.fork_safety import register_fork_aware
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

    from langmem_tiers.config import RedisConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStatus(Displayable):
    """Status of the Redis cache; counters start when the engine is opened."""

    label: str
    """URL without the password."""
    is_connected: bool
    hits: int
    """Reads served by Redis."""
    misses: int
    """Reads for which Redis had no current data."""
    failures: int
    """Commands that failed or got an invalid reply."""
    skipped: int
    """Commands that were not sent because of a recent failure."""
    unremoved: int
    """Sessions with erased data that Redis may still contain, until it is available again or the TTL expires."""


_log = logging.getLogger("langmem_tiers")
_Reply = TypeVar("_Reply")
# Minimum time between two warnings, so that an unstable Redis does not flood the log.
_WARNING_INTERVAL_SECONDS = 600.0
# Settings that the connection sets itself.
_IGNORED_URL_SETTINGS = ("socket_timeout", "socket_connect_timeout", "decode_responses", "protocol", "retry")


class RedisConnection:
    """Sends commands to one Redis. A failure returns None, is counted, and pauses all commands for some seconds.

    Args:
        config: URL, time limits and length of the pause.
        timer: Monotonic clock in seconds.

    Attributes:
        client: Client for commands inside ``execute()``.
        failures: Number of failed commands.
        skipped: Number of commands not sent because of a recent failure.
    """

    def __init__(self, config: RedisConfig, timer: Callable[[], float]) -> None:
        self.client: Redis = _build_client(config)
        self.failures = 0
        self.skipped = 0
        self._config = config
        self._timer = timer
        self._lock = threading.RLock()
        self._retry_at: float | None = None
        self._next_warning_at: float | None = None
        register_fork_aware(self)

    @property
    def is_up(self) -> bool:
        """True if a command would be sent now."""
        # Read once: another thread may reset it.
        retry_at = self._retry_at
        return retry_at is None or self._timer() >= retry_at

    def record_skip(self) -> bool:
        """Count a command that was not sent; always return False."""
        with self._lock:
            self.skipped += 1
        return False

    def execute(self, question: Callable[[], _Reply]) -> _Reply | None:
        """Run a function that sends commands; return its result, or None if it failed or was skipped."""
        if not self._may_execute():
            return None
        try:
            reply = question()
        except Exception as error:  # noqa: BLE001 - an invalid reply may make the driver raise anything
            self.record_failure(error)
            return None
        if self._retry_at is not None:
            self._retry_at = None
            _log.debug("redis %s is available again", self._config.label)
        return reply

    def record_failure(self, error: Exception) -> None:
        """Count a failure, start a pause, and log the first of several failures."""
        with self._lock:
            now = self._timer()
            self.failures += 1
            self._retry_at = now + self._config.retry_seconds
            is_first = self._next_warning_at is None or now >= self._next_warning_at
            self._next_warning_at = now + _WARNING_INTERVAL_SECONDS if is_first else self._next_warning_at
        # Log only the type of the error: its text may contain messages that were sent.
        if is_first:
            _log.warning(
                "redis %s is unavailable (%s): all data is read from the database, which is slower; "
                "check RedisConfig.url and the server; next attempt in %s s",
                self._config.label,
                type(error).__name__,
                self._config.retry_seconds,
            )

    def ping(self) -> bool:
        """Return True if Redis replies; without asking, False after a recent failure."""
        return self.execute(lambda: bool(self.client.ping())) is True

    def close(self) -> None:
        """Close all connections."""
        try:
            self.client.close()
            self.client.connection_pool.disconnect()
        except Exception as error:  # noqa: BLE001 - a connection that cannot be closed is broken already
            _log.debug("closing redis failed: %s", type(error).__name__)

    def before_fork(self) -> None:
        """Acquire the lock, so that no thread is changing the state."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Release the lock; in a child process the driver opens new connections."""
        self._lock.release()

    def _may_execute(self) -> bool:
        with self._lock:
            if not self.is_up:
                return self.record_skip()
            # After a failure only one thread tries again; the others skip Redis until it has succeeded.
            if self._retry_at is not None:
                self._retry_at = self._timer() + self._config.retry_seconds
            return True


def _build_client(config: RedisConfig) -> Redis:
    try:
        redis = importlib.import_module("redis")
        connection = importlib.import_module("redis.connection")
        retry = importlib.import_module("redis.retry")
        backoff = importlib.import_module("redis.backoff")
    except ImportError as error:
        raise MissingExtraError("Redis needs redis-py: pip install 'langmem-tiers[redis]'") from error
    try:
        settings: dict[str, Any] = connection.parse_url(config.url)
        for name in _IGNORED_URL_SETTINGS:
            settings.pop(name, None)
        pool = connection.ConnectionPool(
            **settings,
            socket_timeout=config.timeout_seconds,
            socket_connect_timeout=config.timeout_seconds,
            protocol=2,
            # One retry, for connections that died when the server was restarted. Time-outs are not retried.
            retry=retry.Retry(backoff.NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )
        # Creates an object without connecting, to detect unknown settings now and not on first use.
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, redis.RedisError):
        raise InvalidConfigError(
            f"the URL of {config.label!r} has an invalid setting: remove the query string after '?'"
        ) from None
    client: Redis = redis.Redis(connection_pool=pool)
    return client
