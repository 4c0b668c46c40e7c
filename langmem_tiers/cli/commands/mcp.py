"""Commands that offer a memory to other programs."""

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
            help="Whose memory: labels parted by slashes, such as acme/alice. No tool reaches another.",
        ),
    ],
    redis: RedisOption = None,
    *,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that read.")] = False,
) -> None:
    """Serve the memory of one namespace to an MCP client over standard input and output."""
    teller = Output()
    with report_errors(teller):
        path = parse_namespace(namespace)
        with open_shared_engine(database, teller, redis=redis, creates=not read_only) as engine:
            if sys.stdin.isatty():  # somebody tries it by hand: a client starts it with a pipe
                teller.err.print(
                    f"Serving {format_namespace(path)} of {to_database_label(database)} to an MCP "
                    f"client on standard input; Ctrl-D ends it."
                )
            with _exit_on_signals(engine):
                serve(engine, path, read_only=read_only)


@contextmanager
def _exit_on_signals(engine: MemoryEngine) -> Iterator[None]:
    # Nothing wakes the thread that waits for standard input: whoever ends the process must not wait for it.
    def end(number: int, _frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.SIG_DFL)  # a second one ends it, whatever the database does
        try:
            engine.close()
        finally:
            os._exit(128 + number)  # as shells tell it

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
