"""What an agent learns by itself: over tasks, with and without sites, each cycle counted once."""

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
def held(clock: FrozenClock) -> Iterator[MemoryEngine]:
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


def told(memory: AgentMemory, domain: str = HOME) -> dict[str, tuple[int, int]]:
    """The patterns of a domain by what they click, with their uses."""
    return {
        "".join(str(step.get("selector", "?"))[1:] for step in one.steps): (
            one.success_count,
            one.failure_count,
        )
        for one in memory.get_patterns_for_domain(domain)
    }


def stored(memory: AgentMemory) -> tuple[StoredEntry, ...]:
    store = memory.engine.services.long_term.store
    return store.list_entries(memory.namespace, Tier.PROCEDURAL, EntryFilters(), limit=10_000)


def candidates(memory: AgentMemory) -> list[StoredEntry]:
    return [one for one in stored(memory) if one.details.get("status") == "candidate"]


def pattern(name: str, **about: Any) -> LearnedPattern:
    about = {"domain": "example.com", "description": name, "pattern_type": "navigation", **about}
    return LearnedPattern(pattern_id=name, steps=({"tool": "click", "selector": f"#{name}"},), **about)


def test_what_is_done_once_in_each_task_is_learned_from_the_second_and_counted_from_then_on(
    held: MemoryEngine,
) -> None:
    for number in range(5):
        memory = AgentMemory(engine=held)  # another process each time
        memory.start_task(f"Log in {number}")
        log_in(memory, f"user{number}@example.com", f"hunter{number}!")
        memory.clear_task()
        learned = memory.get_patterns_for_domain("example.com")
        assert [one.success_count for one in learned] == ([number + 1] if number else [])
    (login,) = learned
    assert (login.pattern_type, login.failure_count) == ("login_flow", 0)
    assert [step.get("text") for step in login.steps] == [None, "{email}", "{password}", None]
    assert candidates(memory) == []


