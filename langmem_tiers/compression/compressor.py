"""One message in fewer words, with every fact in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, Role, ToolCall
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.fact_finder import FactFinder, find_missing_facts, select_outermost
from langmem_tiers.compression.layout import select_best_facts
from langmem_tiers.compression.selection import find_largest_fitting
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.text.token_counting import count_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.fact_finder import FactSpan
    from langmem_tiers.compression.layout import Summary
    from langmem_tiers.text.facts import Fact

MAX_UNCOMPRESSED_CHARACTERS = 200
"""A text up to this length is left alone."""
MAX_OUTER_LINE_CHARACTERS = 200
"""The most that is kept of the first and of the last line."""
_MAX_CACHED_MESSAGES, _MAX_CACHED_CHARACTERS = 2000, 10_000  # whose short forms are held, up to that length
_MAX_CACHED_SUMMARIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedText(Displayable):
    """A compressed text, and what became of its facts."""

    text: str
    tokens_before: int
    tokens_after: int
    facts: tuple[Fact, ...]
    """Every fact of the original."""
    missing: tuple[Fact, ...] = ()
    """Facts that the text no longer holds; only where a limit left no room for them."""


@dataclass(frozen=True, slots=True)
class _SummaryRequest:
    summary: Message
    max_tokens: int
    digest: dict[str, Any] = field(compare=False)


class Compressor:
    """Keeps the first line, the last line and every fact.

    Args:
        counter: Counts tokens.
        facts: Finds what must survive.
    """

    def __init__(self, counter: TokenCounter, facts: FactFinder | None = None) -> None:
        self.counter = counter
        self.facts = FactFinder() if facts is None else facts
        # The same messages are compressed for one context after the other.
        self._compress_message_cached = lru_cache(maxsize=_MAX_CACHED_MESSAGES)(self._compress_message)
        self._shorten_summary_cached = lru_cache(maxsize=_MAX_CACHED_SUMMARIES)(self._shorten_summary)

    def invalidate(self) -> None:
        """Hold nothing any more of what was compressed."""
        self._compress_message_cached.cache_clear()
        self._shorten_summary_cached.cache_clear()

    def compress(
        self, content: str, role: Role | str = Role.USER, *, max_tokens: int | None = None
    ) -> CompressedText:
        """The text in the form ``[role] first line``, ``... last line``, ``[preserved: fact, fact]``.

        It is never longer than the original: a text that cannot be made shorter without losing a
        fact comes back as it is. What was injected from memory is no part of the shorter form.

        Args:
            content: The text.
            role: Who said it.
            max_tokens: A limit that goes before the facts; what it costs is reported as missing.
        """
        before = self.counter.count(_check_text(content))
        said = strip_fences(content)
        places = self.facts.find_spans(said)
        facts = tuple(dict.fromkeys(place.fact for place in places))
        text, kept = self._compress_by_lines(said, str(role), places)
        after = self.counter.count(text)
        if not text.strip() or len(text) >= len(content) or after >= before:
            text, after = content, before
        missing: tuple[Fact, ...] = ()
        if max_tokens is not None and after > check_whole(max_tokens, 0, "max_tokens"):
            text = self._compress_to_fit(max_tokens, said, places)
            after = self.counter.count(text)
            missing = find_missing_facts(text, facts)
        elif text != content:
            missing = find_missing_facts(text, (fact for fact in facts if fact.text not in kept))
        return CompressedText(
            text=text, tokens_before=before, tokens_after=after, facts=facts, missing=missing
        )

    def compress_batch(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> Summary:
        """Many messages in one summary: actions, results and key facts.

        Args:
            messages: Oldest first.
            max_tokens: The limit; facts go before the story, and those without room are reported.
        """
        return Digest.from_messages(messages, self.facts).render(self.counter, max_tokens)

    @staticmethod
    def _compress_by_lines(content: str, role: str, places: Sequence[FactSpan]) -> tuple[str, set[str]]:
        # The text, and the facts that are in it by the way it is made.
        if len(content) <= MAX_UNCOMPRESSED_CHARACTERS:
            return content, set()
        lines, covered = _find_outer_lines(content, role)
        listed, inside = select_outermost(content, places, covered)
        return _format_compressed(lines, [place.fact for place in listed]), inside | {
            one.fact.text for one in listed
        }

    def _compress_to_fit(self, max_tokens: int, content: str, places: Sequence[FactSpan]) -> str:
        facts_of = [one.fact for one in select_outermost(content, places)[0]]

        def fits(text: str) -> bool:
            return self._fits(text, max_tokens) and len(text) <= len(content)

        facts = _format_compressed(
            [], select_best_facts(facts_of, lambda some: fits(_format_compressed([], some)))
        )
        head = content.strip().partition("\n")[0]
        room = find_largest_fitting(len(head), lambda n: fits(f"{head[:n].rstrip()}\n{facts}".strip()))
        text = f"{head[:room].rstrip()}\n{facts}".strip()
        return text if fits(text) else ""

    def _fits(self, text: str, max_tokens: int) -> bool:
        return self.counter.count(text) <= max_tokens

    def compress_message(self, message: Message) -> Message:
        """The message with its text and the texts in its tool calls compressed; the same one if that gains nothing."""
        size = len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
        is_small = size + len(message.payload_json or "") <= _MAX_CACHED_CHARACTERS
        return self._compress_message_cached(message) if is_small else self._compress_message(message)

    def _compress_message(self, message: Message) -> Message:
        content = self._shorten(message.content, message.role)
        calls = tuple(self._compress_call(call) for call in message.tool_calls)
        if content == message.content and calls == message.tool_calls:
            return message
        short = replace(message, content=content, tool_calls=calls, payload_json=None)
        return replace(short, token_count=count_draft(self.counter, short), token_counter=self.counter.name)

    def shorten_summary(self, summary: Message, carried: dict[str, Any], max_tokens: int) -> Message:
        """A summary told again in fewer tokens.

        Args:
            summary: As it stands.
            carried: What it was made of.
            max_tokens: The limit of its text.
        """
        return self._shorten_summary_cached(_SummaryRequest(summary, max_tokens, carried))

    def _shorten_summary(self, asked: _SummaryRequest) -> Message:
        text = Digest.from_dict(asked.digest).render(self.counter, asked.max_tokens).text
        short = replace(asked.summary, content=f"{SUMMARY_PREFIX}\n{text}")
        return replace(short, token_count=count_draft(self.counter, short), token_counter=self.counter.name)

    def _shorten(self, content: str, role: Role | str) -> str:
        # A text that is kept as it is need not be searched for facts.
        return content if len(content) <= MAX_UNCOMPRESSED_CHARACTERS else self.compress(content, role).text

    def _compress_call(self, call: ToolCall) -> ToolCall:
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


def _format_compressed(lines: list[str], facts: Sequence[Fact]) -> str:
    preserved = [f"[preserved: {', '.join(fact.text for fact in facts)}]"] if facts else []
    return "\n".join([*lines, *preserved])


def _parse_plain_object(text: str) -> dict[str, Any] | None:
    # Only what is written the same way again: numbers with fractions and double keys are not.
    def refuse(_: object) -> None:
        raise ValueError

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        found = json.loads(text, parse_float=refuse, parse_constant=refuse, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _check_text(content: object) -> str:
    if not isinstance(content, str):
        raise InvalidInputError(f"compress() takes a text, got a {type(content).__name__}: pass its content")
    return content
