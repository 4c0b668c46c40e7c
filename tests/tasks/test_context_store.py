from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.context_store import ContextChange, TaskContext


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def build_design_context() -> TaskContext:
    store = TaskContext(Clock())
    store.set_user_context(
        {"username": "user@example.com", "preferred_language": "English", "max_items": 100}
    )
    store.add_inferred(key="login_required", value=True, source="detected login form")
    store.add_inferred(key="pagination_type", value="infinite_scroll", source="page analysis")
    return store


def test_the_context_of_the_design() -> None:
    store = build_design_context()
    assert store.get("username") == "user@example.com"
    assert store.get("login_required") is True
    assert store.get_source("login_required") == "detected login form"
    assert store.get_source("username") == "user"
    assert store.get_all() == {
        "username": "user@example.com",
        "preferred_language": "English",
        "max_items": 100,
        "login_required": True,
        "pagination_type": "infinite_scroll",
    }


def test_an_unknown_key_has_the_default_value() -> None:
    assert TaskContext().get("nothing") is None
    assert TaskContext().get("nothing", 3) == 3
    assert TaskContext().get_source("nothing") is None


def test_user_context_takes_precedence_over_inferred_context() -> None:
    store = TaskContext()
    store.add_inferred("language", "German", "page")
    assert store.get("language") == "German"
    store.set_user_context({"language": None})
    assert store.get("language", "default") is None
    assert store.get_all() == {"language": None}
    store.set_user_context({})
    assert store.get("language") == "German"


def test_relevant_context_shares_words_with_the_task() -> None:
    relevant = build_design_context().get_relevant_context("login to the website and navigate to products")
    assert relevant == {"login_required": True}


def test_relevance_uses_stems_camel_case_words_and_values() -> None:
    store = TaskContext()
    store.set_user_context(
        {
            "note": "prefers cheap shoes",
            "shoeSizes": [42, {"widths": "wide"}],
            "colours": "red",
            "cheap_shoe": 1,
        }
    )
    assert list(store.get_relevant_context("find a cheap shoe in size 42")) == [
        "shoeSizes",
        "cheap_shoe",
        "note",
    ]
    assert list(store.get_relevant_context("find a cheap shoe in size 42", limit=1)) == ["shoeSizes"]
    assert store.get_relevant_context("") == {}
    assert store.get_relevant_context("to the and of") == {}


def test_values_are_copied_both_ways() -> None:
    context = {"items": [1]}
    store = TaskContext()
    store.set_user_context(context)
    context["items"].append(2)
    store.get("items").append(3)
    store.get_all()["items"].append(4)
    assert store.get("items") == [1]


def test_a_deep_value_is_kept_and_one_too_deep_is_rejected() -> None:
    deep: Any = "ground"
    for _ in range(90):
        deep = [deep]
    store = TaskContext()
    store.add_inferred("well", deep, "digging")
    assert store.get("well") == deep
    assert TaskContext.from_dict(store.to_dict()) == store
    with pytest.raises(InvalidInputError, match="nested deeper"):
        store.add_inferred("well", [[[[[[[[[[[[deep]]]]]]]]]]]], "digging")


@pytest.mark.parametrize("value", [object(), {1}, (1, 2), float("nan"), {1: 2}])
def test_a_value_unknown_to_json_is_rejected_by_name(value: Any) -> None:
    store = TaskContext()
    with pytest.raises(InvalidInputError, match="'odd'"):
        store.set_user_context({"fine": 1, "odd": value})
    with pytest.raises(InvalidInputError, match="'odd'"):
        store.add_inferred("odd", value, "page")
    assert store.get_all() == {}
    assert store.history == []


def test_the_history_contains_each_change() -> None:
    store = build_design_context()
    assert store.history[0] == ContextChange(
        time=1000.0, key="username", value="user@example.com", source="user", kind="user"
    )
    assert store.history[-1] == ContextChange(
        time=1000.0, key="pagination_type", value="infinite_scroll", source="page analysis", kind="inferred"
    )
    assert len(store.history) == 5


def test_the_history_keeps_the_last_1000_changes() -> None:
    store = TaskContext()
    for number in range(1_005):
        store.add_inferred("count", number, "loop")
    assert [store.history[0].value, store.history[-1].value, len(store.history)] == [5, 1_004, 1_000]


