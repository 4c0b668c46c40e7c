from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.cycles import RecentCycles, cycle_from_dict, cycle_to_dict
from langmem_tiers.tasks.models import (
    AgentAction,
    Cycle,
    ExecutionOutcome,
    MemoryPriority,
    Observation,
    Thought,
)
from tests.hypothesis_settings import examples
from tests.work_counters import count_function_calls

CRITICAL, HIGH, NORMAL, LOW = MemoryPriority


def build_cycle(
    number: int = 0, tool: str = "click", /, observation: str | None = None, **parameters: Any
) -> Cycle:
    return Cycle(
        entry_id=f"e{number}",
        timestamp=float(number),
        thought=Thought("go on"),
        action=AgentAction(tool, parameters),
        observation=None if observation is None else Observation(observation),
    )


def build_failed_cycle(number: int = 0, error: str | None = None, **parameters: Any) -> Cycle:
    return replace(build_cycle(number, **parameters), outcome=ExecutionOutcome.FAILURE, error_message=error)


def build_cycles(*entries: Cycle, max_entries: int = 50) -> RecentCycles:
    cycles = RecentCycles(max_entries)
    for entry in entries:
        cycles.add(entry)
    return cycles


def list_ids_after_pruning(*priorities: MemoryPriority, max_entries: int) -> list[str]:
    entries = [replace(build_cycle(number), priority=priority) for number, priority in enumerate(priorities)]
    return [entry.entry_id for entry in build_cycles(*entries, max_entries=max_entries).entries]


def test_fifty_cycles_are_kept_by_default() -> None:
    cycles = build_cycles(*(build_cycle(number) for number in range(60)))
    assert cycles.max_entries == len(cycles) == 50
    assert [entry.entry_id for entry in cycles.entries] == [f"e{number}" for number in range(10, 60)]


def test_recent_cycles_are_the_last_five_oldest_first() -> None:
    cycles = build_cycles(*(build_cycle(number) for number in range(9)))
    assert [entry.entry_id for entry in cycles.get_recent()] == ["e4", "e5", "e6", "e7", "e8"]
    assert [entry.entry_id for entry in cycles.get_recent(n=2)] == ["e7", "e8"]
    assert cycles.get_recent(0) == []
    assert len(cycles.get_recent(100)) == 9


def test_cycles_are_selected_by_outcome() -> None:
    cycles = build_cycles(build_cycle(1), build_failed_cycle(2), build_cycle(3), build_failed_cycle(4))
    found = cycles.get_by_outcome(ExecutionOutcome.FAILURE)
    assert [entry.entry_id for entry in found] == ["e2", "e4"]
    assert cycles.get_by_outcome(ExecutionOutcome.TIMEOUT) == []


def test_cycles_are_pruned_by_priority_then_by_age() -> None:
    assert list_ids_after_pruning(HIGH, LOW, NORMAL, LOW, HIGH, max_entries=4) == ["e0", "e2", "e3", "e4"]
    assert list_ids_after_pruning(HIGH, LOW, NORMAL, LOW, HIGH, HIGH, max_entries=4) == [
        "e0",
        "e2",
        "e4",
        "e5",
    ]
    assert list_ids_after_pruning(HIGH, NORMAL, HIGH, HIGH, max_entries=3) == ["e0", "e2", "e3"]
    assert list_ids_after_pruning(HIGH, HIGH, HIGH, HIGH, max_entries=3) == ["e1", "e2", "e3"]


def test_critical_cycles_may_exceed_the_cap() -> None:
    assert list_ids_after_pruning(CRITICAL, CRITICAL, CRITICAL, max_entries=2) == ["e0", "e1", "e2"]
    assert list_ids_after_pruning(CRITICAL, LOW, CRITICAL, CRITICAL, max_entries=2) == ["e0", "e2", "e3"]


def test_the_newest_cycle_is_always_kept() -> None:
    assert list_ids_after_pruning(HIGH, HIGH, LOW, max_entries=2) == ["e1", "e2"]
    assert list_ids_after_pruning(HIGH, HIGH, LOW, LOW, max_entries=2) == ["e1", "e3"]
    assert list_ids_after_pruning(CRITICAL, CRITICAL, LOW, LOW, max_entries=2) == ["e0", "e1", "e3"]


