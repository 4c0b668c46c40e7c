"""A forked child writes and reads as if it had opened the database itself."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

shared_backends = pytest.mark.parametrize(
    "backend", ["sqlite-file", "postgresql"]
)  # memory is copied, not shared


@pytest.fixture(autouse=True)
def forking_with_threads_is_the_case_under_test() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*multi-threaded, use of fork.*", category=DeprecationWarning
        )
        yield


def fork(work: Callable[[], object]) -> int:
    if (child := os.fork()) != 0:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001 - the exit code tells
        os._exit(1)
    os._exit(0)


def wait(child: int, seconds: float = 30.0) -> int | None:
    """The exit code, or None if it hung and had to be killed."""
    for _ in range(int(seconds / 0.02)):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@shared_backends
def test_parent_and_child_both_go_on_writing(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        session.add("user", "parent")
        assert wait(fork(lambda: session.add("user", "child"))) == 0
        session.add("user", "parent again")
        assert [m.content for m in session.latest()] == ["parent", "child", "parent again"]


@shared_backends
@pytest.mark.parametrize("own_engine", [False, True], ids=["the parent's engine", "an engine of its own"])
def test_what_a_child_was_acknowledged_outlives_the_parents_close(
    url: str,
    tenant: str,
    own_engine: bool,  # noqa: FBT001 - both cases
) -> None:
    engine = MemoryEngine(url)
    session = engine.session(tenant, "s")
    session.add("user", "parent")
    closed, go_on = os.pipe()

    def write_after_the_parent_closed() -> None:
        mine = MemoryEngine(url).session(tenant, "s") if own_engine else session
        mine.add("user", "before")
        os.read(closed, 1)
        for n in range(20):
            mine.add("user", f"after {n}")

    child = fork(write_after_the_parent_closed)
    time.sleep(0.3)
    engine.close()
    os.write(go_on, b"x")
    assert wait(child) == 0
    os.close(closed)
    os.close(go_on)
    with MemoryEngine(url) as again:
        assert again.session(tenant, "s").count() == 22


def test_a_fork_in_the_middle_of_other_threads_work_hangs_nobody(url: str, tenant: str) -> None:
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
        codes = [wait(fork(lambda: session.add("user", "child"))) for _ in range(15)]
        stop.set()
        for worker in workers:
            worker.join(30)
        assert codes == [0] * 15
        children = 0 if url == "sqlite://" else 15
        assert session.count() == sum(written) + children
