"""How connections to each kind of database are made."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc
from sqlalchemy.pool import QueuePool, StaticPool

from langmem_tiers.core.config import Durability, EngineConfig
from langmem_tiers.core.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.storage.urls import is_memory, label_of

if TYPE_CHECKING:
    from sqlalchemy.pool import Pool

_OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING


def connect_sqlite(url: URL, config: EngineConfig) -> Engine:
    """An engine for a SQLite file or memory; nothing is opened yet."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise InvalidConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}: use one with at least 3.35, or PostgreSQL"
        )
    arguments: dict[str, Any] = {"check_same_thread": False, "timeout": config.busy_timeout_seconds}
    engine = _engine(url, config, arguments, StaticPool if is_memory(url) else QueuePool)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {config.durability.name}")
        if config.durability is Durability.FULL:
            connection.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if "lmt_patience" in options:
            _begin_soon(connection.connection, options["lmt_patience"], config.busy_timeout_seconds)
        elif options.get("lmt_write"):
            begin_write(connection.connection)

    return engine


def begin_write(connection: Any) -> None:  # noqa: ANN401 - sqlite3's own
    """Begin a transaction of SQLite with its write lock, so that it cannot fail half-way because of others."""
    connection.execute("BEGIN IMMEDIATE")


def connect_postgres(url: URL, config: EngineConfig) -> Engine:
    """An engine for a PostgreSQL database; nothing is opened yet."""
    waits_for_disk = "on" if config.durability is Durability.FULL else "off"
    lock_timeout = max(1, int(config.busy_timeout_seconds * 1000))  # 0 would mean for ever
    options = f"-c lock_timeout={lock_timeout} -c timezone=UTC -c synchronous_commit={waits_for_disk}"
    own = url.query.get("options", ())
    given = (own,) if isinstance(own, str) else own
    arguments = {
        "connect_timeout": max(1, int(config.connect_timeout_seconds)),
        "client_encoding": "utf8",
        "options": f"{' '.join(given)} {options}".strip(),
    }
    engine = _engine(url, config, arguments, QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        patience = connection.get_execution_options().get("lmt_patience")
        if patience is not None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, int(patience * 1000))}")

    return engine


def _begin_soon(connection: Any, patience_seconds: float, usual_seconds: float) -> None:  # noqa: ANN401 - sqlite3's own
    connection.execute(f"PRAGMA busy_timeout = {int(patience_seconds * 1000)}")
    try:
        connection.execute("BEGIN IMMEDIATE")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(usual_seconds * 1000)}")


def use_wal(connection: Any, patience_seconds: float) -> None:  # noqa: ANN401 - sqlite3's own
    """Switch a file to write-ahead logging, which happens once in its life.

    SQLite does not wait its busy timeout for that: when several processes open a new file
    at once, all but one are told "locked". So we wait here, and no longer than asked.
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
                    return  # read as it is
                if code != sqlite3.SQLITE_BUSY or (attempt + 1) * pause > patience_seconds:
                    raise
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(patience_seconds * 1000)}")


def _engine(url: URL, config: EngineConfig, arguments: dict[str, Any], pool: type[Pool]) -> Engine:
    sizes: dict[str, Any] = {}
    if pool is QueuePool:
        sizes = {
            "pool_size": config.pool_size,
            "max_overflow": 0,
            "pool_timeout": config.busy_timeout_seconds,
            "pool_pre_ping": url.get_backend_name() != "sqlite",
        }
    try:
        # Parameters are hidden: an error must not carry what people said into a log.
        return create_engine(url, connect_args=arguments, poolclass=pool, hide_parameters=True, **sizes)
    except ImportError as error:
        raise MissingExtraError(
            "PostgreSQL needs psycopg 3: pip install 'langmem-tiers[postgres]'"
        ) from error
    except (exc.ArgumentError, TypeError, ValueError):
        raise InvalidConfigError(
            f"the URL of {label_of(url)!r} holds a setting that is none: leave it out"
        ) from None
