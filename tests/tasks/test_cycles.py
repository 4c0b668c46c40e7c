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


def cycle(number: int = 0, tool: str = "click", /, said: str | None = None, **parameters: Any) -> Cycle:
    return Cycle(
        entry_id=f"e{number}",
        timestamp=float(number),
        thought=Thought("go on"),
        action=AgentAction(tool, parameters),
        observation=None if said is None else Observation(said),
    )


def failed(number: int = 0, error: str | None = None, **parameters: Any) -> Cycle:
    return replace(cycle(number, **parameters), outcome=ExecutionOutcome.FAILURE, error_message=error)


def memory(*entries: Cycle, max_entries: int = 50) -> RecentCycles:
    held = RecentCycles(max_entries)
    for entry in entries:
        held.add(entry)
    return held


def with_priorities(*priorities: MemoryPriority, max_entries: int) -> list[str]:
    entries = [replace(cycle(number), priority=one) for number, one in enumerate(priorities)]
    return [entry.entry_id for entry in memory(*entries, max_entries=max_entries).entries]


def test_fifty_cycles_are_kept_unless_told_otherwise() -> None:
    held = memory(*(cycle(number) for number in range(60)))
    assert held.max_entries == len(held) == 50
    assert [entry.entry_id for entry in held.entries] == [f"e{number}" for number in range(10, 60)]


def test_the_last_five_are_recent_the_oldest_of_them_first() -> None:
    held = memory(*(cycle(number) for number in range(9)))
    assert [entry.entry_id for entry in held.get_recent()] == ["e4", "e5", "e6", "e7", "e8"]
    assert [entry.entry_id for entry in held.get_recent(n=2)] == ["e7", "e8"]
    assert held.get_recent(0) == []
    assert len(held.get_recent(100)) == 9


def test_cycles_are_found_by_their_outcome() -> None:
    held = memory(cycle(1), failed(2), cycle(3), failed(4))
    found = held.get_by_outcome(ExecutionOutcome.FAILURE)
    assert [entry.entry_id for entry in found] == ["e2", "e4"]
    assert held.get_by_outcome(ExecutionOutcome.TIMEOUT) == []


def test_low_leaves_before_normal_before_high_and_the_oldest_of_them_first() -> None:
    assert with_priorities(HIGH, LOW, NORMAL, LOW, HIGH, max_entries=4) == ["e0", "e2", "e3", "e4"]
    assert with_priorities(HIGH, LOW, NORMAL, LOW, HIGH, HIGH, max_entries=4) == ["e0", "e2", "e4", "e5"]
    assert with_priorities(HIGH, NORMAL, HIGH, HIGH, max_entries=3) == ["e0", "e2", "e3"]
    assert with_priorities(HIGH, HIGH, HIGH, HIGH, max_entries=3) == ["e1", "e2", "e3"]


def test_where_only_critical_ones_are_left_there_may_be_more_than_the_cap() -> None:
    assert with_priorities(CRITICAL, CRITICAL, CRITICAL, max_entries=2) == ["e0", "e1", "e2"]
    assert with_priorities(CRITICAL, LOW, CRITICAL, CRITICAL, max_entries=2) == ["e0", "e2", "e3"]


def test_what_was_done_last_is_always_in_sight() -> None:
    assert with_priorities(HIGH, HIGH, LOW, max_entries=2) == ["e1", "e2"]
    assert with_priorities(HIGH, HIGH, LOW, LOW, max_entries=2) == ["e1", "e3"]
    assert with_priorities(CRITICAL, CRITICAL, LOW, LOW, max_entries=2) == ["e0", "e1", "e3"]


@given(st.lists(st.sampled_from(MemoryPriority)), st.integers(1, 8))
def test_priorities_decide_what_leaves_and_critical_never_does(
    given: list[MemoryPriority], most: int
) -> None:
    entries = [replace(cycle(number), priority=one) for number, one in enumerate(given)]
    held = memory(*entries, max_entries=most)
    kept = held.entries
    assert kept == [entry for entry in entries if entry in kept]  # in their order
    assert [entry for entry in kept if entry.priority is CRITICAL] == [
        entry for entry in entries if entry.priority is CRITICAL
    ]
    assert kept[-1:] == entries[-1:]
    criticals = sum(one is CRITICAL for one in given)
    assert min(len(entries), most) <= len(kept) <= max(most, criticals + 1)
    for left in (entry for entry in entries if entry not in kept):
        # What is older and of lower priority than what left has left, too.
        assert not [
            one for one in kept if one.priority.rank <= left.priority.rank and one.timestamp < left.timestamp
        ]


