"""One PostgreSQL and one Redis for all workers of a test run, started by the first test that needs them."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from redis import Redis, RedisError

from benchmarks.servers import OwnPostgres, redis_program
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "LANGMEM_TIERS_TEST_SERVERS"
"""Environment variable with the folder of the run's servers. Workers inherit it."""


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
        server = OwnPostgres(folder / "postgres", {"fsync": "off", "max_connections": "300"})
        (folder / "postgres.pickle").write_bytes(pickle.dumps(server))

    return _load(_start_once("postgres.pickle", start)).url


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


def _load(file: Path) -> OwnPostgres:
    server: OwnPostgres = pickle.loads(file.read_bytes())  # noqa: S301 - written by this run
    return server


def _answers(socket: Path) -> bool:
    try:
        with Redis(unix_socket_path=str(socket)) as client:
            return bool(client.ping())
    except RedisError:
        return False
