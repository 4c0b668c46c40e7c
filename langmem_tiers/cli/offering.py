"""Commands that offer a memory to other programs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from langmem_tiers.cli.options import Database, Redis  # noqa: TC001 - typer reads the annotations at run time
from langmem_tiers.cli.places import label, opened
from langmem_tiers.cli.telling import Teller, told_errors
from langmem_tiers.core.paths import path_of, shown
from langmem_tiers.mcp_server import serve


def mcp(
    database: Database,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            envvar="LANGMEM_TIERS_NAMESPACE",
            help="Whose memory: labels parted by slashes, such as acme/alice. No tool reaches another.",
        ),
    ],
    redis: Redis = None,
    *,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that read.")] = False,
) -> None:
    """Serve the memory of one namespace to an MCP client over standard input and output."""
    teller = Teller()
    with told_errors(teller):
        path = path_of(namespace)
        with opened(database, redis=redis, embedder="offline", creates=not read_only) as engine:
            if sys.stdin.isatty():  # somebody tries it by hand: a client starts it with a pipe
                teller.err.print(
                    f"Serving {shown(path)} of {label(database)} to an MCP client on standard input; Ctrl-D ends it."
                )
            serve(engine, path, read_only=read_only)
