"""A server that accepts connections like Redis and sends the same reply to every request."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class FixedReplyServer:
    """Sends the same bytes in reply to every request, or nothing at all.

    Args:
        answer: The bytes; None for no reply.

    Attributes:
        url: Where the server listens.
        connections: How many connections it has accepted.
    """

    def __init__(self, answer: bytes | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmt-redis-", dir="/tmp"))
        self.url = f"unix://{self.folder / 'redis.sock'}"
        self.connections = 0
        self._answer = answer
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / "redis.sock"))
        self._listener.listen()
        self._acceptor = self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The acceptor ends first, so that no connection is added after all were closed.
        _end(self._listener)
        self._acceptor.join()
        for sock in self._sockets:
            _end(sock)
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._sockets):
            sock.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was shut down
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                self.connections += 1
                self._threads.append(self._start(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            while connection.recv(65536):
                if self._answer is not None:
                    connection.sendall(self._answer)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