@given(st.lists(st.sampled_from(MemoryPriority)), st.integers(1, 8))
def test_pruning_follows_priorities_and_keeps_critical_cycles(
    priorities: list[MemoryPriority], limit: int
) -> None:
    entries = [replace(build_cycle(number), priority=priority) for number, priority in enumerate(priorities)]
    cycles = build_cycles(*entries, max_entries=limit)
    kept = cycles.entries
    assert kept == [entry for entry in entries if entry in kept]  # in their order
    assert [entry for entry in kept if entry.priority is CRITICAL] == [
        entry for entry in entries if entry.priority is CRITICAL
    ]
    assert kept[-1:] == entries[-1:]
    criticals = sum(priority is CRITICAL for priority in priorities)
    assert min(len(entries), limit) <= len(kept) <= max(limit, criticals + 1)
    for pruned in (entry for entry in entries if entry not in kept):
        # What is older and of lower priority than what left has left, too.
        assert not [
            entry
            for entry in kept
            if entry.priority.rank <= pruned.priority.rank and entry.timestamp < pruned.timestamp
        ]


def test_failures_and_frequencies_are_kept_after_pruning() -> None:
    first = build_failed_cycle(1, selector="#gone")
    cycles = build_cycles(first, *(build_cycle(number, "wait") for number in range(2, 6)), max_entries=2)
    assert first not in cycles.entries
    assert cycles.has_failed(first.action_signature)
    assert not cycles.has_failed(build_cycle(2, "wait").action_signature)
    assert cycles.get_action_frequency("wait", {}) == 4
    assert cycles.get_action_frequency("click", {"selector": "#gone"}) == 1
    assert cycles.get_action_frequency("click", {"selector": "#other"}) == 0


def test_a_timeout_is_a_failure_and_a_skip_is_not() -> None:
    timed_out = replace(build_cycle(1), outcome=ExecutionOutcome.TIMEOUT)
    skipped = replace(build_cycle(2, "type"), outcome=ExecutionOutcome.SKIPPED)
    cycles = build_cycles(timed_out, skipped)
    assert cycles.has_failed(timed_out.action_signature)
    assert not cycles.has_failed(skipped.action_signature)


def test_frequency_does_not_depend_on_the_order_of_keys_or_the_page() -> None:
    first = replace(build_cycle(1, "fill", a=1, b={"x": 1, "y": 2}), url="https://a.example")
    cycles = build_cycles(first, replace(first, url="https://b.example", action_signature=""))
    assert cycles.get_action_frequency("fill", {"b": {"y": 2, "x": 1}, "a": 1}) == 2


def test_the_loop_warning_of_the_design() -> None:
    others = [build_cycle(number, selector=f"#other{number}") for number in range(10)]
    submits = [build_cycle(number, selector="#submit") for number in range(20, 24)]
    cycles = build_cycles(*others[:6], *submits)
    assert cycles.get_loop_warnings(threshold=3) == [
        "Warning: click(#submit) repeated 4 times in last 10 actions!"
    ]
    assert cycles.get_loop_warnings(threshold=5) == []
    for entry in others[:8]:
        cycles.add(entry)
    assert cycles.get_loop_warnings() == []  # it lies more than ten actions back


def test_a_scroll_warning_does_not_name_the_direction() -> None:
    cycles = build_cycles(*(build_cycle(number, "scroll_page", direction="down") for number in range(3)))
    assert cycles.get_action_frequency("scroll_page", {"direction": "down"}) == 3
    assert cycles.get_loop_warnings() == ["Warning: scroll_page repeated 3 times in last 3 actions!"]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"timeout": 5, "selector": "#a"}, "act(#a)"),
        ({"url": "https://a.example", "wait": True}, "act(https://a.example)"),
        ({"text": "shoes", "clear": True}, "act(shoes)"),
        ({"colour": "red"}, "act(red)"),
        ({"colour": "red", "size": 3}, "act"),
        ({"options": ["a"]}, "act"),
        ({"selector": "x" * 100}, f"act({'x' * 60}...)"),
        ({"selector": "a\nb"}, "act(a b)"),
        ({}, "act"),
    ],
)
def test_a_warning_names_the_most_specific_parameter(parameters: dict[str, Any], expected: str) -> None:
    cycles = build_cycles(*(build_cycle(number, "act", **parameters) for number in range(3)))
    assert cycles.get_loop_warnings() == [f"Warning: {expected} repeated 3 times in last 3 actions!"]


