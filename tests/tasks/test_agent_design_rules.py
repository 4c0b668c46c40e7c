"""Formats, defaults and limits that the design of the agent memory specifies."""

from __future__ import annotations

import re
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    CharCounter,
    ContextCompressor,
    ExecutionOutcome,
    MemoryEngine,
    Thought,
)
from langmem_tiers.compression import CompressionContentType
from langmem_tiers.tasks import (
    Cycle,
    LearnedPattern,
    MemoryPriority,
    NavigationSnapshot,
    Observation,
    OperationMode,
)
from langmem_tiers.testing import FrozenClock, seeded_ids
from langmem_tiers.text import ContentType, TokenEstimator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from enum import StrEnum

HOME = "https://example.com"
COUNTER = CharCounter()
URL_CRITICAL = ["search", "search_human", "search_api", "search_rank", "get_page_state", "get_attribute"]
COMPRESSIBLE = [
    "extract_text",
    "extract_data",
    "extract_structured_data",
    "evaluate_javascript",
    "get_page_content",
]


@pytest.fixture
def engine(clock: FrozenClock) -> Iterator[MemoryEngine]:
    with MemoryEngine(clock=clock, ids=seeded_ids(), embedder=None) as opened:
        yield opened


def start_memory(engine: MemoryEngine, **settings: Any) -> AgentMemory:
    memory = AgentMemory(engine=engine, counter=COUNTER, **settings)
    memory.start_task("Read the shop")
    return memory


def build_entry(observation: Observation | None = None, **changes: Any) -> Cycle:
    fields: dict[str, Any] = {
        "entry_id": "e1",
        "timestamp": 1.0,
        "thought": Thought("The menu is closed"),
        "action": AgentAction("click", {"selector": "#menu"}),
        "observation": observation,
    }
    return Cycle(**fields | changes)


def get_section(prompt: str, name: str) -> str:
    """Return the text below a heading of a prompt."""
    _, _, after = f"\n{prompt}".partition(f"\n## {name}\n")
    return re.split(r"\n\n## ", after)[0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (MemoryPriority, {"CRITICAL": "critical", "HIGH": "high", "NORMAL": "normal", "LOW": "low"}),
        (ContentType, {"TEXT": "text", "CODE": "code", "JSON": "json", "HTML": "html"}),
        (
            CompressionContentType,
            {
                "SEARCH_RESULTS": "search_results",
                "PAGE_STATE": "page_state",
                "TEXT_CONTENT": "text_content",
                "ERROR_INFO": "error_info",
                "STRUCTURED_DATA": "structured_data",
                "FORM_DATA": "form_data",
            },
        ),
    ],
)
def test_an_enumeration_has_the_values_of_the_design(kind: type[StrEnum], values: dict[str, str]) -> None:
    assert {member.name: member.value for member in kind} == values


def test_the_outcomes_and_modes_of_the_design_exist() -> None:
    assert {"SUCCESS", "FAILURE"} <= set(ExecutionOutcome.__members__)
    assert OperationMode("scrape") is OperationMode.SCRAPE


def test_a_cycle_has_the_defaults_of_the_design() -> None:
    cycle = build_entry()
    assert (cycle.url, cycle.page_title, cycle.duration_ms, cycle.retry_count) == ("", "", 0.0, 0)
    assert (cycle.error_message, cycle.estimated_tokens, cycle.tags) == (None, 0, frozenset())


def test_a_snapshot_has_the_defaults_of_the_design() -> None:
    snapshot = NavigationSnapshot(
        snapshot_id="s", timestamp=1.0, url=HOME, page_title="Home", visible_elements_summary="A menu"
    )
    assert (snapshot.form_state, snapshot.scroll_position, snapshot.associated_entry_id) == ({}, (0, 0), None)


def test_a_new_pattern_is_unused_and_last_used_when_it_was_learned(
    engine: MemoryEngine, clock: FrozenClock
) -> None:
    pattern = LearnedPattern(
        pattern_id="p", domain="example.com", description="Open it", pattern_type="navigation", steps=()
    )
    assert (pattern.success_count, pattern.failure_count, pattern.success_rate) == (0, 0, 0.0)
    memory = start_memory(engine)
    memory.learn_pattern(pattern)
    (learned,) = memory.get_patterns_for_domain("example.com")
    assert learned.last_used == clock.now().timestamp()
    assert replace(pattern, success_count=3, failure_count=1).success_rate == 0.75


