"""A kill during erasure leaves no partial step, and erasing the same again completes it."""

from __future__ import annotations

import random
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.storage.schema import leases
from langmem_tiers.testing import FrozenClock
from tests.erasure_helpers import OTHER, SECRET, fill, find_files_with, find_tables_with, open_test_engine
from tests.faults.erasure_processes import (
    AGED,
    STEPS,
    create_later_clock,
    forget_together,
    forget_until,
    retain_together,
    retain_until_killed,
)
from tests.faults.killable_child import pause, start
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.fault

SESSIONS, OLD, NEW = 8, 30, 3


def fill_old(url: str, sessions: int = SESSIONS) -> None:
    clock = FrozenClock()
    with open_test_engine(url, clock, config=AGED) as engine:
        for number in range(sessions):
            session = engine.session("acme", f"s{number}")
            session.add_many([MessageDraft("user", f"old tile {index}") for index in range(OLD)])
            session.compress(session.latest(1)[0].id, "Old tiles.")
        clock.advance(days=90)
        for number in range(sessions):
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("backend", "kills"),
    [pytest.param("sqlite-file", 2, marks=pytest.mark.smoke), ("sqlite-file", 8), ("postgresql", 8)],
)
def test_a_kill_during_retention_leaves_no_partial_step(
    backend: str, kills: int, tmp_path: Path, new_database: Callable[[], str]
) -> None:
    url = new_database()
    fill_old(url)
    chance, seen = random.Random(7), [SESSIONS * OLD]
    for kill in range(kills):
        notes = tmp_path / f"notes-{kill}"
        child = start(retain_until_killed, (url, str(notes)), notes)
        child.wait_for(chance.randint(1, 7))  # batches of three: after all kills there are messages left
        pause(chance)
        child.kill()
        with open_test_engine(url, create_later_clock(), config=AGED) as engine:
            seen.append(assert_whole(engine))
            with engine._database.write() as connection:
                connection.execute(delete(leases))  # the killed process still holds it
    assert seen == sorted(set(seen), reverse=True)  # each child erased something before its kill
    with open_test_engine(url, create_later_clock(), config=AGED) as engine:
        assert engine.maintenance.run().is_complete
        assert assert_whole(engine) == 0
        assert {
            hit.message.content for hit in engine.namespace("acme").recall("tile").hits if hit.message
        } == {f"new tile {number}" for number in range(NEW)}
    if backend == "sqlite-file":
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert file.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("step", [pytest.param(STEPS[0], marks=pytest.mark.smoke), *STEPS[1:]])
def test_forgetting_again_after_a_kill_completes(tmp_path: Path, step: str) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url) as engine:
        for path in (("alice",), ("acme", "alice")):
            session = engine.session(path, "monday")
            session.add("user", f"We decided to use {SECRET}.")
            session.learn()
        engine.session("bob", "monday").add("user", f"Keep {OTHER}.")
    child = fork_server().Process(target=forget_until, args=(url, step, {"user": "alice"}))
    child.start()
    child.join(LIMIT_SECONDS)
    assert child.exitcode == -signal.SIGKILL
    with open_test_engine(url) as engine:
        left = [namespace for namespace in engine.namespaces() if "alice" in namespace]
        assert len(left) == {"first removal": 2, "second removal": 1}.get(step, 0)
        receipt = engine.forget(user="alice")
        assert receipt.counts.namespaces == len(left)
        assert receipt.is_scrubbed
        assert find_files_with(tmp_path, SECRET) == []
        assert engine.session("bob", "monday").latest()[0].content == f"Keep {OTHER}."


@pytest.mark.parametrize(
    ("backend", "sessions"),
    [
        pytest.param("sqlite-file", 1, marks=pytest.mark.smoke),
        ("sqlite-file", SESSIONS),
        ("postgresql", SESSIONS),
    ],
)
def test_processes_that_forget_and_retain_concurrently_erase_each_record_once(
    new_database: Callable[[], str], sessions: int
) -> None:
    url = new_database()
    fill_old(url, sessions)
    with open_test_engine(url) as engine:
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
        child.join(LIMIT_SECONDS)
    assert [child.exitcode for child in started] == [0] * 4
    assert find_tables_with(url, SECRET) == []
    with open_test_engine(url, create_later_clock(), config=AGED) as engine:
        assert assert_whole(engine) == 0
