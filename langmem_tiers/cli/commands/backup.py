"""Commands that keep a memory elsewhere, or take it there."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.backup.models import BackupScope, RestoreRequest
from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    DatabaseOption,
    JsonOption,
    OptionalNamespaceArgument,
    RedisOption,
    YesOption,
)
from langmem_tiers.cli.output import Output, report_errors
from langmem_tiers.cli.targets import (
    is_new_database,
    open_engine,
    require_namespace,
    to_database_label,
    to_database_url,
)
from langmem_tiers.common.namespaces import parse_namespace
from langmem_tiers.errors import InvalidInputError, RestoreConflictError
from langmem_tiers.wiring import check_backup, read_backup_info

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langmem_tiers.backup.models import BackupProgress, BackupProgressCallback
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

_BelowOption = Annotated[bool, typer.Option("--below", help="With all namespaces below it.")]
_IntoOption = Annotated[
    str | None, typer.Option("--into", help="Into this namespace, if it is one that goes.")
]


def backup_command(
    database: DatabaseOption,
    file: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    namespace: OptionalNamespaceArgument = None,
    redis: RedisOption = None,
    *,
    below: _BelowOption = False,
    json: JsonOption = False,
) -> None:
    """Write all of a memory, or one namespace, to one file with a checksum, while the memory is in use."""
    teller = Output(is_json=json)
    with (
        report_errors(teller),
        open_engine(database, redis=redis) as engine,
        _show_progress(teller, "Backing up") as progress,
    ):
        path = _resolve_namespace(engine, namespace, below=below)
        report = engine.backup(file, namespace=path, prefix=below, progress=progress)
        size = f"{report.size_bytes:,} bytes"
        teller.print_result(
            report,
            [
                f"{_format_record_count(report.counts)} are in {file} ({size}).",
                f"sha256 of its records {report.sha256}",
            ],
        )


def restore_command(
    database: DatabaseOption,
    file: Annotated[Path, typer.Argument(help="What backup wrote.")],
    into: _IntoOption = None,
    redis: RedisOption = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Erase what is there first.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take a backup back, on whatever database: all of it or nothing."""
    teller = Output(is_json=json)
    with report_errors(teller):
        place = None if into is None else parse_namespace(into)
        if is_new_database(database):
            check_backup(file, RestoreRequest(into=place))  # before a database is made for it
        read_backup_info(file).scope.with_namespace(place)
        if replace:
            teller.confirm(f"erase what is in {to_database_label(database)} where the backup goes", yes=yes)
        with (
            open_engine(database, redis=redis, creates=True) as engine,
            _show_progress(teller, "Restoring") as progress,
        ):
            report = engine.restore(file, into=place, replace=replace, progress=progress)
        teller.print_result(report, [f"{_format_record_count(report.counts)} were restored."])


def move_command(
    source: Annotated[str, typer.Argument(help="A SQLite file, or the URL of a database.")],
    target: Annotated[str, typer.Argument(help="The same; it must be empty, and is made if it is a file.")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="This one alone.")] = None,
    into: _IntoOption = None,
    *,
    below: _BelowOption = False,
    json: JsonOption = False,
) -> None:
    """Take a memory to another database, from SQLite to PostgreSQL or back; what is in the first one stays there."""
    teller = Output(is_json=json)
    with report_errors(teller):
        if to_database_url(source) == to_database_url(target):
            raise InvalidInputError(
                f"source and target are both {to_database_label(source)!r}: name another target"
            )
        place = None if into is None else parse_namespace(into)
        with open_engine(source) as old:
            path = _resolve_namespace(old, namespace, below=below)
            BackupScope(path, below).with_namespace(place)  # as above
            with open_engine(target, creates=True) as new, _show_progress(teller, "Moving") as progress:
                try:
                    report = old.move_to(new, namespace=path, prefix=below, into=place, progress=progress)
                except RestoreConflictError as error:
                    raise RestoreConflictError(
                        f"{to_database_label(target)} holds something already where this goes: name another target, or "
                        "forget what is there; nothing was changed"
                    ) from error
        teller.print_result(
            report, [f"{_format_record_count(report.counts)} are in {to_database_label(target)}."]
        )


@contextmanager
def _show_progress(teller: Output, what: str) -> Iterator[BackupProgressCallback]:
    with teller.show_progress(what) as done:

        def told(progress: BackupProgress) -> None:
            done(progress.done, progress.total)

        yield told


def _format_record_count(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values()):,} records"


def _resolve_namespace(engine: MemoryEngine, namespace: str | None, *, below: bool) -> NamespacePath | None:
    if namespace is None and below:
        raise InvalidInputError("--below needs a namespace: name the one whose children are meant too")
    return None if namespace is None else require_namespace(engine, namespace, below=below)