def test_a_task_that_is_left_for_another_is_learned_from_too(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    for number in range(3):
        memory.start_task(f"Task {number}")
        click(memory, "abc")
    memory.clear_task()
    assert told(memory) == {"abc": (3, 0)}


def test_no_secret_is_kept_for_later(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    log_in(memory, "ann@example.com", "hunter2!")
    memory.record_cycle("", AgentAction("bash", {"command": "export API_TOKEN=abc123"}), url=HOME)
    memory.record_cycle("", AgentAction("click", {"selector": "text=ann@example.com"}), url=HOME)
    memory.clear_task()
    assert candidates(memory)
    for _ in range(2):
        written = json.dumps([[dict(one.details), one.entry.content] for one in stored(memory)])
        assert not any(secret in written for secret in ("hunter2", "ann@", "abc123"))
        log_in(memory, "ann@example.com", "hunter2!")
        memory.clear_task()
    assert [one.pattern_type for one in memory.get_patterns_for_domain(HOME)] == ["login_flow"]


def test_a_run_that_fails_at_a_step_of_a_known_pattern_lowers_its_success_rate(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    for fails_at in ("", "", "c", ""):
        click(memory, "abcd"[: 3 if fails_at else 4], fails_at=fails_at)
        memory.clear_task()
    assert told(memory) == {"abcd": (3, 1)}
    assert memory.long_term.patterns[0].success_rate == 0.75


def test_what_was_learned_from_by_hand_is_not_counted_again_when_the_task_ends(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    click(memory, "abxab")
    assert len(memory.learn_from_success()) == 1
    assert memory.learn_from_success() == []
    memory.clear_task()
    assert told(memory) == {"ab": (2, 0)}
    click(memory, "ab")
    assert memory.learn_from_success() == []
    again = AgentMemory(engine=held, task=memory.task)
    for one in (memory, again, AgentMemory(engine=held, task=memory.task)):
        one.clear_task()
    assert told(AgentMemory(engine=held)) == {"ab": (3, 0)}


def test_what_was_removed_is_learned_again_only_from_what_is_done_after_that(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    click(memory, "abxab")
    (found,) = memory.learn_from_success()
    assert memory.long_term.remove_pattern(found.pattern_id)
    memory.clear_task()
    click(memory, "ab")
    memory.clear_task()
    assert told(memory) == {}
    click(memory, "ab")
    memory.clear_task()
    assert told(memory) == {"ab": (2, 0)}


@examples(25)
@given(st.sets(st.integers(0, 11)))
def test_whenever_somebody_asks_each_cycle_is_counted_once(asked: set[int]) -> None:
    with MemoryEngine(embedder=None) as engine:
        for number in range(3):
            memory = AgentMemory(engine=engine)
            for index, name in enumerate("abcd"):
                click(memory, name)
                if number * 4 + index in asked:
                    memory.learn_from_success()
                if index == number:
                    memory = AgentMemory(engine=engine, task=memory.task)
            memory.clear_task()
        uses = told(memory)
        assert 0 < sum(len(names) * good for names, (good, _) in uses.items()) <= 12
        assert all(bad == 0 for _, bad in uses.values())
        if all(index % 4 == 3 or index < 4 for index in asked):  # never in the midst of what is known
            assert uses == {"abcd": (3, 0)}


def test_agents_without_sites_learn_patterns_of_no_domain(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
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
    assert told(memory) == {"ab": (3, 0)}
    assert AgentMemory(engine=held).get_patterns_for_domain("") == [found]


def test_what_another_memory_learned_can_be_removed(held: MemoryEngine) -> None:
    one, other = AgentMemory(engine=held), AgentMemory(engine=held)
    one.learn_pattern(pattern("a"))
    assert other.long_term.remove_pattern("a")
    assert not one.long_term.remove_pattern("a")
    assert len(AgentMemory(engine=held).long_term) == len(one.long_term) == 0


def test_two_memories_that_learn_at_the_cap_prune_what_both_have_learned(held: MemoryEngine) -> None:
    one, other = (AgentMemory(engine=held, long_term_max_patterns=5) for _ in "12")
    for number in range(5):
        one.learn_pattern(pattern(f"p{number}", success_count=number, failure_count=1))
    other.learn_pattern(pattern("best", success_count=1))
    kept = AgentMemory(engine=held, long_term_max_patterns=100).long_term.patterns
    assert sorted(found.pattern_id for found in kept) == ["best", "p2", "p3", "p4"]
    assert other.long_term.patterns == kept


def test_two_memories_that_learn_the_same_sum_its_uses(held: MemoryEngine) -> None:
    one, other = AgentMemory(engine=held), AgentMemory(engine=held)
    one.learn_pattern(pattern("a", success_count=3))
    other.learn_pattern(pattern("a", success_count=1, failure_count=1))
    (found,) = AgentMemory(engine=held).long_term.patterns
    assert (found.success_count, found.failure_count) == (4, 1)


def test_memories_that_count_at_the_same_time_lose_no_use(file_url: str) -> None:
    with MemoryEngine(file_url, embedder=None) as engine:
        memories = [AgentMemory(engine=engine) for _ in range(4)]
        memories[0].learn_pattern(pattern("a"))

        def use(memory: AgentMemory) -> None:
            for _ in range(5):
                memory.long_term.record_usage("a", success=True)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(use, memories))
        (found,) = AgentMemory(engine=engine).long_term.patterns
        assert found.success_count == 20


@pytest.mark.soak
def test_what_is_kept_for_later_is_bounded_and_the_newest(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    for number in range(MAX_SEQUENCES_PER_SITE + 5):
        for index in range(3):
            action = AgentAction("click", {"selector": f"#n{number}-{index}"})
            memory.record_cycle("", action, url=HOME)
        memory.clear_task()
    first = {one.details["tried"][0]["parameters"]["selector"] for one in candidates(memory)}
    assert first == {f"#n{number}-0" for number in range(5, MAX_SEQUENCES_PER_SITE + 5)}
    for number in range(12):
        for index in range(70):
            action = AgentAction("click", {"selector": f"#m{number}-{index}"})
            memory.record_cycle("", action, url=f"https://s{number}.example")
        memory.clear_task()
    assert sum(len(one.details["tried"]) for one in candidates(memory)) <= MAX_CANDIDATE_STEPS
    assert len(memory.long_term) == 0


def test_what_is_kept_of_a_task_is_erased_with_it_and_with_the_patterns(held: MemoryEngine) -> None:
    memory = AgentMemory(engine=held)
    click(memory, "abc")
    task = memory.task
    memory.clear_task()
    click(memory, "xyz")
    memory.clear_task()
    held.session(memory.namespace, task).delete()
    (left,) = candidates(memory)
    assert left.details["tried"][0]["parameters"] == {"selector": "#x"}
    memory.clear()
    assert stored(memory) == ()


def test_learning_from_twice_as_many_cycles_takes_no_more_statements() -> None:
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
