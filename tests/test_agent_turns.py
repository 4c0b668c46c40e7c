"""Turns of a user, blocks of near-repeats, answers: what the guard does beyond one uninterrupted run."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import AgentAction, AgentMemory, EngineConfig, MemoryEngine, StorageBusyError
from langmem_tiers.tiers.task.guard_advice import AdviceLevel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLICK = AgentAction("click", {"selector": "#submit"})


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


def again(memory: AgentMemory) -> AgentMemory:
    return AgentMemory(engine=memory.engine, task=memory.task)


def block(memory: AgentMemory) -> None:
    for _ in range(7):
        memory.record_cycle("", CLICK, "Nothing happened.", url="https://a.b/form")
    assert memory.check_action(CLICK).level is AdviceLevel.BLOCK  # type: ignore[union-attr]


def test_a_new_turn_counts_anew_and_failures_stay_known(memory: AgentMemory) -> None:
    for _ in range(2):
        memory.record_cycle("", CLICK, "No.", "failure", url="https://a.b/form")
    block(memory)
    memory.new_turn()
    for one in (memory, again(memory)):
        assert one.warnings() == []
        assert one.check_action(CLICK).level is not AdviceLevel.BLOCK  # type: ignore[union-attr]
        assert one.is_repeated_failure(CLICK)
        assert one.short_term.get_action_frequency("click", {"selector": "#submit"}) == 9
        assert len(one.short_term) == 9
    block(memory)


def test_turns_in_which_nothing_is_done_are_not_written_down(memory: AgentMemory) -> None:
    memory.record_cycle("", CLICK)
    memory.new_turn()
    notes = memory.engine.session(memory.namespace, f"{memory.task}: notes")
    before = notes.count()
    for _ in range(5):
        memory.new_turn()
    assert notes.count() == before


def test_a_blocked_counter_does_not_get_through_by_counting_on(memory: AgentMemory) -> None:
    number = 0
    while number < 40:
        retry = AgentAction("run", {"command": f"retry --attempt {number}"})
        advice = memory.check_action(retry)
        if advice is not None and advice.level is AdviceLevel.BLOCK:
            break
        memory.record_cycle("", retry, "error: connection refused", "failure")
        number += 1
    assert 3 <= number < 20
    assert memory.check_action(AgentAction("run", {"command": "retry --attempt 999"})).must_answer  # type: ignore[union-attr]
    assert memory.check_action(AgentAction("run", {"command": "ls /var/log"})) is None
    assert memory.check_action(AgentAction("read", {"path": "/var/log/net"})) is None


def test_an_answer_that_cannot_be_kept_lifts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.02)) as engine:
        memory = AgentMemory(engine=engine, task="t")
        block(memory)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusyError):
            memory.answer_guard("the form was fixed meanwhile")
        other.execute("ROLLBACK")
        other.close()
        assert memory.check_action(CLICK).must_answer  # type: ignore[union-attr]
        assert memory.answer_guard("the form was fixed meanwhile")
        for one in (memory, again(memory)):
            assert not one.check_action(CLICK).must_answer  # type: ignore[union-attr]


def test_the_guard_sees_what_the_store_could_not_take(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.01)) as engine:
        memory = AgentMemory(engine=engine, task="t")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(7):
            with pytest.raises(StorageBusyError):
                memory.record_cycle("", CLICK, "Nothing happened.")
        other.execute("ROLLBACK")
        other.close()
        assert memory.check_action(CLICK).must_answer  # type: ignore[union-attr]
        assert memory.working.cycle_count == len(memory.short_term) == 0  # nothing is called kept that is not