@pytest.mark.parametrize(
    ("method", "name", "default"),
    [
        (lambda memory: memory.short_term.get_loop_warnings, "threshold", 3),
        (lambda memory: memory.short_term.get_recent, "n", 5),
        (lambda memory: memory.short_term.format_history, "last_n", 5),
        (lambda memory: memory.context_store.get_cached_extraction, "max_age_seconds", 300),
        (lambda memory: memory.working.get_scratch, "default", None),
    ],
)
def test_a_method_has_the_argument_of_the_design(
    engine: MemoryEngine, method: Callable[[AgentMemory], Callable[..., Any]], name: str, default: object
) -> None:
    assert signature(method(AgentMemory(engine=engine))).parameters[name].default == default


def test_a_formatted_cycle_has_thought_action_and_observation() -> None:
    cycle = build_entry(Observation("Element clicked successfully"))
    expected = "**Thought**: The menu is closed\n**Action**: click({'selector': '#menu'})"
    assert cycle.format_for_prompt() == f"{expected}\n**Observation**: Element clicked successfully"
    assert cycle.format_for_prompt(include_observation=False) == expected
    assert build_entry(None).format_for_prompt() == expected


def test_a_formatted_cycle_has_the_summary_instead_of_the_output() -> None:
    cycle = build_entry(Observation("<html>" * 100, summary="the menu is open"))
    assert cycle.format_for_prompt().endswith("\n**Observation**: the menu is open")


@pytest.mark.parametrize(("length", "expected"), [(500, "x" * 500), (501, "x" * 500 + "...")])
@pytest.mark.parametrize("part", ["raw_output", "summary"])
def test_a_formatted_cycle_has_the_first_500_characters_of_the_observation(
    part: str, length: int, expected: str
) -> None:
    cycle = build_entry(Observation(**{part: "x" * length}))
    assert cycle.format_for_prompt().endswith(f"**Observation**: {expected}")


def test_a_signature_is_16_digits_of_tool_parameters_and_url() -> None:
    first = build_entry(url=HOME, action=AgentAction("type", {"selector": "#q", "text": "lamp"}))
    assert re.fullmatch("[0-9a-f]{16}", first.action_signature)
    same = build_entry(
        Observation("no"),
        entry_id="e2",
        thought=Thought("again"),
        url=HOME,
        outcome=ExecutionOutcome.FAILURE,
        action=AgentAction("type", {"text": "lamp", "selector": "#q"}),
    )
    assert same.action_signature == first.action_signature
    others = [
        build_entry(url=HOME, action=AgentAction("fill", first.action.parameters)),
        build_entry(url=HOME, action=AgentAction("type", {"selector": "#q", "text": "lamps"})),
        build_entry(url=f"{HOME}/b", action=first.action),
    ]
    assert len({item.action_signature for item in [first, *others]}) == 4


@pytest.mark.parametrize("tool", URL_CRITICAL)
def test_a_url_critical_result_is_recorded_completely_and_never_compressed(
    engine: MemoryEngine, tool: str
) -> None:
    memory = start_memory(engine)
    result = "\n".join(f"{number}. Lamp {HOME}/lamp/{number}" for number in range(500))
    cycle = memory.record_cycle("", AgentAction(tool), result)
    assert cycle.observation == Observation(result)
    assert "[Compressed" not in memory.format_for_prompt()


@pytest.mark.parametrize("tool", COMPRESSIBLE)
@pytest.mark.parametrize(("tokens", "is_compressed"), [(2_000, False), (2_001, True)])
def test_a_compressible_result_is_compressed_above_2000_tokens(
    engine: MemoryEngine, tool: str, tokens: int, *, is_compressed: bool
) -> None:
    memory = start_memory(engine)
    result = ("A lamp is good. " * 600)[: tokens * 4]
    memory.record_cycle("", AgentAction(tool), result)
    (found,) = memory.context_store.extractions()
    assert found.data.startswith("[Compressed text_content, tier 2]") == is_compressed
    assert (found.data == result) != is_compressed


