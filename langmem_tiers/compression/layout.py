"""Laying facts and a story out within a limit: facts first, then as much of the story as fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.compression.fact_finder import contains_fact, find_missing_facts
from langmem_tiers.compression.selection import find_largest_fitting, truncate_with_ellipsis
from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.text.facts import Fact

STORY_SHARE = 0.1
"""What is left to the story when not all facts fit."""
_MAX_COMPARED_FACTS = 4000  # beyond, looking for each in all the others would cost more than it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Displayable):
    """A summary's text, and what became of the facts."""

    text: str
    tokens: int
    facts: tuple[Fact, ...] = ()
    """The facts that it holds."""
    missing: tuple[Fact, ...] = ()
    """Facts that had no room; the originals keep them."""


def build_summary(
    head: str,
    stories: Sequence[Callable[[int], str]],
    facts: Sequence[Fact],
    counter: TokenCounter,
    max_tokens: int | None,
) -> Summary:
    """The head, a story and the facts as one text.

    Args:
        head: The first line.
        stories: Ways to tell it, the fullest first: each takes a size from 0 to 100 and returns a text.
        facts: Oldest first. Those that lie in the story are not listed again.
        counter: Counts tokens.
        max_tokens: The limit of the whole; none, if left out.
    """
    listed = _drop_contained_facts(facts)

    def text_of(story: str, kept: Sequence[Fact]) -> str:
        rest = find_missing_facts(story, kept) if story else kept
        line = f"Key facts: {', '.join(fact.text for fact in rest)}" if rest else ""
        return "\n".join(part for part in (head, story, line) if part)

    if max_tokens is None:
        return _to_summary(text_of(stories[0](100) if stories else "", listed), facts, counter)

    def fits(story: str, kept: Sequence[Fact], limit: float = max_tokens) -> bool:
        return counter.count(text_of(story, kept)) <= limit

    kept = listed
    if not fits("", listed):
        limit = max_tokens * (1 - STORY_SHARE)
        kept = select_best_facts(listed, lambda some: fits("", some, limit))
    story = _choose_fullest_story(stories, lambda told: fits(told, kept))
    text = text_of(story, kept)
    if counter.count(text) > max_tokens:  # not even the head fits
        text = text[: find_largest_fitting(len(text), lambda n: counter.count(text[:n]) <= max_tokens)]
    return _to_summary(text, facts, counter)


def build_truncated_story(story: str) -> Callable[[int], str]:
    """A story that is told to a part of its length."""
    return lambda size: (
        story if size >= 100 else truncate_with_ellipsis(story, len(story) * size // 100) if size else ""
    )


def _choose_fullest_story(stories: Sequence[Callable[[int], str]], fits: Callable[[str], bool]) -> str:
    for tell in stories[:-1]:
        if fits(whole := tell(100)):
            return whole
    if not stories:
        return ""
    tell = stories[-1]
    return tell(find_largest_fitting(100, lambda size: fits(tell(size))))


def select_best_facts(facts: Sequence[Fact], fits: Callable[[Sequence[Fact]], bool]) -> list[Fact]:
    """As many facts as fit, the worthiest, in their own order; one that is too long by itself takes no room."""
    by_worth = sorted(
        (index for index, fact in enumerate(facts) if fits([fact])),
        key=lambda index: -_score_fact(facts, index),
    )

    def best(number: int) -> list[Fact]:
        return [facts[index] for index in sorted(by_worth[:number])]  # told in their own order

    return best(find_largest_fitting(len(by_worth), lambda number: fits(best(number))))


def _score_fact(facts: Sequence[Fact], index: int) -> float:
    # By priority and age, and by what it costs: in the room of one long command stand ten dates.
    age = 0.7 + 0.3 * (index + 1) / len(facts)
    return facts[index].priority * age / math.sqrt(len(facts[index].text) + 4)


def _to_summary(text: str, facts: Sequence[Fact], counter: TokenCounter) -> Summary:
    missing = find_missing_facts(text, facts)
    lost = {fact.text for fact in missing}
    kept = tuple(fact for fact in facts if fact.text not in lost)
    return Summary(text=text, tokens=counter.count(text), facts=kept, missing=missing)


def _drop_contained_facts(facts: Sequence[Fact]) -> list[Fact]:
    if len(facts) > _MAX_COMPARED_FACTS:
        return list(facts)
    kept: set[str] = set()
    everything = ""
    for fact in sorted(facts, key=lambda fact: -len(fact.text)):
        if not contains_fact(everything, fact):
            kept.add(fact.text)
            everything += f"\n{fact.text}"
    return [fact for fact in facts if fact.text in kept]