def test_a_repeated_click_on_new_pages_is_not_a_loop_and_a_repeated_url_is() -> None:
    pages = [replace(build_cycle(n, selector=".next"), url=f"https://a.example/{n}") for n in range(5)]
    assert build_cycles(*pages).get_loop_warnings() == []
    repeated_visits = [
        replace(build_cycle(n, "goto", url="https://a.example"), url=f"https://b.example/{n}")
        for n in range(3)
    ]
    assert len(build_cycles(*repeated_visits).get_loop_warnings()) == 1


def test_the_history_of_the_design() -> None:
    cycles = build_cycles(
        build_cycle(1, "goto", "...", url="https://example.com"),
        build_cycle(2, "click", "Element clicked successfully", selector="#menu"),
    )
    assert cycles.format_history(last_n=5) == (
        "## Recent Actions\n"
        '1. [Success] goto({"url": "https://example.com"})\n'
        "   Navigated to: https://example.com\n"
        '2. [Success] click({"selector": "#menu"})\n'
        "   Result: Element clicked successfully"
    )


def test_warnings_come_first_in_a_history() -> None:
    cycles = build_cycles(*(build_cycle(number, "scroll_page", direction="down") for number in range(3)))
    lines = cycles.format_history(1).split("\n")
    assert lines == [
        "## Recent Actions",
        "Warning: scroll_page repeated 3 times in last 3 actions!",
        "",
        '1. [Success] scroll_page({"direction": "down"})',
    ]


def test_a_history_contains_errors_and_truncates_results_to_a_line() -> None:
    page = "line\n" * 1_000_000
    timed_out = replace(build_failed_cycle(2, "no answer"), outcome=ExecutionOutcome.TIMEOUT)
    lines = build_cycles(
        build_failed_cycle(1, "not\nfound"), timed_out, build_cycle(3, "read", page, big="y" * 10_000)
    ).format_history()
    assert "1. [Failure] click({})\n   Error: not found\n2. [Timeout] click({})\n   Error: no answer" in lines
    assert all(len(line) < 250 for line in lines.split("\n"))
    assert "   Result: line line" in lines
    assert RecentCycles().format_history() == ""


def test_total_tokens_count_the_kept_cycles() -> None:
    entries = [replace(build_cycle(number), estimated_tokens=10 * number) for number in range(1, 5)]
    cycles = build_cycles(*entries, max_entries=3)
    assert cycles.total_tokens() == 20 + 30 + 40
    cycles.clear()
    assert (cycles.total_tokens(), cycles.entries, cycles.get_loop_warnings()) == (0, [], [])
    assert cycles.get_action_frequency("click", {}) == 0


def test_parameters_unknown_to_json_are_kept_as_text() -> None:
    cycles = build_cycles(build_cycle(1, "act", what=object, some={1, 2}, pair=(1, 2), size=float("nan")))
    json.dumps(cycles.to_dict(), allow_nan=False)
    assert cycles.entries[0].action.parameters["pair"] == [1, 2]
    assert RecentCycles.from_dict(cycles.to_dict()) == cycles


def test_parameters_are_copied_from_the_caller() -> None:
    parameters: dict[str, Any] = {"selector": ["#a"]}
    cycles = build_cycles(build_cycle(1, "act", **parameters))
    parameters["selector"].append("#b")
    assert cycles.entries[0].action.parameters == {"selector": ["#a"]}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
any_cycle = st.builds(
    Cycle,
    entry_id=st.text(min_size=1, max_size=5),
    timestamp=st.floats(0, 1e9),
    thought=st.builds(Thought, st.text(max_size=9)),
    action=st.builds(
        AgentAction, st.sampled_from(["click", "goto"]), st.dictionaries(st.text(max_size=5), values)
    ),
    observation=st.none() | st.builds(Observation, st.text(max_size=9), st.none() | st.text(max_size=9)),
    outcome=st.sampled_from(ExecutionOutcome),
    priority=st.sampled_from(MemoryPriority),
    url=st.text(max_size=9),
    page_title=st.text(max_size=9),
    duration_ms=st.floats(0, 1e6),
    retry_count=st.integers(0, 5),
    error_message=st.none() | st.text(max_size=9),
    estimated_tokens=st.integers(0, 10**6),
    tags=st.frozensets(st.text(max_size=5)),
)


