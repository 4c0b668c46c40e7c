"""Cases of `benchmarks.growth` with many items: texts, cycles, pages, calls."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from benchmarks.growth_cases import CONSTANT, HOME, KNOWN, LINEAR, NOW, Case, repeat_to_size
from langmem_tiers import CharCounter
from langmem_tiers.compression.tool_output.budget import fit_extractions
from langmem_tiers.context_files.compaction import compact
from langmem_tiers.context_files.models import ContextData, HistoryEntry
from langmem_tiers.episodes.models import Episode, EpisodeKind
from langmem_tiers.episodes.narrative_arc import merge_overlapping_episodes
from langmem_tiers.sessions import find_redundant
from langmem_tiers.tasks import Observation
from langmem_tiers.tasks.cycles import RecentCycles
from langmem_tiers.tasks.guard import Guard
from langmem_tiers.tasks.loop_detection.detector import Step, find_loops
from langmem_tiers.tasks.models import AgentAction, Cycle, MemoryPriority, Thought
from langmem_tiers.tasks.pattern_learning import propose_patterns
from langmem_tiers.tasks.sitemap import SitemapGraph, SitemapLimits
from langmem_tiers.telemetry.instruments import SILENT_INSTRUMENTS, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


CALLS = 200
"""Number of repetitions per measurement of a call that takes microseconds."""
LEARNING_UNITS = ("?token", "a", "@a", "a@", "1 ", "password", "{a}", "?;", "sk-a", "://a:")
FRAME = (
    "The deployment notes for the warehouse project say that {} and everybody in the platform group "
    "agreed during their long planning meeting about shipping robots safely across town"
)


def word(number: int) -> str:
    """Return a word that consists of letters only."""
    return "w" + "".join(chr(97 + number // 26**position % 26) for position in range(4))


def random_texts(count: int, vocabulary: int, length: int, *, zipf: bool) -> list[str]:
    """Return texts of random words. With `zipf`, word frequencies are those of a natural language."""
    chance = random.Random(1)  # noqa: S311 - repeatable on purpose
    words = [word(number) for number in range(vocabulary)]
    weights = [1 / (number + 1) for number in range(vocabulary)] if zipf else None
    return [" ".join(chance.choices(words, weights, k=length)) for _ in range(count)]


REDUNDANT: dict[str, Callable[[int], list[str]]] = {
    "identical": lambda n: [FRAME.format("the gate is locked")] * n,
    "one word differs": lambda n: [FRAME.format(word(number)) for number in range(n)],
    "one number differs": lambda n: [FRAME.format(number) for number in range(n)],
    "words of a language": lambda n: random_texts(n, 2_000, 25, zipf=True),
    "300 common words": lambda n: random_texts(n, 300, 20, zipf=False),
}
"""Texts for the redundancy check, by how they differ."""


def _episode(number: int, last: int) -> Episode:
    return Episode(
        id=f"e{number}",
        namespace=("team",),
        session="s",
        created_at=NOW + timedelta(minutes=number),
        kind=EpisodeKind.DECISION_MADE,
        title=f"title {number}",
        summary=f"summary {number}.",
        first_turn=number,
        last_turn=last,
    )


def _cycle(number: int, tool: str, thought: str = "", **parameters: str) -> Cycle:
    return Cycle(
        entry_id=f"e{number}",
        timestamp=float(number),
        thought=Thought(thought),
        action=AgentAction(tool, parameters),
        url="https://www.example.com/x",
    )


def _clicks(count: int) -> list[Cycle]:
    priorities = list(MemoryPriority)
    return [
        replace(_cycle(number, "click", selector=f"#{number % 70}"), priority=priorities[number % 4])
        for number in range(count)
    ]


def _record(entries: list[Cycle]) -> RecentCycles:
    recent = RecentCycles()
    for entry in entries:
        recent.add(entry)
    return recent


def _make_typing_cycles(count: int, kinds: int) -> list[Cycle]:
    return [
        _cycle(number, "type", selector=f"#{(number * number + number // 7) % kinds}", text=f"words {number}")
        for number in range(count)
    ]


def _hostile_run(unit: str, size: int) -> list[list[Cycle]]:
    text = (unit * size)[:size]
    run = [_cycle(1, "type", text, selector=text, text=text), _cycle(2, "click", selector="#a")]
    return [run] * 4


def _steps(count: int) -> list[Step]:
    return [
        Step.of(
            f"fill('{at % 97}', 'some text {at % 31}')",
            url=f"http://a.test/{at % 7}",
            observation=f"page {at % 3}",
        )
        for at in range(count)
    ]


def _history(count: int) -> ContextData:
    sentence = "In step {} we looked at the gate and wrote down what we saw. "
    entries = (HistoryEntry(number, "user", sentence.format(number) * 4, 60) for number in range(count))
    return ContextData(session_id="s", recent_history=tuple(entries))


def build_crawled_sitemap(pages: int) -> SitemapGraph:
    """Return the map of a site whose pages link to each other, after all pages were visited."""
    graph = SitemapGraph(HOME, SitemapLimits(max_depth=20, max_pages=pages, max_known_pages=pages + 1))
    for number in range(pages):
        graph.add_links(f"/{number}", [f"/{(number * 7 + step * step) % pages}" for step in range(5)])
    while (url := graph.next_page()) is not None:
        graph.mark_visited(url)
    return graph


def build_shortened_sitemap(pages: int) -> SitemapGraph:
    """Return the map of a long path whose pages are then linked from the home page, one by one."""
    graph = SitemapGraph(HOME, SitemapLimits(max_links_per_page=pages))
    for number in range(pages):
        graph.add_links(f"/{number}", [f"/{number + 1}"])
    for number in range(pages):
        graph.add_links(HOME, [f"/{number}"])
    return graph


def _watch_calls(count: int) -> None:
    for _ in range(count):
        with SILENT_INSTRUMENTS.measure(Operation.ADD) as watch:
            watch.record(messages=1, duplicates=0)


def _large_pages(size: int) -> list[Cycle]:
    half = repeat_to_size("some text on a long page\n", size // 2)
    pages = (f"{half}in the middle {at}\n{half}" for at in range(3))
    return [replace(_cycle(at, "click"), observation=Observation(page)) for at, page in enumerate(pages)]


def _observe(entries: list[Cycle]) -> object:
    guard = Guard()
    return [guard.observe(entry) for entry in entries]


def list_cases() -> Iterator[Case[Any]]:
    """Functions that process many items."""
    for detail, build in REDUNDANT.items():
        yield Case(
            name="find_redundant", detail=detail, size=5_000, build=build, call=find_redundant, unit="texts"
        )
    yield Case(
        name="merge_episodes",
        detail="short overlaps",
        size=5_000,
        build=lambda n: [_episode(number, number + number % 3) for number in range(1, n + 1)],
        call=merge_overlapping_episodes,
        unit="episodes",
    )
    yield Case(
        name="merge_episodes",
        detail="one group",
        size=1_250,
        build=lambda n: [_episode(number, n + 4_999) for number in range(1, n + 1)],
        call=merge_overlapping_episodes,
        unit="episodes",
    )
    yield Case(name="find_loops", detail="long run", size=2_500, build=_steps, call=find_loops, unit="steps")
    yield Case(
        name="record_cycles", detail="long task", size=2_500, build=_clicks, call=_record, unit="cycles"
    )
    yield Case(
        name="format_history",
        detail=f"{CALLS} calls after a long task",
        size=2_500,
        build=lambda n: _record(_clicks(n)),
        call=lambda recent: [recent.format_history() for _ in range(CALLS)],
        unit="cycles",
        limit=CONSTANT,
    )
    for kinds, size in ((2, 750), (5_000, 2_500)):
        yield Case(
            name="propose_patterns",
            detail=f"{kinds:,} different actions",
            size=size,
            build=lambda n, kinds=kinds: _make_typing_cycles(n, kinds),  # type: ignore[misc] # bound now
            call=propose_patterns,
            unit="cycles",
        )
    for unit in LEARNING_UNITS:
        yield Case(
            name="propose_patterns",
            detail=repr(unit),
            size=500,
            build=lambda n, unit=unit: _hostile_run(unit, n),  # type: ignore[misc] # bound now
            call=propose_patterns,
        )
    # From about 900 entries on, the new summary is condensed. Then each fact is searched for in the whole text.
    for detail, size, limit in (("summary in full", 125, LINEAR), ("condensed summary", 1_000, KNOWN)):
        yield Case(
            name="compact",
            detail=detail,
            size=size,
            build=_history,
            call=_compact,
            unit="entries",
            limit=limit,
        )
    yield Case(
        name="fit_extractions",
        detail="most do not fit",
        size=2_500,
        build=lambda n: [(f"page {number}", "word " * 100) for number in range(n)],
        call=lambda many: fit_extractions(many, 64_000, CharCounter()),
        unit="texts",
    )
    for detail, work in (("crawl", build_crawled_sitemap), ("shorter paths", build_shortened_sitemap)):
        yield Case(name="sitemap", detail=detail, size=1_000, build=int, call=work, unit="pages")
    yield Case(
        name="watch", detail="no metrics, no tracer", size=10_000, build=int, call=_watch_calls, unit="calls"
    )
    yield Case(
        name="guard_observe",
        detail="three large pages",
        size=2_500_000,
        build=_large_pages,
        call=_observe,
        limit=CONSTANT,
    )


def _compact(context: ContextData) -> object:
    return compact(context, now=NOW)
