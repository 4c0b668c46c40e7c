"""Maintenance of the files of a database: scrubbing of erased data, compaction and statistics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import text

from langmem_tiers.common.clock import wait_until
from langmem_tiers.erasure.models import ScrubResult
from langmem_tiers.errors import StorageError, StorageReadOnlyError
from langmem_tiers.maintenance.models import DatabaseCompactionReport
from langmem_tiers.maintenance.statistics import load_namespace_usage, measure_database, measure_sqlite_bytes
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.schema import ALL_METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedCounts
    from langmem_tiers.maintenance.models import NamespaceUsage, Statistics
    from langmem_tiers.sessions.redis.cache import RedisCache
    from langmem_tiers.storage.database import Database


TABLES = tuple(sorted(name for tables in ALL_METADATA for name in tables.tables))
_FULL_TEXT_TABLES = ("lmt_messages_terms", "lmt_knowledge_terms")
_MESSAGE_TABLES = ("sessions", "messages", "accesses", "vectors", "entries", "listings")
_MEMORY_TABLES = (
    "memories",
    "memory_tags",
    "memory_vectors",
    "relations",
    "extracted_facts",
    "learned_sessions",
    "memory_namespaces",
    "origins",
)
_POOL_TABLES = ("pools", "pool_members", *_MEMORY_TABLES)
_TABLES_BY_COUNT = {
    "namespaces": ("namespaces", "adaptive_parameters", "optimization_snapshots", "leases"),
    "sessions": (*_MESSAGE_TABLES, *_MEMORY_TABLES),
    "messages": (*_MESSAGE_TABLES, *_MEMORY_TABLES),
    "summaries": _MESSAGE_TABLES,
    **dict.fromkeys(("chunks", "episodes", "facts", "entries", "patterns"), _MEMORY_TABLES),
    "knowledge": ("knowledge", "knowledge_history"),
    "versions": ("knowledge_history", "context_files", "context_versions", *_MEMORY_TABLES),
    "items": ("item_namespaces", "items", "item_texts", "item_vectors"),
    "files": ("context_files", "context_versions"),
}
"""Tables from which rows are deleted for each kind of ``ErasedCounts``."""
_MIN_FREE_SHARE = 0.2
"""Minimum unused share of a SQLite file for compaction to rewrite it."""
# Pages of a full-text index to merge per transaction, so that other writers get their turn in between.
_MERGE_PAGES = 200
_LOG_IN_USE = (
    "the write-ahead log could not be emptied because other connections read the database: close them and forget the "
    "same data again"
)
_SAMPLES_LEFT = (
    "column samples of the query planner may contain parts of the erased data: as a superuser, delete the rows of the "
    "tables from pg_statistic and run VACUUM FULL pg_statistic"
)


class MaintenanceRepository:
    """Statistics, compaction and scrubbing of the database.

    Args:
        database: Database to maintain.
        patience_seconds: Maximum wait for other connections.
        copies: Redis cache in front of the database, if any.
    """

    def __init__(self, database: Database, patience_seconds: float, copies: RedisCache | None = None) -> None:
        self._database = database
        self._patience_seconds = patience_seconds
        self._copies = copies

    def scrub(self, erased: ErasedCounts | None = None, *, from_pools: bool = True) -> ScrubResult:
        """Remove the bytes of erased data from the files of the database and of the Redis cache.

        Args:
            erased: Counts of the erased data, which select the tables to scrub. Default: all tables.
            from_pools: Pools, or copies that other namespaces synced from them, may have lost entries too.
        """
        result = self._scrub(erased, from_pools=from_pools)
        problem = None if self._copies is None else self._copies.scrub(self._patience_seconds)
        return result if problem is None else replace(result, left=(*result.left, problem))

    def _scrub(self, erased: ErasedCounts | None, *, from_pools: bool) -> ScrubResult:
        if self._database.is_memory:
            return ScrubResult()
        if self._database.is_sqlite:
            return self._scrub_sqlite()
        return self._scrub_postgres(_find_affected_tables(erased, from_pools=from_pools))

    def compact(self, should_continue: Callable[[], bool] = lambda: True) -> DatabaseCompactionReport:
        """Merge full-text indexes, update the statistics of the query planner and free space where that is cheap.

        Args:
            should_continue: Called before each step; compaction stops if it returns False.
        """
        return self._compact_sqlite() if self._database.is_sqlite else self._compact_postgres(should_continue)

    def statistics(self, now: datetime) -> Statistics:
        """Return the contents and size of the database."""
        return measure_database(self._database, TABLES, now)

    @retry_on_disconnect
    def get_namespace_usage(self, namespace: NamespacePath, since: datetime) -> NamespaceUsage | None:
        """Return the contents of a namespace and its growth since a time; None if it does not exist."""
        return load_namespace_usage(self._database, namespace, since)

    def _scrub_sqlite(self) -> ScrubResult:
        with self._database.autocommit() as connection:
            # The full-text index keeps the words of deleted rows until its segments are merged.
            for table in _FULL_TEXT_TABLES:
                connection.exec_driver_sql(f"INSERT INTO {table}({table}) VALUES('optimize')")
            # With SQLITE_ENABLE_STAT4, sqlite_stat4 contains sample values of indexed columns; ANALYZE replaces them.
            if _has_samples(connection):
                connection.exec_driver_sql("ANALYZE")
            # Unused parts of pages may contain copies of rows that were moved; VACUUM rewrites the whole file.
            connection.exec_driver_sql("VACUUM")
            is_empty = self._empty_log(connection, self._patience_seconds)
        left = () if is_empty else (_LOG_IN_USE,)
        return ScrubResult(left=left, notes=self._find_backups())

    def _empty_log(self, connection: Connection, patience_seconds: float) -> bool:
        def is_empty() -> bool:
            # The first column of the result is 1 if a reader blocked the checkpoint.
            return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]

        return wait_until(is_empty, patience_seconds)

    def _find_backups(self) -> tuple[str, ...]:
        file = Path(self._database.url.database or "")
        copies = sorted(path.name for path in file.parent.glob(f"{file.name}.v*.backup*"))
        if not copies:
            return ()
        return (f"copies from before a migration are next to the database, delete them: {', '.join(copies)}",)

    def _scrub_postgres(self, tables: Sequence[str]) -> ScrubResult:
        left = list[str]()
        with self._database.autocommit() as connection:
            # VACUUM keeps row versions that an older transaction can still see.
            if not self._wait_for_others(connection):
                left.append(
                    "an older transaction that is still open keeps the bytes of deleted rows: end it and forget "
                    "the same data again"
                )
            # Before VACUUM: ANALYZE does not replace the samples of a table that is empty by now.
            has_samples = not _clear_samples(connection, tables)
            for table in tables:
                connection.execute(text(f"VACUUM (FULL, ANALYZE) {table}"))
            # The samples themselves are rows, whose deleted versions must be removed as well.
            if connection.execute(_OWNS_DATABASE).scalar_one():
                connection.execute(text("VACUUM (FULL) pg_catalog.pg_statistic"))
            else:
                has_samples = True
        if has_samples:
            left.append(_SAMPLES_LEFT)
        log = scrub_write_ahead_log(self._database)
        return replace(log, left=(*left, *log.left))

    def _wait_for_others(self, connection: Connection) -> bool:
        since = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return wait_until(
            lambda: not connection.execute(_COUNT_OLDER_TRANSACTIONS, {"since": since}).scalar_one(),
            self._patience_seconds,
        )

    def _compact_sqlite(self) -> DatabaseCompactionReport:
        with self._database.autocommit() as connection:
            before = measure_sqlite_bytes(connection)
        steps = ["merged full text"]
        for table in _FULL_TEXT_TABLES:
            self._merge_index(table)
        with self._database.autocommit() as connection:
            # Limits ANALYZE to about 400 rows per index: fast, and accurate enough for the query planner.
            connection.exec_driver_sql("PRAGMA analysis_limit = 400")
            connection.exec_driver_sql("ANALYZE")
            steps.append("analyzed")
            free, pages = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("freelist_count", "page_count")
            )
            if pages and free / pages >= _MIN_FREE_SHARE:
                connection.exec_driver_sql("VACUUM")
                steps.append("vacuumed")
            if not self._database.is_memory and self._empty_log(connection, 0):
                steps.append("emptied the log")
            return DatabaseCompactionReport(
                bytes_before=before, bytes_after=measure_sqlite_bytes(connection), steps=tuple(steps)
            )

    def _merge_index(self, table: str) -> None:
        # FTS5 merges in steps, each in its own transaction. A negative size starts a merge of all segments, and the
        # following steps continue it. A step that changes fewer than two rows had nothing left to merge. See the
        # documentation of the 'merge' command of FTS5.
        merge = f"INSERT INTO {table}({table}, rank) VALUES('merge', ?)"
        size = -_MERGE_PAGES
        while True:
            with self._database.write() as connection:
                driver = connection.connection
                before = driver.total_changes
                driver.execute(merge, (size,))
                changed_rows = driver.total_changes - before
            if changed_rows < 2:
                return
            size = _MERGE_PAGES

    def _compact_postgres(self, should_continue: Callable[[], bool]) -> DatabaseCompactionReport:
        problems, size = list[str](), text("SELECT pg_database_size(current_database())")
        with self._database.autocommit() as connection:
            before = int(connection.execute(size).scalar_one())
        try:
            with self._database.write() as connection:
                connection.execute(_ADOPT_ROWS)
        except StorageError as error:
            problems.append(f"rows from another server were not adopted: {type(error).__name__}")
        for table in TABLES:
            if not should_continue():
                problems.append(
                    f"{table} and the following tables were not vacuumed: another process took over, or this one is "
                    "stopping"
                )
                break
            try:
                with self._database.autocommit() as connection:
                    connection.execute(text(f"VACUUM (ANALYZE) {table}"))
            except StorageError as error:
                problems.append(f"{table} was not vacuumed: {type(error).__name__}")
        with self._database.autocommit() as connection:
            after = int(connection.execute(size).scalar_one())
        return DatabaseCompactionReport(
            bytes_before=before,
            bytes_after=after,
            steps=("vacuumed and analyzed",),
            problems=tuple(problems),
        )


# Rows restored with pg_dump contain transaction ids of another server, which may be in the future on this one. Recall
# would then treat these rows as new and read them again on every query. The subquery finds the affected namespaces by
# one index lookup each.
_ADOPT_ROWS = text(
    """UPDATE lmt_messages SET written_by = pg_current_xact_id()
        WHERE written_by >= pg_snapshot_xmax(pg_current_snapshot()) AND namespace_pk IN (
            SELECT pk FROM lmt_namespaces WHERE EXISTS (
                SELECT 1 FROM lmt_messages AS one
                WHERE one.namespace_pk = lmt_namespaces.pk
                    AND one.written_by >= pg_snapshot_xmax(pg_current_snapshot())))"""
)
_COUNT_OLDER_TRANSACTIONS = text(
    """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND backend_xmin IS NOT NULL AND xact_start < :since"""
)
_OWNS_DATABASE = text(
    """SELECT pg_has_role(current_user, datdba, 'USAGE') OR
            (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        FROM pg_database WHERE datname = current_database()"""
)


_SELECT_RIGHTS = text(
    """SELECT to_regprocedure('pg_clear_attribute_stats(text,text,text,boolean)') IS NOT NULL AS can_clear,
        (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser"""
)
_CLEAR_STATISTICS = text(
    """SELECT pg_clear_attribute_stats(schemaname, tablename, attname, inherited) FROM pg_stats
        WHERE schemaname = current_schema() AND tablename = ANY(:tables)"""
)
_DELETE_STATISTICS = text(
    """DELETE FROM pg_catalog.pg_statistic
        WHERE starelid = ANY(ARRAY(SELECT to_regclass(one)::oid FROM unnest(CAST(:tables AS text[])) AS one))"""
)


def _clear_samples(connection: Connection, tables: Sequence[str]) -> bool:
    # ANALYZE does not replace the samples of a table that is empty by now. Deleting them requires a superuser before
    # PostgreSQL 18, which introduced pg_clear_attribute_stats().
    rights = connection.execute(_SELECT_RIGHTS).one()
    if not rights.can_clear and not rights.is_superuser:
        return False
    connection.execute(
        _CLEAR_STATISTICS if rights.can_clear else _DELETE_STATISTICS, {"tables": list(tables)}
    )
    return True


def _find_affected_tables(erased: ErasedCounts | None, *, from_pools: bool) -> tuple[str, ...]:
    if erased is None:
        return TABLES
    names = {name for kind, tables in _TABLES_BY_COUNT.items() if getattr(erased, kind) for name in tables}
    names.update(_POOL_TABLES if from_pools else ())
    # These two are updated or cleared by every erasure.
    return tuple(sorted(f"lmt_{name}" for name in {*names, "namespaces", "embedding_cache"}))


def _has_samples(connection: Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_stat4'"
    return bool(connection.exec_driver_sql(query).scalar_one())


_SWITCH_SEGMENT = text("SELECT pg_switch_wal()")
_CHECKPOINT = text("CHECKPOINT")
# pg_switch_wal() does nothing if no record was written since the last switch.
_WRITE_RECORD = text("SELECT pg_logical_emit_message(false, 'langmem-tiers', '')")
_COUNT_OLD_SEGMENTS = text(
    """SELECT count(*) FROM pg_ls_waldir()
        WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_lsn())"""
)
_IS_LOG_RETAINED = text(
    """SELECT current_setting('archive_mode') <> 'off' OR current_setting('wal_keep_size') <> '0'
            OR EXISTS (SELECT 1 FROM pg_replication_slots)"""
)
_MAX_OLD_SEGMENTS = 256
"""Maximum number of old segments to overwrite, of 16 MB each; only a server with a special configuration has more."""
_LOG_RETAINED_NOTE = (
    "the server retains its write-ahead log for an archive or for replicas: these contain erased data until they "
    "discard it"
)
_NOT_ALLOWED_NOTE = (
    "this role may not switch the server's write-ahead log, request a checkpoint and list the log files "
    "(pg_switch_wal, CHECKPOINT, pg_ls_waldir): the log contains erased data until the server overwrites it"
)
_TOO_MANY_SEGMENTS = (
    "the server has {count} old segments of its write-ahead log to reuse, which may contain erased data: set "
    "wal_recycle = off and a lower max_wal_size, then forget the same data again"
)


def scrub_write_ahead_log(database: Database) -> ScrubResult:
    """Overwrite the segments of the server's log that may contain data written until now."""
    with database.autocommit() as connection:
        is_retained = bool(connection.execute(_IS_LOG_RETAINED).scalar_one())
    # Overwriting local segments would not help: every new segment goes to the archive or the replicas as well.
    if is_retained:
        return ScrubResult(notes=(_LOG_RETAINED_NOTE,), is_clear=False)
    try:
        with database.autocommit() as connection:
            problem = _overwrite_segments(connection)
    except StorageReadOnlyError:
        return ScrubResult(notes=(_NOT_ALLOWED_NOTE,), is_clear=False)
    except StorageError as error:
        problem = f"the server's write-ahead log was not cleared ({error}): forget the same data again"
    return ScrubResult(left=() if problem is None else (problem,))


def _overwrite_segments(connection: Connection) -> str | None:
    # Switch to a new segment first. A checkpoint deletes the segments before the one in which it starts, or renames
    # them for later reuse with their old content. These recycled segments are overwritten one after the other:
    # switching away from a segment fills the rest of it with zeros.
    connection.execute(_SWITCH_SEGMENT)
    connection.execute(_CHECKPOINT)
    recycled = int(connection.execute(_COUNT_OLD_SEGMENTS).scalar_one())
    if recycled > _MAX_OLD_SEGMENTS:
        return _TOO_MANY_SEGMENTS.format(count=recycled)
    # One more than counted: the current segment may be a recycled one too.
    for _ in range(recycled + 1):
        connection.execute(_WRITE_RECORD)
        connection.execute(_SWITCH_SEGMENT)
    return None
