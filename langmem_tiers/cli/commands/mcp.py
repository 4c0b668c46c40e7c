"""The command that serves a memory to an MCP client."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.cli.options import DatabaseOption, RedisOption  # noqa: TC001 - typer reads the annotations at run time
from langmem_tiers.cli.output import Output, report_errors
from langmem_tiers.cli.targets import open_shared_engine, to_database_label
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.mcp import serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from langmem_tiers.engine import MemoryEngine


def mcp_command(
    database: DatabaseOption,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            envvar="LANGMEM_TIERS_NAMESPACE",
            help="Namespace to serve: labels separated by slashes, for example acme/alice. "
            "The tools cannot reach any other.",
        ),
    ],
    redis: RedisOption = None,
    *,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that read.")] = False,
) -> None:
    """Serve the memory of one namespace to an MCP client over standard input and output."""
    printer = Output()
    with report_errors(printer):
        path = parse_namespace(namespace)
        with open_shared_engine(database, printer, redis=redis, creates=not read_only) as engine:
            # A client connects with a pipe; a terminal means that a user started the command by hand.
            if sys.stdin.isatty():
                printer.err.print(
                    f"Serving {format_namespace(path)} of {to_database_label(database)} to an MCP "
                    "client on standard input. Press Ctrl-D to stop."
                )
            with _exit_on_signals(engine):
                serve(engine, path, read_only=read_only)


@contextmanager
def _exit_on_signals(engine: MemoryEngine) -> Iterator[None]:
    # A thread blocks in a read of standard input, and no signal interrupts it. A normal exit would wait for that
    # thread, so the handler closes the engine and ends the process with os._exit().
    def exit_process(number: int, _frame: FrameType | None) -> None:
        for signal_number in previous_handlers:
            # A second signal ends the process even if closing the database hangs.
            signal.signal(signal_number, signal.SIG_DFL)
        try:
            engine.close()
        finally:
            # Shells report a process that a signal ended with this code.
            os._exit(128 + number)

    previous_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous_handlers:
        signal.signal(number, exit_process)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
