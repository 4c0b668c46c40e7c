"""The way to a Redis that may fail in every way: within a time limit, counted, and left alone for a while."""

from __future__ import annotations

import importlib
import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.fork_safety import register_fork_aware
from langmem_tiers.errors import InvalidConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

    from langmem_tiers.config import RedisConfig

_log = logging.getLogger("langmem_tiers")
_Reply = TypeVar("_Reply")
_WARNING_INTERVAL_SECONDS = 600.0  # after a warning: a Redis that comes and goes fills no log
_IGNORED_URL_SETTINGS = ("socket_timeout", "socket_connect_timeout", "decode_responses", "protocol", "retry")


class RedisConnection:
    """Asks one Redis. What fails is counted and gives nothing; then nobody asks it for some seconds.

    Args:
        config: Where it is, and how long to wait.
        timer: Seconds that never run backwards.

    Attributes:
        client: For commands inside ``ask()``.
        failures: Times that it did not answer as it should.
        skipped: Times that it was not asked.
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
        """Whether it would be asked now."""
        again = self._retry_at
        return again is None or self._timer() >= again

    def record_skip(self) -> bool:
        """Count that it was not asked; never true."""
        with self._lock:
            self.skipped += 1
        return False

    def execute(self, question: Callable[[], _Reply]) -> _Reply | None:
        """The answer; None if there is none."""
        if not self._may_execute():
            return None
        try:
            answer = question()
        except Exception as error:  # noqa: BLE001 - a cache that answers garbage may make its driver raise anything
            self.record_failure(error)
            return None
        if self._retry_at is not None:
            self._retry_at = None
            _log.debug("redis %s answers again", self._config.label)
        return answer

    def record_failure(self, error: Exception) -> None:
        """Count a failure, and leave Redis alone for a while; the first of several is logged."""
        with self._lock:
            now = self._timer()
            self.failures += 1
            self._retry_at = now + self._config.retry_seconds
            is_first = self._next_warning_at is None or now >= self._next_warning_at
            self._next_warning_at = now + _WARNING_INTERVAL_SECONDS if is_first else self._next_warning_at
        if is_first:  # only what kind of error: others may hold what was sent
            _log.warning(
                "redis %s does not serve (%s): memory goes on with its database alone, slower and complete; "
                "check RedisConfig.url and the server, which is asked again every %s s",
                self._config.label,
                type(error).__name__,
                self._config.retry_seconds,
            )

    def ping(self) -> bool:
        """Whether it answers; it is not asked if it failed a moment ago."""
        return self.execute(lambda: bool(self.client.ping())) is True

    def close(self) -> None:
        """Give the connections back."""
        try:
            self.client.close()
            self.client.connection_pool.disconnect()
        except Exception as error:  # noqa: BLE001 - what cannot be closed is gone already
            _log.debug("closing redis failed: %s", type(error).__name__)

    def before_fork(self) -> None:
        """Let no thread be in the middle of counting."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on; the driver makes connections of its own in a child."""
        self._lock.release()

    def _may_execute(self) -> bool:
        with self._lock:
            if not self.is_up:
                return self.record_skip()
            if self._retry_at is not None:  # this one tries, the others wait for what comes of it
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
        for ours in _IGNORED_URL_SETTINGS:
            settings.pop(ours, None)
        pool = connection.ConnectionPool(
            **settings,
            socket_timeout=config.timeout_seconds,
            socket_connect_timeout=config.timeout_seconds,
            protocol=2,
            # Once, for connections that a restart of the server has left dead; what is slow is not asked twice.
            retry=retry.Retry(backoff.NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )
        pool.connection_class(**pool.connection_kwargs)  # no connection yet: refuses settings that are none
    except (TypeError, ValueError, redis.RedisError):
        raise InvalidConfigError(
            f"the URL of {config.label!r} holds a setting that is none: leave out what stands behind the '?'"
        ) from None
    client: Redis = redis.Redis(connection_pool=pool)
    return client
