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


def build_pattern(
    name: str, successes: int = 0, failures: int = 0, used: float = 1.0, domain: str = "a.example"
) -> LearnedPattern:
    return replace(
        LOGIN, pattern_id=name, domain=domain, success_count=successes, failure_count=failures, last_used=used
    )


def learn(*patterns: LearnedPattern, limit: int = 100) -> PatternMemory:
    memory = PatternMemory(limit, now=lambda: 500.0)
    for pattern in patterns:
        memory.learn(pattern)
    return memory


def list_ids(patterns: list[LearnedPattern]) -> list[str]:
    return [pattern.pattern_id for pattern in patterns]


def test_the_pattern_of_the_design_is_learned_found_and_used() -> None:
    memory = learn(LOGIN)
    assert memory.max_patterns == PatternMemory().max_patterns == 100
    assert memory.get_patterns_for_domain("example.com") == [replace(LOGIN, last_used=500.0)]
    memory.record_usage("login_example_com", success=True)
    memory.record_usage("login_example_com", success=True)
    used = memory.record_usage("login_example_com", success=False)
    assert (used.success_count, used.failure_count, used.last_used) == (2, 1, 500.0)
    assert memory.get("login_example_com") == used
    assert memory.get("other") is None


def test_a_use_of_an_unknown_pattern_is_rejected_by_name() -> None:
    with pytest.raises(InvalidInputError, match="'nothing'"):
        PatternMemory().record_usage("nothing", success=True)


def test_uses_of_equal_steps_are_added() -> None:
    memory = learn(build_pattern("a", 2, 1, used=9.0), build_pattern("a", 3, 0, used=4.0))
    assert memory.patterns == [build_pattern("a", 5, 1, used=9.0)]


def test_other_steps_under_the_same_id_replace_the_pattern() -> None:
    other = replace(build_pattern("a", 1, 0, domain="b.example"), steps=({"tool": "wait"},))
    memory = learn(build_pattern("a", 2, 1), other)
    assert memory.patterns == [other]
    assert memory.get_patterns_for_domain("a.example") == []
    assert memory.get_patterns_for_domain("b.example") == [other]


def test_patterns_are_sorted_by_success_rate_then_by_last_use() -> None:
    memory = learn(
        build_pattern("bad", 1, 3),
        build_pattern("old", 2, 0, 5),
        build_pattern("new", 1, 0, 9),
        build_pattern("never", used=99),
    )
    assert list_ids(memory.get_patterns_for_domain("a.example")) == ["new", "old", "bad", "never"]


def test_a_domain_has_the_patterns_of_its_parents_but_not_of_its_subdomains() -> None:
    memory = learn(
        build_pattern("top", domain="www.Example.com"),
        build_pattern("shop", domain="shop.example.com"),
        build_pattern("com", domain="com"),
        build_pattern("host", domain="localhost"),
        build_pattern("none", domain=""),
    )
    assert list_ids(memory.get_patterns_for_domain("shop.example.com")) == ["shop", "top"]
    assert list_ids(memory.get_patterns_for_domain("https://www.shop.example.com:8080/cart?x#y")) == [
        "shop",
        "top",
    ]
    assert list_ids(memory.get_patterns_for_domain("example.com")) == ["top"]
    assert list_ids(memory.get_patterns_for_domain("ample.com")) == []
    assert list_ids(memory.get_patterns_for_domain("http://localhost:3000/")) == ["host"]
    assert list_ids(memory.get_patterns_for_domain("")) == ["none"]


def test_a_removed_pattern_is_not_listed_for_its_domain() -> None:
    memory = learn(build_pattern("a"), build_pattern("b"))
    assert memory.remove_pattern("a")
    assert not memory.remove_pattern("a")
    assert list_ids(memory.get_patterns_for_domain("a.example")) == ["b"]
    memory.clear()
    assert (memory.patterns, memory.get_patterns_for_domain("a.example")) == ([], [])


