"""Commands that keep a memory elsewhere, or take it there."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.backup.models import BackupScope, RestoreWish
from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    Database,
    IsJson,
    MaybeNamespace,
    Redis,
    Yes,
)
from langmem_tiers.cli.output import Teller, told_errors
from langmem_tiers.cli.targets import database_url, is_new, known, label, opened
from langmem_tiers.common.namespaces import path_of
from langmem_tiers.errors import InvalidInputError, RestoreConflictError
from langmem_tiers.wiring import backup_info, check_backup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langmem_tiers.backup.models import BackupProgress, Progress
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

_Below = Annotated[bool, typer.Option("--below", help="With all namespaces below it.")]
_Into = Annotated[str | None, typer.Option("--into", help="Into this namespace, if it is one that goes.")]


def backup(
    database: Database,
    file: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    namespace: MaybeNamespace = None,
    redis: Redis = None,
    *,
    below: _Below = False,
    json: IsJson = False,
) -> None:
    """Write all of a memory, or one namespace, to one file with a checksum, while the memory is in use."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database, redis=redis) as engine, _bar(teller, "Backing up") as progress:
        path = _chosen(engine, namespace, below=below)
        report = engine.backup(file, namespace=path, prefix=below, progress=progress)
        size = f"{report.size_bytes:,} bytes"
        teller.result(
            report,
            [f"{_records(report.counts)} are in {file} ({size}).", f"sha256 of its records {report.sha256}"],
        )


def restore(
    database: Database,
    file: Annotated[Path, typer.Argument(help="What backup wrote.")],
    into: _Into = None,
    redis: Redis = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Erase what is there first.")] = False,
    yes: Yes = False,
    json: IsJson = False,
) -> None:
    """Take a backup back, on whatever database: all of it or nothing."""
    teller = Teller(is_json=json)
    with told_errors(teller):
        place = None if into is None else path_of(into)
        if is_new(database):
            check_backup(file, RestoreWish(into=place))  # before a database is made for it
        backup_info(file).scope.moved(place)
        if replace:
            teller.confirm(f"erase what is in {label(database)} where the backup goes", yes=yes)
        with opened(database, redis=redis, creates=True) as engine, _bar(teller, "Restoring") as progress:
            report = engine.restore(file, into=place, replace=replace, progress=progress)
        teller.result(report, [f"{_records(report.counts)} were restored."])


def move(
    source: Annotated[str, typer.Argument(help="A SQLite file, or the URL of a database.")],
    target: Annotated[str, typer.Argument(help="The same; it must be empty, and is made if it is a file.")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="This one alone.")] = None,
    into: _Into = None,
    *,
    below: _Below = False,
    json: IsJson = False,
) -> None:
    """Take a memory to another database, from SQLite to PostgreSQL or back; what is in the first one stays there."""
    teller = Teller(is_json=json)
    with told_errors(teller):
        if database_url(source) == database_url(target):
            raise InvalidInputError(f"source and target are both {label(source)!r}: name another target")
        place = None if into is None else path_of(into)
        with opened(source) as old:
            path = _chosen(old, namespace, below=below)
            BackupScope(path, below).moved(place)  # as above
            with opened(target, creates=True) as new, _bar(teller, "Moving") as progress:
                try:
                    report = old.move_to(new, namespace=path, prefix=below, into=place, progress=progress)
                except RestoreConflictError as error:
                    raise RestoreConflictError(
                        f"{label(target)} holds something already where this goes: name another target, or "
                        "forget what is there; nothing was changed"
                    ) from error
        teller.result(report, [f"{_records(report.counts)} are in {label(target)}."])


@contextmanager
def _bar(teller: Teller, what: str) -> Iterator[Progress]:
    with teller.progress(what) as done:

        def told(progress: BackupProgress) -> None:
            done(progress.done, progress.total)

        yield told


def _records(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values()):,} records"


def _chosen(engine: MemoryEngine, namespace: str | None, *, below: bool) -> NamespacePath | None:
    if namespace is None and below:
        raise InvalidInputError("--below needs a namespace: name the one whose children are meant too")
    return None if namespace is None else known(engine, namespace, below=below)
