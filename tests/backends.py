"""The databases that tests run on, by name, and how to open an engine on each.

Every test runs on a SQLite file. Its repetitions on other databases carry the marker `backend`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, RedisConfig
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SQLITE_FILE = "sqlite-file"
SQLITE_MEMORY = pytest.param("sqlite-memory", marks=pytest.mark.backend)
POSTGRES = pytest.param("postgresql", marks=pytest.mark.backend)
WITH_REDIS = "postgresql+redis"
POSTGRES_REDIS = pytest.param(WITH_REDIS, marks=pytest.mark.backend)

BACKENDS = (SQLITE_FILE, POSTGRES)
"""For code above the storage layer."""
ON_DISK = (*BACKENDS, POSTGRES_REDIS)
"""For adapters, whose results must not depend on a cache."""
ALL_BACKENDS = (SQLITE_MEMORY, *ON_DISK)
"""For storage and recall."""
ON_FILE_AND_SERVER = pytest.mark.parametrize("backend", BACKENDS)
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
    return RedisConfig(url=str(request.getfixturevalue("redis_url")), timeout_seconds=LIMIT_SECONDS)


def config_of(backend: str, request: pytest.FixtureRequest) -> EngineConfig:
    """With Redis nothing is held in the process, so that Redis is asked."""
    redis = redis_of(backend, request)
    return EngineConfig() if redis is None else EngineConfig(cache=CacheConfig(max_characters=0), redis=redis)


@contextmanager
def open_backend_engine(
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
