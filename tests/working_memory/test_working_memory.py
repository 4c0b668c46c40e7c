"""Working memory of agents: within limits, and without loss when flushed."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc
import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import (
    EngineClosedError,
    EngineConfig,
    InvalidConfigError,
    InvalidInputError,
    InvalidNameError,
    MemoryEngine,
    MessageConflictError,
    MessageDraft,
    MessageToolCall,
    StorageError,
    WorkingConfig,
)
from langmem_tiers.testing import FrozenClock
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers.working_memory.cache import measure_bytes
from tests.forking import fork, wait
from tests.hypothesis_settings import examples
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def open_engine(
    url: object = "sqlite://", clock: FrozenClock | None = None, **working: float
) -> MemoryEngine:
    config = EngineConfig(working=WorkingConfig(**working))  # type: ignore[arg-type]
    return MemoryEngine(url, config=config, clock=clock, embedder=None)  # type: ignore[arg-type]


@pytest.fixture
def small(clock: FrozenClock) -> Iterator[MemoryEngine]:
    """Room for three agents, half an hour, 100 tokens."""
    with open_engine(clock=clock, max_agents=3, flush_tokens=100) as engine:
        yield engine


def stored(engine: MemoryEngine, agent: str, session: str = "s") -> list[str]:
    found = engine.namespace(agent).find_session(session)
    return [] if found is None else [message.content for message in found.messages()]


def list_messages(engine: MemoryEngine, agent: str, session: str = "s") -> list[str]:
    return [message.content for message in engine.working.get(agent, session).messages]


def test_appended_messages_are_only_in_working_memory(small: MemoryEngine) -> None:
    working = small.working
    assert working.get("alice", "s").messages == ()
    working.append("alice", "s", "user", "What is the weather?")
    call = MessageDraft("assistant", "", tool_calls=[MessageToolCall("c1", "weather")])
    working.append("alice", "s", call)
    report = working.append("alice", "s", MessageDraft("tool", "rain", tool_call_id="c1"))
    memory = working.get("alice", "s")
    assert [message.role for message in memory.messages] == ["user", "assistant", "tool"]
    assert {call: result.content for call, result in memory.tool_results.items()} == {"c1": "rain"}
    assert memory.token_count == report.token_count == sum(m.token_count for m in memory.messages)
    assert (memory.unsaved, report.is_new, report.flushed) == (3, True, 0)
    assert (stored(small, "alice"), list_messages(small, "bob"), list_messages(small, "alice", "t")) == (
        [],
        [],
        [],
    )


def test_exceeding_the_token_limit_flushes_to_the_session(small: MemoryEngine) -> None:
    for n in range(3):
        report = small.working.append("alice", "s", MessageDraft("user", str(n), token_count=34))
    assert (report.flushed, report.token_count, report.problem) == (3, 0, None)
    assert (stored(small, "alice"), list_messages(small, "alice")) == (["0", "1", "2"], [])
    small.working.append("alice", "s", "user", "3")
    assert small.working.flush("alice").messages == 1
    assert small.working.flush().messages == 0
    assert stored(small, "alice") == ["0", "1", "2", "3"]


def test_the_documented_limits_are_the_defaults() -> None:
    config = WorkingConfig()
    assert (config.max_agents, config.max_megabytes, config.ttl_seconds) == (1000, 500, 30 * 60)
    assert config.flush_tokens == 32_000


def test_a_call_waiting_for_its_result_stays_in_working_memory_and_is_stored_once(
    small: MemoryEngine,
) -> None:
    working = small.working
    working.append("alice", "s", "user", "Go")
    calls = [MessageToolCall("c1", "a"), MessageToolCall("c2", "b")]
    working.append("alice", "s", MessageDraft("assistant", "calling", tool_calls=calls, token_count=200))
    assert (list_messages(small, "alice"), stored(small, "alice")) == (["calling"], ["Go", "calling"])
    working.append("alice", "s", MessageDraft("tool", "one", tool_call_id="c1"))
    assert list_messages(small, "alice") == ["calling", "one"]
    working.append("alice", "s", MessageDraft("tool", "two", tool_call_id="c2"))
    assert list_messages(small, "alice") == []
    assert stored(small, "alice") == ["Go", "calling", "one", "two"]


def test_the_least_recently_used_agent_is_flushed_and_evicted(small: MemoryEngine) -> None:
    for agent in ("a", "b", "c"):
        small.working.append(agent, "s", "user", f"I am {agent}")
    small.working.get("a", "s")
    small.working.append("d", "s", "user", "I am d")
    assert [list_messages(small, agent) != [] for agent in "abcd"] == [True, False, True, True]
    assert stored(small, "b") == ["I am b"]
    assert small.working.status().agents == 3


def test_an_agent_idle_for_half_an_hour_is_flushed_and_evicted(
    small: MemoryEngine, clock: FrozenClock
) -> None:
    small.working.append("a", "s", "user", "early")
    clock.advance(minutes=20)
    small.working.append("b", "s", "user", "late")
    clock.advance(minutes=10)
    assert small.working.sweep() == 1
    assert (stored(small, "a"), stored(small, "b")) == (["early"], [])
    clock.advance(minutes=30)
    small.working.append("c", "s", "user", "now")  # whoever comes sweeps, too
    assert stored(small, "b") == ["late"]


def test_an_idle_agent_is_flushed_in_the_background(
    small: MemoryEngine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langmem_tiers.working_memory.cache._SWEEP_SECONDS", 0.001)
    small.working.append("a", "s", "user", "early")
    clock.advance(minutes=30)
    wait_until(lambda: stored(small, "a") == ["early"], "the memory is stored")


def test_closing_the_engine_flushes_everything(file_url: str) -> None:
    with open_engine(file_url) as engine:
        for n in range(20):
            engine.working.append(f"agent {n % 3}", "s", "user", str(n))
    with open_engine(file_url) as engine:
        assert [stored(engine, f"agent {n}") for n in range(3)] == [
            [str(k) for k in range(20) if k % 3 == n] for n in range(3)
        ]
    with pytest.raises(EngineClosedError):
        engine.working.append("a", "s", "user", "x")


@pytest.mark.soak
@pytest.mark.parametrize("end", ["", "del engine, working; gc.collect(); os._exit(0)"])
def test_an_unclosed_engine_flushes_everything_at_exit(file_url: str, end: str) -> None:
    program = f"""
