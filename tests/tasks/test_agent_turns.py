"""The guard across user turns, blocks of near-repeats, and answers."""

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


def reopen(memory: AgentMemory) -> AgentMemory:
    return AgentMemory(engine=memory.engine, task=memory.task)


def block_click(memory: AgentMemory) -> None:
    for _ in range(7):
        memory.record_cycle("", CLICK, "Nothing happened.", url="https://a.b/form")
    assert memory.check_action(CLICK).level is AdviceLevel.BLOCK  # type: ignore[union-attr]


def test_a_new_turn_resets_the_counts_and_keeps_the_failures(memory: AgentMemory) -> None:
    for _ in range(2):
        memory.record_cycle("", CLICK, "No.", "failure", url="https://a.b/form")
    block_click(memory)
    memory.new_turn()
    for current in (memory, reopen(memory)):
        assert current.warnings() == []
        assert current.check_action(CLICK).level is not AdviceLevel.BLOCK  # type: ignore[union-attr]
        assert current.is_repeated_failure(CLICK)
        assert current.short_term.get_action_frequency("click", {"selector": "#submit"}) == 9
        assert len(current.short_term) == 9
    block_click(memory)


def test_turns_without_cycles_are_not_stored(memory: AgentMemory) -> None:
    memory.record_cycle("", CLICK)
    memory.new_turn()
    notes = memory.engine.session(memory.namespace, f"{memory.task}: notes")
    before = notes.count()
    for _ in range(5):
        memory.new_turn()
    assert notes.count() == before


def test_increasing_a_counter_does_not_bypass_a_block(memory: AgentMemory) -> None:
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


def test_an_answer_that_cannot_be_stored_does_not_lift_the_block(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.02)) as engine:
        memory = AgentMemory(engine=engine, task="t")
        block_click(memory)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusyError):
            memory.answer_guard("the form was fixed meanwhile")
        other.execute("ROLLBACK")
        other.close()
        assert memory.check_action(CLICK).must_answer  # type: ignore[union-attr]
        assert memory.answer_guard("the form was fixed meanwhile")
        for current in (memory, reopen(memory)):
            assert not current.check_action(CLICK).must_answer  # type: ignore[union-attr]


def test_the_guard_counts_cycles_that_could_not_be_stored(tmp_path: Path) -> None:
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


def test_a_block_is_lifted_at_most_three_times_by_different_answers(memory: AgentMemory) -> None:
    for number in range(3):
        while not memory.check_action(CLICK) or not memory.check_action(CLICK).must_answer:  # type: ignore[union-attr]
            memory.record_cycle("", CLICK, "Nothing happened.")
        if number:
            assert not memory.answer_guard(f"reason number {number - 1}")
        assert memory.answer_guard(f"reason number {number}")
    while memory.check_action(CLICK).level is not AdviceLevel.BLOCK:  # type: ignore[union-attr]
        memory.record_cycle("", CLICK, "Nothing happened.")
    for current in (memory, reopen(memory)):
        assert not current.answer_guard("quite another reason now")
        assert "this block cannot be lifted again" in current.check_action(CLICK).message  # type: ignore[union-attr]
    memory.record_cycle(
        "", AgentAction("goto", {"url": "https://a.b/other"}), "Another page.", url="https://a.b/other"
    )
    assert memory.record_cycle("", CLICK, "It opened.", url="https://a.b/other").entry_id


@pytest.mark.parametrize(
    ("tool", "parameters", "template"),
    [
        ("next_item", {}, "Item {}: a lamp of the colour number {}."),
        ("next_page", {}, "\n".join(f"Line {{}}-{line} says something that is new." for line in range(20))),
        ("get_job", {"id": 7}, "progress {}%"),
        ("run_tests", {}, "{} failed, 18 passed"),
    ],
)
def test_calls_with_new_results_each_time_are_not_warned_of(
    memory: AgentMemory, tool: str, parameters: dict[str, int], template: str
) -> None:
    action = AgentAction(tool, parameters)
    for number in range(60):
        assert memory.check_action(action) is None
        memory.record_cycle("", action, template.replace("{}", str(60 - number)))
        assert memory.advice is None or memory.advice.level is AdviceLevel.NOTE


def test_unguarded_tools_are_never_blocked() -> None:
    with AgentMemory(unguarded_tools=["get_job"]) as memory:
        for _ in range(30):
            memory.record_cycle("", AgentAction("get_job", {"id": 7}), "still running")
            assert memory.advice is None
        block_click(memory)


def test_resume_or_start_resumes_or_starts_a_task(tmp_path: Path) -> None:
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
        self.is_called, self.may_continue = threading.Event(), threading.Event()

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        self.is_called.set()
        assert self.may_continue.wait(LIMIT_SECONDS)
        return "Lamps are cheap."