def test_adding_a_pattern_beyond_the_cap_keeps_the_best_80_percent() -> None:
    memory = learn(*(build_pattern(str(number), number, 100) for number in range(100)))
    assert len(memory) == 100
    memory.learn(build_pattern("best", 1, 0))
    assert list_ids(memory.patterns) == [*map(str, range(21, 100)), "best"]


def test_with_equal_success_rates_the_least_recently_used_patterns_are_removed() -> None:
    memory = learn(*(build_pattern(str(used), 1, 0, used) for used in (3, 1, 4, 2, 6, 5)), limit=5)
    assert list_ids(memory.patterns) == ["3", "4", "6", "5"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(1, 9)), min_size=1, max_size=30),
    st.integers(1, 12),
)
def test_pruning_leaves_exactly_eighty_percent(uses: list[tuple[int, int, float]], limit: int) -> None:
    memory = PatternMemory(limit)
    for number, (successes, failures, used) in enumerate(uses):
        before = [
            *memory.patterns,
            build_pattern(str(number), successes, failures, used, domain=f"d{number % 3}.example"),
        ]
        memory.learn(before[-1])
        if len(before) <= limit:
            assert memory.patterns == before
            continue
        assert len(memory) == int(limit * 0.8)
        order = sorted(before, key=lambda item: (item.success_rate, item.last_used))
        assert set(list_ids(memory.patterns)) == set(list_ids(order[len(before) - int(limit * 0.8) :]))
    found = [
        pattern for number in range(3) for pattern in memory.get_patterns_for_domain(f"d{number}.example")
    ]
    assert sorted(list_ids(found)) == sorted(list_ids(memory.patterns))


def test_placeholders_are_filled_with_values() -> None:
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
    template = replace(LOGIN, steps=steps)
    assert find_placeholders(template) == ["a", "b", "c"]
    assert fill_placeholders(template, {"a": 1, "b": "two", "c": [3]}) == [
        {"tool": "goto", "url": "/1/two", "form": {"x": [[3], 3, None]}},
        {"tool": "js", "code": "f({a})"},
    ]


def test_missing_values_are_named() -> None:
    with pytest.raises(InvalidInputError, match="'login_example_com' needs values for 'email', 'password'"):
        fill_placeholders(LOGIN, {})
    with pytest.raises(InvalidInputError, match="for 'password'"):
        fill_placeholders(LOGIN, {"email": "x"})


@given(st.text(alphabet="{}ab c") | st.text())
def test_an_escaped_literal_comes_back_unchanged(text: str) -> None:
    template = replace(LOGIN, steps=({"tool": "type", "text": escape_placeholders(text)},))
    assert find_placeholders(template) == []
    assert fill_placeholders(template, {}) == [{"tool": "type", "text": text}]


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
def test_a_pattern_memory_comes_back_equal_from_json(patterns: list[LearnedPattern], limit: int) -> None:
    memory = learn(*patterns, limit=limit)
    restored = PatternMemory.from_dict(json.loads(json.dumps(memory.to_dict())), lambda: 500.0)
    assert restored == memory
    assert restored.patterns == memory.patterns
    for domain in ("a.example", "b.example", "x", ""):
        assert restored.get_patterns_for_domain(domain) == memory.get_patterns_for_domain(domain)


GOOD = learn(LOGIN).to_dict()


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
def test_damaged_json_is_rejected_by_name(change: dict[str, Any], named: str) -> None:
    assert PatternMemory.from_dict(GOOD).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match=named):
        PatternMemory.from_dict({**GOOD, **change})


@given(values)
def test_any_json_gives_a_memory_or_a_clear_error(value: Any) -> None:
    for data in (value, {"patterns": value}, {"patterns": [GOOD["patterns"][0] | {"steps": value}]}):
        with suppress(InvalidInputError):
            PatternMemory.from_dict(data)


def test_steps_unknown_to_json_are_rejected_by_name_and_nothing_is_learned() -> None:
    memory = PatternMemory()
    with pytest.raises(InvalidInputError, match=r"steps\[0\]\['what'\]"):
        memory.learn(replace(LOGIN, steps=({"what": object()},)))
    assert len(memory) == 0
