"""The agent memory: the examples of the design, its rules, and invalid input."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from inspect import signature
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    CharCounter,
    EngineClosedError,
    ExecutionOutcome,
    InvalidConfigError,
    InvalidInputError,
    InvalidNameError,
    MemoryEngine,
    Thought,
)
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.tasks import (
    AdviceLevel,
    Cycle,
    LearnedPattern,
    MemoryPriority,
    NavigationSnapshot,
    Observation,
    OperationMode,
    SitemapLimits,
)
from langmem_tiers.tasks.models import compute_action_signature
from langmem_tiers.testing import FrozenClock, ScriptedLLM, seeded_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOME = "https://example.com"
CLICK = AgentAction("click", {"selector": "#submit"})


@pytest.fixture
def engine(clock: FrozenClock) -> Iterator[MemoryEngine]:
    with MemoryEngine(clock=clock, ids=seeded_ids(), embedder=None) as opened:
        yield opened


@pytest.fixture
def memory(engine: MemoryEngine) -> AgentMemory:
    return start_memory(engine)


def start_memory(engine: MemoryEngine) -> AgentMemory:
    found = AgentMemory(engine=engine)
    found.start_task("Extract product data from example.com")
    return found


def reopen(memory: AgentMemory, **settings: Any) -> AgentMemory:
    """Open the memory like another process."""
    options: dict[str, Any] = {
        "engine": memory.engine,
        "namespace": memory.namespace,
        "task": memory.task,
    } | settings
    return AgentMemory(**options)


def login(pattern_id: str = "login_example_com", domain: str = "example.com", **more: Any) -> LearnedPattern:
    return LearnedPattern(
        pattern_id=pattern_id,
        domain=domain,
        description="Login flow for example.com",
        pattern_type="login_flow",
        steps=(
            {"tool": "click", "selector": "#login-btn"},
            {"tool": "type", "selector": "#email", "text": "{email}"},
            {"tool": "type", "selector": "#password", "text": "{password}"},
            {"tool": "click", "selector": "#submit"},
        ),
        **more,
    )


def test_the_constructor_has_the_defaults_of_the_design() -> None:
    with AgentMemory() as memory:
        assert memory.context_window_budget == 64_000
        assert memory.short_term.max_entries == 50
        assert memory.long_term.max_patterns == 100
        assert memory.max_extraction_budget_percent == 0.20
        assert memory.max_extraction_tokens == 4_000
        assert memory.max_single_extraction_chars == 8_000
        assert memory.working.token_budget == 64_000 // 4
        limits = memory.extraction_budget
        assert (limits.max_percent, limits.max_tokens, limits.max_single_chars) == (0.20, 4_000, 8_000)
        assert memory.context_store.get_all() == {}
        assert memory.visited_urls == []
    parameter_names = list(signature(AgentMemory).parameters)[:6]
    assert parameter_names == [
        "context_window_budget",
        "short_term_max_entries",
        "long_term_max_patterns",
        "max_extraction_budget_percent",
        "max_extraction_tokens",
        "max_single_extraction_chars",
    ]


def test_every_setting_is_applied() -> None:
    with AgentMemory(1_000, 7, 9, 0.5, 300, 400) as memory:
        assert (memory.short_term.max_entries, memory.long_term.max_patterns) == (7, 9)
        assert memory.working.token_budget == 250
        limits = memory.extraction_budget
        assert (limits.max_percent, limits.max_tokens, limits.max_single_chars) == (0.5, 300, 400)
        for _ in range(30):
            memory.record_cycle("", CLICK)
        assert len(memory.short_term) == 7


@pytest.mark.parametrize(
    "settings",
    [
        {"context_window_budget": 0},
        {"context_window_budget": "many"},
        {"short_term_max_entries": 0},
        {"long_term_max_patterns": 0},
        {"max_extraction_budget_percent": 1.5},
        {"max_extraction_tokens": -1},
        {"max_single_extraction_chars": None},
    ],
    ids=str,
)
def test_an_invalid_setting_is_rejected_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InvalidConfigError, match=f"^{name} "):
        AgentMemory(**settings)


def test_the_key_methods_of_the_design_work(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    thought = Thought("The products are behind the menu")
    action = AgentAction("click", {"selector": "#menu"})
    observation = Observation("Element clicked successfully", summary="the menu is open")
    url = "https://example.com/page1"

    # Start a new task
    memory.start_task(
        goal="Extract product data from example.com",
        user_context={"category": "electronics"},
    )

    # Record a Thought-Action-Observation cycle
    entry = memory.record_cycle(
        thought=thought,
        action=action,
        observation=observation,
        outcome=ExecutionOutcome.SUCCESS,
        priority=MemoryPriority.HIGH,
    )
    assert isinstance(entry, Cycle)
    assert (entry.thought, entry.action, entry.observation) == (thought, action, observation)
    assert (entry.outcome, entry.priority) == (ExecutionOutcome.SUCCESS, MemoryPriority.HIGH)

    # Format memory for LLM prompt
    prompt_context = memory.format_for_prompt(domain="example.com")
    for text in (
        "Extract product data from example.com",
        "category: electronics",
        "click",
        "the menu is open",
    ):
        assert text in prompt_context

    # Check for repeated failures
    assert not memory.is_repeated_failure(action)
    memory.record_cycle(thought, action, "no such element", ExecutionOutcome.FAILURE)
    assert memory.is_repeated_failure(action)
    assert not memory.is_repeated_failure(action, url="https://example.com/elsewhere")
    assert not memory.is_repeated_failure(AgentAction("click", {"selector": "#other"}))

    # Track visited URLs
    memory.mark_url_visited("https://example.com/page1")
    assert memory.has_visited_url(url)
    assert memory.has_visited_url("HTTPS://Example.com/page1/#top")
    assert not memory.has_visited_url("https://example.com/page2")


def test_a_cycle_has_every_field_of_the_design(memory: AgentMemory, clock: FrozenClock) -> None:
    entry = memory.record_cycle(
        "t",
        CLICK,
        None,
        "timeout",
        "critical",
        url=HOME,
        page_title="Home",
        duration_ms=12.5,
        retry_count=2,
        error_message="took too long",
        tags={"slow", "menu"},
    )
    assert (entry.url, entry.page_title, entry.duration_ms, entry.retry_count) == (HOME, "Home", 12.5, 2)
    assert (entry.error_message, entry.tags) == ("took too long", frozenset({"slow", "menu"}))
    assert entry.timestamp == clock.now().timestamp()
    assert entry.estimated_tokens == memory.counter.count(entry.format_for_prompt())
    assert entry.action_signature == compute_action_signature(CLICK, HOME)
    assert [entry] == memory.short_term.entries == reopen(memory).short_term.entries
    assert memory.engine.session("agent", memory.task).get(entry.entry_id).id == entry.entry_id


def test_short_term_memory_matches_the_design(memory: AgentMemory) -> None:
    memory.record_cycle("", AgentAction("goto", {"url": HOME}))
    for _ in range(4):
        failed = memory.record_cycle("", CLICK, "not there", ExecutionOutcome.FAILURE)
    memory.record_cycle("", AgentAction("scroll_page", {"direction": "down"}), "Scrolled")

    # Get last 5 entries
    recent = memory.short_term.get_recent(n=5)
    assert [entry.action.tool_name for entry in recent] == ["click"] * 4 + ["scroll_page"]

    # Get entries by outcome
    failures = memory.short_term.get_by_outcome(ExecutionOutcome.FAILURE)
    assert len(failures) == 4

    # Check if action has failed before
    assert memory.short_term.has_failed(failed.action_signature)

    # Get warnings about repeated actions
    warnings = memory.short_term.get_loop_warnings(threshold=3)
    assert warnings == ["Warning: click(#submit) repeated 4 times in last 6 actions!"]
    assert warnings[0] in memory.warnings()

    # Check action frequency
    assert memory.short_term.get_action_frequency("scroll_page", {"direction": "down"}) == 1

    history = memory.short_term.format_history(last_n=6)
    assert history.startswith("## Recent Actions\nWarning: click(#submit) repeated 4 times")
    assert (
        '1. [Success] goto({"url": "https://example.com"})\n   Navigated to: https://example.com' in history
    )
    assert '6. [Success] scroll_page({"direction": "down"})\n   Result: Scrolled' in history

    total_tokens = memory.short_term.total_tokens()
    assert total_tokens == sum(entry.estimated_tokens for entry in memory.short_term.entries) > 0


def test_working_memory_matches_the_design(memory: AgentMemory) -> None:
    # Set task goal
    memory.working.set_goal("Find and extract all product prices")
    memory.record_cycle("", CLICK)
    assert f"Cycle: {memory.working.cycle_count}" == "Cycle: 1"
    assert memory.working.current_goal == "Find and extract all product prices"

    # Record navigation state
    snapshot = NavigationSnapshot(
        snapshot_id="snap_001",
        timestamp=time.time(),
        url="https://example.com/products",
        page_title="Products",
        visible_elements_summary="Product list with 20 items",
        scroll_position=(0, 500),
    )
    memory.working.record_navigation(snapshot)
    assert memory.working.get_navigation_history() == [snapshot]

    # Store temporary data
    memory.working.set_scratch("extracted_items", [])
    memory.working.set_scratch("current_page", 1)
    items = memory.working.get_scratch("extracted_items", default=[])
    assert items == []
    assert memory.working.get_scratch("nothing", default=[]) == []
    assert "Note current_page: 1" in memory.format_for_prompt()


@dataclass
class PageMap:
    title: str
    sections: list[str]


def test_page_maps_match_the_design(memory: AgentMemory) -> None:
    page_map, url = PageMap("Home", ["Header", "Products"]), "https://example.com/"

    # Store PageMap for a URL
    memory.store_page_map("https://example.com", page_map)

    # Check if PageMap exists
    assert memory.has_page_map(url)
    assert memory.get_page_map(url) is page_map
    assert not memory.has_page_map("https://example.com/other")

    # Get all stored PageMaps
    all_maps = memory.get_all_page_maps()
    assert list(all_maps.values()) == [page_map]

    # Get page summary
    summary = memory.get_page_summary("https://example.com")
    assert summary == "Home [2 sections: Header, Products]"
    resumed = reopen(memory)
    assert resumed.get_page_summary(HOME) == summary
    assert resumed.get_page_map(HOME) == {"title": "Home", "sections": ["Header", "Products"]}


def test_patterns_match_the_design(memory: AgentMemory) -> None:
    # Learn a new pattern
    pattern = login()
    memory.learn_pattern(pattern)

    # Get patterns for a domain
    patterns = memory.get_patterns_for_domain("example.com")
    assert [pattern.pattern_id for pattern in patterns] == ["login_example_com"]
    assert patterns[0].steps == pattern.steps
    assert memory.get_patterns_for_domain("https://www.example.com/login") == patterns
    assert memory.get_patterns_for_domain("example.org") == []

    # Record usage outcome
    memory.long_term.record_usage("login_example_com", success=True)
    memory.long_term.record_usage("login_example_com", success=False)
    (used,) = memory.get_patterns_for_domain("example.com")
    assert (used.success_count, used.failure_count, used.success_rate) == (1, 1, 0.5)
    prompt = memory.format_for_prompt(domain="example.com")
    assert "Login flow for example.com (login_flow, worked 50% of 2)" in prompt
    assert "{password}" in prompt
    assert "Login flow" not in memory.format_for_prompt(domain="example.org")
    with pytest.raises(InvalidInputError, match="'nobody'"):
        memory.long_term.record_usage("nobody", success=True)


def test_the_least_useful_patterns_are_removed_down_to_80_percent_of_the_cap(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine, long_term_max_patterns=10)
    for number in range(11):
        memory.learn_pattern(login(f"p{number}", success_count=number, failure_count=1))
    kept = {f"p{number}" for number in range(3, 11)}
    assert {pattern.pattern_id for pattern in memory.long_term.patterns} == kept
    assert {pattern.pattern_id for pattern in reopen(memory).long_term.patterns} == kept


def test_a_smaller_cap_does_not_remove_stored_patterns(engine: MemoryEngine) -> None:
    many = AgentMemory(engine=engine)
    for number in range(20):
        many.learn_pattern(login(f"p{number}", success_count=number, failure_count=1))
    few = AgentMemory(engine=engine, long_term_max_patterns=5)
    assert {pattern.pattern_id for pattern in few.long_term.patterns} <= {
        f"p{number}" for number in range(15, 20)
    }
    assert len(AgentMemory(engine=engine).long_term) == 20


def test_the_context_store_matches_the_design(memory: AgentMemory, clock: FrozenClock) -> None:
    # Set user-provided context
    memory.context_store.set_user_context(
        {
            "username": "user@example.com",
            "preferred_language": "English",
            "max_items": 100,
        }
    )

    # Get context value
    username = memory.context_store.get("username")
    assert username == "user@example.com"

    # Add context learned during execution
    memory.add_inferred_context(key="login_required", value=True, source="detected login form")
    memory.add_inferred_context(key="pagination_type", value="infinite_scroll", source="page analysis")
    assert memory.context_store.get_source("login_required") == "detected login form"

    # Get all context
    all_context = memory.context_store.get_all()
    assert list(all_context) == [
        "username",
        "preferred_language",
        "max_items",
        "login_required",
        "pagination_type",
    ]

    # Get context relevant to a specific task
    relevant = memory.context_store.get_relevant_context("login to the website and navigate to products")
    assert relevant == {"login_required": True}

    # Cache extraction result
    products = [{"name": "Lamp", "price": 20}]
    memory.context_store.cache_extraction("product_list", products)

    # Retrieve if still valid (5 min default TTL)
    cached = memory.context_store.get_cached_extraction("product_list", max_age_seconds=300)
    assert cached == products
    clock.advance(timedelta(seconds=301))
    assert memory.context_store.get_cached_extraction("product_list") is None
    assert reopen(memory).context_store == memory.context_store


def test_site_exploration_matches_the_design(memory: AgentMemory) -> None:
    # Initialize site exploration
    graph = memory.init_sitemap_graph(
        homepage_url="https://example.com",
        limits=SitemapLimits(max_depth=2, max_pages=50),
    )
    assert memory.sitemap is graph

    # Add discovered links
    memory.add_sitemap_links(
        parent_url="https://example.com",
        links=[
            {"url": "https://example.com/products", "text": "Products"},
            {"url": "https://example.com/about", "text": "About"},
        ],
        link_type="main_nav",
    )
    assert memory.get_next_page_to_visit() == "https://example.com/products"

    # Mark page as visited
    memory.update_sitemap_visited(
        url="https://example.com/products",
        title="Products",
        summary="Product catalog with 50 items",
        section_count=5,
    )
    assert memory.has_visited_url("https://example.com/products")

    # Get next page to visit
    next_url = memory.get_next_page_to_visit()
    assert next_url == "https://example.com/about"

    # Check if exploration is complete
    assert not memory.is_sitemap_exploration_complete()
    memory.update_sitemap_visited("https://example.com/about")
    assert memory.is_sitemap_exploration_complete()
    assert memory.get_next_page_to_visit() is None
    # Generate final summary
    summary = memory.format_site_exploration_summary()
    assert "Product catalog with 50 items" in summary
    assert "Product catalog with 50 items" in memory.format_for_prompt()
    assert reopen(memory).format_site_exploration_summary() == summary


def test_sitemap_methods_without_a_sitemap_name_the_missing_call(memory: AgentMemory) -> None:
    calls: list[Callable[[], object]] = [
        memory.get_next_page_to_visit,
        memory.is_sitemap_exploration_complete,
        memory.format_site_exploration_summary,
        lambda: memory.add_sitemap_links(HOME, []),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="init_sitemap_graph"):
            call()


def test_the_operation_mode_can_be_set_and_read(memory: AgentMemory) -> None:
    assert memory.get_operation_mode() is OperationMode.AUTO
    # Set operation mode
    memory.set_operation_mode(OperationMode.SCRAPE)

    # Get current mode
    mode = memory.get_operation_mode()
    assert mode is OperationMode.SCRAPE
    memory.set_operation_mode("navigate")
    assert reopen(memory).get_operation_mode() is OperationMode.NAVIGATE
    for value in ("sideways", None, 3):
        with pytest.raises(InvalidInputError, match=f"unknown mode {value!r}: use one of auto, "):
            memory.set_operation_mode(value)  # type: ignore[arg-type]
    assert memory.get_operation_mode() is OperationMode.NAVIGATE


@pytest.mark.parametrize(
    ("mode", "tool", "outcome", "priority"),
    [
        ("auto", "click", "success", "normal"),
        ("auto", "click", "failure", "high"),
        ("auto", "scroll", "timeout", "high"),
        ("auto", "scroll", "success", "low"),
        ("auto", "extract_text", "success", "normal"),
        ("scrape", "extract_text", "success", "high"),
        ("scrape", "goto", "success", "normal"),
        ("navigate", "goto", "success", "high"),
        ("navigate", "extract_text", "success", "normal"),
        ("navigate", "wait", "success", "low"),
    ],
)
def test_the_mode_determines_the_priority_of_a_cycle(
    memory: AgentMemory, mode: str, tool: str, outcome: str, priority: str
) -> None:
    memory.set_operation_mode(mode)
    assert memory.record_cycle("", AgentAction(tool), "x", outcome).priority == priority
    assert memory.record_cycle("", AgentAction(tool), "x", outcome, "critical").priority == "critical"


def test_cycles_that_the_mode_prefers_are_pruned_last(engine: MemoryEngine) -> None:
    memory = AgentMemory(short_term_max_entries=5, engine=engine)
    memory.set_operation_mode(OperationMode.SCRAPE)
    extracted = memory.record_cycle("", AgentAction("extract_text", {"selector": "#price"}), "20 EUR")
    critical = memory.record_cycle("", AgentAction("click", {"n": -1}), priority=MemoryPriority.CRITICAL)
    for number in range(40):
        memory.record_cycle("", AgentAction("click", {"n": number}))
    assert memory.short_term.entries[:2] == [extracted, critical]
    assert len(memory.short_term) == 5
    assert reopen(memory, short_term_max_entries=5).short_term == memory.short_term


def test_the_mode_determines_the_length_of_the_history(memory: AgentMemory) -> None:
    for number in range(20):
        memory.record_cycle("", AgentAction("click", {"selector": f"#n{number}"}))
    shown = {}
    for mode in OperationMode:
        memory.set_operation_mode(mode)
        shown[mode.value] = memory.format_for_prompt().count("[Success] click")
    assert shown == {"auto": 10, "navigate": 8, "execute": 10, "scrape": 5, "research": 8}


def test_the_task_summary_has_the_form_of_the_design(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    memory.start_task("Extract product data")
    memory.init_sitemap_graph(HOME)
    memory.record_cycle("", AgentAction("goto", {"url": f"{HOME}/products"}))
    for number in range(3):
        memory.record_cycle("", AgentAction("click", {"n": number}), "gone", ExecutionOutcome.FAILURE)
    for tool in ("scroll", "extract_text", "click"):
        memory.record_cycle("", AgentAction(tool), "done")
    long = "Main product listing with categories " * 5
    memory.update_sitemap_visited(f"{HOME}/products", "Products", long)
    memory.update_sitemap_visited(f"{HOME}/electronics", "Electronics", "Electronic products")
    summary = memory.get_task_summary()
    assert summary == (
        "Goal: Extract product data\n"
        "Actions: 7 total (4 successful, 3 failed)\n"
        "Current page: https://example.com/products\n"
        "Pages visited: 2\n"
        "\n"
        "Explored pages (2 total):\n"
        f"  - Products: {long[:60].rstrip()}...\n"
        "  - Electronics: Electronic products\n"
        "\n"
        "Recent successful actions: click, extract_text, scroll, goto"
    )
    assert reopen(memory).get_task_summary() == summary


def test_the_life_cycle_of_a_task(memory: AgentMemory) -> None:
    first = memory.task
    memory.working.set_scratch("page", 1)
    memory.add_inferred_context("a", 1)
    memory.mark_url_visited(HOME)
    memory.init_sitemap_graph(HOME)
    memory.set_operation_mode("scrape")
    memory.record_cycle("", CLICK, "no", "failure")
    memory.learn_pattern(login())

    memory.start_task("Another goal")  # clears short-term, sets the goal
    assert memory.task != first
    assert memory.working.current_goal == "Another goal"
    assert (len(memory.short_term), memory.working.cycle_count, memory.working.scratch_keys) == (0, 0, [])
    assert (memory.visited_urls, memory.sitemap, memory.context_store.get_all()) == ([], None, {})
    assert not memory.is_repeated_failure(CLICK)
    assert (
        memory.get_operation_mode() is reopen(memory).get_operation_mode() is OperationMode.SCRAPE
    )  # it stays
    assert len(memory.long_term) == 1

    memory.record_cycle("", CLICK)
    memory.clear_task()  # clears short-term and working
    assert len(memory.short_term) == 0
    assert "Goal: -" in memory.get_task_summary()
    assert "Another goal" not in memory.format_for_prompt()
    assert len(memory.long_term) == 1
    assert reopen(memory, task=first).short_term.entries[0].action == CLICK  # nothing is lost

    memory.clear()
    assert len(memory.long_term) == len(reopen(memory).long_term) == 0


def test_a_named_task_is_started_under_its_name_and_resumed(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine, task="checkout")
    assert memory.start_task("Buy a lamp") == memory.task == "checkout"
    memory.record_cycle("", CLICK)
    resumed = AgentMemory(engine=engine, task="checkout")
    assert (resumed.working.current_goal, resumed.working.cycle_count) == ("Buy a lamp", 1)
    assert resumed.start_task("Something else") != "checkout"


def test_a_started_task_cannot_be_started_again_under_its_name(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    memory.start_task("Buy a lamp", task="checkout")
    memory.record_cycle("", CLICK)
    other = AgentMemory(engine=engine)
    with pytest.raises(InvalidInputError, match="'checkout' has already begun"):
        other.start_task("Buy a chair", task="checkout")
    assert (other.task == "checkout", other.working.cycle_count) == (False, 0)
    assert reopen(memory).working.current_goal == "Buy a lamp"


@pytest.mark.parametrize("goal", ["", "  ", None, 3, ["a"]])
def test_a_task_without_a_goal_is_rejected(memory: AgentMemory, goal: Any) -> None:
    before = memory.task
    with pytest.raises(InvalidInputError, match="needs a goal"):
        memory.start_task(goal)
    with pytest.raises(InvalidInputError, match="user_context must be a mapping, got list"):
        memory.start_task("A goal", user_context=[1])  # type: ignore[arg-type]
    assert memory.task == before
    assert memory.working.current_goal == "Extract product data from example.com"


def test_invalid_task_names_and_namespaces_are_rejected(engine: MemoryEngine) -> None:
    for task in ("", "x" * 1025, 7):
        with pytest.raises(InvalidNameError):
            AgentMemory(engine=engine, task=task)  # type: ignore[arg-type]
    with pytest.raises(InvalidNameError):
        AgentMemory(engine=engine, namespace=())


def test_closing_an_agent_memory_closes_only_its_own_engine(
    engine: MemoryEngine,
) -> None:
    with AgentMemory() as own, AgentMemory(engine=engine) as other:
        assert repr(own) == f"AgentMemory(task={own.task!r})"
    with pytest.raises(EngineClosedError):
        own.record_cycle("", CLICK)
    other.record_cycle("", CLICK)


@pytest.mark.soak
def test_another_process_restores_the_complete_task(memory: AgentMemory, clock: FrozenClock) -> None:
    _work_through(memory, clock)
    before = memory.format_for_prompt(domain="example.com")
    resumed = reopen(memory)
    assert resumed.format_for_prompt(domain="example.com") == before
    assert resumed.short_term == memory.short_term
    assert resumed.working == memory.working
    assert resumed.context_store == memory.context_store
    assert resumed.sitemap == memory.sitemap
    assert resumed.long_term == memory.long_term
    assert resumed.guard.state() == memory.guard.state()
    assert (resumed.advice, resumed.warnings()) == (memory.advice, memory.warnings())
    assert resumed.visited_urls == memory.visited_urls
    assert resumed.get_task_summary() == memory.get_task_summary()
    resumed.record_cycle("", CLICK)
    resumed.add_inferred_context("later", 1)
    assert reopen(memory).format_for_prompt() == resumed.format_for_prompt()


def _work_through(memory: AgentMemory, clock: FrozenClock) -> None:
    memory.mark_url_visited(f"{HOME}/first")
    memory.record_cycle("go", AgentAction("goto", {"url": HOME}), "A shop")
    clock.advance(timedelta(seconds=1))
    memory.mark_url_visited(f"{HOME}/second")
    memory.working.set_active(Thought("now the price"), AgentAction("extract_text", {"selector": "#price"}))
    memory.working.set_scratch("gone", 1)
    memory.working.delete_scratch("gone")
    memory.working.set_scratch("found", [1, {"a": None}])
    for number in range(3):
        state = NavigationSnapshot(snapshot_id=f"s{number}", timestamp=number, url=f"{HOME}/{number}")
        memory.working.record_navigation(state)
    memory.working.backtrack()
    memory.store_page_map(HOME, PageMap("Home", ["Header"]))
    memory.context_store.set_user_context({"max_items": 3})
    memory.add_inferred_context("login_required", value=True, source="form")
    memory.record_cycle("", AgentAction("extract_text"), "The price is 20 EUR")
    clock.advance(timedelta(seconds=400))
    memory.record_cycle("", AgentAction("get_page_content"), f"Read {HOME}/terms first. " * 2_000)
    memory.context_store.cache_extraction("mine", {"price": 20})
    memory.context_store.get_cached_extraction("mine")
    memory.init_sitemap_graph(HOME, SitemapLimits(max_pages=9))
    memory.add_sitemap_links(HOME, [{"href": "/a", "label": "A"}, "b", 7])  # type: ignore[list-item]
    memory.update_sitemap_visited(f"{HOME}/a", "A", "The first", 2)
    memory.learn_pattern(login())
    clock.advance(timedelta(seconds=5))
    for _ in range(9):
        memory.record_cycle("", CLICK, "Nothing happened", "failure")
    assert memory.answer_guard("the page was reloaded meanwhile")
    memory.record_cycle("", CLICK, "Nothing happened", "failure")
    memory.set_operation_mode("scrape")


@pytest.mark.parametrize("keep_user", [True, False])
def test_cleared_state_stays_cleared_in_another_process(memory: AgentMemory, keep_user: bool) -> None:  # noqa: FBT001 - a parameter
    memory.record_cycle("", CLICK)
    memory.working.set_scratch("a", 1)
    memory.working.clear()
    memory.record_cycle("", CLICK)
    memory.working.set_active(Thought("x"))
    memory.working.clear_active()
    memory.context_store.set_user_context({"a": 1})
    memory.add_inferred_context("b", 2)
    memory.context_store.clear(keep_user=keep_user)
    resumed = reopen(memory)
    assert resumed.working == memory.working
    assert resumed.working.cycle_count == 1
    assert resumed.context_store.get_all() == ({"a": 1} if keep_user else {})


def test_patterns_are_shared_only_within_a_namespace(engine: MemoryEngine) -> None:
    first, second = (AgentMemory(engine=engine, namespace=name) for name in (("acme", "a"), ("acme", "b")))
    first.learn_pattern(login(success_count=3))
    second.learn_pattern(login(success_count=1, failure_count=1))
    assert first.get_patterns_for_domain("example.com")[0].success_rate == 1.0
    assert reopen(first, task=None).get_patterns_for_domain("example.com")[0].success_count == 3
    assert reopen(second, task=None).get_patterns_for_domain("example.com")[0].success_rate == 0.5
    second.clear()
    assert len(reopen(first).long_term) == 1
    assert len(AgentMemory(engine=engine, namespace="acme").long_term) == 0


def test_concurrent_memories_lose_no_pattern_and_no_count(engine: MemoryEngine) -> None:
    first, second = AgentMemory(engine=engine), AgentMemory(engine=engine)
    first.learn_pattern(login("a"))
    second.learn_pattern(login("b"))
    first.long_term.record_usage("a", success=True)
    second.long_term.record_usage("a", success=True)
    first.long_term.record_usage("b", success=False)
    second.start_task("Go on")
    for memory in (first, second, AgentMemory(engine=engine)):
        used = {pattern.pattern_id: pattern for pattern in memory.long_term.patterns}
        assert (used["a"].success_count, used["b"].failure_count) == (2, 1)
    first.long_term.remove_pattern("b")
    assert [pattern.pattern_id for pattern in reopen(first).long_term.patterns] == ["a"]


@pytest.mark.soak
def test_patterns_and_cycles_of_another_process_are_visible(file_url: str) -> None:
    with MemoryEngine(file_url, embedder=None) as engine:
        memory = start_memory(engine)
        memory.learn_pattern(login())
        script = (
            "from langmem_tiers import *\n"
            f"with MemoryEngine({file_url!r}, embedder=None) as engine:\n"
            f"    memory = AgentMemory(engine=engine, task={memory.task!r})\n"
            "    assert memory.working.current_goal == 'Extract product data from example.com'\n"
            "    memory.long_term.record_usage('login_example_com', success=True)\n"
            "    memory.record_cycle('from elsewhere', AgentAction('click'))\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        resumed = reopen(memory)
        assert resumed.long_term.patterns[0].success_count == 1
        assert resumed.short_term.entries[-1].thought.content == "from elsewhere"


def test_repeated_successful_cycles_are_learned_at_the_end_of_a_task(memory: AgentMemory) -> None:
    for number in range(3):
        for tool, parameters in [
            ("goto", {"url": f"{HOME}/login"}),
            ("type", {"selector": "#email", "text": f"user{number}@example.com"}),
            ("click", {"selector": "#submit"}),
        ]:
            memory.record_cycle("", AgentAction(tool, parameters), f"ok {tool} {number}", url=f"{HOME}/login")
    memory.clear_task()
    learned = memory.get_patterns_for_domain("example.com")
    assert learned
    assert any(step.get("selector") == "#submit" for step in learned[0].steps)
    assert reopen(memory).get_patterns_for_domain("example.com") == learned


def _record_until_blocked(memory: AgentMemory) -> list[AdviceLevel]:
    levels = []
    for _ in range(20):
        memory.record_cycle("once more", CLICK, "Nothing happened", "failure", url=HOME)
        if memory.advice is not None:
            levels.append(memory.advice.level)
            if memory.advice.level is AdviceLevel.BLOCK:
                break
    return levels


def test_the_guard_warns_then_blocks_and_requires_an_answer(memory: AgentMemory) -> None:
    assert memory.check_action(CLICK) is None
    levels = _record_until_blocked(memory)
    assert levels[-1] is AdviceLevel.BLOCK
    assert AdviceLevel.WARNING in levels[:-1]
    advice = memory.check_action(CLICK)
    assert advice is not None
    assert (advice.level, advice.must_answer) == (AdviceLevel.BLOCK, True)
    assert advice.message.startswith("Blocked: ")
    assert "Blocked from now on: " in memory.format_for_prompt()
    assert memory.check_action(AgentAction("click", {"selector": "#other"})) is None
    resumed = reopen(memory)
    assert resumed.check_action(CLICK) == advice
    assert resumed.advice == memory.advice

    assert not memory.answer_guard("because")
    assert memory.check_action(CLICK) == advice
    assert memory.answer_guard("the form was filled in meanwhile")
    assert "Blocked: " not in memory.format_for_prompt()
    for current in (memory, reopen(memory)):
        lifted = current.check_action(CLICK)
        assert lifted is None or lifted.level is not AdviceLevel.BLOCK
    assert _record_until_blocked(memory)[-1] is AdviceLevel.BLOCK
    last = memory.check_action(CLICK)
    assert last is not None
    assert "the form was filled in meanwhile" in last.message
    assert reopen(memory).check_action(CLICK) == last


def test_checking_an_action_that_failed_before_gives_a_note(memory: AgentMemory) -> None:
    memory.record_cycle("", CLICK, "no", "failure")
    advice = memory.check_action(CLICK)
    assert advice is not None
    assert advice.level is AdviceLevel.NOTE
    assert not memory.answer_guard("there is nothing to answer")
    assert reopen(memory).check_action(CLICK) == advice


def test_alternating_between_two_pages_is_blocked(memory: AgentMemory) -> None:
    pages = [f"{HOME}/a", f"{HOME}/b"]
    levels = set()
    for url in islice(cycle(pages), 24):
        memory.record_cycle("", AgentAction("goto", {"url": url}), f"Page {url}")
        if memory.advice is not None:
            levels.add(memory.advice.level)
    assert levels >= {AdviceLevel.WARNING, AdviceLevel.BLOCK}


def test_large_extractions_are_compressed_and_keep_their_urls(memory: AgentMemory) -> None:
    urls = [f"{HOME}/item/{number}" for number in range(50)]
    page = (
        "\n".join(f"The lamp number {number} is described at {url}." for number, url in enumerate(urls)) * 20
    )
    memory.record_cycle("", AgentAction("extract_text"), page)
    (extracted,) = memory.context_store.extractions()
    assert len(extracted.data) < len(page) / 3
    assert all(url in extracted.data for url in urls)
    memory.record_cycle("", AgentAction("search"), page)  # an agent goes on from its addresses
    memory.record_cycle("", AgentAction("extract_text"), page, "failure")
    assert [extraction.data for extraction in memory.context_store.extractions()] == [page, extracted.data]
    assert reopen(memory).context_store.extractions() == memory.context_store.extractions()


def test_a_model_compresses_an_extraction_once(engine: MemoryEngine) -> None:
    model = ScriptedLLM(['{"summary": "Lamps, the cheapest for 20 EUR.", "key_facts": []}'])
    memory = AgentMemory(engine=engine, model=model)
    memory.record_cycle("", AgentAction("extract_text"), "A lamp costs 20 EUR or more, as said. " * 1_000)
    (found,) = memory.context_store.extractions()
    assert "the cheapest for 20 EUR" in found.data
    resumed = reopen(memory, model=model)
    assert resumed.context_store.extractions()[0].data == found.data
    assert len(model.prompts) == 1


def test_extracted_data_stays_within_its_share_of_the_prompt(engine: MemoryEngine) -> None:
    counter = CharCounter()
    memory = AgentMemory(engine=engine, counter=counter)
    memory.start_task("Read")
    empty = counter.count(memory.format_for_prompt())
    for number in range(30):
        memory.context_store.cache_extraction(f"page {number}", f"{number} words of a page " * 400)
    prompt = memory.format_for_prompt()
    assert 1_000 < counter.count(prompt) - empty <= 4_000 + 20
    assert "characters left out" in prompt
    small = memory.format_for_prompt(max_tokens=1_000)
    assert counter.count(small) - empty <= 0.2 * 1_000 + 20


def test_a_prompt_stays_within_the_smaller_of_both_budgets(engine: MemoryEngine) -> None:
    memory = AgentMemory(200, engine=engine)
    memory.start_task("Read every page of the shop and say what each lamp costs " * 30)
    for limit in (None, 10_000, 200, 50, 1):
        assert memory.counter.count(memory.format_for_prompt(max_tokens=limit)) <= min(limit or 200, 200)
    assert memory.format_for_prompt(max_tokens=0) == ""
    for value in (-1, 1.5, "all"):
        with pytest.raises(InvalidConfigError, match="max_tokens"):
            memory.format_for_prompt(max_tokens=value)  # type: ignore[arg-type]


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


def _get_type_name(value: object) -> str:
    return type(value).__name__


def _build_cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    "value",
    [
        _Unprintable(),
        object(),
        {1, 2},
        b"\xff",
        float("nan"),
        10**400,
        _build_cyclic_dict(),
        "\ud800\0",
        {("a", 1): lambda: None},
        threading.Lock(),
    ],
    ids=_get_type_name,
)
def test_parameters_unknown_to_json_are_recorded_as_text(memory: AgentMemory, value: Any) -> None:
    action = AgentAction("evaluate", {"value": value, 3: "a number as a key"})  # type: ignore[dict-item]
    memory.record_cycle("", action, "done", "failure")
    assert memory.is_repeated_failure(action)
    assert memory.short_term.get_action_frequency("evaluate", action.parameters) == 1
    memory.check_action(action)
    resumed = reopen(memory)
    assert resumed.short_term == memory.short_term
    assert resumed.format_for_prompt() == memory.format_for_prompt()


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (None, None),
        ("", ""),
        (Observation(), ""),
        (Observation(None), ""),  # type: ignore[arg-type]
        (Observation(b"x"), "b'x'"),  # type: ignore[arg-type]
        ({"price": 20}, '{"price": 20}'),
        (404, "404"),
        (_Unprintable(), "<_Unprintable>"),
        ("lone \ud800 half and \0", "lone \ud800 half and \0"),
    ],
    ids=_get_type_name,
)
def test_an_observation_of_any_type_is_recorded(
    memory: AgentMemory, observation: Any, expected: str | None
) -> None:
    entry = memory.record_cycle("t", AgentAction("extract_data"), observation)
    assert (None if entry.observation is None else entry.observation.raw_output) == expected
    assert reopen(memory).short_term.entries == [entry]
    assert reopen(memory).format_for_prompt() == memory.format_for_prompt()


@pytest.mark.parametrize(
    "thought",
    [None, "", Thought(), Thought(None), 7, _Unprintable()],  # type: ignore[arg-type]
    ids=_get_type_name,
)
def test_a_thought_of_any_type_is_recorded(memory: AgentMemory, thought: Any) -> None:
    entry = memory.record_cycle(thought, CLICK)
    assert reopen(memory).short_term.entries == [entry]


@pytest.mark.parametrize("where", ["observation", "summary", "thought", "parameters"])
def test_a_value_of_a_megabyte_is_truncated(memory: AgentMemory, where: str) -> None:
    long_text = "begin " + "so many words " * 71_400 + " end"
    observed: Observation | str = "x"
    if where == "summary":
        observed = Observation("x", long_text)
    elif where == "observation":
        observed = long_text
    action = AgentAction("extract_text", {"text": long_text if where == "parameters" else "x"})
    entry = memory.record_cycle(long_text if where == "thought" else "", action, observed)
    if where == "observation":
        assert entry.observation is not None
        recorded = entry.observation.raw_output
        assert (len(recorded) <= 100_000, recorded[:5], recorded[-3:]) == (True, "begin", "end")
        assert "characters left out" in recorded
    assert memory.counter.count(memory.format_for_prompt(max_tokens=2_000)) <= 2_000
    assert reopen(memory).short_term == memory.short_term


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"outcome": "perfect"}, "outcome must be one of 'success'"),
        ({"outcome": None}, "outcome must be a string"),
        ({"priority": "utmost"}, "priority must be one of 'critical'"),
        ({"url": 7}, "url must be a string"),
        ({"page_title": None}, "page_title must be a string"),
        ({"duration_ms": float("nan")}, "duration_ms must be a finite number"),
        ({"duration_ms": "long"}, "duration_ms must be a finite number"),
        ({"retry_count": -1}, "retry_count must be a whole number"),
        ({"tags": [1]}, "tags must be a string"),
        ({"tags": 1}, "tags must be a set of strings"),
        ({"colour": "red"}, "a cycle has no field 'colour': use one of duration_ms, "),
        ({"action": {"tool": "click"}}, "an action must be an AgentAction, got dict"),
        ({"action": None}, "an action must be an AgentAction, got NoneType"),
    ],
    ids=str,
)
def test_invalid_arguments_of_a_cycle_are_rejected_and_nothing_is_recorded(
    memory: AgentMemory, arguments: dict[str, Any], expected: str
) -> None:
    memory.record_cycle("", CLICK)
    before = memory.format_for_prompt()
    with pytest.raises(InvalidInputError, match=expected):
        memory.record_cycle(**{"thought": "", "action": CLICK, **arguments})
    assert memory.format_for_prompt() == reopen(memory).format_for_prompt() == before
    memory.record_cycle("", CLICK)
    assert reopen(memory).working.cycle_count == 2


def test_a_single_tag_an_exception_and_a_missing_url_are_accepted(memory: AgentMemory) -> None:
    entry = memory.record_cycle(
        "", CLICK, None, "failure", tags="menu", error_message=OSError("gone"), url=None
    )
    assert (entry.tags, entry.error_message, entry.url) == (frozenset({"menu"}), "gone", "")


def test_an_action_needs_a_tool_and_a_mapping() -> None:
    with pytest.raises(InvalidInputError, match="name of its tool, got ''"):
        AgentAction("")
    with pytest.raises(InvalidInputError, match="must be a mapping, got list"):
        AgentAction("click", ["#a"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "/relative",
        "page.html",
        "",
        "http://",
        "http://[::1",
        "javascript:void(0)",
        "\ud800",
        "x" * 9_000,
        None,
    ],
)
def test_any_url_is_accepted(memory: AgentMemory, url: Any) -> None:
    memory.mark_url_visited(url)
    assert memory.has_visited_url(url)
    memory.record_cycle("", AgentAction("goto", {"url": url}), "went there")
    memory.record_cycle("", CLICK, url=url)
    memory.init_sitemap_graph(HOME)
    memory.add_sitemap_links(HOME, [{"url": url}, url])
    memory.add_sitemap_links(url, ["/x"])
    memory.update_sitemap_visited(url, "Somewhere")
    memory.check_action(CLICK, url)
    memory.format_for_prompt(domain=url)
    resumed = reopen(memory)
    assert resumed.visited_urls == memory.visited_urls
    assert resumed.sitemap == memory.sitemap
    assert resumed.format_for_prompt() == memory.format_for_prompt()


def test_a_sitemap_requires_an_absolute_homepage_url(memory: AgentMemory) -> None:
    with pytest.raises(InvalidInputError):
        memory.init_sitemap_graph("/relative")
    assert memory.sitemap is None
    assert reopen(memory).sitemap is None


@pytest.mark.parametrize(
    "links", [None, 7, f"{HOME}/one", {"url": f"{HOME}/one"}, [None, 7, {}, [HOME]]], ids=str
)
def test_links_of_any_type_are_added_or_rejected_with_a_reason(memory: AgentMemory, links: Any) -> None:
    memory.init_sitemap_graph(HOME)
    report = memory.add_sitemap_links(HOME, links)
    assert report.added == (1 if isinstance(links, str | dict) else 0)
    assert report.added or all(reason for _, reason in report.refused)
    assert reopen(memory).sitemap == memory.sitemap


def test_links_before_an_iteration_error_are_kept(memory: AgentMemory) -> None:
    def failing_links() -> Iterator[str]:
        yield "/a"
        raise OSError("the page went away")

    memory.init_sitemap_graph(HOME)
    report = memory.add_sitemap_links(HOME, failing_links())
    assert (report.added, report.refused[0][1]) == (1, "reading the links failed with OSError")
    assert reopen(memory).sitemap == memory.sitemap


def test_exploring_a_site_with_circular_links_ends(memory: AgentMemory) -> None:
    memory.init_sitemap_graph(HOME, SitemapLimits(max_depth=5, max_pages=100))
    seen = []
    memory.add_sitemap_links(HOME, ["/p0", "/", HOME])
    while (url := memory.get_next_page_to_visit()) is not None:
        seen.append(url)
        memory.update_sitemap_visited(url)
        memory.add_sitemap_links(url, [f"/p{number}" for number in range(5)] + [url, HOME])
    assert sorted(seen) == [f"{HOME}/p{number}" for number in range(5)]
    assert memory.is_sitemap_exploration_complete()
    assert reopen(memory).sitemap == memory.sitemap


@pytest.mark.soak
def test_a_page_with_thousands_of_links_is_restored_completely(memory: AgentMemory) -> None:
    memory.init_sitemap_graph(HOME, SitemapLimits(max_links_per_page=12_000))
    found = [{"url": f"/p{number}", "text": f"Page {number}"} for number in range(12_000)]
    assert memory.add_sitemap_links(HOME, found, "content").added == 12_000
    resumed = reopen(memory)
    assert resumed.sitemap is not None
    assert len(resumed.sitemap) == 12_001
    assert resumed.sitemap == memory.sitemap


def test_values_unknown_to_json_are_rejected_in_scratch_and_context(memory: AgentMemory) -> None:
    with pytest.raises(InvalidInputError):
        memory.working.set_scratch("a", object())
    with pytest.raises(InvalidInputError):
        memory.add_inferred_context("a", {1, 2})
    with pytest.raises(InvalidInputError):
        memory.add_inferred_context("", 1)
    with pytest.raises(InvalidInputError):
        memory.context_store.set_user_context({"a": object()})
    assert (memory.working.scratch_keys, memory.context_store.get_all()) == ([], {})
    assert reopen(memory).format_for_prompt() == memory.format_for_prompt()


def test_procedures_without_a_pattern_are_ignored(engine: MemoryEngine) -> None:
    memory = AgentMemory(engine=engine)
    memory.learn_pattern(login())
    (pattern,) = memory.long_term.patterns
    own_entry = memory.long_term._to_entry(pattern)
    other_entry = replace(own_entry, entry=replace(own_entry.entry, id="by-hand"), details={"how": "by hand"})
    long_term = engine.services.long_term
    long_term.store.commit(memory.namespace, MemoryWrite(put=(other_entry,)), long_term.now())
    assert reopen(memory).long_term.patterns == [pattern]


def test_concurrent_threads_lose_no_cycle(file_url: str) -> None:
    threads, cycles_per_thread = 6, 12
    with MemoryEngine(file_url, embedder=None) as engine:
        memory = start_memory(engine)

        def record(name: int) -> None:
            for number in range(cycles_per_thread):
                label = f"{name}-{number}"
                memory.record_cycle(label, AgentAction("click", {"selector": f"#{label}"}), "ok")
                memory.working.set_scratch(label, number)
                memory.add_inferred_context(label, number)
                memory.mark_url_visited(f"{HOME}/{name}/{number}")
                memory.context_store.cache_extraction(label, number)
                memory.context_store.get_all()
                memory.format_for_prompt(max_tokens=500)
            memory.learn_pattern(login(f"p{name}"))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(record, range(threads)))
        names = {f"{name}-{number}" for name in range(threads) for number in range(cycles_per_thread)}
        for current in (memory, reopen(memory)):
            assert current.working.cycle_count == threads * cycles_per_thread
            assert set(current.working.scratch_keys) == set(current.context_store.get_all()) == names
            assert len(current.visited_urls) == threads * cycles_per_thread
            assert len(current.long_term) == threads
        stored = [stored_cycle.cycle.thought.content for stored_cycle in memory._run.journal._load_cycles()]
        assert sorted(stored) == sorted(names)
        for name in range(threads):  # each thread's in the order in which it recorded them
            own_thoughts = [thought for thought in stored if thought.startswith(f"{name}-")]
            assert own_thoughts == [f"{name}-{number}" for number in range(cycles_per_thread)]
        assert reopen(memory).format_for_prompt() == memory.format_for_prompt()


def test_cycles_are_found_by_recall(memory: AgentMemory) -> None:
    memory.record_cycle("The voucher is hidden in the footer", CLICK, "Voucher LAMP20 shown")
    (hit, *_) = memory.engine.namespace("agent").recall("voucher LAMP20")
    assert "LAMP20" in hit.entry.content


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_task_is_restored_from_postgresql(url: str, tenant: str) -> None:
    clock = FrozenClock()
    with MemoryEngine(url, clock=clock, embedder=None) as engine:
        memory = AgentMemory(engine=engine, namespace=tenant)
        memory.start_task("Buy a lamp")
        _work_through(memory, clock)
        memory.record_cycle("lone \ud800 and \0", CLICK, "x\0")
        assert reopen(memory).format_for_prompt("example.com") == memory.format_for_prompt("example.com")
        assert reopen(memory).guard.state() == memory.guard.state()
