"""The prompt of an agent memory under small budgets."""

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


def reopen(memory: AgentMemory) -> AgentMemory:
    return AgentMemory(engine=memory.engine, task=memory.task)


def act(memory: AgentMemory, number: int, **fields: Any) -> None:
    memory.record_cycle("", AgentAction("click", {"selector": f"#item-{number}"}), "It opened.", **fields)


def test_the_prompt_contains_the_current_page_of_actions_and_cycles(memory: AgentMemory) -> None:
    memory.start_task("Buy a lamp")
    memory.record_cycle("", AgentAction("goto", {"url": SHOP}))
    assert f"## Current page\n{SHOP}" in memory.format_for_prompt()
    act(memory, 1, url=f"{SHOP}/cart")
    for current in (memory, reopen(memory)):
        assert current.current_url == f"{SHOP}/cart"
        assert f"## Current page\n{SHOP}/cart" in current.format_for_prompt(max_tokens=40)


def test_goal_page_and_warnings_are_kept_before_history_and_data(memory: AgentMemory) -> None:
    memory.start_task("Buy a lamp")
    for number in range(10):
        act(memory, number, url=f"{SHOP}/list")
    for _ in range(3):
        memory.record_cycle("", CLICK, "It opened.", url=f"{SHOP}/list")
    prompt = memory.format_for_prompt(max_tokens=120)
    assert "Buy a lamp" in prompt
    assert f"{SHOP}/list" in prompt
    assert "Warning: click(#menu) repeated 3 times" in prompt
    assert '10. [Success] click({"selector": "#menu"})' in prompt  # the newest is there, the oldest is not
    assert "1. [Success]" not in prompt.replace("11. [Success]", "")
    assert "older entries were left out]" in prompt


def test_history_is_cut_entry_by_entry_with_a_correct_count(memory: AgentMemory) -> None:
    memory.start_task("Buy a lamp")
    for number in range(10):
        act(memory, number)
    whole = memory.counter.count(memory.format_for_prompt())
    shown_counts = set()
    for max_tokens in range(60, whole + 1):
        prompt = memory.format_for_prompt(max_tokens=max_tokens)
        shown = prompt.count("[Success]")
        shown_counts.add(shown)
        if shown < 10 and "older entries" in prompt:
            assert f"[{10 - shown} older entries were left out]" in prompt
    assert shown_counts >= {3, 5, 7, 9, 10}


def test_a_large_user_context_is_truncated(memory: AgentMemory) -> None:
    memory.start_task("Buy", {"rules": "Never pay more than ten. " * 400})
    memory.working.set_scratch("note", "remember this " * 200)
    for number in range(5):
        act(memory, number, url=SHOP)
    prompt = memory.format_for_prompt(max_tokens=400)
    assert prompt.count("[Success]") >= 3
    assert "Never pay more than ten." in prompt
    assert memory.counter.count(prompt) > 300


def test_context_relevant_to_the_task_comes_first(memory: AgentMemory) -> None:
    memory.start_task("Extract product data", {"category": "electronics", "product_limit": 5})
    prompt = memory.format_for_prompt()
    assert prompt.index("- product_limit: 5") < prompt.index("- category: electronics")


def test_urls_in_the_middle_of_a_huge_page_are_kept(memory: AgentMemory) -> None:
    urls = [f"{SHOP}/item/{number}" for number in range(40)]
    page = "\n".join(f"{'The lamp is bright and cheap. ' * 220}See {url} for more." for url in urls)
    assert len(page) > 250_000
    memory.record_cycle("", AgentAction("extract_text"), page)
    for current in (memory, reopen(memory)):
        prompt = current.format_for_prompt()
        assert all(f"{url}\n" in f"{prompt}\n" for url in urls)


def test_urls_take_precedence_over_key_facts_in_an_extraction() -> None:
    urls = [f"{SHOP}/a-rather-long-name-of-an-item/{number}" for number in range(60)]
    page = "\n".join(
        f"Lamp {number} costs {number} euros and lasts {number} years: {url}"
        for number, url in enumerate(urls)
    )
    with AgentMemory(max_single_extraction_chars=6_300) as memory:
        memory.record_cycle("", AgentAction("extract_text"), page * 3)
        prompt = memory.format_for_prompt()
    assert all(url in prompt for url in urls)


@pytest.mark.parametrize("tool", ["search", "search_api", "get_page_state", "get_attribute"])
def test_results_of_url_critical_tools_are_shown_completely(memory: AgentMemory, tool: str) -> None:
    results = "\n".join(f"{number}. Lamp: {SHOP}/lamp/{number}" for number in range(60))
    memory.record_cycle("", AgentAction(tool), results)
    assert results in memory.format_for_prompt()


