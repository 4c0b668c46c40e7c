"""Turns of a user, blocks of near-repeats, answers: what the guard does beyond one uninterrupted run."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import AgentAction, AgentMemory, EngineConfig, MemoryEngine, StorageBusyError
from langmem_tiers.tasks.guard import AdviceLevel
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


def test_an_answer_lifts_three_times_and_each_time_it_has_to_be_another_one(memory: AgentMemory) -> None:
    for number in range(3):
        while not memory.check_action(CLICK) or not memory.check_action(CLICK).must_answer:  # type: ignore[union-attr]
            memory.record_cycle("", CLICK, "Nothing happened.")
        if number:
            assert not memory.answer_guard(f"reason number {number - 1}")
        assert memory.answer_guard(f"reason number {number}")
    while memory.check_action(CLICK).level is not AdviceLevel.BLOCK:  # type: ignore[union-attr]
        memory.record_cycle("", CLICK, "Nothing happened.")
    for one in (memory, again(memory)):
        assert not one.answer_guard("quite another reason now")
        assert "this block cannot be lifted again" in one.check_action(CLICK).message  # type: ignore[union-attr]
    memory.record_cycle(
        "", AgentAction("goto", {"url": "https://a.b/other"}), "Another page.", url="https://a.b/other"
    )
    assert memory.record_cycle("", CLICK, "It opened.", url="https://a.b/other").entry_id


@pytest.mark.parametrize(
    ("tool", "parameters", "seen"),
    [
        ("next_item", {}, "Item {}: a lamp of the colour number {}."),
        ("next_page", {}, "\n".join(f"Line {{}}-{line} says something that is new." for line in range(20))),
        ("get_job", {"id": 7}, "progress {}%"),
        ("run_tests", {}, "{} failed, 18 passed"),
    ],
)
def test_calls_that_bring_something_new_each_time_go_on_unhindered(
    memory: AgentMemory, tool: str, parameters: dict[str, int], seen: str
) -> None:
    action = AgentAction(tool, parameters)
    for number in range(60):
        assert memory.check_action(action) is None
        memory.record_cycle("", action, seen.replace("{}", str(60 - number)))
        assert memory.advice is None or memory.advice.level is AdviceLevel.NOTE


def test_tools_that_are_not_guarded_may_be_called_as_often_as_one_likes() -> None:
    with AgentMemory(unguarded_tools=["get_job"]) as memory:
        for _ in range(30):
            memory.record_cycle("", AgentAction("get_job", {"id": 7}), "still running")
            assert memory.advice is None
        block(memory)


def test_a_task_is_taken_up_or_begun_with_one_call(tmp_path: Path) -> None:
    for run in range(3):
        with MemoryEngine(tmp_path / "memory.db", embedder=None) as engine:
            memory = AgentMemory(engine=engine, task="buy")
            assert memory.resume_or_start("Buy a lamp", {"most": 10}) is (run > 0)
            assert memory.task == "buy"
            assert memory.working.cycle_count == run
            assert memory.context_store.get("most") == 10
            memory.record_cycle("", CLICK)


class _SlowModel:
    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        self.asked.set()
        assert self.go_on.wait(LIMIT_SECONDS)
        return "Lamps are cheap."


def test_nobody_waits_for_the_model_and_what_was_done_is_kept_before_it_is_asked() -> None:
    model = _SlowModel()
    page = "The lamp number 5 costs ten euros and is sold in the harbour. " * 400
    with AgentMemory(model=model) as memory:
        recording = threading.Thread(
            target=memory.record_cycle, args=("", AgentAction("extract_text"), page), daemon=True
        )
        recording.start()
        assert model.asked.wait(LIMIT_SECONDS)
        assert memory.check_action(CLICK) is None
        assert memory.working.cycle_count == again(memory).working.cycle_count == 1
        memory.record_cycle("", CLICK)
        model.go_on.set()
        recording.join(LIMIT_SECONDS)
        assert not recording.is_alive()
        for one in (memory, again(memory)):
            (held,) = one.context_store.extractions()
            assert held.key == "extract_text (cycle 1)"
            assert len(held.data) < len(page) / 3


def _rounds(*actions: tuple[AgentAction, str, str]) -> list[tuple[AgentAction, str, str]]:
    return list(actions)


WORDS = (
    "amber birch cedar daisy ember flint grove hazel ivory jade kelp larch maple north ocean pearl".split()
)
WORK: dict[str, Callable[[int], list[tuple[AgentAction, str, str]]]] = {
    "wait for a job": lambda n: _rounds(
        (AgentAction("sleep", {"seconds": 5}), "slept", ""),
        (AgentAction("get_job", {"id": 7}), f"running, {n}% done", ""),
    ),
    "next and read": lambda n: _rounds(
        (AgentAction("click", {"selector": "a.next"}), "Clicked", ""),
        (AgentAction("extract", {}), f"Item {n}: a lamp of the make {n * 7}", ""),
    ),
    "scroll and read": lambda n: _rounds(
        (AgentAction("scroll", {"direction": "down"}), "scrolled", ""),
        (AgentAction("read_page", {}), "\n".join(f"Line {n}-{line}" for line in range(30)), ""),
    ),
    "tab and type": lambda n: _rounds(
        (AgentAction("press", {"key": "Tab"}), "", ""),
        (AgentAction("type", {"text": f"{WORDS[n % len(WORDS)]} {WORDS[n // len(WORDS)]}"}), "typed", ""),
    ),
    "edit and add": lambda n: _rounds(
        (
            AgentAction("edit", {"path": f"src/{WORDS[n % len(WORDS)]}_{n}.py", "text": f"x = {n}"}),
            "saved",
            "",
        ),
        (AgentAction("shell", {"command": "git add -A"}), "", ""),
    ),
    "next page by page": lambda n: _rounds(
        (AgentAction("click", {"selector": "a.next"}), "Clicked", f"https://a.b/list?page={n}")
    ),
    "a job that begins badly": lambda n: _rounds(
        (AgentAction("get_job", {"id": 1}), "503 unavailable: error" if n < 2 else f"running {n}%", "")
    ),
    "items of which the first are gone": lambda n: _rounds(
        (AgentAction("get_item", {"id": n}), "404 not found" if n < 4 else f"Item {n} is a lamp", "")
    ),
    "pages of which the first are gone": lambda n: _rounds(
        (
            AgentAction("goto", {"url": f"https://a.b/p/{n}"}),
            "404 not found" if n < 6 else f"Page {n} tells of the lamp {n * 3}",
            f"https://a.b/p/{n}",
        )
    ),
    "rows of a table": lambda n: _rounds(
        (
            AgentAction("sql", {"query": f"INSERT INTO t VALUES ({n}, '{WORDS[n % len(WORDS)]}')"}),
            "INSERT 0 1",
            "",
        )
    ),
    "posts": lambda n: _rounds(
        (
            AgentAction(
                "http", {"method": "POST", "url": "https://a.b/api", "body": {"name": WORDS[n % len(WORDS)]}}
            ),
            "201",
            "",
        )
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WORK)
def test_work_that_gets_on_is_not_blocked(memory: AgentMemory, name: str) -> None:
    for number in range(40):
        for action, seen, url in WORK[name](number):
            advice = memory.check_action(action, url)
            assert advice is None or advice.level is not AdviceLevel.BLOCK, f"{number}: {advice.message}"
            outcome = "failure" if seen.startswith(("404", "503")) else "success"
            memory.record_cycle("", action, seen, outcome, url=url)


@pytest.mark.parametrize("tool", ["shell", "read_file"])
def test_one_tool_that_only_fails_is_warned_of_whatever_it_is_asked_for(
    memory: AgentMemory, tool: str
) -> None:
    levels = []
    for number, word in enumerate(WORDS):
        memory.record_cycle(
            "", AgentAction(tool, {"what": f"{word} {WORDS[-number]}"}), f"{word}: none", "failure"
        )
        levels += [memory.advice.level] if memory.advice is not None else []
    assert AdviceLevel.WARNING in levels


def test_messages_say_what_was_the_same_and_count_from_one(memory: AgentMemory) -> None:
    for _ in range(3):
        memory.record_cycle("", CLICK, "Nothing happened.", "failure")
    assert "click(#submit) occurred 3 times in steps 1 to 3" in memory.warnings()[0]
    memory.clear_task()
    for number in range(5):
        memory.record_cycle("", AgentAction("get", {"id": number}), "error: refused", "failure")
    assert "calls like get(4) occurred 5 times in steps 1 to 5" in memory.guard.report().loops[0].message
