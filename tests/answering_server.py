"""A server that only looks like Redis."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


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
