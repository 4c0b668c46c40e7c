from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.models import LearnedPattern
from langmem_tiers.tasks.patterns import (
    PatternMemory,
    escape_placeholders,
    fill_placeholders,
    find_placeholders,
)
from tests.hypothesis_settings import examples

LOGIN = LearnedPattern(
    pattern_id="login_example_com",
    domain="example.com",
    description="Login flow for example.com",
    pattern_type="login_flow",
    steps=(
        {"tool": "click", "selector": "#login-btn"},
        {"tool": "type", "selector": "#email", "text": "{email}"},
        {"tool": "type", "selector": "#password", "text": "{password}"},
        {"tool": "click", "selector": "#submit"},
    ),
)


def pattern(
    name: str, good: int = 0, bad: int = 0, used: float = 1.0, domain: str = "a.example"
) -> LearnedPattern:
    return replace(
        LOGIN, pattern_id=name, domain=domain, success_count=good, failure_count=bad, last_used=used
    )


def learned(*patterns: LearnedPattern, most: int = 100) -> PatternMemory:
    memory = PatternMemory(most, now=lambda: 500.0)
    for one in patterns:
        memory.learn(one)
    return memory


def ids(patterns: list[LearnedPattern]) -> list[str]:
    return [one.pattern_id for one in patterns]


def test_the_pattern_of_the_design_is_learned_found_and_used() -> None:
    memory = learned(LOGIN)
    assert memory.max_patterns == PatternMemory().max_patterns == 100
    assert memory.get_patterns_for_domain("example.com") == [replace(LOGIN, last_used=500.0)]
    memory.record_usage("login_example_com", success=True)
    memory.record_usage("login_example_com", success=True)
    used = memory.record_usage("login_example_com", success=False)
    assert (used.success_count, used.failure_count, used.last_used) == (2, 1, 500.0)
    assert memory.get("login_example_com") == used
    assert memory.get("other") is None


def test_a_use_of_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="'nothing'"):
        PatternMemory().record_usage("nothing", success=True)


def test_the_same_steps_learned_again_sum_their_uses() -> None:
    memory = learned(pattern("a", 2, 1, used=9.0), pattern("a", 3, 0, used=4.0))
    assert memory.patterns == [pattern("a", 5, 1, used=9.0)]


def test_other_steps_under_the_same_id_replace_it_and_move_its_domain() -> None:
    other = replace(pattern("a", 1, 0, domain="b.example"), steps=({"tool": "wait"},))
    memory = learned(pattern("a", 2, 1), other)
    assert memory.patterns == [other]
    assert memory.get_patterns_for_domain("a.example") == []
    assert memory.get_patterns_for_domain("b.example") == [other]


def test_the_best_come_first_by_rate_then_by_last_use() -> None:
    memory = learned(
        pattern("bad", 1, 3), pattern("old", 2, 0, 5), pattern("new", 1, 0, 9), pattern("never", used=99)
    )
    assert ids(memory.get_patterns_for_domain("a.example")) == ["new", "old", "bad", "never"]


def test_a_domain_has_the_patterns_of_those_above_it_but_not_of_those_below() -> None:
    memory = learned(
        pattern("top", domain="www.Example.com"),
        pattern("shop", domain="shop.example.com"),
        pattern("com", domain="com"),
        pattern("host", domain="localhost"),
        pattern("none", domain=""),
    )
    assert ids(memory.get_patterns_for_domain("shop.example.com")) == ["shop", "top"]
    assert ids(memory.get_patterns_for_domain("https://www.shop.example.com:8080/cart?x#y")) == [
        "shop",
        "top",
    ]
    assert ids(memory.get_patterns_for_domain("example.com")) == ["top"]
    assert ids(memory.get_patterns_for_domain("ample.com")) == []
    assert ids(memory.get_patterns_for_domain("http://localhost:3000/")) == ["host"]
    assert ids(memory.get_patterns_for_domain("")) == ["none"]


def test_what_is_removed_is_gone_from_its_domain_too() -> None:
    memory = learned(pattern("a"), pattern("b"))
    assert memory.remove_pattern("a")
    assert not memory.remove_pattern("a")
    assert ids(memory.get_patterns_for_domain("a.example")) == ["b"]
    memory.clear()
    assert (memory.patterns, memory.get_patterns_for_domain("a.example")) == ([], [])


def test_the_pattern_beyond_a_hundred_leaves_the_best_eighty() -> None:
    memory = learned(*(pattern(str(number), number, 100) for number in range(100)))
    assert len(memory) == 100
    memory.learn(pattern("best", 1, 0))
    assert ids(memory.patterns) == [*map(str, range(21, 100)), "best"]


