from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.models import AgentAction, NavigationSnapshot, Thought
from langmem_tiers.tasks.working_state import WorkingState
from tests.hypothesis_settings import examples

SEED = NavigationSnapshot(
    snapshot_id="snap_001",
    timestamp=1_700_000_000.5,
    url="https://example.com/products",
    page_title="Products",
    visible_elements_summary="Product list with 20 items",
    scroll_position=(0, 500),
)


def count_words(text: str) -> int:
    return len(text.split())


def build_snapshot(name: object) -> NavigationSnapshot:
    return replace(SEED, snapshot_id=str(name), url=f"https://example.com/{name}", page_title="")


def navigate(*names: object) -> WorkingState:
    memory = WorkingState()
    for name in names:
        memory.record_navigation(build_snapshot(name))
    return memory


def list_ids(snapshots: list[NavigationSnapshot]) -> list[str]:
    return [snapshot.snapshot_id for snapshot in snapshots]


def test_a_new_state_is_empty_with_a_budget_of_4000_tokens() -> None:
    memory = WorkingState()
    assert memory.token_budget == 4000
    assert (memory.current_goal, memory.cycle_count, memory.current_snapshot) == (None, 0, None)
    assert (memory.active_thought, memory.active_action, memory.elapsed_seconds) == (None, None, 0.0)
    assert memory.format(100, count_words) == ""


def test_the_goal_of_the_design() -> None:
    seconds = iter([100.0, 130.0])
    memory = WorkingState(now=lambda: next(seconds))
    memory.set_goal("Find and extract all product prices")
    assert memory.current_goal == "Find and extract all product prices"
    assert memory.elapsed_seconds == 30.0


def test_cycles_are_counted() -> None:
    memory = WorkingState()
    assert [memory.count_cycle(), memory.count_cycle(), memory.cycle_count] == [1, 2, 2]


def test_the_active_thought_and_action_are_set_and_cleared() -> None:
    memory = WorkingState()
    memory.set_active(Thought("log in"), AgentAction("click", {"selector": "#login"}))
    assert memory.active_thought == Thought("log in")
    assert memory.active_action == AgentAction("click", {"selector": "#login"})
    assert "About to do: click(#login)" in memory.format(100, count_words)
    memory.clear_active()
    assert memory == WorkingState()


def test_the_navigation_of_the_design() -> None:
    memory = WorkingState()
    memory.record_navigation(SEED)
    assert memory.get_navigation_history() == [SEED]
    assert memory.current_snapshot == SEED


def test_the_navigation_history_can_be_limited() -> None:
    memory = navigate(*"abcd")
    assert list_ids(memory.get_navigation_history()) == ["a", "b", "c", "d"]
    assert list_ids(memory.get_navigation_history(2)) == ["c", "d"]
    assert memory.get_navigation_history(0) == []
    assert len(memory.get_navigation_history(99)) == 4


def test_backtracking_returns_to_the_previous_state() -> None:
    memory = navigate(*"abc")
    assert memory.can_go_back()
    assert memory.backtrack() == build_snapshot("b")
    assert memory.current_snapshot == build_snapshot("b")
    assert memory.backtrack() == build_snapshot("a")
    assert not memory.can_go_back()
    assert memory.backtrack() is None
    assert memory.current_snapshot == build_snapshot("a")


def test_backtracking_beyond_the_first_state_changes_nothing() -> None:
    memory = navigate(*"abc")
    assert memory.backtrack(3) is None
    assert list_ids(memory.get_navigation_history()) == ["a", "b", "c"]
    assert memory.backtrack(2) == build_snapshot("a")
    assert WorkingState().backtrack() is None
    with pytest.raises(InvalidInputError, match="steps"):
        memory.backtrack(0)


def test_abandoned_states_are_kept_as_a_branch() -> None:
    memory = navigate(*"abcd")
    memory.backtrack()
    memory.backtrack()
    assert [list_ids(branch) for branch in memory.get_abandoned()] == [["c", "d"]]
    memory.record_navigation(build_snapshot("e"))
    memory.backtrack()
    assert [list_ids(branch) for branch in memory.get_abandoned()] == [["c", "d"], ["e"]]
    assert list_ids(memory.get_navigation_history()) == ["a", "b"]


