"""Keeping the files of a database in shape: wiped of what was erased, compacted, measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import text

from langmem_tiers.common.waiting import wait_until
from langmem_tiers.erasure.models import ScrubResult
from langmem_tiers.errors import StorageError
from langmem_tiers.maintenance.models import DatabaseCompactionReport
from langmem_tiers.maintenance.namespace_stats import load_namespace_usage
from langmem_tiers.maintenance.postgres_wal import scrub_write_ahead_log
from langmem_tiers.maintenance.statistics import measure_database, measure_sqlite_bytes
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import ALL_METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedCounts
    from langmem_tiers.maintenance.models import NamespaceUsage, Statistics
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
    "memory_spaces",
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
"""Tables that lose rows with each kind."""
_MIN_FREE_SHARE = 0.2
"""The part of a SQLite file that must be unused for it to be written anew."""
_MERGE_PAGES = 200  # pages of a full-text index, so that others can write in between
_LOG_IN_USE = (
    "others read the database all the time, its log is not empty: close them and forget the same again"
)
_SAMPLES_LEFT = (
    "samples that the planner keeps of columns may hold parts of it: have a superuser delete those of the tables from "
    "pg_statistic and run VACUUM FULL pg_statistic"
)


class CopyScrubber(Protocol):
    """What keeps copies outside of the database."""

    def scrub(self, patience_seconds: float) -> str | None:
        """Let their files hold nothing of what was erased; what was not done, and what to do about it."""
        ...


class SqlMaintenanceStore:
    """Serves the ``UpkeepStore`` port.

    Args:
        database: Where.
        patience_seconds: How long to wait for others.
        copies: Redis above it.
    """

    def __init__(
        self, database: Database, patience_seconds: float, copies: CopyScrubber | None = None
    ) -> None:
        self._database = database
        self._patience_seconds = patience_seconds
        self._copies = copies

    def scrub(self, erased: ErasedCounts | None = None, *, from_pools: bool = True) -> ScrubResult:
        """Let the files of the database, and those of the Redis above it, hold nothing of what was erased."""
        done = self._scrub(erased, from_pools=from_pools)
        problem = None if self._copies is None else self._copies.scrub(self._patience_seconds)
        return done if problem is None else replace(done, left=(*done.left, problem))

    def _scrub(self, erased: ErasedCounts | None, *, from_pools: bool) -> ScrubResult:
        if self._database.is_memory:
            return ScrubResult()
        if self._database.is_sqlite:
            return self._scrub_sqlite()
        return self._scrub_postgres(_find_affected_tables(erased, from_pools=from_pools))

    def compact(self, go_on: Callable[[], bool] = lambda: True) -> DatabaseCompactionReport:
        """Merge full-text indexes, bring the planner's statistics up to date, give unused room back where cheap."""
        return self._compact_sqlite() if self._database.is_sqlite else self._compact_postgres(go_on)

    def statistics(self, now: datetime) -> Statistics:
        """What the database holds and takes."""
        return measure_database(self._database, TABLES, now)

    @retry_on_disconnect
    def get_namespace_usage(self, namespace: NamespacePath, since: datetime) -> NamespaceUsage | None:
        """What a namespace holds, and what was said in it since then."""
        return load_namespace_usage(self._database, namespace, since)

    def _scrub_sqlite(self) -> ScrubResult:
        with self._database.autocommit() as connection:
            for table in _FULL_TEXT_TABLES:  # words of what was deleted stay in the index until it is merged
                connection.exec_driver_sql(f"INSERT INTO {table}({table}) VALUES('optimize')")
            if _has_samples(connection):
                connection.exec_driver_sql("ANALYZE")
            connection.exec_driver_sql("VACUUM")  # pages hold copies of rows that were moved
            is_empty = self._empty_log(connection, self._patience_seconds)
        left = () if is_empty else (_LOG_IN_USE,)
        return ScrubResult(left=left, notes=self._find_backups())

    def _empty_log(self, connection: Connection, patience_seconds: float) -> bool:
        def is_empty() -> bool:
            return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]

        return wait_until(is_empty, patience_seconds)

    def _find_backups(self) -> tuple[str, ...]:
        file = Path(self._database.url.database or "")
        copies = sorted(one.name for one in file.parent.glob(f"{file.name}.v*.backup*"))
        if not copies:
            return ()
        return (f"copies from before a migration lie beside the database, erase them: {', '.join(copies)}",)

    def _scrub_postgres(self, tables: Sequence[str]) -> ScrubResult:
        left = list[str]()
        with self._database.autocommit() as connection:
            if not self._wait_for_others(connection):
                left.append(
                    "a transaction that began before keeps the bytes of what it could still see: end it and forget "
                    "the same again"
                )
            has_samples = not _clear_samples(connection, tables)
            for table in tables:
                connection.execute(text(f"VACUUM (FULL, ANALYZE) {table}"))
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
            connection.exec_driver_sql("PRAGMA analysis_limit = 400")  # enough to plan by, and quick
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
        # A step at a time: each is a transaction of its own, and two rows or more are changed while there is work.
        merge = f"INSERT INTO {table}({table}, rank) VALUES('merge', ?)"
        size = -_MERGE_PAGES
        while True:
            with self._database.write() as connection:
                driver = connection.connection
                before = driver.total_changes
                driver.execute(merge, (size,))
                done = driver.total_changes - before
            if done < 2:
                return
            size = _MERGE_PAGES

    def _compact_postgres(self, go_on: Callable[[], bool]) -> DatabaseCompactionReport:
        problems, size = list[str](), text("SELECT pg_database_size(current_database())")
        with self._database.autocommit() as connection:
            before = int(connection.execute(size).scalar_one())
        try:
            with self._database.write() as connection:
                connection.execute(_ADOPT_ROWS)
        except StorageError as error:
            problems.append(f"rows of another server were not taken over: {type(error).__name__}")
        for table in TABLES:
            if not go_on():
                problems.append(
                    f"{table} and those after it were not vacuumed: another process is at it, or it ends"
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


# Rows that came with pg_dump bear the numbers of transactions of another server, which may be yet to come here: recall
# would read them anew each time. By the index, a look for each namespace.
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
    # ANALYZE leaves those of a table that is empty by now.
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
    names = {name for kind, of in _TABLES_BY_COUNT.items() if getattr(erased, kind) for name in of}
    names.update(_POOL_TABLES if from_pools else ())
    return tuple(sorted(f"lmt_{name}" for name in {*names, "namespaces", "embedding_cache"}))


def _has_samples(connection: Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_stat4'"
    return bool(connection.exec_driver_sql(query).scalar_one())
