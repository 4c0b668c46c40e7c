"""A message once acknowledged is never lost, whatever happens to the process."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from tests.faults.writer import draft_of, write_until_killed

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 200


@pytest.mark.timeout(900)
def test_200_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    url = f"sqlite:///{path}"
    # The server imports the package once; each child is forked from it and opens the file anew.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.writer"])
    chance = random.Random(2025)
    acknowledged: list[str] = []
    for kill in range(KILLS):
        acknowledged += _kill_one_writer(context, url, f"k{kill}", tmp_path / f"notes-{kill}", chance)
    assert len(acknowledged) > KILLS  # or nothing was put to the test

    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.execute("INSERT INTO lmt_messages_text(lmt_messages_text, rank) VALUES ('integrity-check', 1)")
    connection.close()

    with MemoryEngine(url) as engine:
        session = engine.session("acme", "s")
        stored = {message.id: message for message in session.messages()}
        assert set(acknowledged) - set(stored) == set()
        for message in stored.values():  # no half message
            wanted = draft_of(message.id)
            assert (message.role, message.content, message.tool_calls, message.payload_json) == (
                wanted.role,
                wanted.content,
                wanted.tool_calls,
                wanted.payload_json,
            )
        batches = Counter((*message_id.split("-")[:2], message_id.rsplit("-", 1)[1]) for message_id in stored)
        assert all(count == int(size) for (_, _, size), count in batches.items())  # no half batch
        info = session.info()
        assert info.message_count == len(stored)
        assert info.token_count == sum(message.token_count for message in stored.values())


def _kill_one_writer(
    context: multiprocessing.context.ForkServerContext,
    url: str,
    name: str,
    notes: Path,
    chance: random.Random,
) -> list[str]:
    child = context.Process(target=write_until_killed, args=(url, name, str(notes)))
    child.start()
    # Mostly in the middle of writing, sometimes while the file is being opened.
    time.sleep(chance.random() * (0.02 if chance.random() < 0.1 else 0.2))
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    return notes.read_text().split("\n")[:-1] if notes.exists() else []
