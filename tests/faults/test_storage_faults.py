"""Failing databases: an error with advice, no partial write, no loss."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text

from langmem_tiers import (
    EngineConfig,
    LangmemTiersError,
    MemoryEngine,
    MessageDraft,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.cutting_proxy import CuttingProxy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with one session of three messages."""
    file = tmp_path / "memory.db"
    with MemoryEngine(f"sqlite:///{file}") as engine:
        engine.session("acme", "s").add_many(MessageDraft("user", f"message {n}") for n in range(3))
    return file


def contents(path: Path) -> list[str]:
    with MemoryEngine(f"sqlite:///{path}") as engine:
        return [message.content for message in engine.session("acme", "s").messages()]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError, match=r"missing/memory\.db.*check that the folder exists"):
        MemoryEngine(f"sqlite:///{tmp_path}/missing/memory.db")


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(StorageUnavailableError, match=r"mara@127\.0\.0\.1.*check that the server runs"):
        MemoryEngine(
            "postgresql://mara:secret@127.0.0.1:1/memory", config=EngineConfig(connect_timeout_seconds=2)
        )


def test_a_database_that_the_server_does_not_have_is_named(postgres_server: str) -> None:
    with pytest.raises(StorageUnavailableError, match='"nowhere" does not exist'):
        MemoryEngine(postgres_server.replace("/postgres?", "/nowhere?"))


def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"these are my notes, and no database at all. " * 50)
    before = file.read_bytes()
    with pytest.raises(StorageCorruptError, match=r"notes\.txt.*restore a backup"):
        MemoryEngine(f"sqlite:///{file}")
    assert file.read_bytes() == before


def test_a_damaged_file_raises_an_error_when_the_damage_is_read(path: Path) -> None:
    with MemoryEngine(f"sqlite:///{path}") as engine:
        engine.session("acme", "s").add_many(MessageDraft("user", "x" * 3000) for _ in range(200))
    data = bytearray(path.read_bytes())
    for start in range(8 * 4096, len(data) - 4096, 4096):  # the schema stays, the pages behind it do not
        data[start : start + 64] = os.urandom(64)
    path.write_bytes(data)
    with pytest.raises(StorageCorruptError, match="damaged"), MemoryEngine(f"sqlite:///{path}") as engine:
        list(engine.session("acme", "s").messages())


def test_a_read_only_file_can_be_read_and_refuses_writes(path: Path) -> None:
    with MemoryEngine(f"sqlite:///file:{path}?mode=ro&uri=true") as engine:
        session = engine.session("acme", "s")
        assert len(session.latest()) == 3
        with pytest.raises(StorageReadOnlyError, match=r"cannot be written: check permissions"):
            session.add("user", "x")
        with pytest.raises(StorageReadOnlyError):
            engine.session("acme", "new")
    assert len(contents(path)) == 3


def test_a_read_only_file_without_our_tables_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StorageReadOnlyError):
        MemoryEngine(f"sqlite:///file:{file}?mode=ro&uri=true")


def test_a_read_only_server_refuses_writes(new_postgres_database: Callable[[], str]) -> None:
    url = new_postgres_database()
    with MemoryEngine(url) as engine:
        engine.session("acme", "s").add("user", "x")
    with MemoryEngine(f"{url}&options=-c%20default_transaction_read_only%3Don") as engine:
        session = engine.session("acme", "s")
        assert len(session.latest()) == 1
        with pytest.raises(StorageReadOnlyError, match="cannot be written"):
            session.add("user", "y")


def test_a_full_database_refuses_the_whole_batch_and_works_again_with_free_space(path: Path) -> None:
    with MemoryEngine(f"sqlite:///{path}", config=EngineConfig(pool_size=1)) as engine:
        session = engine.session("acme", "s")
        with engine._database.read() as connection:
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count = {pages + 4}"))
        with pytest.raises(StorageFullError, match="free some space"):
            session.add_many(MessageDraft("user", "y" * 5000) for _ in range(20))
        assert len(session.latest()) == 3
        with engine._database.read() as connection:
            connection.execute(text("PRAGMA max_page_count = 1000000"))
        session.add("user", "room again")
    assert contents(path) == ["message 0", "message 1", "message 2", "room again"]


WRITE_INTO_A_LIMIT = """
import resource, signal, sys
from langmem_tiers import MemoryEngine, MessageDraft, StorageUnavailableError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
engine = MemoryEngine(sys.argv[1])
session = engine.session("acme", "s")
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    for n in range(10_000):
        session.add("user", f"message {n + 3} " + "z" * 2000)
        print(n + 3, flush=True)
except StorageUnavailableError as error:
    sys.exit(7 if "its disk works" in str(error) else 8)
"""


