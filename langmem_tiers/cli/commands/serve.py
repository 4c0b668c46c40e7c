"""The command that serves a memory over HTTP."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.cli.options import BudgetOption, DatabaseOption, RedisOption  # noqa: TC001 - as above
from langmem_tiers.cli.output import Output, report_errors
from langmem_tiers.cli.targets import open_shared_engine
from langmem_tiers.common.namespaces import parse_namespace
from langmem_tiers.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.server import ServerConfig, Token, create_app, parse_tokens
from langmem_tiers.server.config import parse_address
from langmem_tiers.telemetry.prometheus import PrometheusMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import uvicorn
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry

    from langmem_tiers.telemetry.instruments import Metrics

TOKEN_VARIABLE = "LANGMEM_TIERS_TOKEN"
"""The environment variable of a token for everything that is served."""
_MAX_CONNECTIONS = 500
_SHUTDOWN_SECONDS = 10
"""How long requests under way may take when it is told to end."""
_BUSY_TIMEOUT_SHARE = 1 / 3
"""Of what a request may take: so long it waits for the database, and is answered before the server gives up on it."""


def serve_command(  # noqa: PLR0913 - each is an option
    database: DatabaseOption,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help=f"Tokens, one a line, each with its namespace behind it or for all; {TOKEN_VARIABLE} is one more.",
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Serve only this one and what lies below it.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="A name under which it is reached, if others reach it."),
    ] = None,
    redis: RedisOption = None,
    *,
    budget: BudgetOption = None,
) -> None:
    """Serve a memory over HTTP, with pages to look into it, until Ctrl-C."""
    teller = Output()
    with report_errors(teller):
        config = ServerConfig(
            tokens=_load_tokens(token_file),
            namespace=None if namespace is None else parse_namespace(namespace),
            allowed_hosts=tuple(allowed_host or ()),
        )
        metrics, registry = _build_metrics()
        with (
            _open_listener(host, port) as listener,
            open_shared_engine(
                database,
                teller,
                redis=redis,
                metrics=metrics,
                budget=budget,
                busy_timeout_seconds=config.timeout_seconds * _BUSY_TIMEOUT_SHARE,
            ) as engine,
        ):
            _check_tokens_required(listener, has_tokens=bool(config.tokens))
            server = _build_server(create_app(engine, config=config, registry=registry))
            with _stop_on_signals(server):
                teller.print_result(None, _describe_server(listener, needs_token=bool(config.tokens)))
                server.run(sockets=[listener])


def _load_tokens(path: Path | None) -> tuple[Token, ...]:
    of_file = () if path is None else parse_tokens(_read_text(path))
    if path is not None and not of_file:
        raise InvalidConfigError(f"there is no token in {str(path)!r}: write one a line")
    of_all = os.environ.get(TOKEN_VARIABLE)
    return of_file if of_all is None else (*of_file, Token(of_all))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfigError(
            f"{str(path)!r} is no UTF-8 (byte {error.start}): write the file of tokens again in that encoding"
        ) from None  # the cause holds the tokens


def _build_metrics() -> tuple[Metrics | None, CollectorRegistry | None]:
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
    except ImportError:
        return None, None
    registry = CollectorRegistry()
    return PrometheusMetrics(registry), registry


def _open_listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidConfigError(
            f"nothing can listen at {host!r}, port {port} ({error.strerror or error}): "
            "choose another --port, or stop what listens there"
        ) from error


def _check_tokens_required(listener: socket.socket, *, has_tokens: bool) -> None:
    address = listener.getsockname()[0]
    found = parse_address(address)
    if not has_tokens and (found is None or not found.is_loopback):
        raise InvalidConfigError(
            f"{address!r} is reached from other machines: give them tokens, with --token-file or {TOKEN_VARIABLE}"
        )


def _build_server(app: FastAPI) -> uvicorn.Server:
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
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
    )


@contextmanager
def _stop_on_signals(server: uvicorn.Server) -> Iterator[None]:
    # uvicorn raises a signal that stopped it once more: by then the engine must be closed all the same.
    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _describe_server(listener: socket.socket, *, needs_token: bool) -> list[str]:
    host, port = listener.getsockname()[:2]
    told = [f"Serving at http://{f'[{host}]' if ':' in host else host}:{port}/ - open it in a browser."]
    told += (
        ["It asks for a token."]
        if needs_token
        else ["Everybody on this machine may use it: there is no token."]
    )
    return [*told, "Ctrl-C ends it."]
