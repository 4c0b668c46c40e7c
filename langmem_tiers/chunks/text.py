"""Texts of chunks: summarize a run of messages, and merge two summaries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.layout import build_summary, select_best_facts
from langmem_tiers.compression.message_text import SPEAKER_LABELS, message_to_text
from langmem_tiers.compression.sentence_ranking import build_extractive_story
from langmem_tiers.config import SummaryStrategy
from langmem_tiers.text.sentences import find_largest_fitting, find_sentence_spans, shorten_text
from langmem_tiers.text.topics import find_key_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.summarizer import Summarizer

DEFAULT_CHUNK_SUMMARY_TOKENS = 150
"""Default token limit of the summary of one chunk."""
MAX_FACTS_SHARE = 0.3
"""Maximum share of that limit for facts that are listed because the story does not contain them."""
_REQUEST_FACTOR = 16  # the summarizer gets this multiple of the limit; the result is shortened here
_SUMMARY_HEAD = re.compile(r"\[Summary of \d+ messages\]\s*")
_KEY_FACTS = re.compile(r"(?:^|\n)Key facts: [^\n]*\Z")
_EARLIER_PREFIX = re.compile(r"(?:Earlier: )+")
_GAP_MARK = " ... "


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkText:
    """Summary and topics of the messages of a chunk."""

    summary: str
    topics: tuple[str, ...]
    problems: tuple[str, ...] = ()
    """Reasons why the model's answer was not used; empty if no model was asked."""


def summarize_chunk(
    messages: Sequence[Message], summarizer: Summarizer, target_tokens: int = DEFAULT_CHUNK_SUMMARY_TOKENS
) -> ChunkText:
    """Summarize a run of messages and find its topics.

    Args:
        messages: Oldest first.
        summarizer: Summarizer to use, with or without a model.
        target_tokens: Maximum size of the summary in tokens of the summarizer's counter, at least 16. Default: 150.
    """
    if not messages:
        return ChunkText(summary="", topics=())
    check_whole(target_tokens, 16, "target_tokens")
    # Request a longer summary than needed and shorten it below: with a small limit, the summarizer would list
    # facts and leave out the story.
    report = summarizer.summarize(list(messages), target_tokens=_REQUEST_FACTOR * target_tokens)
    counter, finder = summarizer.counter, summarizer.finder
    # Tool output would dominate facts and topics of a chunk; it counts only if there is nothing else.
    spoken = [message for message in messages if message.role is not Role.TOOL] or messages
    if report.strategy is SummaryStrategy.EXTRACTIVE:
        story = build_extractive_story(spoken)
    else:
        # Keep the words of the model only: the facts are selected again, for the smaller limit.
        story = _build_leading_story(_KEY_FACTS.sub("", _SUMMARY_HEAD.sub("", report.text, count=1)).strip())
    facts = select_best_facts(
        Digest.from_messages(spoken, finder).facts,
        lambda chosen: (
            counter.count(", ".join(fact.text for fact in chosen)) <= target_tokens * MAX_FACTS_SHARE
        ),
    )
    summary = build_summary("", [story], facts, counter, target_tokens).text.strip()
    return ChunkText(
        summary=_cut_to_fit(summary or _build_fallback_summary(messages), counter, target_tokens),
        topics=_find_topics(spoken),
        problems=report.problems if report.questions else (),
    )


def merge_chunk_summaries(first: str, second: str, counter: TokenCounter, max_tokens: int) -> str:
    """Merge two summaries, the earlier one first, within a token limit.

    If the result is too long, sentences are removed from the first summary, starting in its middle.

    Args:
        first: The earlier summary.
        second: The later summary.
        counter: Token counter.
        max_tokens: Maximum size of the result.
    """

    def fits(text: str) -> bool:
        return counter.count(text) <= max_tokens

    if fits(whole := _join_summaries(first, second)):
        return whole
    # A summary that was merged before starts with "Earlier: ", possibly repeated. Drop the prefixes before any
    # sentence.
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
    # From both ends towards the middle, 0, last, 1, last - 1, ...: the start and the final state of a
    # conversation matter more than the steps between.
    by_worth = [index for pair in zip(range(last + 1), range(last, -1, -1), strict=True) for index in pair]
    order = list(dict.fromkeys(by_worth))

    def render(count: int) -> str:
        # The `count` best sentences in their original order, with a mark where sentences are missing.
        kept = sorted(order[:count])
        parts: list[str] = []
        for index in kept:
            start, end = spans[index]
            if parts:
                parts.append(text[spans[index - 1][1] : start] if index - 1 in kept else _GAP_MARK)
            parts.append(text[start:end])
        return "".join(parts)

    count = find_largest_fitting(len(order), lambda size: fits(render(size)))
    if count > 1 or not order:
        return render(count)
    if count == 0:
        return _keep_fewer_words(render(1), "", fits)
    # Only the first sentence fits: add the beginning of the last one.
    return _keep_fewer_words(text[slice(*spans[last])], render(1) + _GAP_MARK, fits) or render(1)


def _strip_gap(text: str, start: int, end: int) -> tuple[int, int]:
    # A gap mark of an earlier merge is not part of the sentence before it: `render` adds its own marks.
    gap = _GAP_MARK.rstrip()
    return start, end - len(gap) if text.endswith(gap, start + 1, end) else end


def _keep_fewer_words(sentence: str, lead: str, fits: Callable[[str], bool]) -> str:
    words = sentence.split()

    def render(count: int) -> str:
        return f"{lead}{' '.join(words[:count])}..." if count else ""

    return render(find_largest_fitting(len(words) - 1, lambda count: fits(render(count))))


def _find_topics(messages: Sequence[Message]) -> tuple[str, ...]:
    contents = [strip_fences(message.content) for message in messages]
    # Tool calls have topics, too, but count only if the contents have none.
    return find_key_topics(contents) or find_key_topics(list(map(message_to_text, messages)))


def _build_leading_story(story: str) -> Callable[[int], str]:
    spans = find_sentence_spans(story)

    def render(percent: int) -> str:
        count = len(spans) * percent // 100
        return story[: spans[count - 1][1]] if count else ""

    return render


def _build_fallback_summary(messages: Sequence[Message]) -> str:
    # No sentence was short enough to fit: use the beginning of each message.
    beginnings = ((message, shorten_text(message_to_text(message), 300)) for message in messages)
    lines = [f"{SPEAKER_LABELS[message.role]}: {text}" for message, text in beginnings if text]
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
    # Not even one word fits: cut inside of it.
    return text[: find_largest_fitting(len(text), lambda n: counter.count(text[:n]) <= max_tokens)]
