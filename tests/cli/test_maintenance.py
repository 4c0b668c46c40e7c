"""Maintenance commands: options, output and exit codes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.common.clock import SystemClock
from tests.cli.command_runner import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def aged(tmp_path: Path) -> Path:
    """A memory of messages that are 100, 50 and 0 days old."""
    path = tmp_path / "aged.db"
    with MemoryEngine(path, embedder=None) as engine:
        now = SystemClock().now()
        engine.session("alice", "s").add_many(
            [MessageDraft("user", f"{age}", created_at=now - timedelta(days=age)) for age in (100, 50, 0)]
        )
    return path


@pytest.mark.parametrize(("options", "erased"), [([], 1), (["--days", "30"], 2), (["--keep-all"], 0)])
def test_maintenance_erases_messages_older_than_the_given_days(
    aged: Path, options: list[str], erased: int
) -> None:
    done = run("maintain", "-d", aged, *options, "--yes", "--json")
    assert (done.code, done.parsed["erased"]["messages"]) == (0, erased)
    assert done.parsed["compacted"] is not None


def test_maintenance_reports_the_size_only_as_freed_if_it_shrank(aged: Path) -> None:
    run("maintain", "-d", aged, "--keep-all", "--yes")
    assert "compacting freed no space" in run("maintain", "-d", aged, "--keep-all", "--yes").out


def test_maintenance_compacts_only_if_allowed(aged: Path) -> None:
    assert run("maintain", "-d", aged, "--no-compact", "--yes", "--json").parsed["compacted"] is None


def test_maintenance_announces_its_work(aged: Path) -> None:
    assert "older than 30 days" in run("maintain", "-d", aged, "--days", 30).err
    kept = run("maintain", "-d", aged, "--keep-all").err
    assert "This would delete expired items and compact the database" in kept
    assert "days, delete expired items, and compact" in run("maintain", "-d", aged).err
    assert "90 days and delete expired items;" in run("maintain", "-d", aged, "--no-compact").err
    for wrong in (["--days", "0"], ["--days", "nan"], ["--days", "3", "--keep-all"]):
        done = run("maintain", "-d", aged, *wrong, "--yes")
        assert (done.code, "--days" in done.err) == (1, True)
    assert run("export", "-d", aged).out.count("\n") == 3


@pytest.mark.parametrize(
    ("command", "lease"), [(["maintain", "--yes"], "maintenance"), (["optimize"], "optimizer:alice")]
)
def test_work_leased_by_another_process_exits_with_its_own_code(
    aged: Path, command: list[str], lease: str
) -> None:
    with MemoryEngine(aged, embedder=None) as engine:
        held = engine.services.get_lease(lease)
        assert held.acquire()
        done = run(*command, "-d", aged)
        assert (done.code, "nother process holds the lock" in done.out) == (4, True)
        held.release()
        assert run(*command, "-d", aged).code == 0


def test_maintenance_taken_over_by_another_process_is_not_reported_as_done(aged: Path) -> None:
    with MemoryEngine(aged, embedder=None) as engine:
        long_ago = SystemClock().now() - timedelta(days=100)
        engine.session("bob", "s").add_many([MessageDraft("user", "Old.", created_at=long_ago)])
    with closing(sqlite3.connect(aged)) as other:
        other.execute(
            "CREATE TRIGGER takes_over AFTER DELETE ON lmt_messages "
            "BEGIN UPDATE lmt_leases SET holder = 'another'; END"
        )
    done = run("maintain", "-d", aged, "--yes")
    assert (done.code, "Run the command again" in done.out) == (1, True)


def test_optimize_uses_and_prints_its_budget(aged: Path) -> None:
    output = run("optimize", "-d", aged, "--budget", 1000, "--json").parsed["alice"]
    assert output["usage_before"] == output["tokens_before"] / 1000 > 0
    assert "for a budget of 1,000 tokens\n" in run("optimize", "-d", aged, "--budget", 1000).out
    assert "190,904 tokens (default; change it with --budget)" in run("optimize", "-d", aged).out
    assert run("optimize", "-d", aged, "--budget", 0).code == 2


@pytest.mark.parametrize("command", [["maintain"], ["forget", "alice"]])
def test_a_missing_yes_is_reported_in_json(aged: Path, command: list[str]) -> None:
    done = run(*command, "-d", aged, "--json")
    assert done.code == 3
    assert (done.parsed["done"], done.parsed["missing"]) == (False, "--yes")
    assert done.parsed["would"].startswith("erase")


@pytest.mark.parametrize(
    ("command", "bar"),
    [(["maintain", "--yes"], "Erasing"), (["forget", "alice", "--yes"], "Forgetting"), (["reembed"], "3/3")],
)
def test_long_commands_show_a_progress_bar(aged: Path, command: list[str], bar: str) -> None:
    assert bar in run(*command, "-d", aged, env={"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}).err


def test_a_progress_bar_without_steps_to_count_shows_no_count(aged: Path) -> None:
    terminal = {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
    assert "0/?" not in run("forget", "-d", aged, "alice", "--yes", env=terminal).err
