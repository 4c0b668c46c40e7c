"""The command that serves a memory over HTTP."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.cli.options import Budget, Database, Redis  # noqa: TC001 - as above
from langmem_tiers.cli.output import Teller, told_errors
from langmem_tiers.cli.targets import opened_for_others
from langmem_tiers.common.namespaces import path_of
from langmem_tiers.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.server import ServerConfig, Token, create_app, tokens_of
from langmem_tiers.server.config import address_of
from langmem_tiers.telemetry.prometheus import PrometheusMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import uvicorn
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry

    from langmem_tiers.telemetry.instruments import Metrics

TOKEN = "LANGMEM_TIERS_TOKEN"
"""The environment variable of a token for everything that is served."""
_MOST_CONNECTIONS = 500
_LAST_SECONDS = 10
"""How long requests under way may take when it is told to end."""
_BUSY_SHARE = 1 / 3
"""Of what a request may take: so long it waits for the database, and is answered before the server gives up on it."""


def serve(  # noqa: PLR0913 - each is an option
    database: Database,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help=f"Tokens, one a line, each with its namespace behind it or for all; {TOKEN} is one more.",
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Serve only this one and what lies below it.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="A name under which it is reached, if others reach it."),
    ] = None,
    redis: Redis = None,
    *,
    budget: Budget = None,
) -> None:
    """Serve a memory over HTTP, with pages to look into it, until Ctrl-C."""
    teller = Teller()
    with told_errors(teller):
        config = ServerConfig(
            tokens=_tokens(token_file),
            namespace=None if namespace is None else path_of(namespace),
            allowed_hosts=tuple(allowed_host or ()),
        )
        metrics, registry = _metrics()
        with (
            _listening(host, port) as listener,
            opened_for_others(
                database,
                teller,
                redis=redis,
                metrics=metrics,
                budget=budget,
                busy_timeout_seconds=config.timeout_seconds * _BUSY_SHARE,
            ) as engine,
        ):
            _check_reach(listener, has_tokens=bool(config.tokens))
            server = _server(create_app(engine, config=config, registry=registry))
            with _stopped_by_signals(server):
                teller.result(None, _told(listener, needs_token=bool(config.tokens)))
                server.run(sockets=[listener])


def _tokens(path: Path | None) -> tuple[Token, ...]:
    of_file = () if path is None else tokens_of(_text_of(path))
    if path is not None and not of_file:
        raise InvalidConfigError(f"there is no token in {str(path)!r}: write one a line")
    of_all = os.environ.get(TOKEN)
    return of_file if of_all is None else (*of_file, Token(of_all))


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfigError(
            f"{str(path)!r} is no UTF-8 (byte {error.start}): write the file of tokens again in that encoding"
        ) from None  # the cause holds the tokens


def _metrics() -> tuple[Metrics | None, CollectorRegistry | None]:
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
    except ImportError:
        return None, None
    registry = CollectorRegistry()
    return PrometheusMetrics(registry), registry


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidConfigError(
            f"nothing can listen at {host!r}, port {port} ({error.strerror or error}): "
            "choose another --port, or stop what listens there"
        ) from error


def _check_reach(listener: socket.socket, *, has_tokens: bool) -> None:
    address = listener.getsockname()[0]
    found = address_of(address)
    if not has_tokens and (found is None or not found.is_loopback):
        raise InvalidConfigError(
            f"{address!r} is reached from other machines: give them tokens, with --token-file or {TOKEN}"
        )


def _server(app: FastAPI) -> uvicorn.Server:
    try:
        import uvicorn  # noqa: PLC0415 - an extra, and not before it is needed
    except ImportError as error:
        raise MissingExtraError("serve needs uvicorn: pip install 'langmem-tiers[server]'") from error
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_LAST_SECONDS,
        )
    )


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    # uvicorn raises a signal that stopped it once more: by then the engine must be closed all the same.
    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _told(listener: socket.socket, *, needs_token: bool) -> list[str]:
    host, port = listener.getsockname()[:2]
    told = [f"Serving at http://{f'[{host}]' if ':' in host else host}:{port}/ - open it in a browser."]
    told += (
        ["It asks for a token."]
        if needs_token
        else ["Everybody on this machine may use it: there is no token."]
    )
    return [*told, "Ctrl-C ends it."]
