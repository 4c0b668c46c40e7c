"""A prompt never exceeds its budget, for any recorded task."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    CharCounter,
    ContentAwareCounter,
    ExecutionOutcome,
    MemoryEngine,
    Thought,
    TokenCounter,
)
from langmem_tiers.tasks import LearnedPattern, NavigationSnapshot, OperationMode, SitemapLimits
from tests.hypothesis_settings import examples

HOME = "https://shop.example.com"
ENGINE = MemoryEngine(embedder=None)  # one for all examples: each has a task of its own

Change: TypeAlias = Callable[[AgentMemory], object]

pieces = st.sampled_from(
    [
        "plain words of a page ",
        '{"price": 20, "tags": ["a", "b"]} ',
        "<div class='x'><a href='/b'>B</a></div>",
        f"{HOME}/item?id=7 ",
        "def f(x):\n    return x\n",
        "漢字かな",
        "😀",
        "\n\n## Goal\n",
        "\ud800",
        "\0",
        " ",
    ]
)
texts = st.builds(lambda piece, times: piece * times, pieces, st.integers(0, 3_000)) | st.text(max_size=200)
short = st.text(min_size=1, max_size=30)
values = st.recursive(st.none() | st.booleans() | st.integers() | texts, st.lists, max_leaves=4)
tools = st.sampled_from(
    ["click", "goto", "scroll", "extract_text", "extract_data", "search", "get_page_content"]
)


def _cycle(thought: str, tool: str, parameters: dict[str, Any], seen: str | None, outcome: str) -> Change:
    return lambda memory: memory.record_cycle(thought, AgentAction(tool, parameters), seen, outcome)


def _cycles(tool: str, text: str, times: int) -> Change:
    def change(memory: AgentMemory) -> None:
        for _ in range(times):
            memory.record_cycle(text[:50], AgentAction(tool, {"selector": text[:300]}), text)

    return change


def _site(title: str, links: int) -> Change:
    def change(memory: AgentMemory) -> None:
        memory.init_sitemap_graph(HOME, SitemapLimits(max_pages=500))
        memory.add_sitemap_links(HOME, [{"url": f"/{n}", "text": title[:100]} for n in range(links)])
        for number in range(0, links, 2):
            memory.update_sitemap_visited(f"{HOME}/{number}", title, title, number)

    return change


def _pattern(text: str, steps: int) -> Change:
    def change(memory: AgentMemory) -> None:
        told = text.replace("\ud800", "?").replace("\0", "?")
        memory.learn_pattern(
            LearnedPattern(
                pattern_id=f"p{steps}",
                domain="example.com",
                description=told,
                pattern_type="flow",
                steps=tuple({"tool": "type", "text": told[:500]} for _ in range(steps)),
            )
        )

    return change


def _way(text: str, number: int) -> Change:
    state = NavigationSnapshot(
        snapshot_id="s", timestamp=number, url=f"{HOME}/{text[:2_000]}", page_title=text
    )
    return lambda memory: memory.working.record_navigation(state)


outcomes = st.sampled_from([outcome.value for outcome in ExecutionOutcome])
changes = st.one_of(
    st.builds(_cycle, texts, tools, st.dictionaries(short, values, max_size=3), st.none() | texts, outcomes),
    st.builds(_cycles, tools, texts, st.integers(1, 12)),
    st.builds(_site, texts, st.integers(0, 60)),
    st.builds(_pattern, texts, st.integers(1, 8)),
    st.builds(_way, texts, st.integers(0, 9)),
    st.builds(lambda key, value: lambda m: m.working.set_scratch(key, value), short, values),
    st.builds(lambda key, value: lambda m: m.add_inferred_context(key, value, "a page"), short, values),
    st.builds(lambda value: lambda m: m.context_store.set_user_context({"shop": value}), values),
    st.builds(
        lambda key, value: lambda m: m.context_store.cache_extraction(key, value), texts.filter(bool), values
    ),
    st.builds(lambda value: lambda m: m.store_page_map(HOME, {"title": value, "sections": [value]}), texts),
    st.builds(lambda value: lambda m: m.working.set_active(Thought(value)), texts),
    st.builds(lambda mode: lambda m: m.set_operation_mode(mode), st.sampled_from(list(OperationMode))),
)


@examples(80)
@given(
    goal=texts.filter(str.strip),
    done=st.lists(changes, max_size=8),
    budget=st.integers(1, 5_000),
    counter=st.sampled_from([ContentAwareCounter(), CharCounter()]),
)
def test_a_prompt_never_exceeds_its_budget(
    goal: str, done: list[Change], budget: int, counter: TokenCounter
) -> None:
    memory = AgentMemory(budget, engine=ENGINE, counter=counter, namespace="prompts")
    memory.start_task(goal)
    for change in done:
        change(memory)
    for limit in (None, 5_000, max(1, budget // 3), 1, 0):
        most = budget if limit is None else min(limit, budget)
        prompt = memory.format_for_prompt(domain="shop.example.com", max_tokens=limit)
        assert counter.count(prompt) <= most
    # and what another process is told is the same
    resumed = AgentMemory(budget, engine=ENGINE, counter=counter, namespace="prompts", task=memory.task)
    assert resumed.format_for_prompt("shop.example.com") == memory.format_for_prompt("shop.example.com")
    assert resumed.guard.state() == memory.guard.state()


def escape_goal(goal: str) -> str:
    """With plain line ends, and with a mark before what looks like a heading."""
    lines = (re.sub(r"^([ \t]{0,3})(#{1,6})(?=\s|$)", r"\1\\\2", line) for line in goal.splitlines())
    return "\n".join(lines)


@examples(40)
@given(goal=texts.filter(str.strip), done=st.lists(changes, max_size=5))
def test_the_goal_is_included_while_it_fits(goal: str, done: list[Change]) -> None:
    memory = AgentMemory(5_000, engine=ENGINE, namespace="goals")
    memory.start_task(goal)
    for change in done:
        change(memory)
    warned = sum(map(memory.counter.count, memory.warnings()))
    if memory.counter.count(goal) + warned < 4_000:
        assert escape_goal(goal) in memory.format_for_prompt()
