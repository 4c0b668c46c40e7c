"""Ctrl-C in the middle of a call leaves an engine that works and a record that is whole."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import json, signal, sys
from langmem_tiers import EngineConfig, MemoryEngine

def interrupt(number, frame):
    raise KeyboardInterrupt

engine = MemoryEngine(sys.argv[1], config=EngineConfig(busy_timeout_seconds=3))
session = engine.session("acme", "s")
acknowledged, interrupts = [], 0
signal.signal(signal.SIGALRM, interrupt)
while interrupts < 60:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + (interrupts % 30) * 0.0003)
        while True:
            acknowledged.append(session.add("user", f"message {len(acknowledged)}").message.id)
    except (KeyboardInterrupt, AssertionError):  # SQLAlchemy's own bookkeeping may notice it first
        interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
for attempt in range(2):  # a server may still be busy with the call that was broken off
    try:
        last = session.add("user", "after it all").message.id
        break
    except Exception:
        if attempt:
            raise
stored = {message.id for message in session.messages()}
print(json.dumps({"lost": len(set(acknowledged + [last]) - stored), "stored": len(stored),
                  "counted": session.count(), "acknowledged": len(acknowledged)}))
"""


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_60_interrupts_lose_nothing_and_lock_nothing(kind: str, tmp_path: Path) -> None:
    url = "sqlite://" if kind == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, check=False, timeout=120
    )
    assert child.returncode == 0, child.stderr
    result = json.loads(child.stdout)
    assert result["lost"] == 0
    assert result["stored"] == result["counted"]
    assert result["acknowledged"] > 0
