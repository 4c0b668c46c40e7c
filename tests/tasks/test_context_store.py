from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.context_store import ContextChange, TaskContext


class Time:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def design() -> TaskContext:
    store = TaskContext(Time())
    store.set_user_context(
        {"username": "user@example.com", "preferred_language": "English", "max_items": 100}
    )
    store.add_inferred(key="login_required", value=True, source="detected login form")
    store.add_inferred(key="pagination_type", value="infinite_scroll", source="page analysis")
    return store


def test_the_context_of_the_design() -> None:
    store = design()
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


def test_what_is_not_known_is_the_default() -> None:
    assert TaskContext().get("nothing") is None
    assert TaskContext().get("nothing", 3) == 3
    assert TaskContext().get_source("nothing") is None


def test_what_the_user_said_goes_before_what_was_found_out() -> None:
    store = TaskContext()
    store.add_inferred("language", "German", "page")
    assert store.get("language") == "German"
    store.set_user_context({"language": None})
    assert store.get("language", "default") is None
    assert store.get_all() == {"language": None}
    store.set_user_context({})
    assert store.get("language") == "German"


def test_a_task_finds_the_context_that_shares_words_with_it() -> None:
    relevant = design().get_relevant_context("login to the website and navigate to products")
    assert relevant == {"login_required": True}


def test_relevance_goes_by_stems_humps_and_values_and_the_best_come_first() -> None:
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
    given = {"items": [1]}
    store = TaskContext()
    store.set_user_context(given)
    given["items"].append(2)
    store.get("items").append(3)
    store.get_all()["items"].append(4)
    assert store.get("items") == [1]


def test_a_deep_value_comes_back_whole_and_one_too_deep_is_refused() -> None:
    deep: Any = "ground"
    for _ in range(90):
        deep = [deep]
    store = TaskContext()
    store.add_inferred("well", deep, "digging")
    assert store.get("well") == deep
    assert TaskContext.from_dict(store.to_dict()) == store
    with pytest.raises(InvalidInputError, match="nested deeper"):
        store.add_inferred("well", [[[[[[[[[[[[deep]]]]]]]]]]]], "digging")


@pytest.mark.parametrize("wrong", [object(), {1}, (1, 2), float("nan"), {1: 2}])
def test_a_value_that_is_no_json_is_refused_by_name(wrong: Any) -> None:
    store = TaskContext()
    with pytest.raises(InvalidInputError, match="'odd'"):
        store.set_user_context({"fine": 1, "odd": wrong})
    with pytest.raises(InvalidInputError, match="'odd'"):
        store.add_inferred("odd", wrong, "page")
    assert store.get_all() == {}
    assert store.history == []


def test_the_history_tells_each_change() -> None:
    store = design()
    assert store.history[0] == ContextChange(
        time=1000.0, key="username", value="user@example.com", source="user", kind="user"
    )
    assert store.history[-1] == ContextChange(
        time=1000.0, key="pagination_type", value="infinite_scroll", source="page analysis", kind="inferred"
    )
    assert len(store.history) == 5


def test_the_history_holds_the_last_thousand() -> None:
    store = TaskContext()
    for number in range(1_005):
        store.add_inferred("count", number, "loop")
    assert [store.history[0].value, store.history[-1].value, len(store.history)] == [5, 1_004, 1_000]


def test_an_extraction_is_fresh_for_five_minutes() -> None:
    time = Time()
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


def test_who_asks_for_less_does_not_drop_it_for_others() -> None:
    time = Time()
    store = TaskContext(time)
    store.cache_extraction("list", [1])
    time.seconds += 20
    assert store.get_cached_extraction("list", max_age_seconds=10) is None
    assert store.get_cached_extraction("list") == [1]


def test_extractions_come_newest_first_and_two_hundred_are_held() -> None:
    time = Time()
    store = TaskContext(time)
    for number in range(205):
        time.seconds += 1
        store.cache_extraction(f"page{number}", number)
    store.cache_extraction("page10", "again")
    held = store.extractions()
    assert [held[0].key, held[0].data, held[1].key, held[-1].key, len(held)] == [
        *("page10", "again", "page204", "page5"),
        200,
    ]
    assert [one.key for one in store.extractions(max_age_seconds=1)] == ["page10", "page204", "page203"]


def test_an_extraction_that_is_no_json_is_held_by_its_text() -> None:
    store = TaskContext()
    store.cache_extraction("odd", {"pair": (1, 2), "kind": int})
    assert store.get_cached_extraction("odd") == {"pair": [1, 2], "kind": "<class 'int'>"}


def test_clearing_keeps_what_the_user_said_unless_told_otherwise() -> None:
    store = design()
    store.cache_extraction("list", [1])
    store.clear()
    assert set(store.get_all()) == {"username", "preferred_language", "max_items"}
    assert {one.kind for one in store.history} == {"user"}
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
    store = TaskContext(Time())
    store.set_user_context(user)
    for key, (value, source) in inferred.items():
        store.add_inferred(key, value, source)
    for key, value in extracted.items():
        store.cache_extraction(key, value)
    back = TaskContext.from_dict(json.loads(json.dumps(store.to_dict())), Time())
    assert back == store
    assert back.get_all() == {**{key: one for key, (one, _) in inferred.items()}, **user}
    assert (back.history, back.extractions()) == (store.history, store.extractions())
    assert back.get_relevant_context("a 1 x") == store.get_relevant_context("a 1 x")


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
def test_damaged_json_is_refused_by_name(damaged: Any, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        TaskContext.from_dict(damaged)


@given(values)
def test_any_json_gives_a_store_or_a_clear_error(value: Any) -> None:
    for data in (value, {"user": value}, {"inferred": value}, {"history": value}, {"extractions": value}):
        with suppress(InvalidInputError):
            TaskContext.from_dict(data)
