"""One database, reached by URL: its connections, its transactions, its faults."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
import weakref
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
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
_MAX_TRIES = 3  # a server that restarts breaks a connection once, a second one right after it once more
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 0.5


class Database:
    """Connections to one SQLite file, one SQLite memory or one PostgreSQL database.

    Reads see one consistent statement; writes are transactions that take the write lock
    first, so they never fail half-way because somebody else was writing.
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
        # An engine that is dropped without close() gives its connections back all the same.
        self._release = weakref.finalize(self, _release, self._engine, self._open_memory_anchor())
        self.dialect = self._engine.dialect
        self._driver = self.dialect.loaded_dbapi
        self._reader = (
            self._engine if self.is_sqlite else self._engine.execution_options(isolation_level="AUTOCOMMIT")
        )
        # Whatever the server's default is: adding must not fail because others add at the same time.
        isolation = {} if self.is_sqlite else {"isolation_level": "READ COMMITTED"}
        self._writer = self._engine.execution_options(lmt_write=True, **isolation)
        # SQLite takes one writer at a time: threads of this process queue here, where waiting
        # is cheap, and only one of them contends with other processes for the file.
        # A database in memory has one connection, so its readers queue as well.
        self._write_lock = threading.RLock()
        self._gate = _Gate()
        register_fork_aware(self)

    @property
    def is_closed(self) -> bool:
        """Whether it was given back."""
        return self._closed

    @property
    def pool_active(self) -> int | None:
        """Connections in use; None where there is only one."""
        pool = self._engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else None

    @property
    def is_exhausted(self) -> bool:
        """Whether whoever wants a connection now has to wait for one."""
        pool = self._engine.pool
        beyond = 0 if self.is_sqlite else self.config.postgres.max_overflow
        return isinstance(pool, QueuePool) and pool.checkedout() >= pool.size() + beyond

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for single statements, each of which sees all that was committed before it."""
        with self._guard(locked=self.is_memory), self._connect(self._reader) as connection:
            yield connection

    @contextmanager
    def read_raw(self) -> Iterator[PoolProxiedConnection]:
        """As ``read()``, for statements that run on the driver: SQLAlchemy's part costs more than a small one."""
        if not self.is_sqlite:  # the connection is told how to begin, which only SQLAlchemy does
            with self.read() as connection:
                yield connection.connection
            return
        with self._guard(locked=self.is_memory), closing(self._engine.raw_connection()) as raw:
            yield raw

    @contextmanager
    def write(self, patience_seconds: float | None = None) -> Iterator[Connection]:
        """A transaction: all of it is durable when the block ends, or none of it happened.

        Args:
            patience_seconds: How long to wait for others who write; as the engine's settings say, if left out.
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
        """As ``write()``, for statements that run on the driver."""
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
        """As ``write_raw()``, for one statement, which PostgreSQL needs no transaction around."""
        with self.write_raw() if self.is_sqlite else self.read_raw() as raw:
            yield raw

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """A connection for what no transaction takes, such as ``VACUUM``; threads that write wait for it on SQLite."""
        with self._guard(locked=self.is_sqlite), self._connect(self._reader) as connection:
            yield connection

    @contextmanager
    def read_snapshot(self) -> Iterator[Connection]:
        """A connection whose statements all see the database as it was at one moment, whatever is written meanwhile."""
        options: dict[str, Any] = (
            {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
        reader = self._engine.execution_options(**options)
        with self._guard(locked=self.is_memory), self._connect(reader) as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN")  # the moment is that of the first read
            yield connection

    def run_with_retry(self, work: Callable[[], T]) -> T:
        """Do what may be done twice, and do it again if the connection broke in the middle of it."""
        for _ in range(_MAX_TRIES - 1):
            with suppress(ConnectionLostError):
                return work()
        return work()

    def prepare(self) -> None:
        """Make a database that is known to be ours ready for many: a SQLite file gets its write-ahead log."""
        if self.is_sqlite and not self.is_memory:
            with self.read() as connection:
                enable_wal(connection.connection.driver_connection, self.config.busy_timeout_seconds)
            self._file_identity = get_file_identity(self.url)

    def check_file(self) -> None:
        """Whether the file is the one that was opened; there is nothing to look at for other databases.

        Raises:
            StorageUnavailableError: It is gone, or another one stands in its place.
        """
        self._refuse_if_closed()
        if not self.is_sqlite or self.is_memory:
            return
        found = get_file_identity(self.url)
        self._file_identity = found if self._file_identity is None else self._file_identity
        if found is None:
            raise StorageUnavailableError(f"{self.label!r} is gone: put the file back where it was")
        if found != self._file_identity:
            raise StorageUnavailableError(
                f"another file stands at {self.label!r} than was opened: open a new MemoryEngine on it"
            )

    def close(self) -> None:
        """Wait for those who are using it, then give all connections back. Later use is an error."""
        self._gate.shut(self.config.busy_timeout_seconds)
        try:
            self._closed = True
            self._release()
        finally:
            self._gate.open()

    def _connect(self, engine: Engine, patience_seconds: float | None = None) -> Connection:
        # Nothing has been asked yet, so waiting for a server that restarts is safe, whatever comes next. Who has
        # never reached it is told at once: its URL may be wrong.
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
        # A database in memory lives as long as one connection to it. The pool may drop its own,
        # for instance after Ctrl-C, so one more is held that nobody uses.
        if not self.is_memory:
            return None
        query = urlencode({key: value for key, value in self.url.query.items() if key != "uri"})
        return sqlite3.connect(f"{self.url.database}?{query}", uri=True, check_same_thread=False)

    @contextmanager
    def _guard(self, *, locked: bool, patience: float | None = None) -> Iterator[None]:
        # Ctrl-C may arrive between any two steps: leaving and releasing are safe to do too often.
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
        # An interrupt inside SQLAlchemy leaves its connection, with locks and all, in a cycle
        # of references, and its place in the pool taken.
        gc.collect()
        self._engine.dispose()

    def _lock(self, patience: float | None) -> None:
        patience = self.config.busy_timeout_seconds if patience is None else patience
        if not self._write_lock.acquire(timeout=patience):
            raise StorageBusyError(
                f"other threads held {self.label!r} for more than {patience} s: "
                "raise EngineConfig.busy_timeout_seconds or write in larger batches"
            )

    def _unlock(self) -> None:
        with suppress(RuntimeError):  # not ours, if the wait for it was given up
            self._write_lock.release()

    def before_fork(self) -> None:
        """Close every connection: a file that two processes hold through one connection loses writes."""
        self._gate.shut(self.config.busy_timeout_seconds)
        self._pid = os.getpid()
        if not self.is_memory:
            self._engine.dispose()

    def after_fork(self) -> None:
        """Go on; connections are made anew when they are needed."""
        if self._pid != os.getpid():  # whoever did not leave in time is not here, and holds nothing here
            self._write_lock = threading.RLock()
            self._gate.reset()
        self._gate.open()


def _release(engine: Engine, anchor: sqlite3.Connection | None) -> None:
    engine.dispose()
    if anchor is not None:
        anchor.close()


class _Gate:
    """Knows which threads are inside, and can be shut until no other is."""

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
        """Let nobody in and wait for other threads inside; holds the gate itself until ``open()``."""
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
        """Nobody is inside any more."""
        self._inside.clear()
