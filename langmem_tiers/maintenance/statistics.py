"""Cheap statistics of a database and of a namespace; no texts are read.

Those of a database are catalog estimates on PostgreSQL and index counts on SQLite. Those of a namespace are counters
of its sessions.

For metrics, message tables are never counted row by row. On SQLite, session rows contain their message counts. On
PostgreSQL, the larger of two server estimates is used: the live-row statistics, about a second old, or the result of
the last ANALYZE. A server crash resets the former. After large deletions the latter is too high until autovacuum runs.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, func, select, text, type_coerce

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.namespaces import build_namespace_key
from langmem_tiers.errors import EngineClosedError, StorageError
from langmem_tiers.maintenance.models import (
    DailyUsage,
    NamespaceUsage,
    Statistics,
    TableStatistics,
    TierStatistics,
    TierUsage,
)
from langmem_tiers.storage.schema import entries, knowledge, memories, messages, namespaces, sessions
from langmem_tiers.telemetry.instruments import EngineGauges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.storage.database import Database


_MAX_COUNTED_ROWS = 50_000
"""Maximum number of rows of a PostgreSQL table to count; larger tables are estimated."""
_SAMPLE_ROWS = 200  # rows from which the mean row size is estimated
_ESTIMATED_ROWS_LABEL = "rows of {}"
ESTIMATED_BYTES_LABEL = "bytes of tables"
"""Entry of ``Statistics.estimated`` if the sizes of tables are estimates, as always on SQLite."""
_SELECT_TABLE_SIZES = text(
    """SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes,
            GREATEST(c.reltuples, 0)::bigint AS planned, COALESCE(s.n_live_tup, 0) AS live
        FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
        WHERE c.oid = ANY(ARRAY(SELECT to_regclass(one)::oid FROM unnest(CAST(:names AS text[])) AS one))"""
)
_SELECT_TIER_SHARES = text(
    """SELECT unnest(CAST(CAST(most_common_vals AS text) AS text[])) AS tier, unnest(most_common_freqs) AS share
        FROM pg_stats WHERE schemaname = current_schema() AND tablename = :table AND attname = 'tier'"""
)
_TABLES_BY_TIER = {
    Tier.SHORT_TERM: ("messages", "vectors", "entries", "listings", "accesses"),
    Tier.LONG_TERM: ("memories", "memory_vectors", "memory_tags", "relations", "extracted_facts"),
    Tier.KNOWLEDGE: ("knowledge", "knowledge_history"),
}
"""Tables of each tier. The tables of memories are shared by several tiers; their size is split by entry count."""


def measure_database(database: Database, tables: Sequence[str], now: datetime) -> Statistics:
    """Return the contents and size of a database."""
    with database.read() as connection:
        if database.is_sqlite:
            found = _measure_sqlite_tables(connection, tables)
            total, free = measure_sqlite_bytes(connection), _measure_free_bytes(connection)
            total += _measure_log_bytes(database)
        else:
            found = _measure_postgres_tables(connection, tables)
            total = int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
            free = None
        by_name = {table.name.removeprefix("lmt_"): table for table in found}
        # Summing up the counters of very many sessions would take too long.
        is_expensive = by_name["sessions"].is_estimate
        messages, tokens = (
            (by_name["messages"].rows, 0) if is_expensive else _count_messages_and_tokens(connection)
        )
        memories, is_guessed = _count_by_tier(connection, by_name["memories"], database.is_sqlite)
        # Entries are overrides of messages; those of promoted messages are in the long-term tier.
        overrides, is_promoted_guessed = _count_by_tier(connection, by_name["entries"], database.is_sqlite)
    estimated = [_ESTIMATED_ROWS_LABEL.format(table.name) for table in found if table.is_estimate]
    estimated += [ESTIMATED_BYTES_LABEL] if database.is_sqlite else []
    estimated += ["messages", "tokens"] if is_expensive else []
    return Statistics(
        taken_at=now,
        namespaces=by_name["namespaces"].rows,
        sessions=by_name["sessions"].rows,
        messages=messages,
        tokens=tokens,
        tiers=_build_tier_statistics(
            by_name,
            messages,
            overrides.get(Tier.LONG_TERM.value, 0),
            memories,
            is_guessed=is_guessed or is_promoted_guessed,
            is_expensive=is_expensive,
        ),
        tables=tuple(found),
        total_bytes=total,
        free_bytes=free,
        estimated=tuple(estimated),
    )


def measure_sqlite_bytes(connection: Connection) -> int:
    """Return the size of a SQLite file, without its write-ahead log."""
    pages, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size")
    )
    return int(pages) * int(size)


def _measure_free_bytes(connection: Connection) -> int:
    pages, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_size")
    )
    return int(pages) * int(size)


def _measure_log_bytes(database: Database) -> int:
    log = Path(f"{database.url.database}-wal")
    return log.stat().st_size if not database.is_memory and log.exists() else 0


def _count_messages_and_tokens(connection: Connection) -> tuple[int, int]:
    # Each session row has counters, so no message rows are read.
    totals = select(
        func.coalesce(func.sum(sessions.c.message_count), 0),
        func.coalesce(func.sum(sessions.c.token_count), 0),
    )
    messages, tokens = connection.execute(totals).one()
    return int(messages), int(tokens)


def _measure_sqlite_tables(connection: Connection, tables: Sequence[str]) -> list[TableStatistics]:
    return [
        TableStatistics(
            name=name,
            # SQLite counts over the smallest index of the table, so this reads keys, not texts.
            rows=(rows := int(connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one())),  # noqa: S608 - ours
            bytes=_estimate_bytes(connection, name, rows) if rows else 0,
            is_estimate=False,
            bytes_are_estimated=True,
        )
        for name in tables
    ]


def _estimate_bytes(connection: Connection, name: str, rows: int) -> int:
    columns = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({name})")]
    length = " + ".join(f'coalesce(length(CAST("{column}" AS BLOB)), 0)' for column in columns)
    mean = connection.exec_driver_sql(
        f"SELECT avg(size) FROM (SELECT {length} AS size FROM {name} LIMIT {_SAMPLE_ROWS})"  # noqa: S608 - ours
    ).scalar()
    return round(float(mean or 0) * rows)


def _measure_postgres_tables(connection: Connection, tables: Sequence[str]) -> list[TableStatistics]:
    found = []
    for row in connection.execute(_SELECT_TABLE_SIZES, {"names": list(tables)}):
        # reltuples is updated by VACUUM and ANALYZE, n_live_tup also between them. Each may be outdated.
        estimate = max(row.planned, row.live)
        is_estimate = estimate > _MAX_COUNTED_ROWS
        found.append(
            TableStatistics(
                name=row.name,
                rows=estimate if is_estimate else _count_rows(connection, row.name),
                bytes=row.bytes,
                is_estimate=is_estimate,
            )
        )
    return sorted(found, key=lambda table: table.name)


def _count_rows(connection: Connection, name: str) -> int:
    # The LIMIT bounds the cost even if the estimate of the server was far too low.
    within = text(f"SELECT count(*) FROM (SELECT 1 FROM {name} LIMIT {2 * _MAX_COUNTED_ROWS}) AS counted")  # noqa: S608 - ours
    return int(connection.execute(within).scalar_one())


def _count_by_tier(
    connection: Connection,
    table: TableStatistics,
    is_sqlite: bool,  # noqa: FBT001 - a property of the database
) -> tuple[dict[str, int], bool]:
    if table.is_estimate and not is_sqlite:
        # ANALYZE stores the frequency of each tier.
        shares = connection.execute(_SELECT_TIER_SHARES, {"table": table.name})
        return {row.tier: round(row.share * table.rows) for row in shares}, True
    # An index of each table contains the tier, so SQLite reads no texts.
    rows = connection.execute(text(f"SELECT tier, count(*) AS number FROM {table.name} GROUP BY tier"))  # noqa: S608 - ours
    return {row.tier: int(row.number) for row in rows}, False


def _build_tier_statistics(
    tables: Mapping[str, TableStatistics],
    messages: int,
    promoted: int,
    memories: Mapping[str, int],
    *,
    is_guessed: bool,
    is_expensive: bool,
) -> dict[str, TierStatistics]:
    def size(tier: Tier) -> int:
        return sum(tables[name].bytes for name in _TABLES_BY_TIER[tier])

    def share(tier: Tier) -> int:
        total = sum(memories.values())
        return size(Tier.LONG_TERM) * memories.get(tier.value, 0) // total if total else 0

    promoted = min(promoted, messages)  # both may be estimates
    promoted_bytes = size(Tier.SHORT_TERM) * promoted // messages if messages else 0
    memory_tiers: dict[str, Any] = {
        tier.value: TierStatistics(
            count=memories.get(tier.value, 0), bytes=share(tier), is_estimate=is_guessed
        )
        for tier in (Tier.EPISODIC, Tier.PROCEDURAL)
    }
    return {
        Tier.SHORT_TERM.value: TierStatistics(
            count=messages - promoted + memories.get(Tier.SHORT_TERM.value, 0),
            bytes=size(Tier.SHORT_TERM) - promoted_bytes + share(Tier.SHORT_TERM),
            is_estimate=is_expensive or is_guessed,
        ),
        Tier.LONG_TERM.value: TierStatistics(
            count=promoted + memories.get(Tier.LONG_TERM.value, 0),
            bytes=promoted_bytes + share(Tier.LONG_TERM),
            is_estimate=is_guessed,
        ),
        **memory_tiers,
        Tier.KNOWLEDGE.value: TierStatistics(
            count=tables["knowledge"].rows,
            bytes=size(Tier.KNOWLEDGE),
            is_estimate=tables["knowledge"].is_estimate,
        ),
    }


_MAX_GROWTH_MESSAGES = 20_000
"""Maximum number of messages read for the growth by day."""


def load_namespace_usage(
    database: Database, namespace: NamespacePath, since: datetime
) -> NamespaceUsage | None:
    """Return the contents of a namespace and its growth since a time; None if it does not exist."""
    with database.read() as connection:
        found = connection.execute(
            select(namespaces.c.pk).where(namespaces.c.path == build_namespace_key(namespace))
        ).scalar()
        if found is None:
            return None
        key = int(found)
        row = sessions.c
        count, message_count, tokens = _fetch_counts(
            connection,
            select(func.count(), func.sum(row.message_count), func.sum(row.token_count)).where(
                row.namespace_pk == key
            ),
        )
        tiers = _count_tiers(connection, key, TierUsage(entries=message_count, tokens=tokens))
        (knowledge_count,) = _fetch_counts(
            connection, select(func.count()).where(knowledge.c.namespace_pk == key)
        )
        growth, is_whole = _count_by_day(connection, key, since, is_sqlite=database.is_sqlite)
    return NamespaceUsage(
        sessions=count,
        messages=message_count,
        tokens=tokens,
        tiers=tiers,
        knowledge=knowledge_count,
        growth=growth,
        growth_is_whole=is_whole,
    )


def _count_tiers(connection: Connection, key: int, all_messages: TierUsage) -> dict[str, TierUsage]:
    # A promoted message belongs to the long-term tier instead of the short-term tier.
    promoted = TierUsage(
        *_fetch_counts(
            connection,
            select(func.count(), func.sum(messages.c.token_count))
            .select_from(entries.join(messages, messages.c.pk == entries.c.message_pk))
            .where(entries.c.namespace_pk == key, entries.c.tier == Tier.LONG_TERM.value),
        )
    )
    row = memories.c
    rows = connection.execute(
        select(row.tier, func.count(), func.sum(row.token_count))
        .where(row.namespace_pk == key)
        .group_by(row.tier)
    )
    found = {Tier.SHORT_TERM.value: all_messages - promoted, Tier.LONG_TERM.value: promoted}
    for tier, count, tokens in rows:
        found[tier] = found.get(tier, TierUsage()) + TierUsage(int(count), int(tokens or 0))
    return found


def _count_by_day(
    connection: Connection, key: int, since: datetime, *, is_sqlite: bool
) -> tuple[tuple[DailyUsage, ...], bool]:
    row = messages.c
    own = select(row.created_at, row.token_count).where(row.namespace_pk == key).limit(_MAX_GROWTH_MESSAGES)
    # PostgreSQL answers this from its index on the time. SQLite has no such index, so the newest rows by primary key
    # are used: that is the order in which they were written.
    newest = (
        own.order_by(row.pk.desc())
        if is_sqlite
        else own.where(row.created_at >= _to_start_of_day(since)).order_by(row.created_at.desc())
    ).subquery()
    day: ColumnElement[Any] = (
        func.substr(type_coerce(newest.c.created_at, String), 1, 10)
        if is_sqlite
        else func.to_char(func.timezone("UTC", newest.c.created_at), "YYYY-MM-DD")
    )
    rows = connection.execute(select(day, func.count(), func.sum(newest.c.token_count)).group_by(day)).all()
    days = sorted(
        DailyUsage(date.fromisoformat(text), int(count), int(tokens)) for text, count, tokens in rows
    )
    is_whole = sum(day.messages for day in days) < _MAX_GROWTH_MESSAGES
    # If the limit was reached, the oldest day may be incomplete.
    complete = days if is_whole else days[1:]
    requested = tuple(day for day in complete if day.day >= since.date())
    return requested, is_whole or bool(days and days[0].day < since.date())


def _to_start_of_day(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _fetch_counts(connection: Connection, query: Any) -> tuple[int, ...]:  # noqa: ANN401 - any statement
    # A sum over no rows is NULL.
    return tuple(int(value or 0) for value in connection.execute(query).one())


_METRICS_LOCK_TIMEOUT_SECONDS = 0.2  # metrics must not wait for a migration that locks the tables
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
        with self._database.write(_METRICS_LOCK_TIMEOUT_SECONDS) as connection:
            rows = connection.execute(_ESTIMATE_ROWS, {"names": [messages.name, *_MEMORY_TABLES]})
            live = {row.name: int(row.live) for row in rows}
            total_bytes = connection.execute(_TOTAL_BYTES).scalar_one()
        return {
            "messages": live.get(messages.name, 0),
            "memories": sum(live.get(name, 0) for name in _MEMORY_TABLES),
            "storage_bytes": int(total_bytes),
        }
