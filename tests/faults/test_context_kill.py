"""Whatever happens to those who save: the context that is read is whole, and the latest or the one before."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.context_files import ContextFiles
from langmem_tiers.core.config import EngineConfig
from langmem_tiers.storage.database import Database
from tests.context_tables import with_context_tables
from tests.faults.context_writer import (
    CONFIG,
    SESSION,
    count_up,
    marked,
    number_of,
    save_blindly,
    save_until_killed,
    save_until_step,
)
from tests.fork_server import fork_server

if TYPE_CHECKING:
    import multiprocessing
    from collections.abc import Callable
    from pathlib import Path

KILLS = 500
PROCESSES, EACH = 4, 40


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    return fork_server()


@pytest.fixture
def files(tmp_path: Path) -> ContextFiles:
    return ContextFiles(tmp_path / "context", config=CONFIG, embedder=None)


@pytest.mark.timeout(600)
def test_500_kills_leave_the_latest_version_or_the_one_before(
    context: multiprocessing.context.ForkServerContext, files: ContextFiles, tmp_path: Path
) -> None:
    chance, notes = random.Random(2025), tmp_path / "notes"
    last, in_the_middle = 0, 0
    for _ in range(KILLS):
        child = context.Process(target=save_until_killed, args=(str(tmp_path / "context"), str(notes)))
        child.start()
        time.sleep(chance.random() * 0.045)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(30)
        assert child.exitcode == -signal.SIGKILL
        acknowledged = int(notes.read_text().split("\n")[-2]) if notes.exists() and notes.read_text() else 0
        found = number_of(files.load(SESSION))
        assert acknowledged <= found <= max(acknowledged, last) + 1
        in_the_middle += any((tmp_path / "context").rglob("*.tmp"))
        last = found
    assert last > KILLS // 10  # or nothing was put to the test
    assert in_the_middle > 0
    assert list((tmp_path / "context" / ".damaged").iterdir()) == []
    assert files.save(marked(files.load(SESSION), last + 1)).version >= last


def test_a_kill_before_any_step_leaves_the_latest_version_or_the_one_before(
    context: multiprocessing.context.ForkServerContext, files: ContextFiles, tmp_path: Path
) -> None:
    found, killed = 0, 0
    for step in range(1, 60):
        child = context.Process(target=save_until_step, args=(str(tmp_path / "context"), step))
        child.start()
        child.join(30)
        now = number_of(files.load(SESSION))
        assert now in (found, found + 1)
        found = now
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        killed += 1
    assert child.exitcode == 0
    assert killed >= 5
    assert files.versions(SESSION)[0].is_current


@pytest.mark.parametrize("backend", ["files", "sqlite-file", "postgresql"])
def test_4_processes_that_change_one_session_lose_nothing(
    context: multiprocessing.context.ForkServerContext,
    tmp_path: Path,
    backend: str,
    request: pytest.FixtureRequest,
) -> None:
    where = str(tmp_path / "context")
    if backend != "files":
        where = _database(backend, tmp_path, request)
    with ContextFiles(where, config=CONFIG, embedder=None) as files:
        files.delete(SESSION)
        _run(context, count_up, where, lambda: _is_whole(files))
        found = files.load(SESSION)
        wanted = {f"w{name}-{number}" for name in range(PROCESSES) for number in range(EACH)}
        assert set(found.facts) == wanted
        assert len(found.recent_history) == len(wanted)
        assert dict(found.tool_stats.by_tool) == {f"w{name}": EACH for name in range(PROCESSES)}
        assert files.versions(SESSION)[0].number == len(wanted)
    for name in range(PROCESSES):  # each one's in the order in which it wrote them
        mine = [int(entry.content) for entry in found.recent_history if entry.role == f"w{name}"]
        assert mine == list(range(EACH))


def _database(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    if backend == "postgresql":
        url = str(request.getfixturevalue("shared_postgres"))
    database = Database(url, EngineConfig())
    with_context_tables(database)
    database.close()
    return url


def test_4_processes_that_save_over_each_other_never_mix_two_versions(
    context: multiprocessing.context.ForkServerContext, files: ContextFiles, tmp_path: Path
) -> None:
    _run(context, save_blindly, str(tmp_path / "context"), lambda: number_of(files.load(SESSION)))
    number_of(files.load(SESSION))
    versions = files.versions(SESSION)
    assert versions[0].number == PROCESSES * EACH
    assert len(versions) == 3
    for version in versions:
        number_of(files.version(SESSION, version.number))


def _is_whole(files: ContextFiles) -> None:
    found = files.load(SESSION)
    assert len(found.facts) == len(found.recent_history) == found.tool_stats.total_calls


def _run(
    context: multiprocessing.context.ForkServerContext,
    work: Callable[[str, str, int], None],
    where: str,
    look: Callable[[], object],
) -> None:
    prefix = "w" if work is count_up else ""
    children = [context.Process(target=work, args=(where, f"{prefix}{n}", EACH)) for n in range(PROCESSES)]
    for child in children:
        child.start()
    while any(child.is_alive() for child in children):
        look()  # whoever reads meanwhile sees whole versions only
    assert [child.exitcode for child in children] == [0] * PROCESSES
