"""Pack recalled memories into one fenced message with the most value for its tokens.

Memories are grouped by day and session, in chronological order, so the same memories always give the same text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.prompt_fences import MEMORY_NAME, neutralize_fence_tags, strip_fences, wrap_in_fence
from langmem_tiers.context.knowledge_hits import format_knowledge, to_message_id
from langmem_tiers.context.memory_hits import find_repeated_hits
from langmem_tiers.context.models import (
    DID_NOT_FIT_REASON,
    RECALLED_REASON,
    SUMMARIZED_REASON,
    get_reason_key,
)
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.text.token_counting import count_messages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from datetime import date, datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.sessions.service import SessionDependencies

SCORE_SHARPNESS = 23.0
"""Exponential rate at which the value of a memory grows with its score."""
LENGTH_EXPONENT = 0.5
"""Penalty for long memories: 1 ranks by value per token, 0 by value alone."""
MAX_OVERFLOW_MEMORIES = 10
"""Maximum number of memories that do not fit and are summarized instead."""
MIN_OVERFLOW_TOKENS = 60
"""Minimum number of free tokens for such a summary."""
OVERFLOW_LABEL = "[Previous context summary]"
# Reserve for the fence and the message frame, rounded up.
_FENCE_TOKENS = 24
# Reserve for the label and for neutralizing fence tags in the text.
_LABEL_TOKENS = 20


@dataclass(frozen=True, slots=True)
class PackingResult:
    """The message with the recalled memories, and a report of what it includes."""

    message: Message | None
    included: tuple[Hit, ...]
    left_out: tuple[Hit, ...]
    summarized: tuple[Hit, ...] = ()
    """Memories of ``left_out`` that are summarized in the message."""
    duplicates: tuple[Hit, ...] = ()
    """Memories that repeat the message or visible text."""
    irrelevant: tuple[Hit, ...] = ()
    """Memories that are not relevant enough to the question."""

    @property
    def passed_over(self) -> tuple[Hit, ...]:
        """Memories that did not need to be included."""
        return (*self.duplicates, *self.irrelevant)

    def exclude_visible(self, shown: AbstractSet[str], own: str) -> PackingResult:
        """Return a copy that does not report visible messages of the conversation as left out.

        Args:
            shown: Ids of the visible messages.
            own: Name of their session.
        """

        # Message ids are unique within a session only, so compare the session as well.
        def absent(hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
            return tuple(hit for hit in hits if hit.session != own or hit.entry.id not in shown)

        return replace(
            self,
            left_out=absent(self.left_out),
            summarized=absent(self.summarized),
            duplicates=absent(self.duplicates),
            irrelevant=absent(self.irrelevant),
        )

    def without_message(self) -> PackingResult:
        """Return a copy for the case that the message itself does not fit."""
        return replace(
            self, message=None, included=(), left_out=(*self.included, *self.left_out), summarized=()
        )


@dataclass(frozen=True, slots=True)
class _Line:
    hit: Hit
    text: str
    tokens: int
    value: float

    @property
    def day(self) -> date:
        return self.hit.entry.created_at.date()


class MemoryPacker:
    """Packs memories for one context.

    Args:
        dependencies: Services that count tokens and create messages.
        compressor: Summarizes memories that do not fit.
        name: Suffix of the message id; the same for the same question.
        when: Time of the message.
    """

    def __init__(
        self, dependencies: SessionDependencies, compressor: Compressor, name: str, when: datetime
    ) -> None:
        self._dependencies = dependencies
        self._compressor = compressor
        self._count_text_tokens = dependencies.counter.count
        self._name = name
        self._created_at = when

    def pack(
        self,
        hits: Sequence[Hit],
        max_tokens: int,
        visible_texts: AbstractSet[str] = frozenset(),
        limit: int | None = None,
    ) -> PackingResult:
        """Pack as many of the hits as fit, by their value for the tokens they take.

        Args:
            hits: Hits, best first.
            max_tokens: Token limit of the message.
            visible_texts: Texts that are visible anyway.
            limit: Maximum number of memories. Default: no limit.
        """
        repeated = find_repeated_hits(hits, visible_texts)
        packed = self._pack_distinct(
            [hit for hit in hits if id(hit) not in repeated], max_tokens, visible_texts, limit
        )
        included = {id(hit) for hit in packed.included}
        # A hit repeated by another one is left out only if that other one fits. An entry may be shorter than the
        # message that contains its words, so it may fit where the message does not: pack those again.
        orphaned = {
            hit_id
            for hit_id, original in repeated.items()
            if original is not None and id(original) not in included
        }
        if orphaned:
            candidates = [hit for hit in hits if id(hit) in included or id(hit) in orphaned]
            second = self._pack_distinct(candidates, max_tokens, visible_texts, limit)
            included |= {id(hit) for hit in second.included}
            left_out = tuple(hit for hit in packed.left_out if id(hit) not in included)
            packed = replace(second, left_out=(*second.left_out, *left_out), duplicates=packed.duplicates)
        duplicates = tuple(hit for hit in hits if id(hit) in repeated and id(hit) not in orphaned)
        return replace(packed, duplicates=(*packed.duplicates, *duplicates))

    def _pack_distinct(
        self, hits: Sequence[Hit], max_tokens: int, visible_texts: AbstractSet[str], limit: int | None
    ) -> PackingResult:
        lines, duplicates = self._build_lines(hits, visible_texts)
        duplicate_ids = {id(hit) for hit in duplicates}
        hits = [hit for hit in hits if id(hit) not in duplicate_ids][:limit]
        return replace(self._pack_lines(hits, lines[:limit], max_tokens), duplicates=tuple(duplicates))

    def _build_lines(
        self, hits: Sequence[Hit], visible_texts: AbstractSet[str]
    ) -> tuple[list[_Line], list[Hit]]:
        lines: dict[str, _Line] = {}
        duplicates: list[Hit] = []
        for hit in hits:
            # Nothing but text that an earlier context injected.
            if not strip_fences(hit.entry.content).strip():
                continue
            line = self._build_line(hit)
            if line.text in lines or hit.entry.content in visible_texts:
                duplicates.append(hit)
            else:
                lines[line.text] = line
        return list(lines.values()), duplicates

    def _pack_lines(self, hits: Sequence[Hit], lines: list[_Line], max_tokens: int) -> PackingResult:
        chosen = self._choose_lines(lines, max_tokens)
        # The choice adds up the tokens of single lines, which is not exact. Check the whole message.
        while chosen and self._count_message_tokens(self._build_message(chosen)) > max_tokens:
            chosen.remove(min(chosen, key=lambda line: line.value))
        chosen_ids = {id(line.hit) for line in chosen}
        included = tuple(hit for hit in hits if id(hit) in chosen_ids)
        left_out = tuple(hit for hit in hits if id(hit) not in chosen_ids)
        message = self._build_message(chosen) if chosen else None
        free = max_tokens - (_FENCE_TOKENS if message is None else self._count_message_tokens(message))
        remaining = (line.hit for line in lines if id(line.hit) not in chosen_ids)
        to_summarize = [hit for hit in remaining if hit.message is not None][:MAX_OVERFLOW_MEMORIES]
        if to_summarize and free >= MIN_OVERFLOW_TOKENS:
            longer = self._build_message(chosen, self._build_summary(to_summarize, free))
            if self._count_message_tokens(longer) <= max_tokens:
                return PackingResult(longer, included, left_out, tuple(to_summarize))
        return PackingResult(message, included, left_out)

    def _build_summary(self, hits: Sequence[Hit], max_tokens: int) -> str:
        messages = [hit.message for hit in hits if hit.message is not None]
        text = self._compressor.compress_batch(messages, max_tokens=max_tokens - _LABEL_TOKENS).text
        return neutralize_fence_tags(" ".join(f"{OVERFLOW_LABEL}: {strip_fences(text)}".split()))

    def _count_message_tokens(self, message: Message) -> int:
        return count_messages(self._dependencies.counter, [message])

    def _choose_lines(self, lines: list[_Line], max_tokens: int) -> list[_Line]:
        # Greedy knapsack: best value for the length first. The first line of a day also pays for its heading.
        left, days, chosen = max_tokens - _FENCE_TOKENS, set(), []
        for line in sorted(lines, key=lambda line: -line.value / line.tokens**LENGTH_EXPONENT):
            cost = line.tokens + (
                0 if line.day in days else self._count_text_tokens(_format_heading(line)) + 1
            )
            if cost <= left:
                chosen.append(line)
                days.add(line.day)
                left -= cost
        return chosen

    def _build_line(self, hit: Hit) -> _Line:
        text = _format_hit(hit)
        # One more token for the line break. The limit on the score keeps exp() within the range of a float.
        return _Line(hit, text, self._count_text_tokens(text) + 1, exp(SCORE_SHARPNESS * min(hit.score, 2.0)))

    def _build_message(self, lines: list[_Line], summary: str | None = None) -> Message:
        ordered = sorted(
            lines,
            key=lambda line: (line.day, line.hit.session or "", line.hit.entry.created_at, line.hit.entry.id),
        )
        days: dict[date, list[str]] = {}
        for line in ordered:
            days.setdefault(line.day, [_format_heading(line)]).append(line.text)
        draft = MessageDraft(
            Role.SYSTEM,
            wrap_in_fence(
                [*(text for texts in days.values() for text in texts), *([summary] if summary else [])]
            ),
            id=to_message_id(f"recalled-{self._name}"),
            created_at=self._created_at,
            name=MEMORY_NAME,
        )
        (message,) = complete_drafts(self._dependencies, [draft])
        return message


def explain_packing(packed: PackingResult, own: str | None = None) -> dict[str, str]:
    """Return the reason why each memory is included or not, by the keys of ``MemoryContext.reasons``.

    Args:
        packed: The result of packing.
        own: Name of the session of the context, whose memories are keyed by id alone.
    """
    verdicts = {
        RECALLED_REASON: packed.included,
        DID_NOT_FIT_REASON: packed.left_out,
        SUMMARIZED_REASON: packed.summarized,
        "duplicate": packed.duplicates,
        "not relevant enough": packed.irrelevant,
    }
    return {
        get_reason_key(hit, own): f"{verdict}: score {hit.score:.2f}, found by {hit.found_by}"
        for verdict, hits in verdicts.items()
        for hit in hits
    }


def _format_heading(line: _Line) -> str:
    return f"{line.day.isoformat()}:"


def _format_hit(hit: Hit) -> str:
    if hit.knowledge is not None:
        return format_knowledge(hit.knowledge)
    speaker = hit.message.name if hit.message is not None else None
    speaker_name = speaker or (hit.entry.role.value if hit.entry.role is not None else hit.entry.kind)
    return neutralize_fence_tags(" ".join(f"{speaker_name}: {strip_fences(hit.entry.content)}".split()))
