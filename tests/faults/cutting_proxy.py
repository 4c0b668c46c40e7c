"""A proxy between a client and PostgreSQL that cuts the connection at a chosen moment."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NAME = ".s.PGSQL.5432"
Cut = Literal["before", "after"]
COMMIT = "COMMIT\0"  # the whole statement, not the end of "READ COMMITTED"


class CuttingProxy:
    """A socket that hands everything on until it is armed.

    Args:
        url: Of a database of a server on a Unix socket.
        folder: For the proxy's own socket.
    """

    def __init__(self, url: str, folder: Path) -> None:
        place = parse_qs(urlsplit(url).query)["host"][0]
        self.direct_url = url
        self.url = url.replace(place, str(folder))
        self.cuts = 0
        self._server = f"{place}/{_NAME}"
        self._word, self._when = b"", "before"
        self._meanwhile: Callable[[], object] = _nothing
        self._refuses = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = self._socket()
        self._listener.bind(f"{folder}/{_NAME}")
        self._listener.listen(20)
        self._start(self._accept)

    def _socket(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        self._sockets.append(made)
        return made

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def cut(self, when: Cut, word: str, meanwhile: Callable[[], object] | None = None) -> None:
        """Cut the next connection that says the word: before the server hears it, or after it has answered.

        Args:
            when: Whether the server hears it.
            word: What is said.
            meanwhile: Done while an answer is held back, before the line is cut.
        """
        with self._lock:
            self._word, self._when, self._meanwhile = word.encode(), when, meanwhile or _nothing

    def refuse(self) -> None:
        """Let no new connection through."""
        self._refuses = True

    @property
    def is_refusing(self) -> bool:
        """Whether new connections are refused."""
        return self._refuses

    def accept(self) -> None:
        """Let new connections through again."""
        self._refuses = False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                if self._refuses:
                    _end(client)
                    continue
                server, ends = self._socket(), threading.Event()
                server.connect(self._server)
                self._start(self._to_server, client, server, ends)
                self._start(self._to_client, server, client, ends)

    def _to_server(self, client: socket.socket, server: socket.socket, ends: threading.Event) -> None:
        with suppress(OSError):
            while said := client.recv(65536):
                when = self._cut_now(said)
                if when == "before":
                    break
                if when == "after":
                    ends.set()  # the answer does not come through any more
                server.sendall(said)
        _end(client, server)

    def _to_client(self, server: socket.socket, client: socket.socket, ends: threading.Event) -> None:
        with suppress(OSError):
            while (said := server.recv(65536)) and not ends.is_set():
                client.sendall(said)
        if ends.is_set():
            self._meanwhile()
        _end(client, server)

    def _cut_now(self, said: bytes) -> str | None:
        with self._lock:
            if not self._word or self._word not in said:
                return None
            self._word = b""
            self.cuts += 1
            return self._when

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The acceptor ends first, so that no connection is added after all were closed.
        _end(self._listener)
        self._threads[0].join()
        _end(*self._sockets)
        for thread in self._threads:
            thread.join()
        for sock in self._sockets:
            sock.close()


def _nothing() -> None:
    pass


def _end(*sockets: socket.socket) -> None:
    for sock in sockets:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
