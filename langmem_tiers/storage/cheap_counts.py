"""Cheap database statistics for metrics; message tables are never counted row by row.

On SQLite, session rows contain their message counts. On PostgreSQL, the larger of two server estimates is used: the
live-row statistics, about a second old, or the result of the last ANALYZE. A server crash resets the former. After
large deletions the latter is too high until autovacuum runs.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, text

from langmem_tiers.errors import EngineClosedError, StorageError
from langmem_tiers.storage.schema import knowledge, memories, messages, sessions
from langmem_tiers.telemetry.instruments import EngineGauges

if TYPE_CHECKING:
    from langmem_tiers.storage.database import Database

_LOCK_TIMEOUT_SECONDS = 0.2  # metrics must not wait for a migration that locks the tables
_ESTIMATE_ROWS = text(
    """
    SELECT wanted.name,
           greatest(class.reltuples, coalesce(stats.n_live_tup, 0), 0)::bigint AS live
    FROM unnest(CAST(:names AS text[])) AS wanted(name)
    JOIN pg_class AS class ON class.oid = to_regclass(wanted.name)
    LEFT JOIN pg_stat_user_tables AS stats ON stats.relid = class.oid
    """
)
_TOTAL_BYTES = text(
    """
    SELECT coalesce(sum(pg_total_relation_size(class.oid)), 0)::bigint
    FROM pg_class AS class
    WHERE class.relkind = 'r' AND class.relname LIKE 'lmt\\_%'
      AND class.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('lmt_messages'))
    """
)
_MEMORY_TABLES = (knowledge.name, memories.name)


class DatabaseStatsReader:
    """Reads the gauges of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> EngineGauges:
        """Return what is available now, without waiting for a connection or for locked tables."""
        counts: dict[str, Any] = {"messages": None, "memories": None, "storage_bytes": None}
        if not self._database.is_exhausted:
            with suppress(StorageError, EngineClosedError):
                counts = self._read_sqlite() if self._database.is_sqlite else self._read_postgres()
        active = None if self._database.is_sqlite else self._database.pool_active
        return EngineGauges(pool_active=active, **counts)

    def _read_sqlite(self) -> dict[str, int]:
        with self._database.read() as connection:
            message_count = connection.execute(
                select(func.coalesce(func.sum(sessions.c.message_count), 0))
            ).scalar_one()
            memory_count = sum(
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (knowledge, memories)
            )
            pages, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("page_count", "page_size")
            )
        return {
            "messages": message_count,
            "memories": memory_count,
            "storage_bytes": pages * size + self._get_wal_bytes(),
        }

    def _get_wal_bytes(self) -> int:
        if self._database.is_memory:
            return 0
        try:
            return Path(f"{self._database.url.database}-wal").stat().st_size
        except OSError:
            return 0

    def _read_postgres(self) -> dict[str, int]:
        # In a write transaction, because only that sets its own lock timeout.
        with self._database.write(_LOCK_TIMEOUT_SECONDS) as connection:
            rows = connection.execute(_ESTIMATE_ROWS, {"names": [messages.name, *_MEMORY_TABLES]})
            live = {row.name: int(row.live) for row in rows}
            total_bytes = connection.execute(_TOTAL_BYTES).scalar_one()
        return {
            "messages": live.get(messages.name, 0),
            "memories": sum(live.get(name, 0) for name in _MEMORY_TABLES),
            "storage_bytes": int(total_bytes),
        }