def test_an_extraction_is_fresh_for_five_minutes() -> None:
    time = Clock()
    store = TaskContext(time)
    products = [{"name": "Lamp", "price": 30}]
    store.cache_extraction("product_list", products)
    time.seconds += 300
    assert store.get_cached_extraction("product_list", max_age_seconds=300) == products
    assert store.get_cached_extraction("product_list") == products
    time.seconds += 0.1
    assert store.get_cached_extraction("product_list") is None
    assert store.extractions() == []  # it was dropped
    assert store.get_cached_extraction("product_list", max_age_seconds=10_000) is None


def test_reading_with_a_shorter_age_does_not_drop_an_extraction() -> None:
    time = Clock()
    store = TaskContext(time)
    store.cache_extraction("list", [1])
    time.seconds += 20
    assert store.get_cached_extraction("list", max_age_seconds=10) is None
    assert store.get_cached_extraction("list") == [1]


def test_the_newest_200_extractions_are_kept_newest_first() -> None:
    time = Clock()
    store = TaskContext(time)
    for number in range(205):
        time.seconds += 1
        store.cache_extraction(f"page{number}", number)
    store.cache_extraction("page10", "again")
    extractions = store.extractions()
    assert [
        extractions[0].key,
        extractions[0].data,
        extractions[1].key,
        extractions[-1].key,
        len(extractions),
    ] == [
        *("page10", "again", "page204", "page5"),
        200,
    ]
    assert [extraction.key for extraction in store.extractions(max_age_seconds=1)] == [
        "page10",
        "page204",
        "page203",
    ]


def test_an_extraction_unknown_to_json_is_kept_as_text() -> None:
    store = TaskContext()
    store.cache_extraction("odd", {"pair": (1, 2), "kind": int})
    assert store.get_cached_extraction("odd") == {"pair": [1, 2], "kind": "<class 'int'>"}


def test_clearing_keeps_the_user_context_by_default() -> None:
    store = build_design_context()
    store.cache_extraction("list", [1])
    store.clear()
    assert set(store.get_all()) == {"username", "preferred_language", "max_items"}
    assert {change.kind for change in store.history} == {"user"}
    assert store.extractions() == []
    store.clear(keep_user=False)
    assert (store.get_all(), store.history) == ({}, [])


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
keys = st.text(min_size=1, max_size=4)


@given(
    st.dictionaries(keys, values, max_size=3),
    st.dictionaries(keys, st.tuples(values, st.text(max_size=5)), max_size=3),
    st.dictionaries(keys, values, max_size=3),
)
def test_a_store_comes_back_equal_from_json(
    user: dict[str, Any], inferred: dict[str, Any], extracted: dict[str, Any]
) -> None:
    store = TaskContext(Clock())
    store.set_user_context(user)
    for key, (value, source) in inferred.items():
        store.add_inferred(key, value, source)
    for key, value in extracted.items():
        store.cache_extraction(key, value)
    restored = TaskContext.from_dict(json.loads(json.dumps(store.to_dict())), Clock())
    assert restored == store
    assert restored.get_all() == {**{key: value for key, (value, _) in inferred.items()}, **user}
    assert (restored.history, restored.extractions()) == (store.history, store.extractions())
    assert restored.get_relevant_context("a 1 x") == store.get_relevant_context("a 1 x")


@pytest.mark.parametrize(
    ("damaged", "named"),
    [
        ([], "context store"),
        ({"user": []}, "user"),
        ({"user": {"a": float("inf")}}, "'a'"),
        ({"inferred": {"a": 1}}, r"inferred\['a'\]"),
        ({"inferred": {"a": {"value": 1, "source": 2}}}, "source"),
        ({"history": {}}, "history"),
        ({"history": [{"time": 1, "key": "a", "kind": "guess"}]}, r"history\[0\]\.kind.*'guess'"),
        ({"history": [{"time": "now", "key": "a", "kind": "user"}]}, r"history\[0\]\.time"),
        ({"extractions": [{"key": "", "time": 1}]}, r"extractions\[0\]\.key"),
        ({"extractions": [{"key": "a", "data": 1}]}, r"extractions\[0\]\.time"),
    ],
)
def test_damaged_json_is_rejected_by_name(damaged: Any, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        TaskContext.from_dict(damaged)


@given(values)
def test_any_json_gives_a_store_or_a_clear_error(value: Any) -> None:
    for data in (value, {"user": value}, {"inferred": value}, {"history": value}, {"extractions": value}):
        with suppress(InvalidInputError):
            TaskContext.from_dict(data)