def test_failures_and_frequencies_outlive_the_cycles() -> None:
    first = failed(1, selector="#gone")
    held = memory(first, *(cycle(number, "wait") for number in range(2, 6)), max_entries=2)
    assert first not in held.entries
    assert held.has_failed(first.action_signature)
    assert not held.has_failed(cycle(2, "wait").action_signature)
    assert held.get_action_frequency("wait", {}) == 4
    assert held.get_action_frequency("click", {"selector": "#gone"}) == 1
    assert held.get_action_frequency("click", {"selector": "#other"}) == 0


def test_a_timeout_is_a_failure_and_a_skip_is_none() -> None:
    late = replace(cycle(1), outcome=ExecutionOutcome.TIMEOUT)
    skipped = replace(cycle(2, "type"), outcome=ExecutionOutcome.SKIPPED)
    held = memory(late, skipped)
    assert held.has_failed(late.action_signature)
    assert not held.has_failed(skipped.action_signature)


def test_frequency_does_not_depend_on_the_order_of_keys_or_the_page() -> None:
    one = replace(cycle(1, "fill", a=1, b={"x": 1, "y": 2}), url="https://a.example")
    held = memory(one, replace(one, url="https://b.example", action_signature=""))
    assert held.get_action_frequency("fill", {"b": {"y": 2, "x": 1}, "a": 1}) == 2


def test_the_loop_warning_of_the_design() -> None:
    others = [cycle(number, selector=f"#other{number}") for number in range(10)]
    submits = [cycle(number, selector="#submit") for number in range(20, 24)]
    held = memory(*others[:6], *submits)
    assert held.get_loop_warnings(threshold=3) == [
        "Warning: click(#submit) repeated 4 times in last 10 actions!"
    ]
    assert held.get_loop_warnings(threshold=5) == []
    for one in others[:8]:
        held.add(one)
    assert held.get_loop_warnings() == []  # it lies more than ten actions back


def test_scrolling_again_and_again_is_named_without_its_direction() -> None:
    held = memory(*(cycle(number, "scroll_page", direction="down") for number in range(3)))
    assert held.get_action_frequency("scroll_page", {"direction": "down"}) == 3
    assert held.get_loop_warnings() == ["Warning: scroll_page repeated 3 times in last 3 actions!"]


