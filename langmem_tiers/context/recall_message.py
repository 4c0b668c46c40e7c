"""Packing recalled memories into one fenced message: the most value for the tokens there are.

What belongs to one day of one session stands together, in the order in which it was said, so the same
memories always make the same text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.prompt_fences import MEMORY_NAME, neutralize_fence_tags, strip_fences, wrap_in_fence
from langmem_tiers.context.knowledge_hits import format_knowledge, to_message_id
from langmem_tiers.context.memory_hits import find_repeated_hits
from langmem_tiers.context.models import NO_ROOM_REASON, RECALLED_REASON, SUMMARIZED_REASON, get_reason_key
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
"""How fast the chance that a memory is needed falls with its score."""
LENGTH_EXPONENT = 0.5
"""How much a long memory must be better than a short one: 1 is by value per token, 0 by value alone."""
MAX_OVERFLOW_MEMORIES = 10
"""Memories without room that are told in a few words, at most."""
MIN_OVERFLOW_TOKENS = 60
"""The least room for that."""
OVERFLOW_LABEL = "[Previous context summary]"
_FENCE_TOKENS = 24  # of the fence and the message's frame, with some to spare
_LABEL_TOKENS = 20  # of the label and of what makes a text harmless


@dataclass(frozen=True, slots=True)
class PackingResult:
    """A message with memories, those that are in it in full and those that had no room."""

    message: Message | None
    included: tuple[Hit, ...]
    left_out: tuple[Hit, ...]
    summarized: tuple[Hit, ...] = ()
    """Those without room that are told in a few words."""
    duplicates: tuple[Hit, ...] = ()
    """Those that say what is told or in sight already."""
    irrelevant: tuple[Hit, ...] = ()
    """Those that have too little to do with the question."""

    @property
    def passed_over(self) -> tuple[Hit, ...]:
        """Those that had not to be told."""
        return (*self.duplicates, *self.irrelevant)

    def exclude_visible(self, shown: AbstractSet[str], own: str) -> PackingResult:
        """The same beside a conversation: what is in sight there is not left out.

        Args:
            shown: Ids of the messages that are shown.
            own: The session that they are of.
        """

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
        """The same where the message has no room."""
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
        parts: Counts tokens and makes messages.
        compressor: Tells what has no room in a few words.
        name: What the message's id ends with; the same for the same question.
        when: The message's time.
    """

    def __init__(self, parts: SessionDependencies, compressor: Compressor, name: str, when: datetime) -> None:
        self._dependencies = parts
        self._compressor = compressor
        self._count_text_tokens = parts.counter.count
        self._name = name
        self._created_at = when

    def pack(
        self,
        hits: Sequence[Hit],
        max_tokens: int,
        said: AbstractSet[str] = frozenset(),
        limit: int | None = None,
    ) -> PackingResult:
        """As many of the hits as fit, by their value for what they take.

        Args:
            hits: Best first.
            max_tokens: What the message may take.
            said: Texts that are in sight already.
            limit: How many memories at most.
        """
        echoes = find_repeated_hits(hits, said)
        packed = self._pack_distinct([hit for hit in hits if id(hit) not in echoes], max_tokens, said, limit)
        told = {id(hit) for hit in packed.included}
        # What would have said it had no room: then it says it itself.
        alone = {name for name, by in echoes.items() if by is not None and id(by) not in told}
        if alone:
            again = [hit for hit in hits if id(hit) in told or id(hit) in alone]
            second = self._pack_distinct(again, max_tokens, said, limit)
            told |= {id(hit) for hit in second.included}
            rest = tuple(hit for hit in packed.left_out if id(hit) not in told)
            packed = replace(second, left_out=(*second.left_out, *rest), duplicates=packed.duplicates)
        doubles = tuple(hit for hit in hits if id(hit) in echoes and id(hit) not in alone)
        return replace(packed, duplicates=(*packed.duplicates, *doubles))

    def _pack_distinct(
        self, hits: Sequence[Hit], max_tokens: int, said: AbstractSet[str], limit: int | None
    ) -> PackingResult:
        lines, doubles = self._build_lines(hits, said)
        again = {id(hit) for hit in doubles}
        hits = [hit for hit in hits if id(hit) not in again][:limit]
        return replace(self._pack_lines(hits, lines[:limit], max_tokens), duplicates=tuple(doubles))

    def _build_lines(self, hits: Sequence[Hit], said: AbstractSet[str]) -> tuple[list[_Line], list[Hit]]:
        lines: dict[str, _Line] = {}
        doubles: list[Hit] = []
        for hit in hits:
            if not strip_fences(hit.entry.content).strip():
                continue
            line = self._build_line(hit)
            if line.text in lines or hit.entry.content in said:
                doubles.append(hit)
            else:
                lines[line.text] = line
        return list(lines.values()), doubles

    def _pack_lines(self, hits: Sequence[Hit], lines: list[_Line], max_tokens: int) -> PackingResult:
        chosen = self._choose_lines(lines, max_tokens)
        while chosen and self._count_message_tokens(self._build_message(chosen)) > max_tokens:
            chosen.remove(min(chosen, key=lambda line: line.value))
        told = {id(line.hit) for line in chosen}
        left_out = tuple(hit for hit in hits if id(hit) not in told)
        message = self._build_message(chosen) if chosen else None
        room = max_tokens - (_FENCE_TOKENS if message is None else self._count_message_tokens(message))
        untold = (line.hit for line in lines if id(line.hit) not in told)
        rest = [hit for hit in untold if hit.message is not None][:MAX_OVERFLOW_MEMORIES]
        if rest and room >= MIN_OVERFLOW_TOKENS:
            longer = self._build_message(chosen, self._build_summary(rest, room))
            if self._count_message_tokens(longer) <= max_tokens:
                return PackingResult(
                    longer, tuple(hit for hit in hits if id(hit) in told), left_out, tuple(rest)
                )
        return PackingResult(message, tuple(hit for hit in hits if id(hit) in told), left_out)

    def _build_summary(self, rest: Sequence[Hit], room: int) -> str:
        said = [hit.message for hit in rest if hit.message is not None]
        text = self._compressor.compress_batch(said, max_tokens=room - _LABEL_TOKENS).text
        return neutralize_fence_tags(" ".join(f"{OVERFLOW_LABEL}: {strip_fences(text)}".split()))

    def _count_message_tokens(self, message: Message) -> int:
        return count_messages(self._dependencies.counter, [message])

    def _choose_lines(self, lines: list[_Line], max_tokens: int) -> list[_Line]:
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
    """Why each memory is in the message, or is not: by its session and id, those of the own session by id."""
    verdicts = {
        RECALLED_REASON: packed.included,
        NO_ROOM_REASON: packed.left_out,
        SUMMARIZED_REASON: packed.summarized,
        "said already": packed.duplicates,
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
    who = speaker or (hit.entry.role.value if hit.entry.role is not None else hit.entry.kind)
    return neutralize_fence_tags(" ".join(f"{who}: {strip_fences(hit.entry.content)}".split()))
