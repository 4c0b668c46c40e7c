"""A message once acknowledged is never lost, whatever happens to the process."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from tests.faults.writer import draft_of, write_until_killed
from tests.fork_server import fork_server

if TYPE_CHECKING:
    import multiprocessing


AT_ONCE = 4
"""Writers to one database, each killed at a moment of its own while the others go on."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("backend", "kills", "longest_seconds"),
    [("sqlite-file", 200, 0.2), ("postgresql", 40, 0.8)],
    ids=["sqlite", "postgresql"],
)
def test_no_kill_loses_what_was_acknowledged(
    url: str, kills: int, longest_seconds: float, tenant: str, tmp_path: Path
) -> None:
    context = fork_server()
    chance = random.Random(2025)
    acknowledged: list[str] = []
    for first in range(0, kills, AT_ONCE):
        # Mostly in the middle of writing, sometimes while the database is being opened.
        lives = [
            chance.random() * (0.02 if chance.random() < 0.1 else longest_seconds) for _ in range(AT_ONCE)
        ]
        arguments = [
            (url, tenant, f"k{kill}", str(tmp_path / f"notes-{kill}"))
            for kill in range(first, first + AT_ONCE)
        ]
        acknowledged += _kill_writers(context, arguments, lives)
    assert len(acknowledged) > kills  # or nothing was put to the test

    if url.startswith("sqlite"):
        connection = sqlite3.connect(tmp_path / "memory.db")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute(
            "INSERT INTO lmt_messages_terms(lmt_messages_terms, rank) VALUES ('integrity-check', 1)"
        )
        connection.close()

    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
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


def _kill_writers(
    context: multiprocessing.context.ForkServerContext,
    arguments: list[tuple[str, str, str, str]],
    lives_seconds: list[float],
) -> list[str]:
    children = [context.Process(target=write_until_killed, args=given) for given in arguments]
    ends = []
    for child, seconds in zip(children, lives_seconds, strict=True):
        child.start()
        ends.append((time.monotonic() + seconds, child))
    for end, child in sorted(ends, key=lambda one: one[0]):
        time.sleep(max(0.0, end - time.monotonic()))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(30)
        assert child.exitcode == -signal.SIGKILL
    notes = [Path(given[-1]) for given in arguments]
    return [line for one in notes if one.exists() for line in one.read_text().split("\n")[:-1]]