@pytest.mark.parametrize(
    ("parameters", "told"),
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
def test_a_warning_names_the_parameter_that_tells_most(parameters: dict[str, Any], told: str) -> None:
    held = memory(*(cycle(number, "act", **parameters) for number in range(3)))
    assert held.get_loop_warnings() == [f"Warning: {told} repeated 3 times in last 3 actions!"]


def test_the_same_click_on_page_after_page_is_no_loop_but_the_same_address_is() -> None:
    pages = [replace(cycle(n, selector=".next"), url=f"https://a.example/{n}") for n in range(5)]
    assert memory(*pages).get_loop_warnings() == []
    gone = [
        replace(cycle(n, "goto", url="https://a.example"), url=f"https://b.example/{n}") for n in range(3)
    ]
    assert len(memory(*gone).get_loop_warnings()) == 1


def test_the_history_of_the_design() -> None:
    held = memory(
        cycle(1, "goto", "...", url="https://example.com"),
        cycle(2, "click", "Element clicked successfully", selector="#menu"),
    )
    assert held.format_history(last_n=5) == (
        "## Recent Actions\n"
        '1. [Success] goto({"url": "https://example.com"})\n'
        "   Navigated to: https://example.com\n"
        '2. [Success] click({"selector": "#menu"})\n'
        "   Result: Element clicked successfully"
    )


def test_warnings_stand_first_in_a_history() -> None:
    held = memory(*(cycle(number, "scroll_page", direction="down") for number in range(3)))
    lines = held.format_history(1).split("\n")
    assert lines == [
        "## Recent Actions",
        "Warning: scroll_page repeated 3 times in last 3 actions!",
        "",
        '1. [Success] scroll_page({"direction": "down"})',
    ]


def test_a_history_tells_errors_and_cuts_long_results_to_a_line() -> None:
    page = "line\n" * 1_000_000
    late = replace(failed(2, "no answer"), outcome=ExecutionOutcome.TIMEOUT)
    lines = memory(failed(1, "not\nfound"), late, cycle(3, "read", page, big="y" * 10_000)).format_history()
    assert "1. [Failure] click({})\n   Error: not found\n2. [Timeout] click({})\n   Error: no answer" in lines
    assert all(len(line) < 250 for line in lines.split("\n"))
    assert "   Result: line line" in lines
    assert RecentCycles().format_history() == ""


def test_tokens_are_those_of_the_cycles_that_are_held() -> None:
    entries = [replace(cycle(number), estimated_tokens=10 * number) for number in range(1, 5)]
    held = memory(*entries, max_entries=3)
    assert held.total_tokens() == 20 + 30 + 40
    held.clear()
    assert (held.total_tokens(), held.entries, held.get_loop_warnings()) == (0, [], [])
    assert held.get_action_frequency("click", {}) == 0


def test_parameters_that_are_no_json_are_held_by_their_text() -> None:
    held = memory(cycle(1, "act", what=object, some={1, 2}, pair=(1, 2), size=float("nan")))
    json.dumps(held.to_dict(), allow_nan=False)
    assert held.entries[0].action.parameters["pair"] == [1, 2]
    assert RecentCycles.from_dict(held.to_dict()) == held


def test_what_the_caller_changes_later_is_not_changed_here() -> None:
    parameters: dict[str, Any] = {"selector": ["#a"]}
    held = memory(cycle(1, "act", **parameters))
    parameters["selector"].append("#b")
    assert held.entries[0].action.parameters == {"selector": ["#a"]}


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
def test_a_memory_comes_back_equal_from_json(entries: list[Cycle], most: int) -> None:
    held = memory(*entries, max_entries=most)
    back = RecentCycles.from_dict(json.loads(json.dumps(held.to_dict())))
    assert back == held
    assert back.entries == held.entries
    assert back.total_tokens() == held.total_tokens()
    assert back.format_history() == held.format_history()
    again = cycle(99)
    held.add(again)
    back.add(again)
    assert back == held


@given(any_cycle)
def test_a_cycle_comes_back_equal_from_json(entry: Cycle) -> None:
    once = cycle_from_dict(cycle_to_dict(entry))  # what is no JSON is text by now
    assert cycle_from_dict(json.loads(json.dumps(cycle_to_dict(once)))) == once


GOOD = memory(cycle(1, "click", "done", selector="#a")).to_dict()


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
def test_damaged_json_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    assert RecentCycles.from_dict(GOOD).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match=named):
        RecentCycles.from_dict({**GOOD, **change})


@given(values)
def test_any_json_gives_a_memory_or_a_clear_error(value: Any) -> None:
    for data in (value, {"entries": value}, {"last_actions": value}, {"action_frequency": value}):
        with suppress(InvalidInputError):
            RecentCycles.from_dict(data)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "5"])
def test_sizes_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="max_entries"):
        RecentCycles(wrong)
    with pytest.raises(InvalidInputError, match="threshold"):
        RecentCycles().get_loop_warnings(wrong)


def test_twice_as_many_cycles_take_twice_as_many_calls_and_no_more_to_format() -> None:
    entries = [
        replace(cycle(n, selector=f"#{n % 70}"), priority=list(MemoryPriority)[n % 4]) for n in range(1_000)
    ]
    half, whole = entries[:500], entries
    assert count_function_calls(lambda: memory(*whole)) < 2.2 * count_function_calls(lambda: memory(*half))
    few, many = memory(*half), memory(*whole)
    few.format_history()  # caches are filled once
    assert count_function_calls(many.format_history) == count_function_calls(few.format_history)
