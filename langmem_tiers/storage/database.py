"""A database opened by URL: its connections, transactions and error handling."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
import weakref
from contextlib import closing, contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import urlencode

from sqlalchemy import exc
from sqlalchemy.pool import QueuePool

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.fork_safety import register_fork_aware
from langmem_tiers.errors import EngineClosedError, StorageBusyError, StorageUnavailableError
from langmem_tiers.storage.connect import begin_write, connect_postgres, connect_sqlite, enable_wal
from langmem_tiers.storage.driver_errors import ConnectionLostError, build_connection_error, translate_errors
from langmem_tiers.storage.urls import (
    build_reopen_url,
    get_file_identity,
    is_memory,
    parse_url,
    redact_url,
    to_shared_memory_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.config import EngineConfig


T = TypeVar("T")
_MAX_ATTEMPTS = 3  # a restarting server can also break the connection opened right after the first failure
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 0.5


class Database:
    """Connections to one SQLite file, one in-memory SQLite database or one PostgreSQL database.

    Each read statement sees a consistent state. Writes are transactions. On SQLite they take the write lock first, so
    that they never fail half-way because of another writer.
    """

    def __init__(self, url: str | os.PathLike[str], config: EngineConfig) -> None:
        self.url = parse_url(url)
        self.label = redact_url(self.url)
        self.reopen_url = build_reopen_url(self.url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.is_memory = self.is_sqlite and is_memory(self.url)
        self.config = config
        self._closed = False
        self._interrupted = False
        self._was_reached = False
        self._pid = os.getpid()
        self._file_identity: tuple[int, int] | None = None
        if self.is_memory:
            self.url = to_shared_memory_url(self.url)
        self._engine = (
            connect_sqlite(self.url, config) if self.is_sqlite else connect_postgres(self.url, config)
        )
        # Also releases the connections of an engine that is garbage-collected without close().
        self._release = weakref.finalize(self, _release, self._engine, self._open_memory_anchor())
        self.dialect = self._engine.dialect
        self._driver = self.dialect.loaded_dbapi
        self._reader = (
            self._engine if self.is_sqlite else self._engine.execution_options(isolation_level="AUTOCOMMIT")
        )
        # Overrides the server's default: with a stricter level, concurrent writers would get serialization errors.
        isolation = {} if self.is_sqlite else {"isolation_level": "READ COMMITTED"}
        self._writer = self._engine.execution_options(lmt_write=True, **isolation)
        # SQLite allows one writer at a time. Threads of this process wait for this lock, which
        # is cheap, and only one of them contends with other processes for the file.
        # An in-memory database has one connection, so its readers take the lock as well.
        self._write_lock = threading.RLock()
        self._gate = _Gate()
        register_fork_aware(self)

    @property
    def is_closed(self) -> bool:
        """True if the database was closed."""
        return self._closed

    @property
    def pool_active(self) -> int | None:
        """Number of connections in use; None for an in-memory database, which has only one."""
        pool = self._engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else None

    @property
    def is_exhausted(self) -> bool:
        """True if the next caller has to wait for a connection."""
        pool = self._engine.pool
        # The engine for SQLite has no overflow; see connect.py.
        beyond = 0 if self.is_sqlite else self.config.postgres.max_overflow
        return isinstance(pool, QueuePool) and pool.checkedout() >= pool.size() + beyond

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection for single statements, each of which sees everything committed before it."""
        with self._guard(locked=self.is_memory), self._connect(self._reader) as connection:
            yield connection

    @contextmanager
    def read_raw(self) -> Iterator[PoolProxiedConnection]:
        """Open a driver connection for reads, which avoids SQLAlchemy's overhead for small statements."""
        if not self.is_sqlite:  # the isolation level of the connection is set by SQLAlchemy only
            with self.read() as connection:
                yield connection.connection
            return
        with self._guard(locked=self.is_memory), closing(self._engine.raw_connection()) as raw:
            yield raw

    @contextmanager
    def write(self, patience_seconds: float | None = None) -> Iterator[Connection]:
        """Open a transaction: when the block ends, it is durable as a whole, or rolled back.

        Args:
            patience_seconds: Maximum wait for other writers. Default: the engine's ``busy_timeout_seconds``.
        """
        writer = self._writer
        if patience_seconds is not None:
            writer = writer.execution_options(lmt_patience=patience_seconds)
        with (
            self._guard(locked=self.is_sqlite, patience=patience_seconds),
            self._connect(writer, patience_seconds) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def write_raw(self) -> Iterator[PoolProxiedConnection]:
        """Open a transaction for statements that run on the driver."""
        if not self.is_sqlite:
            with self.write() as connection:
                yield connection.connection
            return
        with self._guard(locked=True), closing(self._engine.raw_connection()) as raw:
            begin_write(raw)
            try:
                yield raw
                raw.commit()
            except BaseException:
                raw.rollback()
                raise

    @contextmanager
    def write_statement(self) -> Iterator[PoolProxiedConnection]:
        """Open a driver connection for one writing statement; PostgreSQL needs no transaction for it."""
        with self.write_raw() if self.is_sqlite else self.read_raw() as raw:
            yield raw

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """Open a connection for statements that cannot run in a transaction, such as ``VACUUM``.

        On SQLite, writing threads wait until it is released.
        """
        with self._guard(locked=self.is_sqlite), self._connect(self._reader) as connection:
            yield connection

    @contextmanager
    def read_snapshot(self) -> Iterator[Connection]:
        """Open a connection whose statements all see the database at the same moment, despite concurrent writes."""
        options: dict[str, Any] = (
            {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
        reader = self._engine.execution_options(**options)
        with self._guard(locked=self.is_memory), self._connect(reader) as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN")  # the snapshot is taken by the first read
            yield connection

    def run_with_retry(self, work: Callable[[], T]) -> T:
        """Run repeatable work, and run it again if the connection breaks."""
        for _ in range(_MAX_ATTEMPTS - 1):
            with suppress(ConnectionLostError):
                return work()
        return work()

    def prepare(self) -> None:
        """Prepare a database with a known schema for concurrent use: enable write-ahead logging on a SQLite file."""
        if self.is_sqlite and not self.is_memory:
            with self.read() as connection:
                enable_wal(connection.connection.driver_connection, self.config.busy_timeout_seconds)
            self._file_identity = get_file_identity(self.url)

    def check_file(self) -> None:
        """Check that the SQLite file is the one that was opened; other databases need no check.

        Raises:
            StorageUnavailableError: The file does not exist, or was replaced.
        """
        self._refuse_if_closed()
        if not self.is_sqlite or self.is_memory:
            return
        found = get_file_identity(self.url)
        self._file_identity = found if self._file_identity is None else self._file_identity
        if found is None:
            raise StorageUnavailableError(f"database file {self.label!r} not found: restore it to this path")
        if found != self._file_identity:
            raise StorageUnavailableError(
                f"the database file {self.label!r} was replaced: open a new MemoryEngine"
            )

    def close(self) -> None:
        """Wait for operations in progress, then close all connections. Later use raises EngineClosedError."""
        self._gate.shut(self.config.busy_timeout_seconds)
        try:
            self._closed = True
            self._release()
        finally:
            self._gate.open()

    def _connect(self, engine: Engine, patience_seconds: float | None = None) -> Connection:
        # No statement was sent yet, so waiting for a restarting server is safe for reads and writes. If the server
        # was never reached, the URL may be wrong, so the first failure is raised at once.
        if self.is_sqlite:
            return engine.connect()
        patience = self.config.postgres.reconnect_seconds if self._was_reached else 0.0
        patience = patience if patience_seconds is None else min(patience, patience_seconds)
        now = SystemClock().monotonic
        end, pause = now() + patience, _FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = engine.connect()
            except exc.OperationalError as error:
                left = end - now()  # an attempt may itself take as long as connect_timeout_seconds
                if left <= 0:
                    raise build_connection_error(self.label, error) from None
            else:
                self._was_reached = True
                return connection
            time.sleep(min(pause, left))
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _open_memory_anchor(self) -> sqlite3.Connection | None:
        # An in-memory database exists as long as it has a connection. The pool may drop its own,
        # for instance after Ctrl-C, so one extra connection stays open.
        if not self.is_memory:
            return None
        query = urlencode({key: value for key, value in self.url.query.items() if key != "uri"})
        return sqlite3.connect(f"{self.url.database}?{query}", uri=True, check_same_thread=False)

    @contextmanager
    def _guard(self, *, locked: bool, patience: float | None = None) -> Iterator[None]:
        # Ctrl-C may arrive between any two steps, so leaving the gate and unlocking may be repeated safely.
        token = object()
        try:
            self._gate.enter(token)
            self._refuse_if_closed()
            try:
                if locked:
                    self._lock(patience)
                if self._interrupted:
                    self._recover()
                with translate_errors(self.label, self._driver):
                    yield
                self._interrupted = False
            finally:
                if locked:
                    self._unlock()
        except Exception:
            raise
        except BaseException:
            self._interrupted = True
            raise
        finally:
            self._gate.leave(token)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EngineClosedError(f"the engine on {self.label!r} is closed: open a new MemoryEngine")

    def _recover(self) -> None:
        # An interrupt inside SQLAlchemy leaves the connection and its locks in a reference
        # cycle, and its slot in the pool occupied. Collecting the cycle releases them.
        gc.collect()
        self._engine.dispose()

    def _lock(self, patience: float | None) -> None:
        patience = self.config.busy_timeout_seconds if patience is None else patience
        if not self._write_lock.acquire(timeout=patience):
            raise StorageBusyError(
                f"other threads locked {self.label!r} for more than {patience} s: "
                "raise EngineConfig.busy_timeout_seconds or write in larger batches"
            )

    def _unlock(self) -> None:
        with suppress(RuntimeError):  # not locked by this thread, if the wait timed out
            self._write_lock.release()

    def before_fork(self) -> None:
        """Close every connection: a SQLite connection shared by two processes loses writes."""
        self._gate.shut(self.config.busy_timeout_seconds)
        self._pid = os.getpid()
        if not self.is_memory:
            self._engine.dispose()

    def after_fork(self) -> None:
        """Resume; connections are reopened on demand."""
        if self._pid != os.getpid():  # in the child, where the parent's other threads do not exist
            self._write_lock = threading.RLock()
            self._gate.reset()
        self._gate.open()


def _release(engine: Engine, anchor: sqlite3.Connection | None) -> None:
    engine.dispose()
    if anchor is not None:
        anchor.close()


class _Gate:
    """Tracks the threads inside, and can be shut until all other threads have left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[object, int] = {}
        self._shut_by: int | None = None

    def enter(self, token: object) -> None:
        me = threading.get_ident()
        with self._changed:
            while self._shut_by not in (None, me):
                self._changed.wait()
            self._inside[token] = me

    def leave(self, token: object) -> None:
        with self._changed:
            self._inside.pop(token, None)
            self._changed.notify_all()

    def shut(self, patience_seconds: float) -> None:
        """Block new threads and wait for those inside; keeps the condition locked until ``open()``."""
        me = threading.get_ident()
        self._changed.acquire()
        try:
            self._shut_by = me
            self._changed.wait_for(lambda: set(self._inside.values()) <= {me}, patience_seconds)
        except BaseException:
            self.open()
            raise

    def open(self) -> None:
        self._shut_by = None
        self._changed.notify_all()
        self._changed.release()

    def reset(self) -> None:
        """Forget all threads inside."""
        self._inside.clear()


P = ParamSpec("P")


class _HasDatabase(Protocol):
    _database: Database


S = TypeVar("S", bound=_HasDatabase)


def retry_on_disconnect(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a repository method to be retried if its connection breaks.

    Use it only for methods that read, or whose writes are idempotent. Do not use it for methods that run in a caller's
    transaction: a retry would lose the transaction's earlier statements.
    """

    @wraps(method)
    def run_with_retry(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.run_with_retry(lambda: method(self, *args, **kwargs))

    return run_with_retry