def test_a_disk_that_refuses_to_write_loses_nothing_acknowledged(path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", WRITE_INTO_A_LIMIT, f"sqlite:///{path}", "2000000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 7, child.stderr
    acknowledged = [int(line) for line in child.stdout.split()]
    assert len(acknowledged) > 10
    assert [int(text.split()[1]) for text in contents(path)][: len(acknowledged) + 3] == [
        0,
        1,
        2,
        *acknowledged,
    ]


def test_a_file_locked_for_too_long_raises_instead_of_hanging(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with MemoryEngine(f"sqlite:///{path}", config=EngineConfig(busy_timeout_seconds=0.2)) as engine:
        session = engine.session("acme", "s")
        assert len(session.latest()) == 3  # reading goes on
        with pytest.raises(StorageBusyError, match="busy_timeout_seconds"):
            session.add("user", "x")
        other.execute("ROLLBACK")
        other.close()
        session.add("user", "x")
    assert len(contents(path)) == 4


def test_threads_that_wait_too_long_for_a_lock_get_an_error(path: Path) -> None:
    with MemoryEngine(f"sqlite:///{path}", config=EngineConfig(busy_timeout_seconds=0.2)) as engine:
        session = engine.session("acme", "s")
        holding, release = threading.Event(), threading.Event()

        def hold() -> None:
            with engine._database.write():
                holding.set()
                release.wait(LIMIT_SECONDS)

        holder = threading.Thread(target=hold)
        holder.start()
        assert holding.wait(LIMIT_SECONDS)
        with pytest.raises(StorageBusyError, match="other threads locked"):
            session.add("user", "x")
        release.set()
        holder.join()
        session.add("user", "x")


def test_an_exhausted_connection_pool_is_an_error(shared_postgres: str, tenant: str) -> None:
    config = EngineConfig(pool_size=1, busy_timeout_seconds=0.2)
    with MemoryEngine(shared_postgres, config=config) as engine:
        session = engine.session(tenant, "s")
        with engine._database.read(), pytest.raises(StorageBusyError, match="no connection became free"):
            session.latest()


def test_a_session_locked_by_others_on_postgresql_is_an_error_in_time(
    shared_postgres: str, tenant: str
) -> None:
    config = EngineConfig(busy_timeout_seconds=0.3)
    with MemoryEngine(shared_postgres, config=config) as engine:
        session = engine.session(tenant, "s")
        other = create_engine(shared_postgres.replace("postgresql://", "postgresql+psycopg://"))
        with other.begin() as connection:
            connection.execute(text(f"SELECT * FROM lmt_sessions WHERE pk = {session.info().key} FOR UPDATE"))
            with pytest.raises(StorageBusyError):
                session.add("user", "x")
        other.dispose()
        session.add("user", "x")
        assert session.count() == 1


def test_a_connection_that_the_server_dropped_is_replaced(shared_postgres: str, tenant: str) -> None:
    with MemoryEngine(shared_postgres, config=EngineConfig(pool_size=1)) as engine:
        session = engine.session(tenant, "s")
        session.add("user", "before")
        with engine._database.read() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        admin = create_engine(shared_postgres.replace("postgresql://", "postgresql+psycopg://"))
        with admin.connect() as connection:
            connection.execute(text(f"SELECT pg_terminate_backend({pid})"))
        admin.dispose()
        session.add("user", "after")
        assert [m.content for m in session.latest()] == ["before", "after"]


def test_a_broken_connection_is_returned_to_the_pool(proxy: CuttingProxy) -> None:
    with MemoryEngine(proxy.url, embedder=None) as engine:
        session = engine.session("acme", "s")
        session.add("user", "first")
        for number in range(3):
            proxy.cut("before", f"walrus {number}")
            session.add("user", f"walrus {number}")
        assert (proxy.cuts, engine._database.pool_active) == (3, 0)


def test_a_connection_in_use_during_close_is_closed_when_it_is_returned(shared_postgres: str) -> None:
    engine = MemoryEngine(shared_postgres, embedder=None)
    with engine._database.read() as connection:
        in_use: Any = connection.connection.driver_connection
        engine.close()
        assert not in_use.closed
    assert in_use.closed


def test_an_error_while_writing_leaves_no_open_transaction(path: Path) -> None:
    with MemoryEngine(f"sqlite:///{path}", config=EngineConfig(pool_size=1)) as engine:
        session = engine.session("acme", "s")
        with engine._database.write() as connection:
            connection.execute(
                text(
                    "CREATE TRIGGER broken BEFORE INSERT ON lmt_messages BEGIN SELECT RAISE(ABORT, 'no'); END"
                )
            )
        for _ in range(3):
            with pytest.raises(LangmemTiersError):
                session.add("user", "x")
        with engine._database.write() as connection:
            connection.execute(text("DROP TRIGGER broken"))
        session.add("user", "y")
    assert len(contents(path)) == 4


def test_a_file_that_disappears_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with MemoryEngine(f"sqlite:///{folder / 'memory.db'}") as engine:
        session = engine.session("acme", "s")
        session.add("user", "x")
        engine._database._engine.dispose()
        shutil.rmtree(folder)
        with pytest.raises(StorageError):
            session.add("user", "y")


@pytest.fixture(autouse=True)
def limits_of_this_process_stay() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    yield
    assert before == (resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ))
