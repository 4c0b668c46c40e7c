"""A forked child writes and reads as if it had opened the database itself."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import EngineConfig, MemoryEngine, StorageBusyError
from langmem_tiers.testing import HashEmbedder
from tests.faults.disk_backends import QUICKLY_ON_SQLITE
from tests.forking import fork, wait
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault


@QUICKLY_ON_SQLITE
def test_parent_and_child_both_continue_writing(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        session.add("user", "parent")
        assert wait(fork(lambda: session.add("user", "child"))) == 0
        session.add("user", "parent again")
        assert [m.content for m in session.latest()] == ["parent", "child", "parent again"]


@QUICKLY_ON_SQLITE
@pytest.mark.parametrize("own_engine", [False, True], ids=["engine of the parent", "engine of the child"])
def test_messages_of_a_child_survive_the_close_of_the_parents_engine(
    url: str,
    tenant: str,
    own_engine: bool,  # noqa: FBT001 - both cases
) -> None:
    engine = MemoryEngine(url)
    session = engine.session(tenant, "s")
    session.add("user", "parent")
    (has_written, tell_parent), (is_closed, tell_child) = os.pipe(), os.pipe()

    def write_before_and_after_the_close() -> None:
        mine = MemoryEngine(url).session(tenant, "s") if own_engine else session
        mine.add("user", "before")
        os.write(tell_parent, b"x")
        os.read(is_closed, 1)
        for n in range(20):
            mine.add("user", f"after {n}")

    child = fork(write_before_and_after_the_close)
    os.close(tell_parent)  # so that reading ends if the child fails
    assert os.read(has_written, 1) == b"x"
    engine.close()
    os.write(tell_child, b"x")
    assert wait(child) == 0
    for end in (has_written, is_closed, tell_child):
        os.close(end)
    with MemoryEngine(url) as again:
        assert again.session(tenant, "s").count() == 22


@QUICKLY_ON_SQLITE
def test_a_fork_during_the_work_of_other_threads_does_not_hang(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        stop = threading.Event()
        written: list[int] = []

        def write() -> None:
            count = 0
            while not stop.is_set():
                session.add("user", "thread")
                session.latest(3)
                count += 1
            written.append(count)

        workers = [threading.Thread(target=write) for _ in range(4)]
        for worker in workers:
            worker.start()
        wait_until(lambda: session.count() > 4, "the threads write")
        codes = [wait(fork(lambda: session.add("user", "child"))) for _ in range(15)]
        stop.set()
        for worker in workers:
            worker.join(LIMIT_SECONDS)
        assert codes == [0] * 15
        assert session.count() == sum(written) + 15


@pytest.mark.smoke
def test_a_fork_keeps_the_caches_of_the_parent(file_url: str) -> None:
    with MemoryEngine(file_url, embedder=HashEmbedder()) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        where.recall("boat")
        retriever = engine._services.retriever
        before = (dict(retriever._indexes), retriever._lock, retriever._background._lock)
        assert wait(fork(lambda: where.recall("boat"))) == 0
        assert (dict(retriever._indexes), retriever._lock, retriever._background._lock) == before
        assert where.recall("boat")[0].entry.content == "the red boat"


@pytest.mark.smoke
def test_a_recall_is_counted_once_when_parent_and_child_close(file_url: str, tmp_path: Path) -> None:
    with MemoryEngine(file_url, embedder=HashEmbedder()) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        where.recall("boat")
        assert wait(fork(engine.close)) == 0
        where.recall("boat")
    with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
        assert connection.execute("SELECT count FROM lmt_accesses").fetchall() == [(2,)]


@pytest.mark.smoke
def test_a_child_can_recall_when_forked_during_a_recall_of_its_parent(file_url: str) -> None:
    with MemoryEngine(file_url, embedder=HashEmbedder()) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        where.recall("boat")
        retriever = engine._services.retriever
        locks: list[Any] = [retriever._lock, retriever._background._lock, retriever._indexes["a",].lock]
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with ExitStack() as stack:
                for lock in locks:
                    stack.enter_context(lock)
                held.set()
                free.wait(LIMIT_SECONDS)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(LIMIT_SECONDS)

        def recall_and_close() -> None:
            assert where.recall("boat")[0].entry.content == "the red boat"
            engine.close()

        child = fork(recall_and_close)
        free.set()
        holder.join(LIMIT_SECONDS)
        assert wait(child) == 0


HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.smoke
def test_a_child_forked_while_a_thread_waits_for_a_lock_can_write(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=1)) as engine:
        session = engine.session("acme", "s")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD_THE_LOCK, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused: list[str] = []

        def write() -> None:
            try:
                session.add("user", "thread")
            except StorageBusyError:
                refused.append("thread")

        workers = [threading.Thread(target=write) for _ in range(3)]
        for worker in workers:
            worker.start()
        wait_until(
            lambda: len(engine._database._gate._inside) == 3 or refused, "the threads wait for the lock"
        )
        is_free, tell_child = os.pipe()

        def write_when_the_lock_is_free() -> None:
            os.read(is_free, 1)
            session.add("user", "child")

        child = fork(write_when_the_lock_is_free)
        holder.communicate("release\n")
        for worker in workers:
            worker.join()
        os.write(tell_child, b"x")
        assert wait(child) == 0
        os.close(is_free)
        os.close(tell_child)
        assert session.count() == 4 - len(refused)


def test_a_user_fork_hook_can_use_the_engine(tmp_path: Path) -> None:
    program = """
import os, sys
os.register_at_fork(before=lambda: use(), after_in_parent=lambda: use(), after_in_child=lambda: use())
def use():
    if engines: engines[0].session("acme", "s").add("user", "hook")
engines = []
from langmem_tiers import EngineConfig, MemoryEngine, StorageBusyError
from langmem_tiers.testing import HashEmbedder
engines.append(MemoryEngine("sqlite:///memory.db"))
child = os.fork()
if child == 0: os._exit(0)
os.waitpid(child, 0)
print(engines[0].session("acme", "s").count())
"""
    child = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        cwd=tmp_path,
    )
    assert child.stdout.strip() == "3", child.stderr[-2000:]
