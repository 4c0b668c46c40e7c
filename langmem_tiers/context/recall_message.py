"""Packing recalled memories into one fenced message: the most value for the tokens there are.

What belongs to one day of one session stands together, in the order in which it was said, so the same
memories always make the same text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.prompt_fences import MEMORY, fenced, harmless, without_fences
from langmem_tiers.context.knowledge_hits import known_line, message_id
from langmem_tiers.context.memory_hits import echoes_in
from langmem_tiers.context.models import IN_FEW_WORDS, NO_ROOM, RECALLED, name_of
from langmem_tiers.sessions.service import seal
from langmem_tiers.text.token_counting import count_messages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from datetime import date, datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.sessions.service import ShortTermParts

SHARPNESS = 23.0
"""How fast the chance that a memory is needed falls with its score."""
BY_LENGTH = 0.5
"""How much a long memory must be better than a short one: 1 is by value per token, 0 by value alone."""
OVERFLOW = 10
"""Memories without room that are told in a few words, at most."""
OVERFLOW_TOKENS = 60
"""The least room for that."""
OVERFLOW_LABEL = "[Previous context summary]"
_FENCE_TOKENS = 24  # of the fence and the message's frame, with some to spare
_LABEL_TOKENS = 20  # of the label and of what makes a text harmless


@dataclass(frozen=True, slots=True)
class Packed:
    """A message with memories, those that are in it in full and those that had no room."""

    message: Message | None
    told: tuple[Hit, ...]
    left_out: tuple[Hit, ...]
    summarised: tuple[Hit, ...] = ()
    """Those without room that are told in a few words."""
    doubles: tuple[Hit, ...] = ()
    """Those that say what is told or in sight already."""
    irrelevant: tuple[Hit, ...] = ()
    """Those that have too little to do with the question."""

    @property
    def passed_over(self) -> tuple[Hit, ...]:
        """Those that had not to be told."""
        return (*self.doubles, *self.irrelevant)

    def beside(self, shown: AbstractSet[str], own: str) -> Packed:
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
            summarised=absent(self.summarised),
            doubles=absent(self.doubles),
            irrelevant=absent(self.irrelevant),
        )

    def unsent(self) -> Packed:
        """The same where the message has no room."""
        return replace(self, message=None, told=(), left_out=(*self.told, *self.left_out), summarised=())


@dataclass(frozen=True, slots=True)
class _Line:
    hit: Hit
    text: str
    tokens: int
    value: float

    @property
    def day(self) -> date:
        return self.hit.entry.created_at.date()


class Packer:
    """Packs memories for one context.

    Args:
        parts: Counts tokens and makes messages.
        compressor: Tells what has no room in a few words.
        name: What the message's id ends with; the same for the same question.
        when: The message's time.
    """

    def __init__(self, parts: ShortTermParts, compressor: Compressor, name: str, when: datetime) -> None:
        self._parts = parts
        self._compressor = compressor
        self._count = parts.counter.count
        self._name = name
        self._when = when

    def pack(
        self,
        hits: Sequence[Hit],
        max_tokens: int,
        said: AbstractSet[str] = frozenset(),
        limit: int | None = None,
    ) -> Packed:
        """As many of the hits as fit, by their value for what they take.

        Args:
            hits: Best first.
            max_tokens: What the message may take.
            said: Texts that are in sight already.
            limit: How many memories at most.
        """
        echoes = echoes_in(hits, said)
        packed = self._pack([hit for hit in hits if id(hit) not in echoes], max_tokens, said, limit)
        told = {id(hit) for hit in packed.told}
        # What would have said it had no room: then it says it itself.
        alone = {name for name, by in echoes.items() if by is not None and id(by) not in told}
        if alone:
            again = [hit for hit in hits if id(hit) in told or id(hit) in alone]
            second = self._pack(again, max_tokens, said, limit)
            told |= {id(hit) for hit in second.told}
            rest = tuple(hit for hit in packed.left_out if id(hit) not in told)
            packed = replace(second, left_out=(*second.left_out, *rest), doubles=packed.doubles)
        doubles = tuple(hit for hit in hits if id(hit) in echoes and id(hit) not in alone)
        return replace(packed, doubles=(*packed.doubles, *doubles))

    def _pack(
        self, hits: Sequence[Hit], max_tokens: int, said: AbstractSet[str], limit: int | None
    ) -> Packed:
        lines, doubles = self._lines(hits, said)
        again = {id(hit) for hit in doubles}
        hits = [hit for hit in hits if id(hit) not in again][:limit]
        return replace(self._packed(hits, lines[:limit], max_tokens), doubles=tuple(doubles))

    def _lines(self, hits: Sequence[Hit], said: AbstractSet[str]) -> tuple[list[_Line], list[Hit]]:
        lines: dict[str, _Line] = {}
        doubles: list[Hit] = []
        for hit in hits:
            if not without_fences(hit.entry.content).strip():
                continue
            line = self._line(hit)
            if line.text in lines or hit.entry.content in said:
                doubles.append(hit)
            else:
                lines[line.text] = line
        return list(lines.values()), doubles

    def _packed(self, hits: Sequence[Hit], lines: list[_Line], max_tokens: int) -> Packed:
        chosen = self._choose(lines, max_tokens)
        while chosen and self._tokens(self._message(chosen)) > max_tokens:
            chosen.remove(min(chosen, key=lambda line: line.value))
        told = {id(line.hit) for line in chosen}
        left_out = tuple(hit for hit in hits if id(hit) not in told)
        message = self._message(chosen) if chosen else None
        room = max_tokens - (_FENCE_TOKENS if message is None else self._tokens(message))
        untold = (line.hit for line in lines if id(line.hit) not in told)
        rest = [hit for hit in untold if hit.message is not None][:OVERFLOW]
        if rest and room >= OVERFLOW_TOKENS:
            longer = self._message(chosen, self._summary(rest, room))
            if self._tokens(longer) <= max_tokens:
                return Packed(longer, tuple(hit for hit in hits if id(hit) in told), left_out, tuple(rest))
        return Packed(message, tuple(hit for hit in hits if id(hit) in told), left_out)

    def _summary(self, rest: Sequence[Hit], room: int) -> str:
        said = [hit.message for hit in rest if hit.message is not None]
        text = self._compressor.batch(said, max_tokens=room - _LABEL_TOKENS).text
        return harmless(" ".join(f"{OVERFLOW_LABEL}: {without_fences(text)}".split()))

    def _tokens(self, message: Message) -> int:
        return count_messages(self._parts.counter, [message])

    def _choose(self, lines: list[_Line], max_tokens: int) -> list[_Line]:
        left, days, chosen = max_tokens - _FENCE_TOKENS, set(), []
        for line in sorted(lines, key=lambda line: -line.value / line.tokens**BY_LENGTH):
            cost = line.tokens + (0 if line.day in days else self._count(_heading(line)) + 1)
            if cost <= left:
                chosen.append(line)
                days.add(line.day)
                left -= cost
        return chosen

    def _line(self, hit: Hit) -> _Line:
        text = _told(hit)
        return _Line(hit, text, self._count(text) + 1, exp(SHARPNESS * min(hit.score, 2.0)))

    def _message(self, lines: list[_Line], summary: str | None = None) -> Message:
        ordered = sorted(
            lines,
            key=lambda line: (line.day, line.hit.session or "", line.hit.entry.created_at, line.hit.entry.id),
        )
        days: dict[date, list[str]] = {}
        for line in ordered:
            days.setdefault(line.day, [_heading(line)]).append(line.text)
        draft = MessageDraft(
            Role.SYSTEM,
            fenced([*(text for texts in days.values() for text in texts), *([summary] if summary else [])]),
            id=message_id(f"recalled-{self._name}"),
            created_at=self._when,
            name=MEMORY,
        )
        (message,) = seal(self._parts, [draft])
        return message


def reasons(packed: Packed, own: str | None = None) -> dict[str, str]:
    """Why each memory is in the message, or is not: by its session and id, those of the own session by id."""
    verdicts = {
        RECALLED: packed.told,
        NO_ROOM: packed.left_out,
        IN_FEW_WORDS: packed.summarised,
        "said already": packed.doubles,
        "not relevant enough": packed.irrelevant,
    }
    return {
        name_of(hit, own): f"{verdict}: score {hit.score:.2f}, found by {hit.found_by}"
        for verdict, hits in verdicts.items()
        for hit in hits
    }


def _heading(line: _Line) -> str:
    return f"{line.day.isoformat()}:"


def _told(hit: Hit) -> str:
    if hit.knowledge is not None:
        return known_line(hit.knowledge)
    speaker = hit.message.name if hit.message is not None else None
    who = speaker or (hit.entry.role.value if hit.entry.role is not None else hit.entry.kind)
    return harmless(" ".join(f"{who}: {without_fences(hit.entry.content)}".split()))
