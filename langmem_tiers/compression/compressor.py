"""Compression of single messages and texts that preserves every fact."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, MessageToolCall, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.fact_finder import FactFinder, find_missing_facts, select_outermost
from langmem_tiers.compression.layout import select_best_facts
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.text.sentences import find_largest_fitting
from langmem_tiers.text.token_counting import count_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.fact_finder import FactSpan
    from langmem_tiers.compression.layout import Summary
    from langmem_tiers.text.facts import Fact

MAX_UNCOMPRESSED_CHARACTERS = 200
"""Texts up to this length are not compressed."""
MAX_OUTER_LINE_CHARACTERS = 200
"""Maximum length of the first and of the last line in a compressed text."""
# Number of compressed messages in the cache, and the maximum length of a message in it.
_MAX_CACHED_MESSAGES, _MAX_CACHED_CHARACTERS = 2000, 10_000
_MAX_CACHED_SUMMARIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedText(Displayable):
    """Result of compressing a text."""

    text: str
    tokens_before: int
    tokens_after: int
    facts: tuple[Fact, ...]
    """All facts of the original text."""
    missing: tuple[Fact, ...] = ()
    """Facts that were lost because ``max_tokens`` left no space for them."""


@dataclass(frozen=True, slots=True)
class _SummaryRequest:
    summary: Message
    max_tokens: int
    # Not part of the cache key: a dictionary is not hashable, and the summary determines its digest.
    digest: dict[str, Any] = field(compare=False)


class Compressor:
    """Compressor for messages that keeps the first line, the last line and every fact.

    Args:
        counter: Token counter.
        facts: Finder for the facts to preserve.
    """

    def __init__(self, counter: TokenCounter, facts: FactFinder | None = None) -> None:
        self.counter = counter
        self.facts = FactFinder() if facts is None else facts
        # Successive contexts contain mostly the same messages.
        self._compress_message_cached = lru_cache(maxsize=_MAX_CACHED_MESSAGES)(self._compress_message)
        self._shorten_summary_cached = lru_cache(maxsize=_MAX_CACHED_SUMMARIES)(self._shorten_summary)

    def invalidate(self) -> None:
        """Clear the caches of compressed messages and summaries."""
        self._compress_message_cached.cache_clear()
        self._shorten_summary_cached.cache_clear()

    def compress(
        self, content: str, role: Role | str = Role.USER, *, max_tokens: int | None = None
    ) -> CompressedText:
        """Compress a text to ``[role] first line``, ``... last line``, ``[preserved: fact, fact]``.

        The result is never longer than the original. A text that cannot be shortened without losing a fact is returned
        unchanged. Text injected from memory is removed from a compressed text.

        Args:
            content: The text.
            role: Role of the author. Default: user.
            max_tokens: Maximum size of the result. It takes precedence over facts; lost facts are in ``missing``.
        """
        before = self.counter.count(_check_text(content))
        unfenced = strip_fences(content)
        spans = self.facts.find_spans(unfenced)
        facts = tuple(dict.fromkeys(span.fact for span in spans))
        text, kept = self._compress_by_lines(unfenced, str(role), spans)
        after = self.counter.count(text)
        # Both are compared: fewer characters may still be more tokens, and the other way around.
        if not text.strip() or len(text) >= len(content) or after >= before:
            text, after = content, before
        missing: tuple[Fact, ...] = ()
        if max_tokens is not None and after > check_whole(max_tokens, 0, "max_tokens"):
            text = self._compress_to_fit(max_tokens, unfenced, spans)
            after = self.counter.count(text)
            missing = find_missing_facts(text, facts)
        elif text != content:
            # Facts in `kept` are known to be in the text; only the others must be searched for.
            missing = find_missing_facts(text, (fact for fact in facts if fact.text not in kept))
        return CompressedText(
            text=text, tokens_before=before, tokens_after=after, facts=facts, missing=missing
        )

    def compress_batch(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> Summary:
        """Summarize many messages: actions, results and key facts.

        Args:
            messages: Oldest first.
            max_tokens: Maximum size of the summary. Default: no limit. Facts take precedence over the story; facts
                that do not fit are reported as missing.
        """
        return Digest.from_messages(messages, self.facts).render(self.counter, max_tokens)

    @staticmethod
    def _compress_by_lines(content: str, role: str, spans: Sequence[FactSpan]) -> tuple[str, set[str]]:
        # Returns the compressed text and the texts of the facts that it certainly contains.
        if len(content) <= MAX_UNCOMPRESSED_CHARACTERS:
            return content, set()
        lines, covered = _find_outer_lines(content, role)
        listed, inside = select_outermost(content, spans, covered)
        return _format_compressed_text(lines, [span.fact for span in listed]), inside | {
            span.fact.text for span in listed
        }

    def _compress_to_fit(self, max_tokens: int, content: str, spans: Sequence[FactSpan]) -> str:
        # The best facts that fit, then as much of the first line as the remaining space allows.
        candidates = [span.fact for span in select_outermost(content, spans)[0]]

        def fits(text: str) -> bool:
            return self._fits(text, max_tokens) and len(text) <= len(content)

        facts = _format_compressed_text(
            [], select_best_facts(candidates, lambda chosen: fits(_format_compressed_text([], chosen)))
        )
        head = content.strip().partition("\n")[0]
        length = find_largest_fitting(len(head), lambda n: fits(f"{head[:n].rstrip()}\n{facts}".strip()))
        text = f"{head[:length].rstrip()}\n{facts}".strip()
        # Counters are not monotone, so check the final text again.
        return text if fits(text) else ""

    def _fits(self, text: str, max_tokens: int) -> bool:
        return self.counter.count(text) <= max_tokens

    def compress_message(self, message: Message) -> Message:
        """Compress the text and the tool call arguments of a message. Return the same object if nothing is gained."""
        size = len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
        is_small = size + len(message.payload_json or "") <= _MAX_CACHED_CHARACTERS
        return self._compress_message_cached(message) if is_small else self._compress_message(message)

    def _compress_message(self, message: Message) -> Message:
        content = self._shorten(message.content, message.role)
        calls = tuple(self._compress_call(call) for call in message.tool_calls)
        if content == message.content and calls == message.tool_calls:
            return message
        # The payload is the framework's own form of the original message; it would contradict the compressed text.
        short = replace(message, content=content, tool_calls=calls, payload_json=None)
        return replace(short, token_count=count_draft(self.counter, short), token_counter=self.counter.name)

    def shorten_summary(self, summary: Message, carried: dict[str, Any], max_tokens: int) -> Message:
        """Rebuild a summary with fewer tokens.

        Args:
            summary: The current summary.
            carried: Digest of the summary, as returned by ``Digest.to_dict``.
            max_tokens: Maximum size of the text.
        """
        return self._shorten_summary_cached(_SummaryRequest(summary, max_tokens, carried))

    def _shorten_summary(self, request: _SummaryRequest) -> Message:
        text = Digest.from_dict(request.digest).render(self.counter, request.max_tokens).text
        short = replace(request.summary, content=f"{SUMMARY_PREFIX}\n{text}")
        return replace(short, token_count=count_draft(self.counter, short), token_counter=self.counter.name)

    def _shorten(self, content: str, role: Role | str) -> str:
        # `compress` would search even a short text for facts, although it returns it unchanged.
        return content if len(content) <= MAX_UNCOMPRESSED_CHARACTERS else self.compress(content, role).text

    def _compress_call(self, call: MessageToolCall) -> MessageToolCall:
        if len(call.arguments) <= MAX_UNCOMPRESSED_CHARACTERS:
            return call
        arguments = _parse_plain_object(call.arguments)
        if arguments is None:
            return call
        short = {
            key: self._shorten(value, key) if isinstance(value, str) else value
            for key, value in arguments.items()
        }
        text = json.dumps(short, ensure_ascii=False)
        return replace(call, arguments=text) if len(text) < len(call.arguments) else call


def _find_outer_lines(content: str, role: str) -> tuple[list[str], list[tuple[int, int]]]:
    # Returns the formatted first and last line, and the ranges of the content that they cover.
    start, end = len(content) - len(content.lstrip()), len(content.rstrip())
    first_end = content.find("\n", start, end)
    first_end = end if first_end < 0 else first_end
    first = (start, min(first_end, start + MAX_OUTER_LINE_CHARACTERS))
    lines, covered = [f"[{role}] {content[slice(*first)].rstrip()}"], [first]
    if first_end < end:
        last_start = content.rfind("\n", start, end) + 1
        last = (last_start, min(end, last_start + MAX_OUTER_LINE_CHARACTERS))
        lines.append(f"... {content[slice(*last)].strip()}")
        covered.append(last)
    return lines, covered


def _format_compressed_text(lines: list[str], facts: Sequence[Fact]) -> str:
    preserved = [f"[preserved: {', '.join(fact.text for fact in facts)}]"] if facts else []
    return "\n".join([*lines, *preserved])


def _parse_plain_object(text: str) -> dict[str, Any] | None:
    # Accepts only objects that survive parsing and serializing unchanged. Fractions could change (1.10, 1e400), and
    # of duplicate keys all but the last would be lost.
    def refuse(_: object) -> None:
        raise ValueError

    def require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        found = json.loads(
            text, parse_float=refuse, parse_constant=refuse, object_pairs_hook=require_unique_keys
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _check_text(content: object) -> str:
    if not isinstance(content, str):
        raise InvalidInputError(
            f"compress() expects a str, got {type(content).__name__}: pass message.content"
        )
    return content
