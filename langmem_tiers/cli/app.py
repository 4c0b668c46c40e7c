"""The Typer application. Commands parse arguments and print results; the logic is in the library."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import Annotated

import typer
from rich.console import Console

from langmem_tiers.cli.commands.backup import backup_command, move_command, restore_command
from langmem_tiers.cli.commands.export import export_command, import_command
from langmem_tiers.cli.commands.inspect import inspect_command, search_command, status_command
from langmem_tiers.cli.commands.maintenance import (
    forget_command,
    maintain_command,
    optimize_command,
    reembed_command,
)
from langmem_tiers.cli.commands.mcp import mcp_command
from langmem_tiers.cli.commands.serve import serve_command
from langmem_tiers.cli.demo.command import Framework
from langmem_tiers.cli.output import Output, report_errors
from langmem_tiers.version import __version__

app = typer.Typer(
    help="Tiered, lossless memory for agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:  # noqa: FBT001 - typer's callback signature
    if is_requested:
        typer.echo(f"langmem-tiers {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tiered, lossless memory for agents."""


@app.command()
def demo(
    database: Annotated[
        Path | None,
        typer.Option("--database", "-d", help="SQLite file that keeps the memory, to inspect it afterwards."),
    ] = None,
    framework: Annotated[
        Framework, typer.Option("--framework", "-f", help="Framework of the agents.")
    ] = Framework.LANGCHAIN,
) -> None:
    """Ask an agent about a bundled project conversation, with and without memory."""
    from langmem_tiers.cli.demo.command import run_demo  # noqa: PLC0415 - only this command needs it

    printer = Output()
    with report_errors(printer):
        run_demo(Console(), database, framework)


for command, name in (
    (status_command, "status"),
    (inspect_command, "inspect"),
    (search_command, "search"),
    (export_command, "export"),
    (import_command, "import"),
    (backup_command, "backup"),
    (restore_command, "restore"),
    (move_command, "move"),
    (optimize_command, "optimize"),
    (reembed_command, "reembed"),
    (forget_command, "forget"),
    (maintain_command, "maintain"),
    (mcp_command, "mcp"),
    (serve_command, "serve"),
):
    app.command(name)(command)
