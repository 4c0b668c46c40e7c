"""Messages acknowledged by a writer survive its process: stored, or in the report."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.sessions.write_ahead_file import read_unsaved_file
from tests.faults.batch_writer import make_batch_draft, write_until_killed
from tests.faults.disk_backends import QUICKLY_ON_SQLITE
from tests.faults.killable_child import Child, pause, start
from tests.forking import fork, wait
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("backend", "kills"),
    [
        pytest.param("sqlite-file", 2, marks=pytest.mark.smoke),
        pytest.param("sqlite-file", 8),
        pytest.param("postgresql", 5),
    ],
)
@pytest.mark.parametrize("acknowledge", ["stored", "queued"])
def test_messages_that_a_writer_acknowledged_survive_a_kill(
    url: str, kills: int, acknowledge: str, tenant: str, tmp_path: Path
) -> None:
    chance, acknowledged, reported = random.Random(7), list[str](), 0
    with MemoryEngine(url) as engine:
        for kill in range(kills):
            notes, report = tmp_path / f"notes-{kill}", tmp_path / f"unsaved-{kill}.jsonl"
            arguments = (url, tenant, f"k{kill}", str(notes), acknowledge, str(report))
            child = start(write_until_killed, arguments, notes)
            child.wait_for(chance.randint(1, 150))
            if acknowledge == "queued":
                _wait_for_the_report(child, report)
            pause(chance)
            child.kill()
            mine = child.list_acknowledged()
            acknowledged += mine
            left = set(mine) - _stored(engine, tenant).keys()
            if acknowledge == "stored":
                assert not left
            else:
                # Each message is stored, or in the report, or both.
                saved = {message.id for entry in read_unsaved_file(report) for message in entry.messages}
                assert left <= saved
                reported += len(saved)
                with engine.writer() as writer:
                    done = writer.recover(report)
                assert done.refused == 0
                assert done.stored >= len(left)
                assert not report.exists()
        stored = _stored(engine, tenant)
        assert len(acknowledged) >= kills
        assert acknowledge == "stored" or reported > 0
        assert set(acknowledged) <= stored.keys()
        assert all(content == make_batch_draft(name).content for name, content in stored.items())
        adds = Counter((*name.split("-")[:3], name.rsplit("-", 1)[1]) for name in stored)
        assert all(count == int(size) for (*_, size), count in adds.items())  # no partial add
        for session in ("s0", "s1"):  # the messages of each thread are in the order in which it added them
            order: dict[tuple[str, str], list[int]] = {}
            for message in engine.session(tenant, session).messages():
                name, thread, number, *_ = message.id.split("-")
                order.setdefault((name, thread), []).append(int(number))
            assert all(numbers == sorted(numbers) for numbers in order.values())


def _wait_for_the_report(child: Child, report: Path) -> None:
    """Wait until the report says something; the child writes to it all the time."""
    wait_until(
        lambda: child.process.is_alive() and report.exists() and report.stat().st_size,
        "the report is written",
    )


def _stored(engine: MemoryEngine, tenant: str) -> dict[str, str]:
    messages = [message for name in ("s0", "s1") for message in engine.session(tenant, name).messages()]
    assert len({message.id for message in messages}) == len(messages)  # none doubled
    return {message.id: message.content for message in messages}


PROGRAM = """
import sys
from langmem_tiers import MemoryEngine, MessageDraft
engine = MemoryEngine(sys.argv[1])
writer = engine.writer(acknowledge="queued", max_wait_ms=3_600_000)
for n in range(30):
    writer.add(sys.argv[2], "s", MessageDraft("user", str(n)))
{end}
"""


@pytest.mark.parametrize(
    ("backend", "end"),
    [
        pytest.param("sqlite-file", "", marks=pytest.mark.smoke),
        ("sqlite-file", "raise ValueError('oh')"),
        ("postgresql", ""),
        ("postgresql", "raise ValueError('oh')"),
    ],
)
def test_a_process_that_ends_without_closing_stores_its_queued_messages(
    url: str, tenant: str, end: str
) -> None:
    program = PROGRAM.format(end=end)
    subprocess.run(
        [sys.executable, "-c", program, url, tenant], capture_output=True, check=False, timeout=LIMIT_SECONDS
    )
    with MemoryEngine(url) as engine:
        assert [message.content for message in engine.session(tenant, "s").messages()] == [
            str(n) for n in range(30)
        ]


@QUICKLY_ON_SQLITE
@pytest.mark.parametrize("acknowledge", ["stored", "queued"])
def test_a_forked_child_writes_only_its_own_messages(url: str, tenant: str, acknowledge: Any) -> None:
    with MemoryEngine(url) as engine, engine.writer(acknowledge=acknowledge, max_wait_ms=3_600_000) as writer:
        parent = [writer.submit(tenant, "parent", MessageDraft("user", f"{n}")) for n in range(20)]
        assert (
            wait(fork(lambda: (writer.add(tenant, "child", MessageDraft("user", "mine")), writer.close())))
            == 0
        )
        writer.flush()
        assert all(future.result(LIMIT_SECONDS).stored for future in parent)
        for name, expected in (("parent", [f"{n}" for n in range(20)]), ("child", ["mine"])):
            assert [message.content for message in engine.session(tenant, name).messages()] == expected


@pytest.mark.smoke
def test_the_report_file_stays_with_the_forking_process(file_url: str, tmp_path: Path) -> None:
    path = tmp_path / "unsaved.jsonl"
    with (
        MemoryEngine(file_url) as engine,
        engine.writer(acknowledge="queued", max_wait_ms=3_600_000, report_path=path) as writer,
    ):
        writer.add("a", "s", MessageDraft("user", "one"))
        assert (
            wait(fork(lambda: writer.add("a", "s", MessageDraft("user", "two")))) == 1
        )  # refused: open another
        writer.add("a", "s", MessageDraft("user", "three"))
        unsaved = [message.content for entry in read_unsaved_file(path) for message in entry.messages]
        assert unsaved == ["one", "three"]
