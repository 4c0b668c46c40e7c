"""Many threads in many processes write one database: none lost, none doubled, none refused."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from langmem_tiers import MemoryEngine

PROCESSES, THREADS, EACH = 4, 8, 625  # 20,000 in all

PROGRAM = """
import sys, threading
from langmem_tiers import MemoryEngine, MessageDraft

url, process, threads, each = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
engine = MemoryEngine(url)
failures = []

def write(thread):
    try:
        session = engine.session("acme", f"s{thread % 4}")
        for n in range(each):
            session.add(MessageDraft("user", f"{process}/{thread}/{n}", id=f"{process}/{thread}/{n}"))
    except BaseException as error:
        failures.append(f"{type(error).__name__}: {error}")

workers = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
engine.close()
print("\\n".join(failures))
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("backend", "each"), [("sqlite-file", EACH), ("postgresql", EACH // 5)], ids=["sqlite", "postgresql"]
)
def test_8_threads_in_4_processes_lose_and_double_nothing(url: str, each: int) -> None:
    with MemoryEngine(url) as engine:
        engine.namespace("acme").delete()
    arguments = [str(THREADS), str(each)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, str(n), *arguments], stdout=subprocess.PIPE, text=True
        )
        for n in range(PROCESSES)
    ]
    failures = [child.communicate()[0].strip() for child in children]
    assert failures == [""] * PROCESSES
    assert [child.returncode for child in children] == [0] * PROCESSES
    with MemoryEngine(url) as engine:
        sessions = [engine.session("acme", f"s{n}") for n in range(4)]
        stored = [message.content for session in sessions for message in session.messages()]
        wanted = {f"{p}/{t}/{n}" for p in range(PROCESSES) for t in range(THREADS) for n in range(each)}
        assert Counter(stored) == Counter(wanted)
        assert sum(session.count() for session in sessions) == len(wanted)
        for session in sessions:  # each writer's messages stand in the order in which it wrote them
            seen: dict[str, int] = {}
            for message in session.messages():
                writer, number = message.content.rsplit("/", 1)
                assert int(number) == seen.get(writer, -1) + 1
                seen[writer] = int(number)
