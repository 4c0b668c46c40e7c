"""What an agent is told of its task when there is little room, and what never gets lost on the way there."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import AgentAction, AgentMemory, InvalidInputError
from langmem_tiers.tasks.models import ExecutionOutcome, OperationMode

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOP = "https://shop.example"
CLICK = AgentAction("click", {"selector": "#menu"})


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


def again(memory: AgentMemory) -> AgentMemory:
    return AgentMemory(engine=memory.engine, task=memory.task)


def act(memory: AgentMemory, number: int, **about: Any) -> None:
    memory.record_cycle("", AgentAction("click", {"selector": f"#item-{number}"}), "It opened.", **about)


def test_the_current_page_is_told_whoever_named_it(memory: AgentMemory) -> None:
    memory.start_task("Buy a lamp")
    memory.record_cycle("", AgentAction("goto", {"url": SHOP}))
    assert f"## Current page\n{SHOP}" in memory.format_for_prompt()
    act(memory, 1, url=f"{SHOP}/cart")
    for one in (memory, again(memory)):
        assert one.current_url == f"{SHOP}/cart"
        assert f"## Current page\n{SHOP}/cart" in one.format_for_prompt(max_tokens=40)


def test_goal_page_and_warnings_outlive_history_and_data(memory: AgentMemory) -> None:
    memory.start_task("Buy a lamp")
    for number in range(10):
        act(memory, number, url=f"{SHOP}/list")
    for _ in range(3):
        memory.record_cycle("", CLICK, "It opened.", url=f"{SHOP}/list")
    told = memory.format_for_prompt(max_tokens=120)
    assert "Buy a lamp" in told
    assert f"{SHOP}/list" in told
    assert "Warning: click(#menu) repeated 3 times" in told
    assert '10. [Success] click({"selector": "#menu"})' in told  # the newest is there, the oldest is not
    assert "1. [Success]" not in told.replace("11. [Success]", "")
    assert "older entries were left out]" in told


def test_history_goes_one_entry_at_a_time_and_the_count_is_right(memory: AgentMemory) -> None:
    memory.start_task("Buy a lamp")
    for number in range(10):
        act(memory, number)
    whole = memory.counter.count(memory.format_for_prompt())
    seen = set()
    for room in range(60, whole + 1):
        told = memory.format_for_prompt(max_tokens=room)
        shown = told.count("[Success]")
        seen.add(shown)
        if shown < 10 and "older entries" in told:
            assert f"[{10 - shown} older entries were left out]" in told
    assert seen >= {3, 5, 7, 9, 10}


def test_a_large_context_is_cut_and_takes_no_room_from_the_rest(memory: AgentMemory) -> None:
    memory.start_task("Buy", {"rules": "Never pay more than ten. " * 400})
    memory.working.set_scratch("note", "remember this " * 200)
    for number in range(5):
        act(memory, number, url=SHOP)
    told = memory.format_for_prompt(max_tokens=400)
    assert told.count("[Success]") >= 3
    assert "Never pay more than ten." in told
    assert memory.counter.count(told) > 300


def test_what_has_to_do_with_the_task_comes_first_and_the_rest_is_told_too(memory: AgentMemory) -> None:
    memory.start_task("Extract product data", {"category": "electronics", "product_limit": 5})
    told = memory.format_for_prompt()
    assert told.index("- product_limit: 5") < told.index("- category: electronics")


def test_addresses_between_the_beginning_and_the_end_of_a_huge_page_are_kept(memory: AgentMemory) -> None:
    urls = [f"{SHOP}/item/{number}" for number in range(40)]
    page = "\n".join(f"{'The lamp is bright and cheap. ' * 220}See {url} for more." for url in urls)
    assert len(page) > 250_000
    memory.record_cycle("", AgentAction("extract_text"), page)
    for one in (memory, again(memory)):
        told = one.format_for_prompt()
        assert all(f"{url}\n" in f"{told}\n" for url in urls)


def test_key_facts_give_way_to_addresses_within_the_characters_of_an_extraction() -> None:
    urls = [f"{SHOP}/a-rather-long-name-of-an-item/{number}" for number in range(60)]
    page = "\n".join(
        f"Lamp {number} costs {number} euros and lasts {number} years: {url}"
        for number, url in enumerate(urls)
    )
    with AgentMemory(max_single_extraction_chars=6_300) as memory:
        memory.record_cycle("", AgentAction("extract_text"), page * 3)
        told = memory.format_for_prompt()
    assert all(url in told for url in urls)


@pytest.mark.parametrize("tool", ["search", "search_api", "get_page_state", "get_attribute"])
def test_what_an_agent_goes_on_from_is_shown_whole(memory: AgentMemory, tool: str) -> None:
    results = "\n".join(f"{number}. Lamp: {SHOP}/lamp/{number}" for number in range(60))
    memory.record_cycle("", AgentAction(tool), results)
    assert results in memory.format_for_prompt()


def test_of_a_page_only_the_latest_state_is_shown(memory: AgentMemory) -> None:
    for state in ("Cart: empty", "Cart: one lamp"):
        memory.record_cycle("", AgentAction("get_page_state"), f"{state} {SHOP}/cart", url=SHOP)
    (held,) = memory.context_store.extractions()
    assert held.data.startswith("Cart: one lamp")


def test_a_tool_of_ones_own_brings_data_too(memory: AgentMemory) -> None:
    memory.compressor.compressible_tools |= {"read_mail"}
    memory.record_cycle("", AgentAction("read_mail"), "The parcel comes on Monday.")
    assert "### read_mail (cycle 1)\nThe parcel comes on Monday." in memory.format_for_prompt()


def test_the_mode_decides_what_gives_way_first() -> None:
    told = {}
    for mode in (OperationMode.AUTO, OperationMode.SCRAPE):
        with AgentMemory(max_extraction_budget_percent=1.0) as memory:
            memory.set_operation_mode(mode)
            memory.start_task("Get prices")
            for number in range(5):
                act(memory, number)
            memory.record_cycle("", AgentAction("extract_data"), "A lamp costs ten euros. " * 40)
            told[mode] = memory.format_for_prompt(max_tokens=260)
    assert told[OperationMode.AUTO].count("[Success]") > told[OperationMode.SCRAPE].count("[Success]")
    assert told[OperationMode.SCRAPE].count("ten euros") > told[OperationMode.AUTO].count("ten euros")


@pytest.mark.parametrize(
    ("mode", "tool"),
    [("execute", "click"), ("execute", "fill"), ("research", "search"), ("research", "extract_text")],
)
def test_what_the_mode_is_out_for_is_pruned_last(memory: AgentMemory, mode: str, tool: str) -> None:
    memory.set_operation_mode(mode)
    assert memory.record_cycle("", AgentAction(tool)).priority == "high"


def test_only_what_succeeded_is_called_successful(memory: AgentMemory) -> None:
    for tool, outcome in zip("abcdef", ExecutionOutcome, strict=True):
        memory.record_cycle("", AgentAction(tool), None, outcome)
    told = memory.get_task_summary()
    assert "Actions: 6 total (1 successful, 2 failed, 3 other)" in told
    assert "Recent successful actions: a" in told.splitlines()


def test_what_is_set_before_a_task_belongs_to_it(memory: AgentMemory) -> None:
    memory.set_operation_mode("scrape")
    memory.context_store.set_user_context({"language": "English"})
    memory.start_task("Get prices", {"currency": "euro"})
    for one in (memory, again(memory)):
        assert one.get_operation_mode() == "scrape"
        assert one.context_store.get_all() == {"language": "English", "currency": "euro"}


def test_a_task_that_cannot_begin_leaves_the_one_before(memory: AgentMemory) -> None:
    memory.start_task("Get prices")
    act(memory, 1)
    before = memory.task
    with pytest.raises(InvalidInputError, match="when"):
        memory.start_task("Another", {"when": dt.date(2025, 1, 1)})
    assert (memory.task, memory.working.current_goal, memory.working.cycle_count) == (before, "Get prices", 1)


def test_whoever_finds_links_on_a_page_has_seen_it(memory: AgentMemory) -> None:
    memory.init_sitemap_graph(SHOP)
    memory.add_sitemap_links(SHOP, [f"{SHOP}/cart"])
    assert memory.has_visited_url(SHOP)
    assert "Pages visited: 1" in memory.get_task_summary()
    assert "  - https://shop.example/\n" in f"{memory.get_task_summary()}\n"


def test_a_page_that_cannot_be_opened_is_not_offered_again(memory: AgentMemory) -> None:
    memory.init_sitemap_graph(SHOP)
    memory.add_sitemap_links(SHOP, [f"{SHOP}/gone", f"{SHOP}/cart"])
    assert memory.get_next_page_to_visit() == f"{SHOP}/gone"
    memory.update_sitemap_failed(f"{SHOP}/gone", "404")
    for one in (memory, again(memory)):
        assert one.get_next_page_to_visit() == f"{SHOP}/cart"
        assert one.sitemap is not None
        assert one.sitemap.page(f"{SHOP}/gone").failure == "404"  # type: ignore[union-attr]
