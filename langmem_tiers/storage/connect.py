"""SQLAlchemy engines for SQLite and PostgreSQL."""

from __future__ import annotations

import select
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc
from sqlalchemy.pool import QueuePool, StaticPool

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.config import Durability, EngineConfig, PostgresConfig
from langmem_tiers.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.storage.urls import is_memory, redact_url

if TYPE_CHECKING:
    from sqlalchemy.pool import ConnectionPoolEntry, Pool

_MIN_SQLITE_VERSION = (3, 35, 0)  # first version with RETURNING


def connect_sqlite(url: URL, config: EngineConfig) -> Engine:
    """Create an engine for a SQLite file or in-memory database; nothing is opened yet."""
    if sqlite3.sqlite_version_info < _MIN_SQLITE_VERSION:
        raise InvalidConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}: use one with at least 3.35, or PostgreSQL"
        )
    arguments: dict[str, Any] = {"check_same_thread": False, "timeout": config.busy_timeout_seconds}
    engine = _create_engine(url, config, arguments, StaticPool if is_memory(url) else QueuePool)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # Disables the driver's implicit BEGIN, which would start transactions without the write lock.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {config.durability.name}")
        if config.durability is Durability.FULL:
            connection.execute(
                "PRAGMA fullfsync = ON"
            )  # macOS: fsync() alone does not flush the drive's cache

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if "lmt_patience" in options:
            _begin_write_with_timeout(
                connection.connection, options["lmt_patience"], config.busy_timeout_seconds
            )
        elif options.get("lmt_write"):
            begin_write(connection.connection)

    return engine


def begin_write(connection: Any) -> None:  # noqa: ANN401 - a sqlite3 object
    """Begin a SQLite transaction with the write lock, so that it cannot fail later because of other writers."""
    connection.execute("BEGIN IMMEDIATE")


def connect_postgres(url: URL, config: EngineConfig) -> Engine:
    """Create an engine for a PostgreSQL database; nothing is opened yet."""
    waits_for_disk = "on" if config.durability is Durability.FULL else "off"
    lock_timeout = max(1, int(config.busy_timeout_seconds * 1000))  # 0 would mean no timeout
    scan = config.postgres
    settings = {
        "lock_timeout": lock_timeout,
        "timezone": "UTC",
        "synchronous_commit": waits_for_disk,
        # Also for single statements outside a transaction, whatever the server's default is.
        "default_transaction_isolation": r"read\ committed",
        # pgvector: the index does not filter by tenant. An iterative scan continues until enough rows pass the filter.
        "hnsw.iterative_scan": scan.vector_scan.value,
        "hnsw.ef_search": scan.ef_search,
        "hnsw.max_scan_tuples": scan.max_scan_tuples,
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    url_options = url.query.get("options", ())
    url_values = (url_options,) if isinstance(url_options, str) else url_options
    arguments = {
        "connect_timeout": max(1, int(config.connect_timeout_seconds)),
        "client_encoding": "utf8",
        "options": f"{' '.join(url_values)} {options}".strip(),
    }
    engine = _create_engine(url, config, arguments, QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        patience = connection.get_execution_options().get("lmt_patience")
        if patience is not None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, int(patience * 1000))}")

    _ping_before_use(engine, config.postgres.ping_after_seconds)
    return engine


def _ping_before_use(engine: Engine, ping_after_seconds: float) -> None:
    # A server that stops closes its connections, which is visible without a round trip: pending input on an idle
    # connection is its end. Only then, or after a long idle time, is a ping worth its cost.
    now, dialect = SystemClock().monotonic, engine.dialect

    @event.listens_for(engine, "connect")
    def connected(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["lmt_pool"] = engine.pool

    @event.listens_for(engine, "reset")
    def reset(connection: Any, record: ConnectionPoolEntry, _state: object) -> None:  # noqa: ANN401 - a psycopg object
        if connection.closed:
            # Otherwise SQLAlchemy fails to reset the isolation level of the broken connection, and its slot in the
            # pool is lost.
            record.invalidate()
        else:
            connection.rollback()

    @event.listens_for(engine, "checkin")
    def rest(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["lmt_resting_since"] = now()
        if (
            record.info.get("lmt_pool") is not engine.pool
        ):  # the pool was disposed while the connection was in use
            record.close()

    @event.listens_for(engine, "checkout")
    def look(connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:  # noqa: ANN401 - a psycopg object
        since = record.info.get("lmt_resting_since")
        if since is None or (now() - since < ping_after_seconds and not _has_pending_input(connection)):
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            # The other idle connections are broken too, so the whole pool is replaced.
            raise exc.InvalidatePoolError from error


def _has_pending_input(connection: Any) -> bool:  # noqa: ANN401 - a psycopg object
    if connection.closed:
        return True
    # poll() where available: select() fails for file descriptors above 1,023.
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([connection.fileno()], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _begin_write_with_timeout(connection: Any, patience_seconds: float, usual_seconds: float) -> None:  # noqa: ANN401 - a sqlite3 object
    connection.execute(f"PRAGMA busy_timeout = {int(patience_seconds * 1000)}")
    try:
        connection.execute("BEGIN IMMEDIATE")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(usual_seconds * 1000)}")


def enable_wal(connection: Any, patience_seconds: float) -> None:  # noqa: ANN401 - a sqlite3 object
    """Switch a file to write-ahead logging, which happens once per database file.

    SQLite does not apply its busy timeout to this switch: if several processes open a new file
    at once, all but one get "locked". This function therefore retries until ``patience_seconds``.
    """
    pause = 0.02
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        for attempt in range(int(patience_seconds / pause) + 1):
            if attempt:
                time.sleep(pause)
            try:
                if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                    connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                code = error.sqlite_errorcode & 0xFF
                if code == sqlite3.SQLITE_READONLY:
                    return  # a read-only database keeps its journal mode
                if code != sqlite3.SQLITE_BUSY or (attempt + 1) * pause > patience_seconds:
                    raise
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(patience_seconds * 1000)}")


def _create_engine(url: URL, config: EngineConfig, arguments: dict[str, Any], pool: type[Pool]) -> Engine:
    sizes: dict[str, Any] = {}
    if pool is QueuePool:
        own = PostgresConfig() if url.get_backend_name() == "sqlite" else config.postgres
        # A SQLite pool uses the defaults of PostgresConfig, so it has no overflow.
        sizes = {
            "pool_size": own.pool_size or config.pool_size,
            "max_overflow": own.max_overflow,
            "pool_timeout": own.pool_timeout_seconds or config.busy_timeout_seconds,
        }
    if url.get_backend_name() != "sqlite":
        sizes["pool_reset_on_return"] = None  # the "reset" listener of _ping_before_use() does it
    try:
        # hide_parameters: errors must not carry message text into logs.
        return create_engine(url, connect_args=arguments, poolclass=pool, hide_parameters=True, **sizes)
    except ImportError as error:
        raise MissingExtraError(
            "PostgreSQL needs psycopg 3: pip install 'langmem-tiers[postgres]'"
        ) from error
    except (exc.ArgumentError, TypeError, ValueError):
        raise InvalidConfigError(
            f"the URL of {redact_url(url)!r} has an invalid parameter: remove it from the query string"
        ) from None
