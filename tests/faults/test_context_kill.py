"""Kills and races during saves of contexts: a reader gets the latest or the previous version, never a mix."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.config import EngineConfig
from langmem_tiers.context_files.service import ContextFiles
from langmem_tiers.storage.database import Database
from tests.context_tables import create_context_tables
from tests.faults.context_writer import (
    CONFIG,
    SESSION,
    count_up,
    mark_context,
    read_number,
    save_blindly,
    save_until_killed,
    save_until_step,
)
from tests.faults.killable_child import pause, start
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    import multiprocessing
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.fault

PROCESSES = 4


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    return fork_server()


@pytest.fixture
def files(tmp_path: Path) -> ContextFiles:
    return ContextFiles(tmp_path / "context", config=CONFIG, embedder=None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [pytest.param(8, marks=pytest.mark.smoke), 500])
def test_a_kill_leaves_the_latest_or_the_previous_version(
    files: ContextFiles, tmp_path: Path, kills: int
) -> None:
    chance, notes = random.Random(2025), tmp_path / "notes"
    last, lines = 0, 0
    for _ in range(kills):
        child = start(save_until_killed, (str(tmp_path / "context"), str(notes)), notes)
        child.wait_for(lines + chance.randint(0, 2))
        pause(chance)
        child.kill()
        lines = len(child.list_acknowledged())
        acknowledged = int(child.list_acknowledged()[-1]) if lines else 0
        found = read_number(files.load(SESSION))
        assert acknowledged <= found <= max(acknowledged, last) + 1
        last = found
    assert last >= lines > 0
    assert list((tmp_path / "context" / ".damaged").iterdir()) == []
    assert files.save(mark_context(files.load(SESSION), last + 1)).version >= last


@pytest.mark.smoke
def test_a_kill_before_any_step_leaves_the_latest_or_the_previous_version(
    context: multiprocessing.context.ForkServerContext, files: ContextFiles, tmp_path: Path
) -> None:
    found, killed, in_the_middle = 0, 0, 0
    for step in range(1, 60):
        child = context.Process(target=save_until_step, args=(str(tmp_path / "context"), step))
        child.start()
        child.join(LIMIT_SECONDS)
        in_the_middle += any((tmp_path / "context").rglob("*.tmp"))
        now = read_number(files.load(SESSION))
        assert now in (found, found + 1)
        found = now
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        killed += 1
    assert child.exitcode == 0
    assert killed >= 5
    assert in_the_middle > 0
    assert files.versions(SESSION)[0].is_current


@pytest.mark.parametrize(
    ("backend", "each"),
    [
        pytest.param("files", 4, marks=pytest.mark.smoke),
        pytest.param("sqlite-file", 4, marks=pytest.mark.smoke),
        ("files", 40),
        ("sqlite-file", 40),
        ("postgresql", 40),
    ],
)
def test_4_processes_that_change_one_session_lose_nothing(
    context: multiprocessing.context.ForkServerContext,
    tmp_path: Path,
    backend: str,
    each: int,
    request: pytest.FixtureRequest,
) -> None:
    where = str(tmp_path / "context")
    if backend != "files":
        where = _database(backend, tmp_path, request)
    with ContextFiles(where, config=CONFIG, embedder=None) as files:
        files.delete(SESSION)
        _run(context, count_up, where, each, lambda: _is_whole(files))
        found = files.load(SESSION)
        wanted = {f"w{name}-{number}" for name in range(PROCESSES) for number in range(each)}
        assert set(found.facts) == wanted
        assert len(found.recent_history) == len(wanted)
        assert dict(found.tool_stats.by_tool) == {f"w{name}": each for name in range(PROCESSES)}
        assert files.versions(SESSION)[0].number == len(wanted)
    for name in range(PROCESSES):  # the entries of each process are in the order in which it wrote them
        mine = [int(entry.content) for entry in found.recent_history if entry.role == f"w{name}"]
        assert mine == list(range(each))


def _database(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    if backend == "postgresql":
        url = str(request.getfixturevalue("shared_postgres"))
    database = Database(url, EngineConfig())
    create_context_tables(database)
    database.close()
    return url


@pytest.mark.parametrize("each", [pytest.param(4, marks=pytest.mark.smoke), 40])
def test_4_processes_with_overwriting_saves_never_mix_two_versions(
    context: multiprocessing.context.ForkServerContext, files: ContextFiles, tmp_path: Path, each: int
) -> None:
    _run(context, save_blindly, str(tmp_path / "context"), each, lambda: read_number(files.load(SESSION)))
    read_number(files.load(SESSION))
    versions = files.versions(SESSION)
    assert versions[0].number == PROCESSES * each
    assert len(versions) == 3
    for version in versions:
        read_number(files.version(SESSION, version.number))


def _is_whole(files: ContextFiles) -> None:
    found = files.load(SESSION)
    assert len(found.facts) == len(found.recent_history) == found.tool_stats.total_calls


def _run(
    context: multiprocessing.context.ForkServerContext,
    work: Callable[[str, str, int], None],
    where: str,
    each: int,
    look: Callable[[], object],
) -> None:
    prefix = "w" if work is count_up else ""
    children = [context.Process(target=work, args=(where, f"{prefix}{n}", each)) for n in range(PROCESSES)]
    for child in children:
        child.start()
    while any(child.is_alive() for child in children):
        look()  # a reader sees complete versions only
    assert [child.exitcode for child in children] == [0] * PROCESSES
