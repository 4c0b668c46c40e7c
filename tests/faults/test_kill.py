"""An acknowledged message is never lost, whenever its process is killed."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from tests.faults.killable_child import pause, start, wait_for_next
from tests.faults.message_writer import make_draft, write_until_killed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

AT_ONCE = 4
"""Writers to one database, each killed after a progress of its own while the others go on."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("backend", "kills"),
    [
        pytest.param("sqlite-file", 8, marks=pytest.mark.smoke),
        pytest.param("sqlite-file", 200),
        pytest.param("postgresql", 40),
    ],
)
def test_acknowledged_messages_survive_a_kill(url: str, kills: int, tenant: str, tmp_path: Path) -> None:
    chance = random.Random(2025)
    acknowledged: list[str] = []
    awaited = 0
    for first in range(0, kills, AT_ONCE):
        # Mostly in the middle of writing, sometimes while the database is being opened.
        wanted = [0 if chance.random() < 0.1 else chance.randint(1, 8) for _ in range(AT_ONCE)]
        acknowledged += _kill_writers(url, tenant, tmp_path, first, wanted, chance)
        awaited += sum(wanted)
    assert len(acknowledged) >= awaited > kills

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
        for message in stored.values():  # no partial message
            draft = make_draft(message.id)
            assert (message.role, message.content, message.tool_calls, message.payload_json) == (
                draft.role,
                draft.content,
                draft.tool_calls,
                draft.payload_json,
            )
        batches = Counter((*message_id.split("-")[:2], message_id.rsplit("-", 1)[1]) for message_id in stored)
        assert all(count == int(size) for (_, _, size), count in batches.items())  # no partial batch
        info = session.info()
        assert info.message_count == len(stored)
        assert info.token_count == sum(message.token_count for message in stored.values())


def _kill_writers(
    url: str, tenant: str, folder: Path, first: int, wanted: list[int], chance: random.Random
) -> list[str]:
    """Kill each of some writers that run at once after its number of messages; return all acknowledged ids."""
    running = []
    for number, lines in enumerate(wanted, first):
        notes = folder / f"notes-{number}"
        running.append((start(write_until_killed, (url, tenant, f"k{number}", str(notes)), notes), lines))
    acknowledged: list[str] = []
    while running:
        child, lines = wait_for_next(running)
        pause(chance)
        child.kill()
        acknowledged += child.list_acknowledged()
        running.remove((child, lines))
    return acknowledged