def test_of_equal_rate_those_leave_that_were_not_used_for_longest() -> None:
    memory = learned(*(pattern(str(used), 1, 0, used) for used in (3, 1, 4, 2, 6, 5)), most=5)
    assert ids(memory.patterns) == ["3", "4", "6", "5"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(1, 9)), min_size=1, max_size=30),
    st.integers(1, 12),
)
def test_pruning_leaves_exactly_eighty_percent(uses: list[tuple[int, int, float]], most: int) -> None:
    memory = PatternMemory(most)
    for number, (good, bad, used) in enumerate(uses):
        held = [*memory.patterns, pattern(str(number), good, bad, used, domain=f"d{number % 3}.example")]
        memory.learn(held[-1])
        if len(held) <= most:
            assert memory.patterns == held
            continue
        assert len(memory) == int(most * 0.8)
        order = sorted(held, key=lambda one: (one.success_rate, one.last_used))
        assert set(ids(memory.patterns)) == set(ids(order[len(held) - int(most * 0.8) :]))
    found = [one for number in range(3) for one in memory.get_patterns_for_domain(f"d{number}.example")]
    assert sorted(ids(found)) == sorted(ids(memory.patterns))


def test_values_are_put_into_placeholders() -> None:
    assert find_placeholders(LOGIN) == ["email", "password"]
    steps = fill_placeholders(LOGIN, {"email": "me@example.com", "password": "{email}", "more": 1})
    assert steps[1] == {"tool": "type", "selector": "#email", "text": "me@example.com"}
    assert steps[2]["text"] == "{email}"  # a value is no template
    assert steps[0] == {"tool": "click", "selector": "#login-btn"}


def test_placeholders_are_found_within_texts_and_nested_values() -> None:
    steps = (
        {"tool": "goto", "url": "/{a}/{b}", "form": {"x": ["{c}", 3, None]}},
        {"tool": "js", "code": "f({{a}})"},
    )
    one = replace(LOGIN, steps=steps)
    assert find_placeholders(one) == ["a", "b", "c"]
    assert fill_placeholders(one, {"a": 1, "b": "two", "c": [3]}) == [
        {"tool": "goto", "url": "/1/two", "form": {"x": [[3], 3, None]}},
        {"tool": "js", "code": "f({a})"},
    ]


def test_missing_values_are_named() -> None:
    with pytest.raises(InvalidInputError, match="'login_example_com' needs values for 'email', 'password'"):
        fill_placeholders(LOGIN, {})
    with pytest.raises(InvalidInputError, match="for 'password'"):
        fill_placeholders(LOGIN, {"email": "x"})


@given(st.text(alphabet="{}ab c") | st.text())
def test_a_literal_comes_back_as_it_was(text: str) -> None:
    one = replace(LOGIN, steps=({"tool": "type", "text": escape_placeholders(text)},))
    assert find_placeholders(one) == []
    assert fill_placeholders(one, {}) == [{"tool": "type", "text": text}]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
some_pattern = st.builds(
    LearnedPattern,
    pattern_id=st.text(min_size=1, max_size=3),
    domain=st.sampled_from(["a.example", "www.b.example", "x", ""]),
    description=st.text(max_size=5),
    pattern_type=st.text(max_size=5),
    steps=st.lists(st.dictionaries(st.text(max_size=5), values, max_size=3), max_size=3).map(tuple),
    success_count=st.integers(0, 9),
    failure_count=st.integers(0, 9),
    last_used=st.floats(0, 1e9),
)


@examples(50)
@given(st.lists(some_pattern, max_size=6), st.integers(1, 5))
def test_a_memory_comes_back_equal_from_json(patterns: list[LearnedPattern], most: int) -> None:
    memory = learned(*patterns, most=most)
    back = PatternMemory.from_dict(json.loads(json.dumps(memory.to_dict())), lambda: 500.0)
    assert back == memory
    assert back.patterns == memory.patterns
    for domain in ("a.example", "b.example", "x", ""):
        assert back.get_patterns_for_domain(domain) == memory.get_patterns_for_domain(domain)


GOOD = learned(LOGIN).to_dict()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_patterns": 0}, "max_patterns"),
        ({"patterns": {}}, "patterns"),
        ({"patterns": [1]}, r"patterns\[0\]"),
        ({"patterns": [{"steps": []}]}, r"patterns\[0\]\.pattern_id"),
        ({"patterns": [GOOD["patterns"][0] | {"domain": None}]}, "domain"),
        ({"patterns": [GOOD["patterns"][0] | {"steps": ["click"]}]}, r"steps\[0\]"),
        ({"patterns": [GOOD["patterns"][0] | {"steps": None}]}, "steps"),
        ({"patterns": [GOOD["patterns"][0] | {"success_count": -1}]}, "success_count"),
        ({"patterns": [GOOD["patterns"][0] | {"last_used": 1e30}]}, "last_used"),
        ({"patterns": GOOD["patterns"] * 2}, "'login_example_com'"),
    ],
)
def test_damaged_json_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    assert PatternMemory.from_dict(GOOD).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match=named):
        PatternMemory.from_dict({**GOOD, **change})


@given(values)
def test_any_json_gives_a_memory_or_a_clear_error(value: Any) -> None:
    for data in (value, {"patterns": value}, {"patterns": [GOOD["patterns"][0] | {"steps": value}]}):
        with suppress(InvalidInputError):
            PatternMemory.from_dict(data)


def test_steps_that_are_no_json_are_refused_by_name_and_nothing_is_learned() -> None:
    memory = PatternMemory()
    with pytest.raises(InvalidInputError, match=r"steps\[0\]\['what'\]"):
        memory.learn(replace(LOGIN, steps=({"what": object()},)))
    assert len(memory) == 0