def test_only_the_latest_state_of_a_page_is_shown(memory: AgentMemory) -> None:
    for state in ("Cart: empty", "Cart: one lamp"):
        memory.record_cycle("", AgentAction("get_page_state"), f"{state} {SHOP}/cart", url=SHOP)
    (extraction,) = memory.context_store.extractions()
    assert extraction.data.startswith("Cart: one lamp")


def test_results_of_a_custom_tool_are_shown_as_extracted_data(memory: AgentMemory) -> None:
    memory.compressor.compressible_tools |= {"read_mail"}
    memory.record_cycle("", AgentAction("read_mail"), "The parcel comes on Monday.")
    assert "### read_mail (cycle 1)\nThe parcel comes on Monday." in memory.format_for_prompt()


def test_the_mode_determines_which_section_is_cut_first() -> None:
    prompts = {}
    for mode in (OperationMode.AUTO, OperationMode.SCRAPE):
        with AgentMemory(max_extraction_budget_percent=1.0) as memory:
            memory.set_operation_mode(mode)
            memory.start_task("Get prices")
            for number in range(5):
                act(memory, number)
            memory.record_cycle("", AgentAction("extract_data"), "A lamp costs ten euros. " * 40)
            prompts[mode] = memory.format_for_prompt(max_tokens=260)
    assert prompts[OperationMode.AUTO].count("[Success]") > prompts[OperationMode.SCRAPE].count("[Success]")
    assert prompts[OperationMode.SCRAPE].count("ten euros") > prompts[OperationMode.AUTO].count("ten euros")


@pytest.mark.parametrize(
    ("mode", "tool"),
    [("execute", "click"), ("execute", "fill"), ("research", "search"), ("research", "extract_text")],
)
def test_cycles_that_the_mode_prefers_have_high_priority(memory: AgentMemory, mode: str, tool: str) -> None:
    memory.set_operation_mode(mode)
    assert memory.record_cycle("", AgentAction(tool)).priority == "high"


def test_only_successful_actions_are_called_successful(memory: AgentMemory) -> None:
    for tool, outcome in zip("abcdef", ExecutionOutcome, strict=True):
        memory.record_cycle("", AgentAction(tool), None, outcome)
    summary = memory.get_task_summary()
    assert "Actions: 6 total (1 successful, 2 failed, 3 other)" in summary
    assert "Recent successful actions: a" in summary.splitlines()


def test_mode_and_context_set_before_a_task_apply_to_it(memory: AgentMemory) -> None:
    memory.set_operation_mode("scrape")
    memory.context_store.set_user_context({"language": "English"})
    memory.start_task("Get prices", {"currency": "euro"})
    for current in (memory, reopen(memory)):
        assert current.get_operation_mode() == "scrape"
        assert current.context_store.get_all() == {"language": "English", "currency": "euro"}


def test_a_task_that_cannot_start_leaves_the_former_in_place(memory: AgentMemory) -> None:
    memory.start_task("Get prices")
    act(memory, 1)
    before = memory.task
    with pytest.raises(InvalidInputError, match="when"):
        memory.start_task("Another", {"when": dt.date(2025, 1, 1)})
    assert (memory.task, memory.working.current_goal, memory.working.cycle_count) == (before, "Get prices", 1)


def test_adding_links_of_a_page_marks_it_as_visited(memory: AgentMemory) -> None:
    memory.init_sitemap_graph(SHOP)
    memory.add_sitemap_links(SHOP, [f"{SHOP}/cart"])
    assert memory.has_visited_url(SHOP)
    assert "Pages visited: 1" in memory.get_task_summary()
    assert "  - https://shop.example/\n" in f"{memory.get_task_summary()}\n"


def test_a_failed_page_is_not_offered_again(memory: AgentMemory) -> None:
    memory.init_sitemap_graph(SHOP)
    memory.add_sitemap_links(SHOP, [f"{SHOP}/gone", f"{SHOP}/cart"])
    assert memory.get_next_page_to_visit() == f"{SHOP}/gone"
    memory.update_sitemap_failed(f"{SHOP}/gone", "404")
    for current in (memory, reopen(memory)):
        assert current.get_next_page_to_visit() == f"{SHOP}/cart"
        assert current.sitemap is not None
        assert current.sitemap.page(f"{SHOP}/gone").failure == "404"  # type: ignore[union-attr]