@given(st.lists(st.integers(-3, 1), max_size=40))
def test_navigation_loses_no_state(moves: list[int]) -> None:
    memory = WorkingState()
    recorded = []
    for number, move in enumerate(moves):
        if move >= 0:
            memory.record_navigation(build_snapshot(number))
            recorded.append(str(number))
        else:
            memory.backtrack(-move)
    kept = [*memory.get_abandoned(), memory.get_navigation_history()]
    assert sorted(snapshot_id for part in kept for snapshot_id in list_ids(part)) == sorted(recorded)
    assert WorkingState.from_dict(json.loads(json.dumps(memory.to_dict()))) == memory


def test_the_path_and_its_branches_are_limited_to_500_states() -> None:
    memory = navigate(*range(505))
    assert len(memory.get_navigation_history()) == 500
    assert memory.get_navigation_history()[0] == build_snapshot(5)
    for number in range(300):
        memory.backtrack(3)
        for name in "xyz":
            memory.record_navigation(build_snapshot(f"{number}{name}"))
    assert sum(map(len, memory.get_abandoned())) <= 500


def test_beyond_500_abandoned_states_the_oldest_branch_is_removed() -> None:
    memory = navigate("start", *range(4))
    for branch in range(1, 126):
        memory.backtrack(4)
        for step in range(4):
            memory.record_navigation(build_snapshot(branch * 4 + step))
    assert [snapshot_id for part in memory.get_abandoned() for snapshot_id in list_ids(part)] == [
        str(n) for n in range(500)
    ]
    assert WorkingState.from_dict(memory.to_dict()).get_abandoned() == memory.get_abandoned()
    memory.backtrack()
    memory.record_navigation(build_snapshot("new"))
    left = memory.get_abandoned()
    assert (list_ids(left[0]), list_ids(left[-1]), len(left)) == (["4", "5", "6", "7"], ["503"], 125)


def test_a_path_of_more_than_500_states_is_restored_without_the_oldest() -> None:
    dump = navigate(*range(500)).to_dict()
    dump["navigation"]["path"].append(navigate("new").to_dict()["navigation"]["path"][0])
    restored = WorkingState.from_dict(dump).get_navigation_history()
    assert (len(restored), restored[0], restored[-1]) == (500, build_snapshot(1), build_snapshot("new"))


def test_the_scratch_pad_of_the_design() -> None:
    memory = WorkingState()
    memory.set_scratch("extracted_items", [])
    memory.set_scratch("current_page", 1)
    assert memory.get_scratch("extracted_items", default=[]) == []
    assert memory.get_scratch("current_page") == 1
    assert memory.get_scratch("missing", default=[]) == []
    assert memory.scratch_keys == ["extracted_items", "current_page"]
    assert memory.delete_scratch("current_page")
    assert not memory.delete_scratch("current_page")
    assert memory.scratch_keys == ["extracted_items"]


def test_notes_are_copied_both_ways() -> None:
    memory = WorkingState()
    items = [1]
    memory.set_scratch("items", items)
    items.append(2)
    memory.get_scratch("items").append(3)
    assert memory.get_scratch("items") == [1]


@pytest.mark.parametrize("value", [object(), {1}, (1, 2), float("nan"), {1: 2}, [b"x"]])
def test_a_note_unknown_to_json_is_rejected_by_name(value: Any) -> None:
    memory = WorkingState()
    with pytest.raises(InvalidInputError, match="'odd'"):
        memory.set_scratch("odd", value)
    assert memory.scratch_keys == []


def test_page_urls_are_compared_without_slash_and_fragment() -> None:
    memory = WorkingState()
    page_map = {"title": "Home"}
    memory.store_page_map("https://example.com", page_map)
    for url in ("https://example.com/", "https://example.com#top", "HTTPS://EXAMPLE.com"):
        assert memory.has_page_map(url)
        assert memory.get_page_map(url) is page_map
    assert not memory.has_page_map("https://example.com/other")
    assert memory.get_page_map("https://example.com/other") is None
    assert memory.get_page_summary("https://example.com/other") is None
    assert list(memory.get_all_page_maps().values()) == [page_map]


