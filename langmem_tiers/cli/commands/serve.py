"""The command that serves a memory over HTTP."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

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
"""Environment variable with a token for all namespaces that are served."""
_MAX_CONNECTIONS = 500
_SHUTDOWN_SECONDS = 10
"""Maximum time for active requests to finish after a signal to stop."""
_BUSY_TIMEOUT_SHARE = 1 / 3
"""Share of the request time-out to wait for a locked database, so that the error is sent before the time-out."""


def serve_command(  # noqa: PLR0913 - one parameter per option
    database: DatabaseOption,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 chooses a free port.")
    ] = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File with one token per line, optionally followed by the namespace that it opens. "
            f"{TOKEN_VARIABLE} adds a token for all namespaces.",
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Serve only this namespace and those below it.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="Host name under which other machines reach the server."),
    ] = None,
    redis: RedisOption = None,
    *,
    budget: BudgetOption = None,
) -> None:
    """Serve a memory over HTTP, with an inspector for the browser, until Ctrl-C."""
    printer = Output()
    with report_errors(printer):
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
                printer,
                redis=redis,
                metrics=metrics,
                budget=budget,
                busy_timeout_seconds=config.timeout_seconds * _BUSY_TIMEOUT_SHARE,
            ) as engine,
        ):
            _check_tokens_required(listener, has_tokens=bool(config.tokens))
            server = _build_server(create_app(engine, config=config, registry=registry))
            with _stop_on_signals(server):
                printer.print_result(
                    None, _describe_server(listener.getsockname(), needs_token=bool(config.tokens))
                )
                server.run(sockets=[listener])


def _load_tokens(path: Path | None) -> tuple[Token, ...]:
    file_tokens = () if path is None else parse_tokens(_read_text(path))
    if path is not None and not file_tokens:
        raise InvalidConfigError(f"no token in {str(path)!r}: write one token per line")
    variable_token = os.environ.get(TOKEN_VARIABLE)
    return file_tokens if variable_token is None else (*file_tokens, Token(variable_token))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfigError(
            f"{str(path)!r} is not UTF-8 (byte {error.start}): save the token file in that encoding"
        ) from None  # the original exception contains the tokens


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
            f"cannot listen on {host!r}, port {port} ({error.strerror or error}): "
            "choose another --port, or stop the process that uses it"
        ) from error


def _check_tokens_required(listener: socket.socket, *, has_tokens: bool) -> None:
    # The address of the socket, not --host: a host name may resolve to any address.
    address = listener.getsockname()[0]
    parsed = parse_address(address)
    if not has_tokens and (parsed is None or not parsed.is_loopback):
        raise InvalidConfigError(
            f"{address!r} can be reached from other machines: configure tokens with --token-file or {TOKEN_VARIABLE}"
        )


def _build_server(app: FastAPI) -> uvicorn.Server:
    try:
        import uvicorn  # noqa: PLC0415 - an extra
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
    # uvicorn restores the previous handlers when it stops and raises the signal again. With the default handlers the
    # process would end there, before the engine is closed; with this one, the command ends normally.
    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    previous_handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _describe_server(address: tuple[Any, ...], *, needs_token: bool) -> list[str]:
    host, port = address[:2]
    parsed = parse_address(host)
    is_everywhere = parsed is not None and parsed.is_unspecified
    if is_everywhere:
        # The server rejects requests for 0.0.0.0 and [::] themselves: no connection has them as its local address.
        host = "::1" if ":" in host else "127.0.0.1"
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    return [
        f"Listening on all addresses, port {port}; open {url}. Other names need --allowed-host."
        if is_everywhere
        else f"Serving at {url} - open it in a browser.",
        "A token is required." if needs_token else "No token is set: every user of this machine has access.",
        "Press Ctrl-C to stop.",
    ]
