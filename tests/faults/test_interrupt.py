"""Ctrl-C during a call leaves a working engine and a consistent record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

# The interrupted process is not measured: coverage holds a lock of its own for each new file, and an interrupt
# inside it would stop the process for good.
UNMEASURED = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}

PROGRAM = """
import gc, json, random, signal, sys
from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft

def interrupt(number, frame):
    raise KeyboardInterrupt

gc.freeze()  # an engine collects garbage after an interrupt; all imported modules would make that slow
signal.signal(signal.SIGALRM, interrupt)
chance = random.Random(2025)
engine = MemoryEngine(sys.argv[1], config=EngineConfig(busy_timeout_seconds=3))
session = engine.session("acme", "s")
acknowledged = [session.add("user", "first").message.id]
for number in range(int(sys.argv[2])):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0003, 0.006))
        while True:
            name = f"{number}-{len(acknowledged)}"
            session.add(MessageDraft("user", "x", id=name) if number % 2 else MessageDraft("user", "x"))
            if number % 2:
                acknowledged.append(name)
            session.latest(60)
            session.view(2)
    except (KeyboardInterrupt, AssertionError):  # SQLAlchemy's own bookkeeping may notice it first
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    acknowledged.append(session.add("user", "works again at once").message.id)
stored = {message.id for message in session.messages()}
print(json.dumps({"lost": len(set(acknowledged) - stored), "stored": len(stored), "counted": session.count()}))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("url", "interrupts"),
    [
        pytest.param("sqlite:///memory.db", 20, marks=pytest.mark.smoke),
        ("sqlite:///memory.db", 150),
        ("sqlite://", 150),
        ("sqlite:///file:named?mode=memory", 150),
    ],
)
def test_interrupts_lose_no_message_and_leave_no_lock(url: str, interrupts: int, tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(interrupts)],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=tmp_path,
        env=UNMEASURED,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    result = json.loads(child.stdout)
    assert result["lost"] == 0
    assert result["stored"] == result["counted"]


CLOSE_IS_INTERRUPTED = """
import signal, sqlite3, threading, time
from langmem_tiers import EngineConfig, MemoryEngine

def wait_until(condition):
    while not condition():
        time.sleep(0.005)

def interrupt(number, frame):
    raise KeyboardInterrupt

engine = MemoryEngine("sqlite:///memory.db", config=EngineConfig(busy_timeout_seconds=3600))
session, gate = engine.session("acme", "s"), engine._database._gate
other = sqlite3.connect("memory.db", isolation_level=None)
other.execute("BEGIN IMMEDIATE")
worker = threading.Thread(target=session.add, args=("user", "waits"))
worker.start()
wait_until(lambda: gate._inside)  # a thread waits for the file
signal.signal(signal.SIGALRM, interrupt)

def interrupt_the_close():
    wait_until(lambda: gate._shut_by is not None)  # close() waits for the thread
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

interrupter = threading.Thread(target=interrupt_the_close)
interrupter.start()
try:
    engine.close()
except KeyboardInterrupt:
    print("interrupted")
other.execute("ROLLBACK")
worker.join()
interrupter.join()
print(session.count())
"""


@pytest.mark.smoke
@pytest.mark.timeout(240)
def test_an_interrupted_close_leaves_a_working_engine(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CLOSE_IS_INTERRUPTED],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        cwd=tmp_path,
    )
    assert child.stdout.split() == ["interrupted", "1"], child.stderr[-3000:]
