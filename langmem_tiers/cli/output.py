"""Output of commands: tables for people, one JSON object for programs, errors with an exit code."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from langmem_tiers.errors import LangmemTiersError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

EXIT_FAILED, EXIT_NOT_CONFIRMED, EXIT_RUNNING_ELSEWHERE = 1, 3, 4
"""Exit codes; Typer exits with 2 if the command line is wrong."""
_COMMAND_WORDS = {
    "or overwrite=True": "or remove it first",
    "replace=True": "--replace --yes",
    "engine.backup()": "backup",
    "retention_days": "--days",
    "pass its name as session": "pass --session",
}
"""Python terms in error messages of the library, with their equivalents on the command line."""


_PASSWORD_PATTERNS = (
    # scheme://user:password@host. The password may contain any character, so it ends at the last @ of the word.
    # A single slash also matches: pathlib merges "//" when a URL is passed as a file.
    re.compile(r"(\w[\w+.-]*://?[^\s:@]*):\S*@"),
    # user:password@host without a scheme.
    re.compile(r"([\w.%+-]*):[^\s:@'\"]+@"),
)


class Output:
    """Printer for the results and errors of a command.

    Args:
        is_json: Print one JSON object on standard output and nothing else there.
    """

    def __init__(self, *, is_json: bool = False) -> None:
        for stream in (sys.stdout, sys.stderr):
            # A terminal without Unicode prints "?" instead of raising UnicodeEncodeError.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        self.is_json = is_json
        self.out = Console(highlight=False, markup=False, soft_wrap=False)
        self.err = Console(stderr=True, highlight=False, markup=False)

    def print_result(self, value: object, lines: Iterable[str] = ()) -> None:
        """Print the result of a command: ``value`` as JSON, or ``lines`` for a person."""
        if self.is_json:
            typer.echo(to_json_line(to_json_value(value), sys.stdout.encoding))
        else:
            for line in lines:
                self.out.print(line)

    def print_table(
        self, value: object, title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]
    ) -> None:
        """Print the result of a command: ``value`` as JSON, or a table for a person."""
        if self.is_json:
            self.print_result(value)
            return
        table = Table()
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self.out.print(title if table.row_count else f"{title}: none", style="bold")
        if table.row_count:
            self.out.print(table)

    @contextmanager
    def show_progress(self, what: str, *, counts: bool = True) -> Iterator[Callable[[int, int | None], None]]:
        """Show a progress bar on standard error, only in a terminal.

        Args:
            what: Label of the bar.
            counts: Show the number of completed steps.

        Yields:
            A function that takes the number of completed steps and their total, or None if it is unknown.
        """
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *([MofNCompleteColumn()] if counts else []),
            TimeElapsedColumn(),
            console=self.err,
            disable=not self.err.is_terminal,
            transient=True,
        )
        with bar:
            task = bar.add_task(what, total=None)

            def update(number: int, total: int | None) -> None:
                bar.update(task, completed=number, total=total)

            yield update

    def confirm(self, what: str, *, yes: bool) -> None:
        """Exit with code 3 unless the user passed ``--yes``; ``what`` completes "This would ..."."""
        what = hide_passwords(what)
        if not yes:
            if self.is_json:
                self.print_result({"would": what, "done": False, "missing": "--yes"})
            self.err.print(
                f"This would {what}. Nothing was changed. Pass --yes to confirm.",
                style="yellow",
                soft_wrap=True,
            )
            raise typer.Exit(EXIT_NOT_CONFIRMED)


@contextmanager
def report_errors(printer: Output) -> Iterator[None]:
    """Print errors of the library and the operating system in one line and exit with code 1."""
    try:
        yield
        # A full disk must fail here, as an error in one line, not in Python's own flush at the end of the process.
        sys.stdout.flush()
    except LangmemTiersError as error:
        message = str(error)
        for python_words, command_words in _COMMAND_WORDS.items():
            message = message.replace(python_words, command_words)
        _fail(printer, type(error).__name__, message, error)
    except BrokenPipeError:
        # Not an error: the reading process, for example head, has read enough. Typer exits quietly.
        raise
    except OSError as error:
        message = (
            f"{error.filename!r} cannot be read or written" if error.filename else "input or output failed"
        )
        message += (
            f" ({error.strerror or error}): check that the file exists, that you have permission to use it "
            "and that the disk has free space"
        )
        _discard_output()
        _fail(printer, type(error).__name__, message, error)


def _discard_output() -> None:
    # Python flushes standard output again when the process ends. If that cannot succeed, redirect the stream to the
    # null device: otherwise a second error message would follow ours.
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError), Path(os.devnull).open("w", encoding="utf-8") as null_device:
            os.dup2(null_device.fileno(), sys.stdout.fileno())


def _fail(printer: Output, kind: str, text: str, error: Exception) -> None:
    message = hide_passwords(text)
    if printer.is_json:
        with suppress(OSError):  # standard output may be what failed
            printer.print_result({"error": kind, "message": message})
    printer.err.print(f"{kind}: {message}", style="red", soft_wrap=True)
    raise typer.Exit(EXIT_FAILED) from error


def hide_passwords(text: str) -> str:
    """Replace passwords of URLs in a text by ``***``; a user may pass a URL where a name is expected."""
    for pattern in _PASSWORD_PATTERNS:
        text = pattern.sub(r"\1:***@", text)
    return text


def format_count(count: int, noun: str, *, plural: str | None = None) -> str:
    """Return a number with its noun, as in ``1 session`` or ``1,200 sessions``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def to_json_line(value: object, encoding: str | None = None) -> str:
    """Serialize a value as one line of JSON; escape non-ASCII characters only if ``encoding`` lacks them."""
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return line


def to_json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Convert a report to values that JSON can represent."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Path | timedelta) else value
