"""Patterns learned over several tasks, with and without sites."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import AgentAction, AgentMemory, ExecutionOutcome, MemoryEngine
from langmem_tiers.common.entries import Tier
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.tasks import LearnedPattern
from langmem_tiers.tasks.pattern_repository import MAX_CANDIDATE_STEPS, MAX_SEQUENCES_PER_SITE
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.hypothesis_settings import examples
from tests.work_counters import count_statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.long_term.records import StoredEntry

HOME = "https://example.com"


@pytest.fixture
def engine(clock: FrozenClock) -> Iterator[MemoryEngine]:
    with MemoryEngine(clock=clock, ids=seeded_ids(), embedder=None) as opened:
        yield opened


def click(memory: AgentMemory, names: str, *, at: str = HOME, fails_at: str = "") -> None:
    for name in names:
        outcome = ExecutionOutcome.FAILURE if name == fails_at else ExecutionOutcome.SUCCESS
        memory.record_cycle("", AgentAction("click", {"selector": f"#{name}"}), None, outcome, url=at)


def log_in(memory: AgentMemory, email: str, password: str) -> None:
    for tool, parameters in [
        ("click", {"selector": "#login-btn"}),
        ("type", {"selector": "#email", "text": email}),
        ("type", {"selector": "#password", "text": password}),
        ("click", {"selector": "#submit"}),
    ]:
        memory.record_cycle("", AgentAction(tool, parameters), "ok", url=f"{HOME}/login")


def list_uses(memory: AgentMemory, domain: str = HOME) -> dict[str, tuple[int, int]]:
    """Map the clicked elements of each pattern of a domain to its successes and failures."""
    return {
        "".join(str(step.get("selector", "?"))[1:] for step in pattern.steps): (
            pattern.success_count,
            pattern.failure_count,
        )
        for pattern in memory.get_patterns_for_domain(domain)
    }


def list_stored(memory: AgentMemory) -> tuple[StoredEntry, ...]:
    store = memory.engine.services.long_term.store
    return store.list_entries(memory.namespace, Tier.PROCEDURAL, EntryFilters(), limit=10_000)


def list_candidates(memory: AgentMemory) -> list[StoredEntry]:
    return [entry for entry in list_stored(memory) if entry.details.get("status") == "candidate"]


def pattern(name: str, **fields: Any) -> LearnedPattern:
    fields = {"domain": "example.com", "description": name, "pattern_type": "navigation", **fields}
    return LearnedPattern(pattern_id=name, steps=({"tool": "click", "selector": f"#{name}"},), **fields)


def test_learning_without_new_cycles_does_not_use_the_database(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    assert count_statements(engine, memory.learn_from_success) == 0


def test_a_sequence_of_every_task_is_learned_from_the_second_task_on(
    engine: MemoryEngine,
) -> None:
    for number in range(5):
        memory = AgentMemory(engine=engine)  # another process each time
        memory.start_task(f"Log in {number}")
        log_in(memory, f"user{number}@example.com", f"hunter{number}!")
        memory.clear_task()
        learned = memory.get_patterns_for_domain("example.com")
        assert [pattern.success_count for pattern in learned] == ([number + 1] if number else [])
    (login,) = learned
    assert (login.pattern_type, login.failure_count) == ("login_flow", 0)
    assert [step.get("text") for step in login.steps] == [None, "{email}", "{password}", None]
    assert list_candidates(memory) == []


def test_starting_another_task_learns_from_the_former(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    for number in range(3):
        memory.start_task(f"Task {number}")
        click(memory, "abc")
    memory.clear_task()
    assert list_uses(memory) == {"abc": (3, 0)}


def test_candidates_contain_no_secret(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    log_in(memory, "ann@example.com", "hunter2!")
    memory.record_cycle("", AgentAction("bash", {"command": "export API_TOKEN=abc123"}), url=HOME)
    memory.record_cycle("", AgentAction("click", {"selector": "text=ann@example.com"}), url=HOME)
    memory.clear_task()
    assert list_candidates(memory)
    for _ in range(2):
        written = json.dumps([[dict(entry.details), entry.entry.content] for entry in list_stored(memory)])
        assert not any(secret in written for secret in ("hunter2", "ann@", "abc123"))
        log_in(memory, "ann@example.com", "hunter2!")
        memory.clear_task()
    assert [pattern.pattern_type for pattern in memory.get_patterns_for_domain(HOME)] == ["login_flow"]


def test_a_failure_at_a_step_of_a_known_pattern_lowers_its_success_rate(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    for fails_at in ("", "", "c", ""):
        click(memory, "abcd"[: 3 if fails_at else 4], fails_at=fails_at)
        memory.clear_task()
    assert list_uses(memory) == {"abcd": (3, 1)}
    assert memory.long_term.patterns[0].success_rate == 0.75


def test_cycles_learned_explicitly_are_not_counted_again_at_the_end_of_the_task(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    click(memory, "abxab")
    assert len(memory.learn_from_success()) == 1
    assert memory.learn_from_success() == []
    memory.clear_task()
    assert list_uses(memory) == {"ab": (2, 0)}
    click(memory, "ab")
    assert memory.learn_from_success() == []
    again = AgentMemory(engine=engine, task=memory.task)
    for current in (memory, again, AgentMemory(engine=engine, task=memory.task)):
        current.clear_task()
    assert list_uses(AgentMemory(engine=engine)) == {"ab": (3, 0)}


def test_a_removed_pattern_is_learned_again_only_from_later_cycles(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    click(memory, "abxab")
    (found,) = memory.learn_from_success()
    assert memory.long_term.remove_pattern(found.pattern_id)
    memory.clear_task()
    click(memory, "ab")
    memory.clear_task()
    assert list_uses(memory) == {}
    click(memory, "ab")
    memory.clear_task()
    assert list_uses(memory) == {"ab": (2, 0)}


@examples(25)
@given(st.sets(st.integers(0, 11)))
def test_each_cycle_is_counted_once_whenever_learning_runs(learning_points: set[int]) -> None:
    with MemoryEngine(embedder=None) as engine:
        for number in range(3):
            memory = AgentMemory(engine=engine)
            for index, name in enumerate("abcd"):
                click(memory, name)
                if number * 4 + index in learning_points:
                    memory.learn_from_success()
                if index == number:
                    memory = AgentMemory(engine=engine, task=memory.task)
            memory.clear_task()
        uses = list_uses(memory)
        assert 0 < sum(len(names) * good for names, (good, _) in uses.items()) <= 12
        assert all(bad == 0 for _, bad in uses.values())
        if all(
            index % 4 == 3 or index < 4 for index in learning_points
        ):  # never in the midst of what is known
            assert uses == {"abcd": (3, 0)}


def test_agents_without_sites_learn_patterns_of_no_domain(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    for number in range(3):
        for tool, parameters in [
            ("write_file", {"path": "a.py", "content": f"x = {number}"}),
            ("bash", {"command": "pytest -q"}),
        ]:
            memory.record_cycle("", AgentAction(tool, parameters))
        click(memory, "ab")
        memory.clear_task()
    (found,) = memory.get_patterns_for_domain("")
    assert (found.domain, found.success_count) == ("", 3)
    assert found.steps[0] == {"tool": "write_file", "path": "a.py", "content": "{content}"}
    assert list_uses(memory) == {"ab": (3, 0)}
    assert AgentMemory(engine=engine).get_patterns_for_domain("") == [found]


def test_a_pattern_learned_by_another_memory_can_be_removed(engine: MemoryEngine) -> None:
    first, second = AgentMemory(engine=engine), AgentMemory(engine=engine)
    first.learn_pattern(pattern("a"))
    assert second.long_term.remove_pattern("a")
    assert not first.long_term.remove_pattern("a")
    assert len(AgentMemory(engine=engine).long_term) == len(first.long_term) == 0


def test_memories_that_learn_at_the_cap_prune_their_common_patterns(engine: MemoryEngine) -> None:
    first, second = (AgentMemory(engine=engine, long_term_max_patterns=5) for _ in "12")
    for number in range(5):
        first.learn_pattern(pattern(f"p{number}", success_count=number, failure_count=1))
    second.learn_pattern(pattern("best", success_count=1))
    kept = AgentMemory(engine=engine, long_term_max_patterns=100).long_term.patterns
    assert sorted(found.pattern_id for found in kept) == ["best", "p2", "p3", "p4"]
    assert second.long_term.patterns == kept


def test_uses_of_a_pattern_learned_by_two_memories_are_added(engine: MemoryEngine) -> None:
    first, second = AgentMemory(engine=engine), AgentMemory(engine=engine)
    first.learn_pattern(pattern("a", success_count=3))
    second.learn_pattern(pattern("a", success_count=1, failure_count=1))
    (found,) = AgentMemory(engine=engine).long_term.patterns
    assert (found.success_count, found.failure_count) == (4, 1)


def test_concurrent_memories_lose_no_use(file_url: str) -> None:
    with MemoryEngine(file_url, embedder=None) as engine:
        memories = [AgentMemory(engine=engine) for _ in range(4)]
        memories[0].learn_pattern(pattern("a"))

        def record_uses(memory: AgentMemory) -> None:
            for _ in range(5):
                memory.long_term.record_usage("a", success=True)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(record_uses, memories))
        (found,) = AgentMemory(engine=engine).long_term.patterns
        assert found.success_count == 20


@pytest.mark.soak
def test_the_number_of_candidates_is_bounded_and_the_newest_are_kept(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    for number in range(MAX_SEQUENCES_PER_SITE + 5):
        for index in range(3):
            action = AgentAction("click", {"selector": f"#n{number}-{index}"})
            memory.record_cycle("", action, url=HOME)
        memory.clear_task()
    first = {candidate.details["tried"][0]["parameters"]["selector"] for candidate in list_candidates(memory)}
    assert first == {f"#n{number}-0" for number in range(5, MAX_SEQUENCES_PER_SITE + 5)}
    for number in range(12):
        for index in range(70):
            action = AgentAction("click", {"selector": f"#m{number}-{index}"})
            memory.record_cycle("", action, url=f"https://s{number}.example")
        memory.clear_task()
    assert (
        sum(len(candidate.details["tried"]) for candidate in list_candidates(memory)) <= MAX_CANDIDATE_STEPS
    )
    assert len(memory.long_term) == 0


def test_candidates_are_erased_with_their_task_and_with_the_patterns(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    click(memory, "abc")
    task = memory.task
    memory.clear_task()
    click(memory, "xyz")
    memory.clear_task()
    engine.session(memory.namespace, task).delete()
    (left,) = list_candidates(memory)
    assert left.details["tried"][0]["parameters"] == {"selector": "#x"}
    memory.clear()
    assert list_stored(memory) == ()


def test_learning_from_twice_as_many_cycles_executes_no_more_statements() -> None:
    executed = []
    for count in (60, 120):
        with MemoryEngine(clock=FrozenClock(), ids=seeded_ids(), embedder=None) as engine:
            memory = AgentMemory(engine=engine)
            for number in range(20):
                memory.learn_pattern(pattern(f"p{number}", success_count=1))
            for number in range(count):
                action = AgentAction(
                    "type", {"selector": f"#{number * number % 97}", "text": f"words {number}"}
                )
                memory.record_cycle("", action, url=HOME)
            executed.append(count_statements(engine, memory.learn_from_success))
    assert executed[0] == executed[1] <= 10