def test_compression_and_its_threshold_are_configurable(engine: MemoryEngine) -> None:
    memory = start_memory(engine)
    memory.compressor.enable_intelligent_compression = False
    memory.record_cycle("", AgentAction("extract_text"), "A lamp is good. " * 1_000)
    memory.compressor.enable_intelligent_compression = True
    memory.compressor.compression_threshold_tokens = 10
    memory.record_cycle("", AgentAction("extract_text"), "A lamp is good. " * 20)
    small, large = (extraction.data for extraction in memory.context_store.extractions())
    assert small.startswith("[Compressed ")
    assert large == "A lamp is good. " * 1_000


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 2_000),  # 20 % of what is left
        ({"max_extraction_budget_percent": 0.5}, 4_000),  # the hard cap
        ({"max_extraction_budget_percent": 0.5, "max_extraction_tokens": 9_000}, 5_000),
        ({"max_extraction_tokens": 300}, 300),
        ({"max_extraction_tokens": 0}, 0),
    ],
    ids=str,
)
def test_extractions_fill_the_smaller_of_share_and_cap(
    engine: MemoryEngine, settings: dict[str, Any], limit: int
) -> None:
    memory = start_memory(engine, context_window_budget=10_000, **settings)
    for number in range(20):
        memory.context_store.cache_extraction(f"page {number}", f"{number} words of a page " * 200)
    used = COUNTER.count(get_section(memory.format_for_prompt(), "Extracted data"))
    assert 0.9 * limit <= used <= limit


@pytest.mark.parametrize("limit", [8_000, 500])
def test_a_truncated_extraction_keeps_its_beginning_and_end(engine: MemoryEngine, limit: int) -> None:
    memory = start_memory(engine, max_single_extraction_chars=limit)
    memory.context_store.cache_extraction("page", "begin " + "words of a page " * 1_000 + "end")
    label, _, text = get_section(memory.format_for_prompt(), "Extracted data").partition("\n")
    assert (label, text[:5], text[-3:]) == ("### page", "begin", "end")
    assert 0.8 * limit <= len(text) <= limit
    assert "characters left out" in text


def test_working_memory_uses_at_most_a_quarter_of_the_window(engine: MemoryEngine) -> None:
    memory = start_memory(engine, context_window_budget=1_000)
    for number in range(40):
        memory.working.set_scratch(f"note {number}", "so many words " * 10)
    text = get_section(memory.format_for_prompt(), "Working memory")
    assert 200 <= COUNTER.count(text) <= 250


def test_a_long_history_loses_its_oldest_cycles_and_keeps_the_goal(engine: MemoryEngine) -> None:
    memory = start_memory(engine)
    for number in range(10):
        memory.record_cycle("", AgentAction("click", {"selector": f"#n{number}"}), "some result " * 15)
    whole = memory.format_for_prompt()
    prompt = memory.format_for_prompt(max_tokens=COUNTER.count(whole) // 2)
    shown = [f"#n{number}" for number in range(10) if f'"#n{number}"' in prompt]
    assert prompt.startswith("## Goal\nRead the shop\n")
    assert 3 <= len(shown) < 10
    assert shown == [f"#n{number}" for number in range(10 - len(shown), 10)]


def test_token_estimates_match_the_design() -> None:
    estimate = TokenEstimator.estimate('{"price": 20}')
    assert (estimate.tokens, estimate.content_type.value, estimate.confidence) == (5, "json", 1.0)
    assert TokenEstimator.estimate("x" * 100, ContentType.HTML).tokens == 40
    assert TokenEstimator.estimate_messages([{"role": "user", "content": "x" * 40}]) >= 10


async def test_urls_of_a_compressed_result_are_preserved_and_validated() -> None:
    compressor = ContextCompressor()
    urls = [f"{HOME}/lamp/{number}" for number in range(30)]
    content = "\n".join(f"The lamp {number} at {url} costs {number} EUR." for number, url in enumerate(urls))
    compressed = await compressor.compress_extraction(
        large_data=content,
        content_type=CompressionContentType.TEXT_CONTENT,
        compression_tier=2,  # Session tier
        validate_urls=True,  # Ensure URLs preserved
    )
    assert compressed.validate_url_preservation(len(urls)) == (True, "all 30 URLs preserved")
    lost = replace(compressed, urls_mentioned=[], navigation_targets=())
    is_valid, _ = lost.validate_url_preservation(len(urls))
    assert not is_valid
    assert compressor._extract_all_urls(content) == urls
    assert all(url in compressed.format_for_prompt() for url in urls)
