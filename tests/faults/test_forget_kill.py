"""Whoever is killed while forgetting leaves nothing half done, and who forgets the same again comes to its end."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.storage.schema import leases
from langmem_tiers.testing import FrozenClock
from tests.erasing import OTHER, SECRET, files_with, fill, opened, tables_with
from tests.faults.forgetters import (
    AGED,
    STEPS,
    forget_together,
    forget_until,
    later,
    retain_together,
    retain_until_killed,
)
from tests.fork_server import fork_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SESSIONS, OLD, NEW = 8, 30, 3


def fill_old(url: str) -> None:
    clock = FrozenClock()
    with opened(url, clock, config=AGED) as engine:
        for number in range(SESSIONS):
            session = engine.session("acme", f"s{number}")
            session.add_many([MessageDraft("user", f"old tile {index}") for index in range(OLD)])
            session.compress(session.latest(1)[0].id, "Old tiles.")
        clock.advance(days=90)
        for number in range(SESSIONS):
            session = engine.session("acme", f"s{number}")
            session.add_many([MessageDraft("user", f"new tile {index}") for index in range(NEW)])


def assert_whole(engine: MemoryEngine) -> int:
    """Each session is whole: counts are right, the view is what is behind it. How many old messages there are."""
    old = 0
    for info in engine.namespace("acme").sessions().sessions:
        session = engine.session("acme", info.name)
        messages = list(session.messages())
        said = [message for message in messages if not message.is_summary]
        old += sum("old" in message.content for message in said)
        assert sum("new" in message.content for message in said) == NEW
        assert info.message_count == len(messages)
        assert info.token_count == sum(message.token_count for message in messages)
        assert info.compressed_count == sum(message.is_compressed for message in messages)
        hidden = [message for message in said if message.is_compressed]
        assert bool(hidden) == session.view()[0].is_summary
    return old


@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", ["sqlite-file", "postgresql"])
def test_no_kill_in_the_middle_of_retention_leaves_half_of_a_step(
    backend: str, tmp_path: Path, new_postgres_database: Callable[[], str]
) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}" if backend == "sqlite-file" else new_postgres_database()
    fill_old(url)
    chance, seen = random.Random(7), set[int]()
    for kill in range(8):
        child = fork_server().Process(target=retain_until_killed, args=(url,))
        child.start()
        # On a machine that is slow today, nothing was done yet: the next is given more time.
        time.sleep((0.2 + chance.random() * 0.4) * (1 if len(seen) > 1 else 1 + kill))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(30)
        with opened(url, later(), config=AGED) as engine:
            seen.add(assert_whole(engine))
            with engine._database.write() as connection:
                connection.execute(delete(leases))  # whoever died does not keep it for ever
    with opened(url, later(), config=AGED) as engine:
        assert engine.maintenance.run().is_complete
        assert assert_whole(engine) == 0
        assert {
            hit.message.content for hit in engine.namespace("acme").recall("tile").hits if hit.message
        } == {f"new tile {number}" for number in range(NEW)}
    assert len(seen) > 1  # or nothing was put to the test
    if backend == "sqlite-file":
        file = sqlite3.connect(tmp_path / "memory.db")
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        file.close()


@pytest.mark.parametrize("step", STEPS)
def test_who_forgets_the_same_again_after_a_kill_comes_to_its_end(tmp_path: Path, step: str) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with opened(url) as engine:
        for path in (("alice",), ("acme", "alice")):
            session = engine.session(path, "monday")
            session.add("user", f"We decided to use {SECRET}.")
            session.learn()
        engine.session("bob", "monday").add("user", f"Keep {OTHER}.")
    child = fork_server().Process(target=forget_until, args=(url, step, {"user": "alice"}))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with opened(url) as engine:
        left = [one for one in engine.namespaces() if "alice" in one]
        assert len(left) == {"first removal": 2, "second removal": 1}.get(step, 0)
        receipt = engine.forget(user="alice")
        assert receipt.counts.namespaces == len(left)
        assert receipt.is_scrubbed
        assert files_with(tmp_path, SECRET) == []
        assert engine.session("bob", "monday").latest()[0].content == f"Keep {OTHER}."


@pytest.mark.parametrize("backend", ["sqlite-file", "postgresql"])
def test_processes_that_forget_and_retain_at_once_erase_each_thing_once(
    backend: str, tmp_path: Path, new_postgres_database: Callable[[], str]
) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}" if backend == "sqlite-file" else new_postgres_database()
    fill_old(url)
    with opened(url) as engine:
        ids = fill(engine, "alice")
    asked = {"namespace": "alice", "session": "monday", "message": ids[7]}
    context = fork_server()
    barrier = context.Barrier(4)
    started = [
        context.Process(target=forget_together, args=(url, barrier, asked)),
        context.Process(target=forget_together, args=(url, barrier, asked)),
        context.Process(target=retain_together, args=(url, barrier)),
        context.Process(target=retain_together, args=(url, barrier)),
    ]
    for child in started:
        child.start()
    for child in started:
        child.join(60)
    assert [child.exitcode for child in started] == [0] * 4
    assert tables_with(url, SECRET) == []
    with opened(url, later(), config=AGED) as engine:
        assert assert_whole(engine) == 0