def test_a_key_that_is_not_a_web_address_is_accepted() -> None:
    memory = WorkingState()
    memory.store_page_map("menu/settings/", "The settings")
    assert memory.get_page_map("menu/settings#top") == "The settings"
    assert not memory.has_page_map("")


class Kind(Enum):
    HEADER = "header"


@dataclass
class Section:
    name: str
    kind: Kind = Kind.HEADER


@dataclass
class PageMap:
    title: str
    sections: list[Section] = field(default_factory=list)


class UntypedPage:
    def __init__(self) -> None:
        self.title = "Loose"
        self.parent = self

    @property
    def summary(self) -> str:
        raise RuntimeError

    def sections(self) -> str:
        return "never called"


@pytest.mark.parametrize(
    ("page_map", "summary"),
    [
        ("Product catalog\nwith 50 items", "Product catalog with 50 items"),
        ({"title": "Products", "summary": "50 items"}, "Products: 50 items"),
        ({"title": "T", "sections": ["Top", {"name": "Main"}, 3]}, "T [3 sections: Top, Main]"),
        ({"title": "T", "sections": 5, "elements": [{}, {}]}, "T [5 sections; 2 elements]"),
        ({"title": "T", "sections": [], "elements": True}, "T"),
        (
            {"title": "T", "sections": {"Top": 1}, "elements": {"a": 1, "b": 2}},
            "T [1 sections: Top; 2 elements]",
        ),
        ({"title": "T", "sections": list("123456789")}, "T [9 sections: 1, 2, 3, 4, 5, 6, 7, 8]"),
        ({"title": "T", "sections": [1, {"id": " ", "other": "x"}]}, "T [2 sections]"),
        ({"title": "T", "sections": [{"id": "i", "heading": "H", "label": 3}]}, "T [1 sections: H]"),
        ({"links": [], "forms": []}, "links, forms"),
        (PageMap("Typed", [Section("Top")]), "Typed [1 sections: Top]"),
        (UntypedPage(), "Loose"),
        ("x" * 1000, "x" * 300 + "..."),
        (["a"], "['a']"),
    ],
)
def test_a_page_is_summarized_in_one_line(page_map: object, summary: str) -> None:
    memory = WorkingState()
    memory.store_page_map("https://example.com", page_map)
    assert memory.get_page_summary("https://example.com") == summary
    restored = WorkingState.from_dict(json.loads(json.dumps(memory.to_dict())))
    assert restored == memory
    assert restored.get_page_summary("https://example.com") == summary


def test_page_maps_with_cycles_are_accepted() -> None:
    nodes = [UntypedPage() for _ in range(50)]
    for node in nodes:
        node.__dict__["neighbours"] = nodes
    memory = WorkingState()
    memory.store_page_map("https://example.com", nodes)
    assert memory.get_page_map("https://example.com") is nodes


def dump_page_map(page_map: object) -> Any:
    """Return the serialized page map."""
    memory = WorkingState()
    memory.store_page_map("https://example.com", page_map)
    (kept,) = memory.to_dict()["page_maps"].values()
    return kept


def test_a_page_map_is_serialized_to_a_depth_of_30() -> None:
    page: Any = "text"
    for _ in range(30):
        page = [page]
    assert dump_page_map(page) == page
    deeper, kept = [page], dump_page_map([page])
    for _ in range(30):
        deeper, kept = deeper[0], kept[0]
    assert (deeper, kept) == (["text"], "...")


def test_a_page_map_is_serialized_up_to_20_000_parts() -> None:
    kept = dump_page_map([[] for _ in range(20_000)])
    assert kept == [[]] * 19_999 + ["..."]  # the list is a part too


def test_200_page_maps_are_kept_and_the_oldest_is_removed() -> None:
    memory = WorkingState()
    for number in range(201):
        memory.store_page_map(f"https://example.com/{number}", "page")
    memory.store_page_map("https://example.com/1", "again")
    memory.store_page_map("https://example.com/new", "page")
    assert len(memory.get_all_page_maps()) == 200
    assert not memory.has_page_map("https://example.com/0")
    assert memory.has_page_map("https://example.com/1")
    assert not memory.has_page_map("https://example.com/2")


