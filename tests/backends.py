"""Where tests run, by name, and engines there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, RedisConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BACKENDS = ("sqlite-file", "postgresql")
"""For what stands above the stores: it sees nothing of where SQLite keeps its pages."""
WITH_REDIS = "postgresql+redis"
ON_DISK = (*BACKENDS, WITH_REDIS)
"""For adapters, which what is cached must not change."""
ALL_BACKENDS = ("sqlite-memory", *ON_DISK)
"""For the suites of stores and of recall."""
ON_ALL_BACKENDS = pytest.mark.parametrize("backend", ALL_BACKENDS)


def url_of(backend: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """A database of that kind. On PostgreSQL it is shared: use namespaces of your own."""
    if backend == "sqlite-memory":
        return "sqlite://"
    if backend == "sqlite-file":
        return f"sqlite:///{folder / 'memory.db'}"
    return str(request.getfixturevalue("shared_postgres"))


def redis_of(backend: str, request: pytest.FixtureRequest) -> RedisConfig | None:
    """The Redis before that database, if there is one."""
    if backend != WITH_REDIS:
        return None
    return RedisConfig(url=str(request.getfixturevalue("redis_url")), timeout_seconds=10)


def config_of(backend: str, request: pytest.FixtureRequest) -> EngineConfig:
    """With Redis nothing is held in the process, so that Redis is asked."""
    redis = redis_of(backend, request)
    return EngineConfig() if redis is None else EngineConfig(cache=CacheConfig(max_characters=0), redis=redis)


@contextmanager
def opened(
    backend: str,
    folder: Path,
    request: pytest.FixtureRequest,
    **parts: Any,
) -> Iterator[MemoryEngine]:
    """An engine there. Redis, if there is one, has to answer whatever it is asked."""
    with MemoryEngine(
        url_of(backend, folder, request), config=config_of(backend, request), **parts
    ) as engine:
        yield engine
        assert engine.redis is None or engine.redis.failures == 0
