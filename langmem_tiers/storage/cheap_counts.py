"""How a database stands, told at little cost: no table of messages is ever counted row by row.

On SQLite the sessions know how many messages they hold. PostgreSQL keeps estimates of its own: those of the
statistics, a second or so behind, or of the last ANALYZE, whichever is more. After a crash of the server the first
begin anew, and after much was erased the second are too high until autovacuum has been there.
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

_LOCK_TIMEOUT_SECONDS = 0.2  # for a migration that holds the tables: figures can wait
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
    """Tells how a database stands."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> EngineGauges:
        """What can be told now; whoever asks does not wait for a connection, and not for those who hold tables."""
        told: dict[str, Any] = {"messages": None, "memories": None, "storage_bytes": None}
        if not self._database.is_exhausted:
            with suppress(StorageError, EngineClosedError):
                told = self._read_sqlite() if self._database.is_sqlite else self._read_postgres()
        active = None if self._database.is_sqlite else self._database.pool_active
        return EngineGauges(pool_active=active, **told)

    def _read_sqlite(self) -> dict[str, int]:
        with self._database.read() as connection:
            said = connection.execute(
                select(func.coalesce(func.sum(sessions.c.message_count), 0))
            ).scalar_one()
            made = sum(
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (knowledge, memories)
            )
            pages, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("page_count", "page_size")
            )
        return {"messages": said, "memories": made, "storage_bytes": pages * size + self._get_wal_bytes()}

    def _get_wal_bytes(self) -> int:
        if self._database.is_memory:
            return 0
        try:
            return Path(f"{self._database.url.database}-wal").stat().st_size
        except OSError:
            return 0

    def _read_postgres(self) -> dict[str, int]:
        # In a transaction, whose time limit for locks is its own.
        with self._database.write(_LOCK_TIMEOUT_SECONDS) as connection:
            rows = connection.execute(_ESTIMATE_ROWS, {"names": [messages.name, *_MEMORY_TABLES]})
            live = {row.name: int(row.live) for row in rows}
            taken = connection.execute(_TOTAL_BYTES).scalar_one()
        return {
            "messages": live.get(messages.name, 0),
            "memories": sum(live.get(name, 0) for name in _MEMORY_TABLES),
            "storage_bytes": int(taken),
        }