@examples(50)
@given(st.lists(any_cycle, max_size=6), st.integers(1, 4))
def test_recent_cycles_come_back_equal_from_json(entries: list[Cycle], limit: int) -> None:
    cycles = build_cycles(*entries, max_entries=limit)
    restored = RecentCycles.from_dict(json.loads(json.dumps(cycles.to_dict())))
    assert restored == cycles
    assert restored.entries == cycles.entries
    assert restored.total_tokens() == cycles.total_tokens()
    assert restored.format_history() == cycles.format_history()
    added = build_cycle(99)
    cycles.add(added)
    restored.add(added)
    assert restored == cycles


@given(any_cycle)
def test_a_cycle_comes_back_equal_from_json(entry: Cycle) -> None:
    once = cycle_from_dict(cycle_to_dict(entry))  # what is no JSON is text by now
    assert cycle_from_dict(json.loads(json.dumps(cycle_to_dict(once)))) == once


GOOD = build_cycles(build_cycle(1, "click", "done", selector="#a")).to_dict()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_entries": 0}, "max_entries"),
        ({"max_entries": "50"}, "max_entries"),
        ({"entries": {}}, "entries"),
        ({"entries": [1]}, r"entries\[0\]"),
        ({"entries": [{}]}, r"entries\[0\]\.entry_id"),
        ({"entries": [GOOD["entries"][0] | {"timestamp": float("nan")}]}, r"entries\[0\]\.timestamp"),
        ({"entries": [GOOD["entries"][0] | {"outcome": "great"}]}, "outcome.*'great'"),
        ({"entries": [GOOD["entries"][0] | {"priority": ["low"]}]}, "priority"),
        ({"entries": [GOOD["entries"][0] | {"action": {"tool_name": ""}}]}, r"action\.tool_name"),
        ({"entries": [GOOD["entries"][0] | {"action": {"tool_name": "a", "parameters": []}}]}, "parameters"),
        ({"entries": [GOOD["entries"][0] | {"observation": {"raw_output": 3}}]}, r"observation\.raw_output"),
        ({"entries": [GOOD["entries"][0] | {"estimated_tokens": -1}]}, "estimated_tokens"),
        ({"entries": [GOOD["entries"][0] | {"tags": "a"}]}, "tags"),
        ({"failed_signatures": [1]}, "failed_signatures"),
        ({"action_frequency": {"x": "many"}}, "action_frequency"),
        ({"last_actions": [["x"]]}, "last_actions"),
    ],
)
def test_damaged_json_is_rejected_by_name(change: dict[str, Any], named: str) -> None:
    assert RecentCycles.from_dict(GOOD).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match=named):
        RecentCycles.from_dict({**GOOD, **change})


@given(values)
def test_any_json_gives_cycles_or_a_clear_error(value: Any) -> None:
    for data in (value, {"entries": value}, {"last_actions": value}, {"action_frequency": value}):
        with suppress(InvalidInputError):
            RecentCycles.from_dict(data)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "5"])
def test_invalid_sizes_are_rejected(size: Any) -> None:
    with pytest.raises(InvalidInputError, match="max_entries"):
        RecentCycles(size)
    with pytest.raises(InvalidInputError, match="threshold"):
        RecentCycles().get_loop_warnings(size)


def test_the_cost_of_adding_is_linear_and_the_cost_of_formatting_constant() -> None:
    entries = [
        replace(build_cycle(n, selector=f"#{n % 70}"), priority=list(MemoryPriority)[n % 4])
        for n in range(1_000)
    ]
    half, whole = entries[:500], entries
    assert count_function_calls(lambda: build_cycles(*whole)) < 2.2 * count_function_calls(
        lambda: build_cycles(*half)
    )
    few, many = build_cycles(*half), build_cycles(*whole)
    few.format_history()  # caches are filled once
    assert count_function_calls(many.format_history) == count_function_calls(few.format_history)