def test_a_cycle_is_stored_before_the_model_compresses_and_blocks_nothing() -> None:
    model = _SlowModel()
    page = "The lamp number 5 costs ten euros and is sold in the harbour. " * 400
    with AgentMemory(model=model) as memory:
        recording = threading.Thread(
            target=memory.record_cycle, args=("", AgentAction("extract_text"), page), daemon=True
        )
        recording.start()
        assert model.is_called.wait(LIMIT_SECONDS)
        assert memory.check_action(CLICK) is None
        assert memory.working.cycle_count == reopen(memory).working.cycle_count == 1
        memory.record_cycle("", CLICK)
        model.may_continue.set()
        recording.join(LIMIT_SECONDS)
        assert not recording.is_alive()
        for current in (memory, reopen(memory)):
            (extraction,) = current.context_store.extractions()
            assert extraction.key == "extract_text (cycle 1)"
            assert len(extraction.data) < len(page) / 3


def _build_round(*actions: tuple[AgentAction, str, str]) -> list[tuple[AgentAction, str, str]]:
    return list(actions)


WORDS = (
    "amber birch cedar daisy ember flint grove hazel ivory jade kelp larch maple north ocean pearl".split()
)
WORK: dict[str, Callable[[int], list[tuple[AgentAction, str, str]]]] = {
    "wait for a job": lambda n: _build_round(
        (AgentAction("sleep", {"seconds": 5}), "slept", ""),
        (AgentAction("get_job", {"id": 7}), f"running, {n}% done", ""),
    ),
    "next and read": lambda n: _build_round(
        (AgentAction("click", {"selector": "a.next"}), "Clicked", ""),
        (AgentAction("extract", {}), f"Item {n}: a lamp of the make {n * 7}", ""),
    ),
    "scroll and read": lambda n: _build_round(
        (AgentAction("scroll", {"direction": "down"}), "scrolled", ""),
        (AgentAction("read_page", {}), "\n".join(f"Line {n}-{line}" for line in range(30)), ""),
    ),
    "tab and type": lambda n: _build_round(
        (AgentAction("press", {"key": "Tab"}), "", ""),
        (AgentAction("type", {"text": f"{WORDS[n % len(WORDS)]} {WORDS[n // len(WORDS)]}"}), "typed", ""),
    ),
    "edit and add": lambda n: _build_round(
        (
            AgentAction("edit", {"path": f"src/{WORDS[n % len(WORDS)]}_{n}.py", "text": f"x = {n}"}),
            "saved",
            "",
        ),
        (AgentAction("shell", {"command": "git add -A"}), "", ""),
    ),
    "next page by page": lambda n: _build_round(
        (AgentAction("click", {"selector": "a.next"}), "Clicked", f"https://a.b/list?page={n}")
    ),
    "a job that begins badly": lambda n: _build_round(
        (AgentAction("get_job", {"id": 1}), "503 unavailable: error" if n < 2 else f"running {n}%", "")
    ),
    "items of which the first are gone": lambda n: _build_round(
        (AgentAction("get_item", {"id": n}), "404 not found" if n < 4 else f"Item {n} is a lamp", "")
    ),
    "pages of which the first are gone": lambda n: _build_round(
        (
            AgentAction("goto", {"url": f"https://a.b/p/{n}"}),
            "404 not found" if n < 6 else f"Page {n} tells of the lamp {n * 3}",
            f"https://a.b/p/{n}",
        )
    ),
    "rows of a table": lambda n: _build_round(
        (
            AgentAction("sql", {"query": f"INSERT INTO t VALUES ({n}, '{WORDS[n % len(WORDS)]}')"}),
            "INSERT 0 1",
            "",
        )
    ),
    "posts": lambda n: _build_round(
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
def test_work_with_progress_is_not_blocked(memory: AgentMemory, name: str) -> None:
    for number in range(40):
        for action, seen, url in WORK[name](number):
            advice = memory.check_action(action, url)
            assert advice is None or advice.level is not AdviceLevel.BLOCK, f"{number}: {advice.message}"
            outcome = "failure" if seen.startswith(("404", "503")) else "success"
            memory.record_cycle("", action, seen, outcome, url=url)


@pytest.mark.parametrize("tool", ["shell", "read_file"])
def test_a_tool_that_always_fails_is_warned_of_for_any_parameters(memory: AgentMemory, tool: str) -> None:
    levels = []
    for number, word in enumerate(WORDS):
        memory.record_cycle(
            "", AgentAction(tool, {"what": f"{word} {WORDS[-number]}"}), f"{word}: none", "failure"
        )
        levels += [memory.advice.level] if memory.advice is not None else []
    assert AdviceLevel.WARNING in levels


def test_warnings_name_the_repeated_action_and_count_steps_from_one(memory: AgentMemory) -> None:
    for _ in range(3):
        memory.record_cycle("", CLICK, "Nothing happened.", "failure")
    assert "click(#submit) occurred 3 times in steps 1 to 3" in memory.warnings()[0]
    memory.clear_task()
    for number in range(5):
        memory.record_cycle("", AgentAction("get", {"id": number}), "error: refused", "failure")
    assert "calls like get(4) occurred 5 times in steps 1 to 5" in memory.guard.report().loops[0].message
