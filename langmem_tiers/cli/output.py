"""How commands speak: tables for people, one JSON object for programs, errors with an exit code."""

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
"""Exit codes; 2 is that of a wrong command line."""
_COMMAND_WORDS = {
    "or overwrite=True": "or remove it first",
    "replace=True": "--replace --yes",
    "engine.backup()": "backup",
    "retention_days": "--days",
}
"""What the library calls otherwise than the command line."""


_PASSWORD_PATTERNS = (
    re.compile(
        r"(\w[\w+.-]*://?[^\s:@]*):\S*@"
    ),  # whatever signs it has: up to the last @ of the word; of a path, too
    re.compile(r"([\w.%+-]*):[^\s:@'\"]+@"),
)


class Output:
    """Says what a command found or did.

    Args:
        is_json: As one JSON object on standard output, and nothing else there.
    """

    def __init__(self, *, is_json: bool = False) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(
                stream, io.TextIOWrapper
            ):  # a terminal without Unicode gets "?" instead of an error
                stream.reconfigure(errors="replace")
        self.is_json = is_json
        self.out = Console(highlight=False, markup=False, soft_wrap=False)
        self.err = Console(stderr=True, highlight=False, markup=False)

    def print_result(self, value: object, lines: Iterable[str] = ()) -> None:
        """The whole of what a command has to say, or the same in lines for a person."""
        if self.is_json:
            typer.echo(to_json_line(to_json_value(value), sys.stdout.encoding))
        else:
            for line in lines:
                self.out.print(line)

    def print_table(
        self, value: object, title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]
    ) -> None:
        """The same as a table."""
        if self.is_json:
            self.print_result(value)
            return
        table = Table()
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(str(one) for one in row))
        self.out.print(title if table.row_count else f"{title}: none", style="bold")
        if table.row_count:
            self.out.print(table)

    @contextmanager
    def show_progress(self, what: str, *, counts: bool = True) -> Iterator[Callable[[int, int | None], None]]:
        """A bar on standard error while something long is done; call it with what is done, and of how much."""
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

            def done(number: int, total: int | None) -> None:
                bar.update(task, completed=number, total=total)

            yield done

    def confirm(self, what: str, *, yes: bool) -> None:
        """End here unless the user said ``--yes``."""
        what = hide_passwords(what)
        if not yes:
            if self.is_json:
                self.print_result({"would": what, "done": False, "missing": "--yes"})
            self.err.print(
                f"This would {what}. Nothing was done: say --yes to do it.", style="yellow", soft_wrap=True
            )
            raise typer.Exit(EXIT_NOT_CONFIRMED)


@contextmanager
def report_errors(teller: Output) -> Iterator[None]:
    """What goes wrong is said in one line, with exit code 1."""
    try:
        yield
        sys.stdout.flush()  # what has no room is told as any other error, not at the end of the process
    except LangmemTiersError as error:
        said = str(error)
        for of_library, of_command in _COMMAND_WORDS.items():
            said = said.replace(of_library, of_command)
        _fail(teller, type(error).__name__, said, error)
    except BrokenPipeError:  # whoever reads has enough, as head does: nothing is wrong
        raise
    except OSError as error:
        said = (
            f"{error.filename!r} cannot be read or written"
            if error.filename
            else "nothing more can be read or written"
        )
        said += f" ({error.strerror or error}): check that it is there, that you may use it and that there is room"
        _discard_output()
        _fail(teller, type(error).__name__, said, error)


def _discard_output() -> None:
    # What standard output did not take, Python would try to write once more at its end, and complain.
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError), Path(os.devnull).open("w", encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


def _fail(teller: Output, kind: str, told: str, error: Exception) -> None:
    said = hide_passwords(told)
    if teller.is_json:
        with suppress(OSError):  # standard output may be what failed
            teller.print_result({"error": kind, "message": said})
    teller.err.print(f"{kind}: {said}", style="red", soft_wrap=True)
    raise typer.Exit(EXIT_FAILED) from error


def hide_passwords(text: str) -> str:
    """A text without what stands between a name and a host in it, as in a URL that was put in the wrong place."""
    for password in _PASSWORD_PATTERNS:
        text = password.sub(r"\1:***@", text)
    return text


def to_json_line(value: object, encoding: str | None = None) -> str:
    """A JSON value in one line, with other characters than ASCII as they are where they can be written."""
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return line


def to_json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A report as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Path | timedelta) else value
