"""The text of a chunk: what a run of messages came to, and two of them in one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.layout import build_summary, select_best_facts
from langmem_tiers.compression.message_text import SPEAKER_LABELS, message_to_text
from langmem_tiers.compression.selection import find_largest_fitting
from langmem_tiers.compression.sentence_ranking import build_extractive_story
from langmem_tiers.config import SummaryStrategy
from langmem_tiers.text.sentences import find_sentence_spans, shorten_text
from langmem_tiers.text.topics import find_key_topics, merge_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.summarizer import Summarizer

DEFAULT_CHUNK_SUMMARY_TOKENS = 150
"""What the summary of one chunk may take."""
MAX_FACTS_SHARE = 0.3
"""How much of it may go to facts that the story does not tell."""
_REQUEST_FACTOR = 16
_SUMMARY_HEAD = re.compile(r"\[Summary of \d+ messages\]\s*")
_KEY_FACTS = re.compile(r"(?:^|\n)Key facts: [^\n]*\Z")
_EARLIER_PREFIX = re.compile(r"(?:Earlier: )+")
_GAP_MARK = " ... "


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkText:
    """What a chunk says in place of its messages."""

    summary: str
    topics: tuple[str, ...]
    problems: tuple[str, ...] = ()
    """Why a model's answer was not used; nothing, where there is no model to ask."""


class SummaryWithTopics(Protocol):
    """What can be merged: a chunk, or the text of one."""

    @property
    def summary(self) -> str:
        """In a few sentences."""
        ...

    @property
    def topics(self) -> tuple[str, ...]:
        """In a few words."""
        ...


class MergedText(NamedTuple):
    """Two chunks in one."""

    summary: str
    topics: tuple[str, ...]


def summarize_chunk(
    messages: Sequence[Message], summarizer: Summarizer, target_tokens: int = DEFAULT_CHUNK_SUMMARY_TOKENS
) -> ChunkText:
    """The summary of a run of messages, and what they are about.

    Args:
        messages: Oldest first.
        summarizer: Tells it, by its model where it has one.
        target_tokens: What the summary may take at most, by the summarizer's counter; from 16 on.
    """
    if not messages:
        return ChunkText(summary="", topics=())
    check_whole(target_tokens, 16, "target_tokens")
    # Asked for more than there is room for: in little room it would list facts and tell nothing.
    report = summarizer.summarize(list(messages), target_tokens=_REQUEST_FACTOR * target_tokens)
    counter, finder = summarizer.counter, summarizer.finder
    spoken = [message for message in messages if message.role is not Role.TOOL] or messages
    if report.strategy is SummaryStrategy.EXTRACTIVE:
        tell = build_extractive_story(spoken)
    else:
        tell = _build_leading_story(_KEY_FACTS.sub("", _SUMMARY_HEAD.sub("", report.text, count=1)).strip())
    facts = select_best_facts(
        Digest.from_messages(spoken, finder).facts,
        lambda some: counter.count(", ".join(fact.text for fact in some)) <= target_tokens * MAX_FACTS_SHARE,
    )
    done = build_summary("", [tell], facts, counter, target_tokens).text.strip()
    return ChunkText(
        summary=_cut_to_fit(done or _build_fallback_summary(messages), counter, target_tokens),
        topics=_find_topics(spoken),
        problems=report.problems if report.questions else (),
    )


def merge_chunk_texts(first: SummaryWithTopics, second: SummaryWithTopics) -> MergedText:
    """Two chunks in one, the earlier first; its topics are those of both, each once."""
    return MergedText(
        _join_summaries(first.summary, second.summary), merge_topics(first.topics, second.topics)
    )


def merge_chunk_summaries(first: str, second: str, counter: TokenCounter, max_tokens: int) -> str:
    """Both summaries in one, as :func:`merged_text` has it, within a limit.

    Where that is too long, the first is told in fewer sentences, those at its ends before those between.

    Args:
        first: The earlier one.
        second: The later one.
        counter: Counts tokens.
        max_tokens: What the whole may take.
    """

    def fits(text: str) -> bool:
        return counter.count(text) <= max_tokens

    if fits(whole := _join_summaries(first, second)):
        return whole
    first = _EARLIER_PREFIX.sub("", first, count=1) if first.startswith("Earlier: ") else first
    if fits(_join_summaries("", second)):
        return _join_summaries(
            _keep_fewer_sentences(first, lambda text: fits(_join_summaries(text, second))), second
        )
    return _cut_to_fit(_join_summaries("", second), counter, max_tokens)


def _join_summaries(first: str, second: str) -> str:
    return f"Earlier: {first}\n\nThen: {second}"


def _keep_fewer_sentences(text: str, fits: Callable[[str], bool]) -> str:
    spans = [_strip_gap(text, *span) for span in find_sentence_spans(text)]
    last = len(spans) - 1
    # From both ends towards the middle: how it began and where it stood say more than the way.
    by_worth = [place for pair in zip(range(last + 1), range(last, -1, -1), strict=True) for place in pair]
    order = list(dict.fromkeys(by_worth))

    def told(number: int) -> str:
        kept = sorted(order[:number])
        parts: list[str] = []
        for place in kept:
            start, end = spans[place]
            if parts:
                parts.append(text[spans[place - 1][1] : start] if place - 1 in kept else _GAP_MARK)
            parts.append(text[start:end])
        return "".join(parts)

    number = find_largest_fitting(len(order), lambda size: fits(told(size)))
    if number > 1 or not order:
        return told(number)
    if number == 0:
        return _keep_fewer_words(told(1), "", fits)
    return _keep_fewer_words(text[slice(*spans[last])], told(1) + _GAP_MARK, fits) or told(1)


def _strip_gap(text: str, start: int, end: int) -> tuple[int, int]:
    gap = _GAP_MARK.rstrip()
    return start, end - len(gap) if text.endswith(gap, start + 1, end) else end


def _keep_fewer_words(sentence: str, lead: str, fits: Callable[[str], bool]) -> str:
    words = sentence.split()

    def told(number: int) -> str:
        return f"{lead}{' '.join(words[:number])}..." if number else ""

    return told(find_largest_fitting(len(words) - 1, lambda number: fits(told(number))))


def _find_topics(messages: Sequence[Message]) -> tuple[str, ...]:
    said = [strip_fences(message.content) for message in messages]
    return find_key_topics(said) or find_key_topics(list(map(message_to_text, messages)))


def _build_leading_story(story: str) -> Callable[[int], str]:
    spans = find_sentence_spans(story)

    def tell(size: int) -> str:
        number = len(spans) * size // 100
        return story[: spans[number - 1][1]] if number else ""

    return tell


def _build_fallback_summary(messages: Sequence[Message]) -> str:
    # Nothing was short enough to be told: how it begins is more than nothing.
    told = ((message, shorten_text(message_to_text(message), 300)) for message in messages)
    lines = [f"{SPEAKER_LABELS[message.role]}: {text}" for message, text in told if text]
    return "\n".join(lines) or f"{len(messages)} messages without text"


def _cut_to_fit(text: str, counter: TokenCounter, max_tokens: int) -> str:
    if counter.count(text) <= max_tokens:
        return text
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    number = find_largest_fitting(
        len(ends), lambda n: counter.count(f"{text[: ends[n - 1]]}...") <= max_tokens
    )
    if number:
        return f"{text[: ends[number - 1]]}..."
    return text[: find_largest_fitting(len(text), lambda n: counter.count(text[:n]) <= max_tokens)]
