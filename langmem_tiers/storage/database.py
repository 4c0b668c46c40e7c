"""One database, reached by URL: its connections, its transactions, its faults."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import StaticPool

from langmem_tiers.core.config import Durability, EngineConfig
from langmem_tiers.core.errors import (
    EngineClosedError,
    InvalidConfigError,
    MissingExtraError,
    StorageBusyError,
)
from langmem_tiers.storage.faults import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
_OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING


class Database:
    """Connections to one SQLite file, one SQLite memory or one PostgreSQL database.

    Reads see one consistent statement; writes are transactions that take the write lock
    first, so they never fail half-way because somebody else was writing.
    """

    def __init__(self, url: str | os.PathLike[str], config: EngineConfig) -> None:
        self.url = _parse(url)
        self.label = self.url.render_as_string(hide_password=True)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.is_memory = self.is_sqlite and _is_memory(self.url)
        self._config = config
        self._closed = False
        self._engine = (
            _sqlite(self.url, config, self.is_memory) if self.is_sqlite else _postgres(self.url, config)
        )
        self.dialect = self._engine.dialect
        self._driver = self.dialect.loaded_dbapi
        self._reader = (
            self._engine if self.is_sqlite else self._engine.execution_options(isolation_level="AUTOCOMMIT")
        )
        self._writer = self._engine.execution_options(lmt_write=True)
        # SQLite takes one writer at a time: threads of this process queue here, where waiting
        # is cheap, and only one of them contends with other processes for the file.
        # A database in memory has one connection, so its readers queue as well.
        self._write_lock = threading.Lock()
        # An engine that is dropped without close() gives its connections back all the same.
        weakref.finalize(self, self._engine.dispose)
        _register(self)

    @property
    def file(self) -> str | None:
        """The path of a SQLite file."""
        return self.url.database if self.is_sqlite and not self.is_memory else None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for single statements, each of which sees all that was committed before it."""
        with self._guard(locked=self.is_memory), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: all of it is durable when the block ends, or none of it happened."""
        with self._guard(locked=self.is_sqlite), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Give all connections back; using the database afterwards is an error."""
        self._closed = True
        self._engine.dispose()

    @contextmanager
    def _guard(self, *, locked: bool) -> Iterator[None]:
        if self._closed:
            raise EngineClosedError(f"the engine on {self.label!r} is closed: open a new MemoryEngine")
        if locked and not self._write_lock.acquire(timeout=self._config.busy_timeout_seconds):
            raise StorageBusyError(
                f"other threads held {self.label!r} for more than {self._config.busy_timeout_seconds} s: "
                "raise EngineConfig.busy_timeout_seconds or write in larger batches"
            )
        try:
            with translated(self.label, self._driver):
                yield
        finally:
            if locked:
                self._write_lock.release()

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections to the parent."""
        self._write_lock = threading.Lock()
        if not self.is_memory:
            self._engine.dispose(close=False)


def _parse(url: str | os.PathLike[str]) -> URL:
    if isinstance(url, os.PathLike):
        return URL.create(_DRIVERS["sqlite"], database=str(Path(url).absolute()))
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, TypeError, AttributeError) as error:
        raise InvalidConfigError(
            f"{url!r} is no database URL: use 'sqlite:///memory.db' or 'postgresql://user@host/name'"
        ) from error
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None and parsed.drivername not in _DRIVERS.values():
        raise InvalidConfigError(
            f"unknown kind of database {parsed.drivername!r}: use sqlite:/// or postgresql:// (psycopg 3)"
        )
    parsed = parsed.set(drivername=driver) if driver else parsed
    if parsed.get_backend_name() == "sqlite" and parsed.database == "":
        raise InvalidConfigError(
            f"{url!r} names no file: use 'sqlite:///memory.db', or 'sqlite://' for memory"
        )
    if parsed.get_backend_name() == "sqlite" and not _is_memory(parsed) and not _is_uri(parsed):
        # A later connection must open the same file, also after the program changed its folder.
        parsed = parsed.set(database=str(Path(parsed.database or "").absolute()))
    return parsed


def _is_uri(url: URL) -> bool:
    return (url.database or "").startswith("file:")


def _is_memory(url: URL) -> bool:
    name = url.database or ":memory:"
    return name == ":memory:" or "mode=memory" in name or url.query.get("mode") == "memory"


def _sqlite(url: URL, config: EngineConfig, in_memory: bool) -> Engine:  # noqa: FBT001 - a fact about the URL
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise InvalidConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}: use one with at least 3.35, or PostgreSQL"
        )
    arguments: dict[str, Any] = {"check_same_thread": False, "timeout": config.busy_timeout_seconds}
    if in_memory:
        engine = create_engine(url, connect_args=arguments, poolclass=StaticPool, hide_parameters=True)
    else:
        engine = create_engine(
            url,
            connect_args=arguments,
            pool_size=config.pool_size,
            max_overflow=0,
            pool_timeout=config.busy_timeout_seconds,
            hide_parameters=True,  # an error must not carry what people said into a log
        )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {config.durability.name}")
        if config.durability is Durability.FULL:
            connection.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache
        _use_wal(connection, config.busy_timeout_seconds)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("lmt_write"):
            connection.connection.execute("BEGIN IMMEDIATE")

    return engine


def _postgres(url: URL, config: EngineConfig) -> Engine:
    options = f"-c lock_timeout={int(config.busy_timeout_seconds * 1000)} -c timezone=UTC"
    if config.durability is Durability.NORMAL:
        options += " -c synchronous_commit=off"
    try:
        return create_engine(
            url,
            connect_args={
                "connect_timeout": max(1, int(config.connect_timeout_seconds)),
                "options": f"{url.query.get('options', '')} {options}".strip(),
            },
            pool_size=config.pool_size,
            max_overflow=0,
            pool_timeout=config.busy_timeout_seconds,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "PostgreSQL needs psycopg 3: pip install 'langmem-tiers[postgres]'"
        ) from error


def _use_wal(connection: sqlite3.Connection, patience_seconds: float) -> None:
    # The switch happens once in a file's life, but SQLite does not wait its busy timeout for
    # it: when several processes open a new file at once, all but one are told "locked".
    pause = 0.02
    for attempt in range(int(patience_seconds / pause) + 1):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
                return  # read as it is
            if (
                error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY
                or attempt * pause >= patience_seconds - pause
            ):
                raise
            time.sleep(pause)
        else:
            return


_live: weakref.WeakSet[Database] = weakref.WeakSet()
_fork_hook_set = threading.Event()


def _register(database: Database) -> None:
    _live.add(database)
    if hasattr(os, "register_at_fork") and not _fork_hook_set.is_set():
        _fork_hook_set.set()
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    for database in _live:
        database.after_fork()
