"""Layout of a summary within a token limit: facts first, then as much of the story as fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.compression.fact_finder import contains_fact, find_missing_facts
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.text.sentences import find_largest_fitting, truncate_with_ellipsis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.text.facts import Fact

STORY_SHARE = 0.1
"""Share of the limit that is reserved for the story if not all facts fit."""
_MAX_COMPARED_FACTS = 4000  # the search for nested facts is quadratic; with more facts it is skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Displayable):
    """Text of a summary, with the facts in it and those that did not fit."""

    text: str
    tokens: int
    facts: tuple[Fact, ...] = ()
    """Facts that the text contains."""
    missing: tuple[Fact, ...] = ()
    """Facts that did not fit; the original messages still contain them."""


def build_summary(
    head: str,
    stories: Sequence[Callable[[int], str]],
    facts: Sequence[Fact],
    counter: TokenCounter,
    max_tokens: int | None,
) -> Summary:
    """Combine a head, a story and facts to one text.

    Args:
        head: First line.
        stories: Versions of the story, the most detailed first. Each is a function from a percentage, 0 to 100, to a
            text of about that share of the story.
        facts: Oldest first. Facts that the story contains are not listed again.
        counter: Token counter.
        max_tokens: Maximum size of the result; None for no limit.
    """
    listed = _drop_contained_facts(facts)

    def render(story: str, kept: Sequence[Fact]) -> str:
        rest = find_missing_facts(story, kept) if story else kept
        line = f"Key facts: {', '.join(fact.text for fact in rest)}" if rest else ""
        return "\n".join(part for part in (head, story, line) if part)

    if max_tokens is None:
        return _to_summary(render(stories[0](100) if stories else "", listed), facts, counter)

    def fits(story: str, kept: Sequence[Fact], limit: float = max_tokens) -> bool:
        return counter.count(render(story, kept)) <= limit

    kept = listed
    if not fits("", listed):
        limit = max_tokens * (1 - STORY_SHARE)
        kept = select_best_facts(listed, lambda chosen: fits("", chosen, limit))
    story = _choose_fullest_story(stories, lambda candidate: fits(candidate, kept))
    text = render(story, kept)
    if counter.count(text) > max_tokens:  # not even the head fits
        text = text[: find_largest_fitting(len(text), lambda n: counter.count(text[:n]) <= max_tokens)]
    return _to_summary(text, facts, counter)


def build_truncated_story(story: str) -> Callable[[int], str]:
    """Return a function that truncates the story to a percentage of its length."""
    return lambda percent: (
        story
        if percent >= 100
        else truncate_with_ellipsis(story, len(story) * percent // 100)
        if percent
        else ""
    )


def _choose_fullest_story(stories: Sequence[Callable[[int], str]], fits: Callable[[str], bool]) -> str:
    # The most detailed version that fits completely, otherwise the largest part of the shortest version.
    for build_story in stories[:-1]:
        if fits(whole := build_story(100)):
            return whole
    if not stories:
        return ""
    build_shortest = stories[-1]
    return build_shortest(find_largest_fitting(100, lambda percent: fits(build_shortest(percent))))


def select_best_facts(facts: Sequence[Fact], fits: Callable[[Sequence[Fact]], bool]) -> list[Fact]:
    """Select the best facts that fit together, in their original order. Facts too long by themselves are skipped."""
    by_worth = sorted(
        (index for index, fact in enumerate(facts) if fits([fact])),
        key=lambda index: -_score_fact(facts, index),
    )

    def select_best(count: int) -> list[Fact]:
        return [facts[index] for index in sorted(by_worth[:count])]

    return select_best(find_largest_fitting(len(by_worth), lambda count: fits(select_best(count))))


def _score_fact(facts: Sequence[Fact], index: int) -> float:
    # Priority and recency per cost: ten dates fit into the space of one long command.
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
    # Longest first, so that a fact is compared with all facts that may contain it.
    kept: set[str] = set()
    everything = ""
    for fact in sorted(facts, key=lambda fact: -len(fact.text)):
        if not contains_fact(everything, fact):
            kept.add(fact.text)
            everything += f"\n{fact.text}"
    return [fact for fact in facts if fact.text in kept]
