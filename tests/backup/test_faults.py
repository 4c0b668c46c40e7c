"""Backups of a memory in use, of a large one, and of one whose process is killed or whose disk is full."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections import Counter
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, RestoreConflictError, StorageFullError
from tests.backends import POSTGRES
from tests.backup.child_processes import BATCH, backup_and_hang, restore_and_hang, write_batches
from tests.backup.sample_memory import fill, open_small_engine, read_lines, read_records
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from langmem_tiers.backup import BackupProgress
    from tests.backup.conftest import NewUrl


@contextmanager
def child(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[Any, Connection]]:
    """A process of its own, and the line to it."""
    context = fork_server()
    here, there = context.Pipe()
    process = context.Process(target=target, args=(*arguments, there))
    process.start()
    try:
        assert here.poll(60)
        here.recv()
        yield process, here
    finally:
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join(LIMIT_SECONDS)
        here.close()
        there.close()


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
def test_a_backup_is_consistent_while_another_process_writes(
    backend: str, new_url: NewUrl, tmp_path: Path
) -> None:
    url = new_url(backend)
    with MemoryEngine(url, embedder=None) as engine, MemoryEngine("sqlite://", embedder=None) as other:
        with child(write_batches, url) as (process, line):
            for number in range(4):
                engine.backup(tmp_path / f"{number}.gz")
            if backend == "sqlite":
                engine.snapshot(tmp_path / "copy.db")
            line.send("enough")
            process.join(LIMIT_SECONDS)
            assert process.exitcode == 0
        sizes = []
        for number in range(4):
            lines = read_lines(tmp_path / f"{number}.gz")[1:-1]
            counts = Counter(line["row"]["session_pk"] for line in lines if line["kind"] == "messages")
            told = {
                line["row"]["pk"]: line["row"]["message_count"]
                for line in lines
                if line["kind"] == "sessions"
            }
            assert counts == Counter(told)
            assert all(count % BATCH == 0 for count in told.values())
            sizes.append(counts.total())
            other.restore(tmp_path / f"{number}.gz", replace=True)
            assert other.namespace("acme").session("s0").count() % BATCH == 0
        assert sizes == sorted(sizes)
        assert sizes[-1] <= sum(engine.session("acme", f"s{n}").count() for n in range(3))
    if backend == "sqlite":
        with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with MemoryEngine(f"sqlite:///{tmp_path / 'copy.db'}", embedder=None) as engine:
            assert engine.session("acme", "s1").count() % BATCH == 0
            assert engine.namespace("acme").search("batch")


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
def test_a_killed_restore_changes_nothing(backend: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(backend)
    with open_small_engine(new_url("sqlite")) as source:
        source.session("acme", "s").add_many(MessageDraft("user", f"message {n}") for n in range(3000))
        source.backup(tmp_path / "b.gz")
        wanted = read_records(source, tmp_path / "wanted.gz")
    with open_small_engine(url) as engine:
        fill(engine, "acme")
        before = read_records(engine, tmp_path / "before.gz")
    with child(restore_and_hang, url, str(tmp_path / "b.gz")) as (process, _):
        os.kill(process.pid, signal.SIGKILL)
        process.join(LIMIT_SECONDS)
        assert process.exitcode == -signal.SIGKILL
    with open_small_engine(url) as engine:
        assert read_records(engine, tmp_path / "after.gz") == before
        assert engine.namespace("acme").search("tuna")
        engine.restore(tmp_path / "b.gz", replace=True)  # nothing is locked, and no key is taken
        assert read_records(engine, tmp_path / "after.gz") == wanted


def test_a_killed_backup_keeps_the_previous_one(new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url("sqlite")
    with open_small_engine(url) as engine:
        engine.session("acme", "s").add_many(MessageDraft("user", f"message {n}") for n in range(3000))
        engine.backup(tmp_path / "b.gz")
        before = (tmp_path / "b.gz").read_bytes()
    with child(backup_and_hang, url, str(tmp_path / "b.gz")) as (process, _):
        os.kill(process.pid, signal.SIGKILL)
        process.join(LIMIT_SECONDS)
    assert (tmp_path / "b.gz").read_bytes() == before


@pytest.mark.soak
def test_a_backup_on_a_full_disk_leaves_no_file(new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url("sqlite")
    with open_small_engine(url) as engine:
        fill(engine, "acme")
    target = tmp_path / "backups" / "b.gz"
    target.parent.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.backup.child_processes", url, str(target)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    error_lines = ran.stdout.splitlines()
    assert len(error_lines) == 2
    assert all(
        line.startswith("BackupFileError: ") and "b.gz" in line and "the disk is not full" in line
        for line in error_lines
    )
    assert list(target.parent.iterdir()) == []


def test_a_restore_on_a_full_disk_changes_nothing(new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url("sqlite")) as source:
        source.session("acme", "s").add_many(MessageDraft("user", "word " * 200) for n in range(500))
        source.backup(tmp_path / "b.gz")
    config = EngineConfig(pool_size=1)
    with MemoryEngine(new_url("sqlite"), config=config, embedder=None) as engine:
        fill(engine, "acme")
        before = read_records(engine, tmp_path / "before.gz")
        with engine._database.read() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 20}")
        with pytest.raises(StorageFullError, match="free some space"):
            engine.restore(tmp_path / "b.gz", replace=True)
        assert read_records(engine, tmp_path / "after.gz") == before


@pytest.mark.soak
def test_an_exception_of_progress_stops_the_work_without_changes(new_url: NewUrl, tmp_path: Path) -> None:
    def stop(progress: BackupProgress) -> None:
        raise KeyboardInterrupt

    with open_small_engine(new_url("sqlite")) as engine, open_small_engine(new_url("sqlite")) as other:
        fill(engine, "acme")
        with pytest.raises(KeyboardInterrupt):
            engine.backup(tmp_path / "stopped", progress=stop)
        with pytest.raises(KeyboardInterrupt):
            engine.snapshot(tmp_path / "stopped", progress=stop)
        assert not [path for path in tmp_path.iterdir() if "stopped" in path.name]
        engine.backup(tmp_path / "b.gz")
        with pytest.raises(KeyboardInterrupt):
            other.restore(tmp_path / "b.gz", progress=stop)
        with pytest.raises(KeyboardInterrupt):
            engine.move_to(other, progress=stop)
        assert other.namespaces() == ()
        told: list[BackupProgress] = []
        other.restore(tmp_path / "b.gz", progress=told.append)
        assert {event.stage for event in told} == {"checking", "writing"}
        assert told[-1].done == told[-1].total


@pytest.mark.soak
def test_six_thousand_messages_are_streamed(new_url: NewUrl, tmp_path: Path) -> None:
    with MemoryEngine(new_url("sqlite"), embedder=None) as engine:
        session = engine.session("acme", "s")
        session.add_many(MessageDraft("user", f"walrus {n}", payload="x" * 1000) for n in range(6_000))
        assert traced(lambda: engine.backup(tmp_path / "b.gz")) < 4_000_000
        assert traced(lambda: engine.restore(tmp_path / "b.gz", replace=True)) < 4_000_000
        assert engine.session("acme", "s").count() == 6_000
    with MemoryEngine(new_url("postgresql"), embedder=None) as engine:
        engine.restore(tmp_path / "b.gz")
        assert traced(lambda: engine.backup(tmp_path / "again.gz")) < 4_000_000
    assert read_lines(tmp_path / "again.gz")[1:-1] == read_lines(tmp_path / "b.gz")[1:-1]


def traced(work: Callable[[], object]) -> int:
    """The most bytes that were held at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.soak
def test_a_namespace_with_concurrent_writes_is_not_overwritten(new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url("postgresql")
    with open_small_engine(url) as engine, open_small_engine(url, seed=1) as other:
        engine.session("acme", "s").add("user", "from the backup")
        engine.backup(tmp_path / "b.gz", namespace="acme")
        engine.namespace("acme").delete()
        calls: list[object] = []

        def write_meanwhile(progress: BackupProgress) -> None:
            if progress.stage == "writing" and not calls:
                calls.append(other.session("acme", "s").add("user", "from somebody else"))

        with pytest.raises(RestoreConflictError, match="another process wrote"):
            engine.restore(tmp_path / "b.gz", progress=write_meanwhile)
        assert [m.content for m in engine.session("acme", "s").messages()] == ["from somebody else"]
