"""Backup, restore, move and snapshot of an SQL database."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sqlalchemy import func, select, text

from langmem_tiers.backup.file import (
    MAX_KEYS_PER_KIND,
    BackupReader,
    create_backup_file,
    open_backup_file,
    parse_record,
    write_records,
)
from langmem_tiers.backup.models import BackupProgress, BackupReport, RestoreReport, SnapshotReport
from langmem_tiers.backup.reader import RecordReader
from langmem_tiers.backup.tables import get_backup_tables
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
    RestoreConflictError,
    StorageError,
)
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.search import pgvector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from langmem_tiers.backup.models import (
        BackupInfo,
        BackupProgressCallback,
        BackupScope,
        BackupSource,
        RestoreRequest,
    )
    from langmem_tiers.backup.reader import Record
    from langmem_tiers.backup.writer import TermBuilder
    from langmem_tiers.storage.database import Database


_SEQUENCE_QUERY = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
_HAS_SEQUENCES_QUERY = text("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")


def check_spans(spans: Mapping[str, int]) -> None:
    """Check that a backup does not claim an unreasonable number of keys, which would exhaust the sequences.

    Raises:
        DamagedBackupError: A span is too large.
    """
    if any(span > MAX_KEYS_PER_KIND for span in spans.values()):
        raise DamagedBackupError(
            "the backup contains invalid numbers of rows: use another backup; nothing was restored"
        )


def find_last_keys(connection: Connection, spans: Mapping[str, int]) -> dict[str, int]:
    """Return the highest key of each kind that was ever used, on SQLite.

    Call it in the transaction that inserts the rows. The result includes keys of deleted rows, which must not be used
    again. SQLite records them in ``sqlite_sequence``.
    """
    has_sequences = connection.execute(_HAS_SEQUENCES_QUERY).first() is not None
    found: dict[str, int] = {}
    for kind, backup_table in get_backup_tables().items():
        if spans.get(kind, 0):
            highest = connection.execute(select(func.max(backup_table.table.c.pk))).scalar() or 0
            last_used = (
                connection.execute(_SEQUENCE_QUERY, {"table": backup_table.table.name}).scalar()
                if has_sequences
                else None
            )
            found[kind] = max(highest, last_used or 0)
    return found


def reserve_keys(database: Database, spans: Mapping[str, int]) -> dict[str, int]:
    """Reserve a range of keys of each kind, on PostgreSQL, and return the key before each range.

    Each range is reserved in a separate short transaction, so that other writers wait only for it and not for the whole
    restore. If the restore fails, the keys remain unused, which does no harm.
    """
    found: dict[str, int] = {}
    for kind, backup_table in get_backup_tables().items():
        span = spans.get(kind, 0)
        if not span:
            continue
        name = backup_table.table.name
        with database.write() as connection:
            # An INSERT locks the table before it draws a key. With this lock held, no other process can draw a key
            # between nextval and setval.
            connection.execute(text(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE"))
            sequence = text(f"pg_get_serial_sequence('{name}', 'pk')")
            next_key = connection.execute(select(func.nextval(sequence))).scalar_one()
            highest = connection.execute(select(func.max(backup_table.table.c.pk))).scalar() or 0
            found[kind] = max(int(next_key), int(highest))
            connection.execute(select(func.setval(sequence, found[kind] + span)))
    return found


_PROGRESS_INTERVAL_RECORDS = 1000
_SNAPSHOT_BATCH_PAGES = 1024


class BackupRepository:
    """Makes and restores backups of a database. A failed operation changes nothing.

    Args:
        database: The database.
        terms: Builder of the search terms of restored rows.
        on_erase: Called with the keys of sessions that are replaced, as in ``SessionRepository``.
    """

    def __init__(
        self,
        database: Database,
        terms: TermBuilder,
        on_erase: Callable[[Sequence[int]], object] = lambda _keys: None,
    ) -> None:
        self._database = database
        self._terms = terms
        self._on_erase = on_erase

    def backup(
        self,
        path: Path,
        scope: BackupScope,
        source: BackupSource,
        *,
        overwrite: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> BackupReport:
        """Write a consistent backup of a part of the memory to a file."""
        self._refuse_own_file(path)
        with (
            create_backup_file(path, overwrite=overwrite) as partial,
            self._database.read_snapshot() as connection,
        ):
            reader = RecordReader(connection, scope)
            info = reader.build_info(source)
            with partial.open("wb") as file, closing(reader.read_records()) as records:
                digest = write_records(file, info, _report_progress(records, "writing", info.total, progress))
        return BackupReport(
            path=path, scope=scope, counts=info.counts, size_bytes=path.stat().st_size, sha256=digest
        )

    def restore(self, path: Path, request: RestoreRequest) -> RestoreReport:
        """Verify a whole backup file, then write it in one transaction."""
        # The file is read twice: first to verify it, so that nothing is erased or written for a damaged file, then to
        # write the records. The checksums are compared in case the file was changed in between.
        with open_backup_file(path) as file:
            reader = verify_backup(path, file, request)
            file.seek(0)
            second_reader = BackupReader(path, file)

            def records() -> Iterator[Record]:
                yield from second_reader.read_records()
                if second_reader.checksum != reader.checksum:
                    raise DamagedBackupError(
                        f"{str(path)!r} was changed while it was read: try again; nothing was restored"
                    )

            return self.restore_records(second_reader.info, records(), request)

    def move(
        self, target: BackupRepository, scope: BackupScope, source: BackupSource, request: RestoreRequest
    ) -> RestoreReport:
        """Write a consistent copy of a part of the memory to another database."""
        with self._database.read_snapshot() as connection:
            reader = RecordReader(connection, scope)
            info = reader.build_info(source)
            with closing(reader.read_records()) as records:
                return target.restore_records(info, records, request)

    def restore_records(
        self, info: BackupInfo, records: Iterable[Record], request: RestoreRequest
    ) -> RestoreReport:
        """Write records in one transaction.

        Args:
            info: Header of the backup.
            records: Records of the backup. An error from this iterable rolls everything back.
            request: Options of the restore.

        Raises:
            RestoreConflictError: The target is not empty, or another process wrote to it at the same time.
        """
        scope, merged = info.scope.with_namespace(request.into), get_merged_kinds(info.scope)
        spans = {kind: span for kind, span in info.spans.items() if kind not in merged}
        is_sqlite = self._database.is_sqlite
        self._refuse_occupied_target(scope, request)
        is_native = (
            not is_sqlite
            and bool(info.counts.get("vectors"))
            and pgvector.ensure_vector_columns(self._database)
        )
        # On PostgreSQL keys are reserved before the transaction, see reserve_keys(). On SQLite nobody else can write
        # during the transaction, so free keys are read inside of it.
        keys = {} if is_sqlite else reserve_keys(self._database, spans)
        with _translate_conflicts(scope), self._database.write() as connection:
            if is_sqlite:
                keys = find_last_keys(connection, spans)
            lock_scope(connection, scope)
            existing_kind = find_existing_kind(connection, scope)
            if existing_kind is not None and not request.replace:
                raise _build_conflict_error(scope, existing_kind)
            # Also without existing content: the row of an empty namespace would collide with the restored one.
            if deleted_sessions := delete_scope(connection, scope):
                self._on_erase(deleted_sessions)
            writer = RecordWriter(connection, info, request, keys, self._terms)
            writer.is_native = is_native
            writer.write_records(_report_progress(records, "writing", info.total, request.progress))
        if is_native:
            self._build_vector_indexes(writer.embedders)
        return RestoreReport(
            scope=scope,
            counts=writer.counts,
            vectors_left_out=writer.vectors_left_out,
            embedders_left_out=tuple(sorted(set(writer.embedders_left_out))),
            replaced=existing_kind is not None,
            created_at=info.created_at,
        )

    def snapshot(
        self, path: Path, *, overwrite: bool = False, progress: BackupProgressCallback | None = None
    ) -> SnapshotReport:
        """Copy the database file, while it is in use."""
        if not self._database.is_sqlite:
            raise BackupError(
                f"{self._database.label!r} is not an SQLite file, and only SQLite supports snapshots: "
                "use backup(), which works with every database, or the tools of the database server"
            )

        self._refuse_own_file(path)

        def report(_status: int, remaining: int, total: int) -> None:
            if progress is not None:
                progress(BackupProgress("writing", total - remaining, total))

        with (
            create_backup_file(path, overwrite=overwrite) as partial,
            self._database.read_snapshot() as connection,
            closing(sqlite3.connect(partial)) as copy,
        ):
            # SQLite starts a read transaction at its first read. From here on, the copy sees no later writes, so it
            # need not start again when others write.
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - is_sqlite
            try:
                driver.backup(copy, pages=_SNAPSHOT_BATCH_PAGES, progress=report)
            except sqlite3.Error as error:
                # sqlite3 does not tell which of the two files failed, so the message names both.
                raise BackupFileError(
                    f"cannot write {str(path)!r} ({error}): check that the disk is not full and that "
                    f"{self._database.label!r} is not damaged; nothing was changed"
                ) from error
        return SnapshotReport(path=path, size_bytes=path.stat().st_size)

    def _refuse_own_file(self, path: Path) -> None:
        if not self._database.is_sqlite or self._database.is_memory or not path.exists():
            return
        # samefile() also recognizes links and other spellings of the path.
        own = Path(self._database.url.database or "")
        files = (own, *(own.with_name(f"{own.name}-{end}") for end in ("wal", "shm", "journal")))
        if any(file.exists() and file.samefile(path) for file in files):
            raise BackupFileError(f"{str(path)!r} is a file of the database itself: use another name")

    def _refuse_occupied_target(self, scope: BackupScope, request: RestoreRequest) -> None:
        # Fails early, without waiting for a lock. restore_records() checks again under the lock.
        if not request.replace:
            with self._database.read() as connection:
                existing_kind = find_existing_kind(connection, scope)
            if existing_kind is not None:
                raise _build_conflict_error(scope, existing_kind)

    def _build_vector_indexes(self, models: dict[int, int]) -> None:
        # After all vectors were inserted, which is cheaper than updating the indexes with each of them. If the process
        # is killed here, the first recall builds the indexes.
        for model, dimension in models.items():
            try:
                pgvector.prepare(self._database, model, dimension)
            except StorageError:
                return


def verify_backup(path: Path, file: IO[bytes], request: RestoreRequest) -> BackupReader:
    """Read a whole backup and check every record. Return the reader, with header and checksum.

    Raises:
        BackupError: The file is not a backup, is damaged, or was written by a newer release.
    """
    reader = BackupReader(path, file)
    check_spans(reader.info.spans)
    reader.info.scope.with_namespace(request.into)
    for kind, values in _report_progress(
        reader.read_records(), "checking", reader.info.total, request.progress
    ):
        parse_record(get_backup_tables()[kind], values, reader.info)
    return reader


@contextmanager
def _translate_conflicts(scope: BackupScope) -> Iterator[None]:
    try:
        yield
    except ConcurrentWriteError:
        raise RestoreConflictError(
            f"another process wrote to {scope} at the same time: try again later; nothing was restored"
        ) from None


def _build_conflict_error(scope: BackupScope, kind: str) -> RestoreConflictError:
    target = "the target" if scope.namespace is None else scope
    return RestoreConflictError(
        f"{target} already contains {kind.replace('_', ' ')}: restore to an empty target, or pass replace=True "
        "to erase existing data first; nothing was changed"
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
