"""Commands that erase also clear the Redis of the agents, or report that it was not checked."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from benchmarks.servers import TemporaryRedis
from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, RedisConfig
from langmem_tiers.cli import targets
from langmem_tiers.common.clock import SystemClock
from tests.cli.command_runner import run
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORD = "quorraxvault"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_REDIS_TIMEOUT_SECONDS", LIMIT_SECONDS)


@pytest.fixture
def server() -> Iterator[TemporaryRedis]:
    with TemporaryRedis() as started:
        yield started


@pytest.fixture
def memory(tmp_path: Path, server: TemporaryRedis) -> Path:
    return create_memory(tmp_path / "agents.db", RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS))


def create_memory(path: Path, redis: RedisConfig) -> Path:
    """A memory whose agents use a Redis."""
    with MemoryEngine(path, embedder=None, config=EngineConfig(redis=redis)) as engine:
        session = engine.session("alice", "monday")
        long_ago = SystemClock().now() - timedelta(days=20)
        session.add_many([MessageDraft("user", f"The code is {WORD}.", created_at=long_ago)])
        session.latest(10)
    return path


def holds(server: TemporaryRedis) -> bool:
    with server.client as client:
        return any(WORD.encode() in (client.dump(key) or b"") for key in client.scan_iter("*"))


@pytest.mark.parametrize("what", [["alice"], ["alice", "-s", "monday"], ["--user", "alice"]])
def test_forgotten_messages_are_removed_from_redis(
    memory: Path, server: TemporaryRedis, what: list[str]
) -> None:
    assert holds(server)
    done = run("forget", "-d", memory, *what, "--redis", server.url, "--yes", "--json")
    assert (done.code, done.parsed["is_complete"], done.parsed["notes"]) == (0, True, [])
    assert not holds(server)


def test_redis_is_read_from_the_environment(memory: Path, server: TemporaryRedis) -> None:
    done = run("forget", "-d", memory, "alice", "--yes", env={"LANGMEM_TIERS_REDIS": server.url})
    assert (done.code, "Redis" in done.out) == (0, False)
    assert not holds(server)


def test_without_redis_the_output_says_that_it_was_not_checked(memory: Path, server: TemporaryRedis) -> None:
    assert "--redis" in run("forget", "-d", memory, "alice").err
    done = run("forget", "-d", memory, "alice", "--yes")
    assert "Redis was not checked. If your agents use it, pass --redis" in " ".join(done.out.split())
    assert holds(server)
    again = run("forget", "-d", memory, "alice", "--yes", "--json").parsed
    assert any("--redis" in note for note in again["notes"])


def test_messages_beyond_retention_are_removed_from_redis(memory: Path, server: TemporaryRedis) -> None:
    words = ("maintain", "-d", memory, "--days", 10, "--yes", "--json")
    done = run(*words, "--redis", server.url).parsed
    assert (done["erased"]["messages"], done["notes"]) == (1, [])
    assert not holds(server)


def test_keys_of_another_prefix_are_found_with_the_prefix(tmp_path: Path, server: TemporaryRedis) -> None:
    memory = create_memory(
        tmp_path / "agents.db",
        RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS, prefix="our agents"),
    )
    assert run("forget", "-d", memory, "alice", "--redis", f"{server.url}#our%20agents", "--yes").code == 0
    assert not holds(server)


@pytest.mark.parametrize("command", [["forget", "alice"], ["maintain", "--days", "10"]])
def test_an_unreachable_redis_is_named_and_the_result_incomplete(
    memory: Path, server: TemporaryRedis, command: list[str]
) -> None:
    server.kill()
    done = run(*command, "-d", memory, "--redis", server.url, "--yes", "--json")
    assert done.code == 1
    (left,) = done.parsed["left" if command[0] == "forget" else "problems"]
    assert f"Redis at {server.url!r} is unavailable" in left


def test_the_status_includes_redis(memory: Path, server: TemporaryRedis) -> None:
    assert run("status", "-d", memory, "--json").parsed["redis"] is None
    output = run("status", "-d", memory, "--redis", server.url, "--json").parsed["redis"]
    assert (output["label"], output["is_connected"]) == (server.url, True)
    assert f"Redis {server.url} answers." in run("status", "-d", memory, "--redis", server.url).out


@pytest.mark.parametrize("command", [["status"], ["forget", "alice", "--yes"], ["inspect"]])
def test_a_password_of_redis_is_never_printed(tmp_path: Path, command: list[str]) -> None:
    with TemporaryRedis("--requirepass", "s3cret") as server:
        url = f"unix://:s3cret@{server.socket}"
        memory = create_memory(tmp_path / "agents.db", RedisConfig(url=url, timeout_seconds=LIMIT_SECONDS))
        for given in (url, f"{url}?password=s3cret", url.replace("s3cret", "s3cret-and-wrong"), f"http{url}"):
            done = run(*command, "-d", memory, "--redis", given)
            assert "s3cret" not in done.out + done.err