import gc, os, sys
from langmem_tiers import MemoryEngine
engine = MemoryEngine(sys.argv[1], embedder=None)
working = engine.working
working.append("a", "s", "user", "said")
working.set_scratchpad("a", "s", "noted")
{end}
"""
    subprocess.run([sys.executable, "-c", program, file_url], check=True)
    with open_engine(file_url) as engine:
        assert stored(engine, "a") == ["said"]
        assert engine.working.get("a", "s").scratchpad == "noted"


def test_a_message_appended_twice_is_stored_once(small: MemoryEngine) -> None:
    working = small.working
    draft = MessageDraft("user", "said", id="m1")
    assert working.append("a", "s", draft).is_new
    assert not working.append("a", "s", draft).is_new
    working.flush()
    working.append("a", "s", draft)
    assert small.session("a", "s").add(draft).duplicates
    working.flush()
    assert stored(small, "a") == ["said"]
    working.append("a", "s", draft)
    with pytest.raises(MessageConflictError, match="'m1'"):
        working.append("a", "s", MessageDraft("user", "other", id="m1"))


def test_an_id_conflict_with_the_session_loses_no_message(small: MemoryEngine) -> None:
    small.session("a", "s").add(MessageDraft("user", "first", id="m1"))
    for draft in (MessageDraft("user", "second", id="m1"), MessageDraft("user", "third")):
        small.working.append("a", "s", draft)
    assert small.working.flush("a", "s").messages == 2
    assert stored(small, "a") == ["first", "second", "third"]


def test_the_scratchpad_survives_an_eviction(small: MemoryEngine, clock: FrozenClock) -> None:
    small.working.set_scratchpad("a", "s", "try the other door \ud83d")
    assert small.working.get("a", "s").scratchpad == "try the other door \ud83d"
    clock.advance(hours=1)
    assert small.working.sweep() == 1
    assert small.working.get("a", "s").scratchpad == "try the other door \ud83d"
    small.working.append("a", "s", "user", "x")
    assert small.working.get("a", "s").scratchpad == "try the other door \ud83d"
    small.working.set_scratchpad("a", "s", "")
    clock.advance(hours=1)
    small.working.sweep()
    assert small.working.get("a", "s").scratchpad == ""
    assert not small.namespace("a").search("door")


def test_erased_messages_are_not_restored_from_working_memory(small: MemoryEngine) -> None:
    for session in ("s", "t"):
        small.session("a", session)
        small.working.append("a", session, "user", f"a secret of {session}")
        small.working.set_scratchpad("a", session, "another secret")
    small.session("a", "s").delete()
    assert small.working.get("a", "s").messages == ()
    assert small.working.get("a", "s").scratchpad == ""
    small.working.flush()
    assert (stored(small, "a", "s"), stored(small, "a", "t")) == ([], ["a secret of t"])
    small.namespace("a").delete()
    assert small.working.status().agents == 0
    assert small.working.get("a", "t").scratchpad == ""


def test_a_stale_handle_deletes_nothing_of_a_new_conversation(small: MemoryEngine) -> None:
    stale = small.session("a", "s")
    small.session("a", "s").delete()
    small.session("a", "s")
    small.working.append("a", "s", "user", "new")
    stale.delete()
    assert list_messages(small, "a") == ["new"]


def test_a_database_that_refuses_writes_loses_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, path = FrozenClock(), tmp_path / "memory.db"
    engine = open_engine(path, clock, max_agents=2, flush_tokens=100)
    for agent in ("a", "b"):
        engine.session(agent, "s")
    with engine._database.write() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER broken BEFORE INSERT ON lmt_messages BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    for agent in ("a", "b"):
        report = engine.working.append(agent, "s", MessageDraft("user", f"I am {agent}", token_count=101))
        assert report.problem is not None
        assert report.flushed == 0
    with pytest.raises(StorageError):
        engine.working.append("c", "s", "user", "no room")
    clock.advance(hours=1)
    assert engine.working.sweep() == 0
    assert engine.working.status().unsaved == 2
    with pytest.raises(StorageError):
        engine.working.flush()
    with engine._database.write() as connection:
        connection.exec_driver_sql("DROP TRIGGER broken")
    assert engine.working.flush().messages == 2
    assert [stored(engine, agent) for agent in "abc"] == [["I am a"], ["I am b"], []]
    assert [r.getMessage() for r in caplog.records if "working memory" in r.getMessage()] != []
    engine.close()


def test_a_close_that_cannot_flush_raises_and_keeps_the_messages(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "memory.db")
    engine.working.append("a", "s", "user", "unsaved")
    with engine._database.write() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER broken BEFORE INSERT ON lmt_messages BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(StorageError):
        engine.close()
    assert engine.is_closed
    assert [m.content for m in engine.working.unsaved()[("a",), "s"]] == ["unsaved"]


@pytest.mark.soak
def test_memory_usage_is_measured(clock: FrozenClock) -> None:
    with open_engine(clock=clock) as engine:
        engine.working.append("warm", "s", "user", "up")
        gc.collect()
        tracemalloc.start()
        before = engine.working.status().megabytes
        for n in range(300):
            text = ("ascii " if n % 2 else "猫 ") * 400 + str(n)
            call = MessageToolCall(f"call {n}", "tool", '{"a": "' + "y" * 300 + f'{n}"}}')
            draft = MessageDraft("assistant", text, tool_calls=[call], payload={"n": [text]}, token_count=1)
            engine.working.append(f"agent {n % 10}", "s", draft)
            del text, call, draft
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] / 1_000_000
        tracemalloc.stop()
        counted = engine.working.status().megabytes - before
    assert taken * 0.9 < counted < taken * 1.1


def test_sizes_count_each_object_once() -> None:
    text = "x" * 1000
    assert measure_bytes([text, text]) < 2 * measure_bytes(text)
    assert measure_bytes(("x" * 1000, "y" * 1000)) > 2000
    assert measure_bytes({"a": ["b" * 500]}) > 500
    assert measure_bytes(None) == 0


def test_exceeding_the_byte_limit_flushes_and_evicts(clock: FrozenClock) -> None:
    with open_engine(clock=clock, max_megabytes=1) as engine:
        for n in range(30):
            engine.working.append(
                f"agent {n}", "s", MessageDraft("user", str(n) + "x" * 100_000, token_count=1)
            )
            assert engine.working.status().megabytes <= 1
        assert 5 < engine.working.status().agents < 11
        assert (
            sum(len(stored(engine, f"agent {n}")) for n in range(30)) == 30 - engine.working.status().agents
        )
        for _ in range(3):  # one alone that is too large
            engine.working.append("giant", "s", MessageDraft("user", "x" * 900_000, token_count=1))
        assert len(stored(engine, "giant")) == 2


@examples(20)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 4), st.integers(1, 60)),
            st.tuples(st.just("get"), st.integers(0, 4), st.just(0)),
            st.tuples(st.just("flush"), st.integers(0, 4), st.just(0)),
            st.tuples(st.just("wait"), st.just(0), st.integers(1, 40)),
        ),
        max_size=40,
    )
)
def test_every_message_is_stored_once_and_in_order_for_any_steps(steps: list[tuple[str, int, int]]) -> None:
    clock = FrozenClock()
    given_in: dict[str, list[str]] = {f"agent {n}": [] for n in range(5)}
    with open_engine(clock=clock, max_agents=2, flush_tokens=100) as engine:
        for number, (what, agent, size) in enumerate(steps):
            name = f"agent {agent}"
            if what == "append":
                engine.working.append(name, "s", MessageDraft("user", str(number), token_count=size))
                given_in[name].append(str(number))
            elif what == "get":
                shown = list_messages(engine, name)
                assert given_in[name][len(given_in[name]) - len(shown) :] == shown
            elif what == "flush":
                engine.working.flush(name, "s")
            else:
                clock.advance(minutes=size)
            assert engine.working.status().agents <= 2
        engine.working.flush()
        assert {name: stored(engine, name) for name in given_in} == given_in
        assert all(engine.working.get(name, "s").token_count == 0 for name in given_in)


def test_concurrent_threads_lose_and_duplicate_nothing_and_keep_their_order(file_url: str) -> None:
    each, threads = 60, 6
    with open_engine(file_url, max_agents=3, flush_tokens=50) as engine:

        def work(thread: int) -> None:
            for n in range(each):
                draft = MessageDraft("user", f"{thread} {n}", token_count=7)
                engine.working.append(f"agent {n % 5}", "s", draft)

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert not any(worker.is_alive() for worker in workers)
    with open_engine(file_url) as engine:
        everything = [text for n in range(5) for text in stored(engine, f"agent {n}")]
        assert sorted(everything) == sorted(f"{t} {n}" for t in range(threads) for n in range(each))
        for agent in range(5):
            for thread in range(threads):
                own = [t for t in stored(engine, f"agent {agent}") if t.startswith(f"{thread} ")]
                assert own == [f"{thread} {n}" for n in range(each) if n % 5 == agent]


def test_a_fork_stores_shared_messages_once(file_url: str) -> None:
    with open_engine(file_url) as engine:
        engine.working.append("a", "s", "user", "before")

        def child() -> None:
            engine.working.append("a", "s", "user", "child")
            engine.close()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert wait(fork(child)) == 0
        engine.working.append("a", "s", "user", "parent")
    with open_engine(file_url) as engine:
        assert sorted(stored(engine, "a")) == ["before", "child", "parent"]


def test_other_threads_can_use_working_memories_after_a_fork(small: MemoryEngine) -> None:
    cache = small.working._cache
    cache.before_fork()
    cache.after_fork()

    def use() -> None:
        assert cache._lock.acquire(blocking=False)
        cache._lock.release()

    run_in_threads(1, use)


def test_invalid_arguments_are_refused(small: MemoryEngine) -> None:
    with pytest.raises(InvalidConfigError, match="max_agents"):
        WorkingConfig(max_agents=0)
    with pytest.raises(InvalidConfigError, match="working must be a WorkingConfig"):
        EngineConfig(working=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="without a namespace"):
        small.working.flush(session="s")
    with pytest.raises(InvalidInputError, match="scratchpad must be a str"):
        small.working.set_scratchpad("a", "s", 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidNameError):
        small.working.set_scratchpad("a", "s" * 1020, "x")
