"""Backups of a database, and moves from one to another."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from langmem_tiers.backup.file import BackupReader, create_backup_file, open_backup_file, write_records
from langmem_tiers.backup.models import (
    BackupProgress,
    BackupReport,
    RestoreReport,
    SnapshotReport,
)
from langmem_tiers.backup.reader import RecordReader
from langmem_tiers.backup.row_keys import check_spans, find_last_keys, reserve_keys
from langmem_tiers.backup.tables import get_backup_tables
from langmem_tiers.backup.values import parse_record
from langmem_tiers.backup.writer import (
    RecordWriter,
    delete_scope,
    find_existing_kind,
    get_merged_kinds,
    lock_scope,
)
from langmem_tiers.errors import (
    BackupError,
    BackupFileError,
    DamagedBackupError,
    InvalidInputError,
    RestoreConflictError,
    StorageError,
)
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.search import pgvector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langmem_tiers.backup.models import (
        BackupInfo,
        BackupProgressCallback,
        BackupScope,
        BackupSource,
        BackupStore,
        RestoreRequest,
    )
    from langmem_tiers.backup.reader import Record
    from langmem_tiers.backup.writer import TermBuilder
    from langmem_tiers.storage.database import Database

_PROGRESS_INTERVAL_RECORDS = 1000
_SNAPSHOT_BATCH_PAGES = 1024


class SqlBackups:
    """Serves the ``BackupStore`` port.

    Args:
        database: Which.
        terms: Makes the terms of restored rows.
        erasing: Told of the keys of sessions as they are replaced, as that of ``SqlSessionStore``.
    """

    def __init__(
        self,
        database: Database,
        terms: TermBuilder,
        erasing: Callable[[Sequence[int]], object] = lambda _keys: None,
    ) -> None:
        self._database = database
        self._terms = terms
        self._on_sessions_erased = erasing

    def backup(
        self,
        path: Path,
        scope: BackupScope,
        source: BackupSource,
        *,
        overwrite: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> BackupReport:
        """Write a part of the memory, as it is at one moment, to a file."""
        self._refuse_own_file(path)
        with (
            create_backup_file(path, overwrite=overwrite) as beside,
            self._database.read_snapshot() as connection,
        ):
            reading = RecordReader(connection, scope)
            info = reading.build_info(source)
            with beside.open("wb") as file, closing(reading.read_records()) as records:
                digest = write_records(file, info, _report_progress(records, "writing", info.total, progress))
        return BackupReport(
            path=path, scope=scope, counts=info.counts, size_bytes=path.stat().st_size, sha256=digest
        )

    def restore(self, path: Path, wish: RestoreRequest) -> RestoreReport:
        """Check a file as a whole, then write all of it in one transaction."""
        with open_backup_file(path) as file:
            reader = verify_backup(path, file, wish)
            file.seek(0)
            again = BackupReader(path, file)

            def records() -> Iterator[Record]:
                yield from again.read_records()
                if again.checksum != reader.checksum:
                    raise DamagedBackupError(
                        f"{str(path)!r} was changed while it was read: try again; nothing was restored"
                    )

            return self.restore_records(again.info, records(), wish)

    def move(
        self, target: BackupStore, scope: BackupScope, source: BackupSource, wish: RestoreRequest
    ) -> RestoreReport:
        """Write a part of the memory, as it is at one moment, to another database."""
        if not isinstance(target, SqlBackups):
            raise InvalidInputError(f"cannot move to a {type(target).__name__}: use backup() and restore()")
        with self._database.read_snapshot() as connection:
            reading = RecordReader(connection, scope)
            info = reading.build_info(source)
            with closing(reading.read_records()) as records:
                return target.restore_records(info, records, wish)

    def restore_records(
        self, info: BackupInfo, records: Iterable[Record], wish: RestoreRequest
    ) -> RestoreReport:
        """Write records in one transaction."""
        scope, merged = info.scope.with_namespace(wish.into), get_merged_kinds(info.scope)
        spans = {kind: span for kind, span in info.spans.items() if kind not in merged}
        is_sqlite = self._database.is_sqlite
        self._refuse_occupied_target(scope, wish)
        is_native = (
            not is_sqlite
            and bool(info.counts.get("vectors"))
            and pgvector.ensure_vector_columns(self._database)
        )
        keys = {} if is_sqlite else reserve_keys(self._database, spans)
        with _translate_conflicts(scope), self._database.write() as connection:
            if is_sqlite:
                keys = find_last_keys(connection, spans)
            lock_scope(connection, scope)
            holds = find_existing_kind(connection, scope)
            if holds is not None and not wish.replace:
                raise _build_conflict_error(scope, holds)
            if gone := delete_scope(connection, scope):  # a namespace with nothing in it, too
                self._on_sessions_erased(gone)
            writing = RecordWriter(connection, info, wish, keys, self._terms)
            writing.is_native = is_native
            writing.write_records(_report_progress(records, "writing", info.total, wish.progress))
        if is_native:
            self._build_vector_indexes(writing.embedders)
        return RestoreReport(
            scope=scope,
            counts=writing.counts,
            vectors_left_out=writing.vectors_left_out,
            embedders_left_out=tuple(sorted(set(writing.embedders_left_out))),
            replaced=holds is not None,
            created_at=info.created_at,
        )

    def snapshot(
        self, path: Path, *, overwrite: bool = False, progress: BackupProgressCallback | None = None
    ) -> SnapshotReport:
        """Copy the database file while it is in use."""
        if not self._database.is_sqlite:
            raise BackupError(
                f"{self._database.label!r} is no SQLite file, of which alone a snapshot can be made: "
                "use backup(), which works on every database, or the tools of the server"
            )

        self._refuse_own_file(path)

        def say(_status: int, left: int, total: int) -> None:
            if progress is not None:
                progress(BackupProgress("writing", total - left, total))

        with (
            create_backup_file(path, overwrite=overwrite) as beside,
            self._database.read_snapshot() as connection,
            closing(sqlite3.connect(beside)) as copy,
        ):
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()  # the moment
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - is_sqlite
            try:
                driver.backup(copy, pages=_SNAPSHOT_BATCH_PAGES, progress=say)
            except sqlite3.Error as error:  # of either file
                raise BackupFileError(
                    f"{str(path)!r} could not be written ({error}): check that its folder has room and that "
                    f"{self._database.label!r} is sound; nothing was changed"
                ) from error
        return SnapshotReport(path=path, size_bytes=path.stat().st_size)

    def _refuse_own_file(self, path: Path) -> None:
        if not self._database.is_sqlite or self._database.is_memory or not path.exists():
            return
        own = Path(self._database.url.database or "")
        files = (own, *(own.with_name(f"{own.name}-{end}") for end in ("wal", "shm", "journal")))
        if any(file.exists() and file.samefile(path) for file in files):
            raise BackupFileError(f"{str(path)!r} is a file of the database itself: give another name")

    def _refuse_occupied_target(self, scope: BackupScope, wish: RestoreRequest) -> None:
        # Looked at again under the lock; this is before anything waits for it.
        if not wish.replace:
            with self._database.read() as connection:
                holds = find_existing_kind(connection, scope)
            if holds is not None:
                raise _build_conflict_error(scope, holds)

    def _build_vector_indexes(self, models: dict[int, int]) -> None:
        # After the vectors, which is cheaper than with each of them; who is killed here has it at the first recall.
        for model, dimension in models.items():
            try:
                pgvector.prepare(self._database, model, dimension)
            except StorageError:
                return


def verify_backup(path: Path, file: IO[bytes], wish: RestoreRequest) -> BackupReader:
    """A backup after it was read to its end and found sound."""
    reader = BackupReader(path, file)
    check_spans(reader.info.spans)
    reader.info.scope.with_namespace(wish.into)
    for kind, values in _report_progress(reader.read_records(), "checking", reader.info.total, wish.progress):
        parse_record(get_backup_tables()[kind], values, reader.info)
    return reader


@contextmanager
def _translate_conflicts(scope: BackupScope) -> Iterator[None]:
    try:
        yield
    except ConcurrentWriteError:
        raise RestoreConflictError(
            f"somebody else wrote to {scope} meanwhile: try again when nobody does; nothing was restored"
        ) from None


def _build_conflict_error(scope: BackupScope, kind: str) -> RestoreConflictError:
    return RestoreConflictError(
        f"{scope} holds {kind.replace('_', ' ')} already: restore to an empty place, or say replace=True "
        "to erase what is there first; nothing was changed"
    )


def _report_progress(
    records: Iterable[Record], stage: str, total: int, progress: BackupProgressCallback | None
) -> Iterator[Record]:
    done = 0
    for record in records:
        if progress is not None and done % _PROGRESS_INTERVAL_RECORDS == 0:
            progress(BackupProgress(stage, done, total))
        done += 1
        yield record
    if progress is not None:
        progress(BackupProgress(stage, done, total))
