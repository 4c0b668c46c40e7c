"""Databases to test on: SQLite, a real PostgreSQL and a real Redis, both from wheels."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import uuid
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from langmem_tiers.testing import FrozenClock, seeded_ids
from tests import shared_servers
from tests.backends import BACKENDS, config_of, open_backend_engine, url_of
from tests.hypothesis_settings import FAST_EXAMPLES, THOROUGH_EXAMPLES
from tests.shared_servers import PostgresDatabases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers import EngineConfig, MemoryEngine

settings.register_profile(
    "random",  # new examples in each run: make fuzz
    deadline=None,  # disks and servers are real; speed is measured in benchmarks/
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=THOROUGH_EXAMPLES,
    print_blob=True,
)
# The same examples in each run, so that a failure is caused by the change under test.
settings.register_profile(
    "thorough", settings.get_profile("random"), derandomize=True, max_examples=THOROUGH_EXAMPLES
)
settings.register_profile("fast", settings.get_profile("thorough"), max_examples=FAST_EXAMPLES)
settings.load_profile("fast")


IN_MEMORY = Path("/dev/shm")  # noqa: S108 - exists on Linux only
FREE_BYTES = 4_000_000_000


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary files into memory, accept interrupts, and stop the run's servers at its end.

    Thousands of databases are created here, and on a disk each of them would wait for it.
    """
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > FREE_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A script starts its background jobs like this, and the processes that tests interrupt would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if shared_servers.FOLDER not in os.environ:  # not a worker of another process
        shared_servers.prepare()
        config.add_cleanup(shared_servers.stop)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the ids of long texts: some are megabytes, and every report carries its id."""
    return f"{ascii(val[:30])[1:-1]}... ({len(val):,})" if isinstance(val, str) and len(val) > 100 else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but a sample of the cases of a test to the full suite, if it asks for that."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("backend"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        marker = group[0].get_closest_marker("sample")
        assert marker is not None
        step = max(1, len(group) // marker.args[0])
        for position, item in enumerate(group):
            if position % step:
                item.add_marker(pytest.mark.soak)


def pytest_collection_finish() -> None:
    """Keep tests and frameworks out of garbage collections, and collect less often: each takes up to a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """URL of a real PostgreSQL, without a database name."""
    return shared_servers.postgres_url()


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str) -> Iterator[PostgresDatabases]:
    """Creates databases that other fixtures share."""
    with closing(PostgresDatabases(postgres_server)) as databases:
        yield databases


@pytest.fixture
def new_postgres_database(postgres_databases: PostgresDatabases) -> Iterator[Callable[[], str]]:
    """Creates an empty database and returns its URL. The database is dropped after the test."""
    urls: list[str] = []

    def create() -> str:
        urls.append(postgres_databases.create())
        return urls[-1]

    yield create
    for url in urls:
        postgres_databases.drop(url)


@pytest.fixture(scope="session")
def shared_postgres(postgres_databases: PostgresDatabases) -> str:
    """One database for all tests that work in namespaces of their own."""
    return postgres_databases.create()


@pytest.fixture(scope="session")
def redis_url() -> str:
    """URL of a real Redis that all tests share. Do not stop or flush it."""
    return shared_servers.redis_url()


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
    with open_backend_engine(backend, tmp_path, request, clock=clock, ids=seeded_ids()) as engine:
        yield engine


@pytest.fixture
def tenant() -> str:
    """A namespace that nobody else uses."""
    return uuid.uuid4().hex


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A SQLite file."""
    return f"sqlite:///{tmp_path / 'memory.db'}"
