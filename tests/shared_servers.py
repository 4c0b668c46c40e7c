"""One PostgreSQL and one Redis for all workers of a test run, started by the first test that needs them."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.errors import ObjectInUse
from redis import Redis, RedisError
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from benchmarks.servers import TemporaryPostgres, redis_program
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "LANGMEM_TIERS_TEST_SERVERS"
"""Environment variable with the folder of the run's servers. Workers inherit it."""

SETTINGS = {
    "autovacuum": "off",  # its locks would compete with the short lock limits of tests
    "fsync": "off",
    "max_connections": "300",
    # Its files are in memory: keep little of the write-ahead log.
    "max_wal_senders": "0",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "shared_buffers": "32MB",
    "wal_level": "minimal",
}


def prepare() -> None:
    """Create the folder of a run's servers."""
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT") or None
    os.environ[FOLDER] = os.path.realpath(tempfile.mkdtemp(prefix="lmt-servers-", dir=root))


def stop() -> None:
    """Stop the servers that tests have started, and delete their data."""
    folder = Path(os.environ.pop(FOLDER))
    if (file := folder / "postgres.pickle").exists():
        _load(file).close()
    if (socket := folder / "redis.sock").exists():
        with Redis(unix_socket_path=str(socket)) as client:
            client.shutdown(nosave=True)
    shutil.rmtree(folder, ignore_errors=True)


def new_folder() -> Path:
    """Create a folder for a server that a test starts itself.

    It is outside of pytest's folder: each start of pytest takes that one's permissions from other users, and
    PostgreSQL, which runs as another user if the tests run as root, would lose its data folder.
    """
    return Path(tempfile.mkdtemp(dir=os.environ[FOLDER]))


def postgres_url() -> str:
    """Return the URL of the PostgreSQL server, without a database name."""

    def start(folder: Path) -> None:
        server = TemporaryPostgres(folder / "postgres", SETTINGS)
        (folder / "postgres.pickle").write_bytes(pickle.dumps(server))

    return _load(_start_once("postgres.pickle", start)).url


class PostgresDatabases:
    """Creates and drops databases of one server."""

    def __init__(self, server: str) -> None:
        self._server = server
        driver_url = server.replace("postgresql://", "postgresql+psycopg://")
        self._admin = create_engine(driver_url, isolation_level="AUTOCOMMIT")

    def create(self) -> str:
        """Create an empty database and return its URL."""
        name = f"t{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name}")
        return self._server.replace("/postgres?", f"/{name}?")

    def drop(self, url: str) -> None:
        """Drop a database, even if a test has left connections to it.

        The server gives those connections five seconds to end, so a busy machine may need another try.
        """
        wait_until(lambda: self._is_dropped(str(make_url(url).database)), f"{url} is dropped")

    def _is_dropped(self, name: str) -> bool:
        try:
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        except OperationalError as error:
            if isinstance(error.orig, ObjectInUse):
                return False
            raise
        return True

    def close(self) -> None:
        self._admin.dispose()

    def _execute(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(text(statement))


def redis_url() -> str:
    """Return the URL of the Redis server."""

    def start(folder: Path) -> None:
        socket = folder / "redis.sock"
        arguments = ["--daemonize", "yes", "--port", "0", "--unixsocket", str(socket), "--save", ""]
        subprocess.run([redis_program(), *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        wait_until(lambda: _answers(socket), "Redis accepts connections")

    return f"unix://{_start_once('redis.sock', start)}"


def _start_once(name: str, start: Callable[[Path], None]) -> Path:
    """Return the file that `start` creates. Only the first worker calls it; the others wait."""
    folder = Path(os.environ[FOLDER])
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name).exists():
            start(folder)
    return folder / name


def _load(file: Path) -> TemporaryPostgres:
    server: TemporaryPostgres = pickle.loads(file.read_bytes())  # noqa: S301 - written by this run
    return server


def _answers(socket: Path) -> bool:
    try:
        with Redis(unix_socket_path=str(socket)) as client:
            return bool(client.ping())
    except RedisError:
        return False
