"""Commands that write and restore backups, and copy a memory to another database."""

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
from langmem_tiers.cli.output import Output, format_count, report_errors
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

_BelowOption = Annotated[bool, typer.Option("--below", help="Include all namespaces below it.")]
_IntoOption = Annotated[
    str | None, typer.Option("--into", help="Target namespace (only for a single namespace).")
]


def backup_command(
    database: DatabaseOption,
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    namespace: OptionalNamespaceArgument = None,
    redis: RedisOption = None,
    *,
    below: _BelowOption = False,
    json: JsonOption = False,
) -> None:
    """Write a memory or one namespace to a file with a checksum. The memory may be in use."""
    printer = Output(is_json=json)
    with (
        report_errors(printer),
        open_engine(database, redis=redis) as engine,
        _show_progress(printer, "Backing up") as progress,
    ):
        path = _resolve_namespace(engine, namespace, below=below)
        report = engine.backup(file, namespace=path, prefix=below, progress=progress)
        size = f"{report.size_bytes:,} bytes"
        printer.print_result(
            report,
            [
                f"Wrote {_format_record_count(report.counts)} to {file} ({size}).",
                f"SHA-256 of the records: {report.sha256}",
            ],
        )


def restore_command(
    database: DatabaseOption,
    file: Annotated[Path, typer.Argument(help="File that backup wrote.")],
    into: _IntoOption = None,
    redis: RedisOption = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Erase the existing data first.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Restore a backup into any database: all of it or nothing."""
    printer = Output(is_json=json)
    with report_errors(printer):
        target = None if into is None else parse_namespace(into)
        if is_new_database(database):
            # Read the whole file first: a damaged backup must not leave an empty database behind.
            check_backup(file, RestoreRequest(into=target))
        # Raises if --into is used with a backup of the whole memory. Checked before --yes is asked for.
        read_backup_info(file).scope.with_namespace(target)
        if replace:
            printer.confirm(
                f"erase the data in {to_database_label(database)} that the backup replaces", yes=yes
            )
        with (
            open_engine(database, redis=redis, creates=True) as engine,
            _show_progress(printer, "Restoring") as progress,
        ):
            report = engine.restore(file, into=target, replace=replace, progress=progress)
        printer.print_result(report, [f"Restored {_format_record_count(report.counts)}."])


def move_command(
    source: Annotated[str, typer.Argument(help="SQLite file or database URL.")],
    target: Annotated[
        str, typer.Argument(help="SQLite file or database URL; must be empty. A missing file is created.")
    ],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    into: _IntoOption = None,
    *,
    below: _BelowOption = False,
    json: JsonOption = False,
) -> None:
    """Copy a memory to another database (SQLite or PostgreSQL). The source is unchanged."""
    printer = Output(is_json=json)
    with report_errors(printer):
        if to_database_url(source) == to_database_url(target):
            raise InvalidInputError(
                f"source and target are both {to_database_label(source)!r}: pass another target"
            )
        target_namespace = None if into is None else parse_namespace(into)
        with open_engine(source) as old:
            path = _resolve_namespace(old, namespace, below=below)
            # Checked before the target is opened: a wrong --into must not create a database file.
            BackupScope(path, below).with_namespace(target_namespace)
            with open_engine(target, creates=True) as new, _show_progress(printer, "Moving") as progress:
                try:
                    report = old.move_to(
                        new, namespace=path, prefix=below, into=target_namespace, progress=progress
                    )
                except RestoreConflictError as error:
                    raise RestoreConflictError(
                        f"{to_database_label(target)} already contains data that this would overwrite: pass another "
                        "target, or erase that data with forget. Nothing was changed"
                    ) from error
        printer.print_result(
            report, [f"Copied {_format_record_count(report.counts)} to {to_database_label(target)}."]
        )


@contextmanager
def _show_progress(printer: Output, what: str) -> Iterator[BackupProgressCallback]:
    with printer.show_progress(what) as update_progress:

        def callback(progress: BackupProgress) -> None:
            update_progress(progress.done, progress.total)

        yield callback


def _format_record_count(counts: Mapping[str, int]) -> str:
    return format_count(sum(counts.values()), "record")


def _resolve_namespace(engine: MemoryEngine, namespace: str | None, *, below: bool) -> NamespacePath | None:
    if namespace is None and below:
        raise InvalidInputError("--below requires a namespace: pass the one whose children to include")
    return None if namespace is None else require_namespace(engine, namespace, below=below)
