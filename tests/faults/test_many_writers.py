"""Many threads in many processes write to one database: no message is lost, duplicated or refused."""

from __future__ import annotations

from collections import Counter

import pytest

from langmem_tiers import MemoryEngine
from tests.faults.parallel_children import run_at_once
from tests.faults.thread_writers import write_in_threads
from tests.fork_server import fork_server

pytestmark = pytest.mark.fault

PROCESSES, THREADS, EACH = 4, 8, 625  # 20,000 in all


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("backend", "each"),
    [
        pytest.param("sqlite-file", 5, marks=pytest.mark.smoke),
        pytest.param("sqlite-file", EACH, marks=pytest.mark.soak),
        pytest.param("postgresql", EACH // 5, marks=pytest.mark.soak),
    ],
)
def test_8_threads_in_4_processes_lose_and_duplicate_nothing(url: str, each: int) -> None:
    with MemoryEngine(url) as engine:
        engine.namespace("acme").delete()
    arguments = [(url, str(process), THREADS, each) for process in range(PROCESSES)]
    run_at_once(fork_server(), write_in_threads, arguments, limit_seconds=800)
    with MemoryEngine(url) as engine:
        sessions = [engine.session("acme", f"s{n}") for n in range(4)]
        stored = [message.content for session in sessions for message in session.messages()]
        wanted = {f"{p}/{t}/{n}" for p in range(PROCESSES) for t in range(THREADS) for n in range(each)}
        assert Counter(stored) == Counter(wanted)
        assert sum(session.count() for session in sessions) == len(wanted)
        for session in sessions:  # the messages of each thread are in the order in which it wrote them
            seen: dict[str, int] = {}
            for message in session.messages():
                writer, number = message.content.rsplit("/", 1)
                assert int(number) == seen.get(writer, -1) + 1
                seen[writer] = int(number)