def test_the_prompt_starts_with_the_most_important_lines() -> None:
    memory = navigate("a", "b")
    memory.set_goal("Find all prices")
    memory.set_scratch("page", 2)
    memory.count_cycle()
    memory.store_page_map("https://example.com/a", {"title": "Start"})
    assert memory.format(100, count_words) == (
        "Goal: Find all prices\n"
        "Current page: https://example.com/b\n"
        "Cycle: 1\n"
        "Note page: 2\n"
        "Came from: https://example.com/a\n"
        "Page https://example.com/a: Start"
    )
    assert memory.format(7, count_words) == "Goal: Find all prices\nCurrent page: https://example.com/b"
    assert memory.format(3, count_words) == "Goal: Find all"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@examples(60)
@given(
    st.text(max_size=400),
    st.dictionaries(st.text(min_size=1, max_size=9), values, max_size=4),
    st.dictionaries(st.text(min_size=1, max_size=9), values, max_size=4),
    st.integers(-1, 60),
    st.integers(0, 60),
)
def test_a_prompt_stays_within_its_limits_and_the_state_comes_back_equal(
    goal: str, notes: dict[str, Any], pages: dict[str, Any], limit: int, budget: int
) -> None:
    memory = WorkingState(budget, lambda: 5.0)
    memory.set_goal(goal)
    memory.set_active(Thought(goal), AgentAction("type", notes))
    memory.record_navigation(replace(SEED, page_title=goal[:9], form_state=notes))
    for key, value in notes.items():
        memory.set_scratch(key, value)
    for key, value in pages.items():
        memory.store_page_map(key, value)
    for count in (len, count_words, lambda text: (len(text) + 3) // 4):
        text = memory.format(limit, count)
        assert text == "" or count(text) <= min(limit, budget)
    restored = WorkingState.from_dict(json.loads(json.dumps(memory.to_dict())), lambda: 5.0)
    assert restored == memory
    assert restored.get_navigation_history() == memory.get_navigation_history()
    assert restored.format(60, len) == memory.format(60, len)


def test_clearing_keeps_only_the_budget() -> None:
    memory = navigate("a", "b")
    memory.set_goal("x")
    memory.set_scratch("a", 1)
    memory.store_page_map("https://example.com", "page")
    memory.clear()
    assert memory == WorkingState()


GOOD = navigate("a").to_dict()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"token_budget": -1}, "token_budget"),
        ({"goal": 3}, "goal"),
        ({"goal_set_at": "now"}, "goal_set_at"),
        ({"active_thought": []}, "active_thought"),
        ({"active_action": {"tool_name": 3}}, r"active_action\.tool_name"),
        ({"cycle_count": 1.5}, "cycle_count"),
        ({"navigation": []}, "navigation"),
        ({"navigation": {"path": [{}]}}, r"path\[0\]\.snapshot_id"),
        (
            {"navigation": {"path": [GOOD["navigation"]["path"][0] | {"scroll_position": [1]}]}},
            "scroll_position",
        ),
        ({"navigation": {"abandoned": [[{}]]}}, r"abandoned\[0\]\[0\]"),
        ({"scratch": {"a": float("nan")}}, r"scratch\['a'\]"),
        ({"page_maps": 1}, "page_maps"),
        ({"page_maps": {"https://a.example": {"x": float("inf")}}}, "https://a.example"),
    ],
)
def test_damaged_json_is_rejected_by_name(change: dict[str, Any], named: str) -> None:
    assert WorkingState.from_dict(GOOD).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match=named):
        WorkingState.from_dict({**GOOD, **change})


@given(values)
def test_any_json_gives_a_state_or_a_clear_error(value: Any) -> None:
    for data in (value, {"navigation": value}, {"navigation": {"abandoned": value}}, {"page_maps": value}):
        with suppress(InvalidInputError):
            WorkingState.from_dict(data)
