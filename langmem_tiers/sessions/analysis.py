"""The analyzer: scores every entry of a session and suggests what should happen to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import EntryState, Mark, Tier
from langmem_tiers.common.messages import Role
from langmem_tiers.common.scorer import Score, Scorer, Signal, SignalTable, Subject, says
from langmem_tiers.common.tool_call_groups import groups_of
from langmem_tiers.compression.message_text import speech
from langmem_tiers.sessions.compression_plan import Action, ActionKind, Sketch
from langmem_tiers.sessions.redundancy import DEFAULT_THRESHOLD, find_redundant
from langmem_tiers.text.key_facts import key_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor


def _tool_result(subject: Subject) -> float:
    return 0.1 if subject.role is Role.TOOL else 0.0


def _score_age(subject: Subject) -> float:
    return max(0.0, 0.2 - max(0.0, subject.age_hours) / 24 * 0.1)


def _access(subject: Subject) -> float:
    return min(0.1, subject.access_count * 0.02)


IMPORTANCE_SIGNALS: SignalTable = (
    says("about the user", 0.3, "my name is", "i prefer", "remember that"),
    says("decision", 0.2, "i will", "let's do", "let’s do", "decided"),
    Signal("tool result", _tool_result),
    Signal("recency", _score_age),
    Signal("access", _access),
)

IMPORTANCE = Scorer(IMPORTANCE_SIGNALS)


_SHORT_CHARACTERS = 20
_SMALL_TALK = re.compile(r"(?:ok|yes|no|sure|thanks|hi|hello)\b")


def _recency(subject: Subject) -> float:
    if subject.age_hours <= 1:
        return 0.2
    return 0.1 if subject.age_hours <= 24 else -0.1


def _is_short(subject: Subject) -> float:
    return -0.2 if len(subject.lowered) < _SHORT_CHARACTERS else 0.0


def _is_small_talk(subject: Subject) -> float:
    return -0.3 if _SMALL_TALK.match(subject.lowered) else 0.0


def _role(subject: Subject) -> float:
    if subject.role is Role.TOOL:
        return 0.15
    return 0.1 if subject.role is Role.SYSTEM else 0.0


RELEVANCE_SIGNALS: SignalTable = (
    Signal("recency", _recency),
    says("error", 0.15, "error", "failed"),
    says("url", 0.1, "http://", "https://"),
    says("selector", 0.1, "selector", "xpath"),
    says("credential", 0.2, "password", "credential"),
    says("stressed", 0.15, "important", "critical"),
    Signal("short", _is_short),
    Signal("small talk", _is_small_talk),
    Signal("role", _role),
)

RELEVANCE = Scorer(RELEVANCE_SIGNALS)


PROMOTION_RELEVANCE = 0.8
"""From here on, an entry with key facts is promoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyzer:
    """Decides by relevance, redundancy and key facts."""

    compressor: Compressor
    relevance: Scorer = RELEVANCE
    importance: Scorer = IMPORTANCE
    key_facts: Callable[[str], Sequence[str]] = key_facts
    redundancy_threshold: float = field(default=DEFAULT_THRESHOLD)

    def score(self, item: Shown, now: datetime) -> Score:
        """The relevance of an entry; promotion has the last word on it."""
        if item.mark is not None and item.mark.relevance is not None:
            return Score(item.mark.relevance, item.mark.relevance, ())
        return self.relevance.score(subject_of(item.message, now))

    def sketch(self, items: Sequence[Shown], now: datetime, min_relevance: float) -> Sketch:
        """What should happen to each entry.

        Below ``min_relevance`` a full entry is compressed and a compressed one dropped, tool calls
        with all their results only together. Of two that say the same, the older is compressed. A
        short-term entry of 0.8 and more with key facts is promoted.
        """
        sketch = Sketch(list(items))
        live = [
            index
            for index, item in enumerate(items)
            if item.state is not EntryState.ARCHIVED and not item.message.is_summary and not _is_kept(item)
        ]
        texts = {index: speech(items[index].message) for index in live}
        scores = {index: self.score(items[index], now) for index in live}
        again = find_redundant([texts[index] for index in live], self.redundancy_threshold)
        redundant = {live[older]: live[newer] for older, newer in again.items()}
        droppable = self._droppable(items, scores, min_relevance)
        for index in live:
            item, score = items[index], scores[index]
            if index in droppable:
                self._drop(sketch, index, score, now)
            elif item.state is EntryState.FULL and index in redundant:
                reason = f"says the same as {items[redundant[index]].message.id}"
                self.compress(sketch, index, reason, score, now)
            elif item.state is EntryState.FULL and score.value < min_relevance:
                reason = f"relevance {score.value:.2f} is below {min_relevance:.2f}"
                self.compress(sketch, index, reason, score, now)
            elif facts := self._promoting(item, score, texts[index]):
                self.promote(sketch, index, f"key facts: {', '.join(facts)}", score, now)
        return sketch

    def _promoting(self, item: Shown, score: Score, text: str) -> Sequence[str]:
        if item.tier is not Tier.SHORT_TERM or score.value < PROMOTION_RELEVANCE:
            return ()
        return self.key_facts(text)

    def compress(self, sketch: Sketch, index: int, reason: str, score: Score, now: datetime) -> None:
        """Note that an entry is to be shown in fewer words."""
        message = sketch.items[index].message
        short = self.compressor.message(message)
        mark = replace(
            _mark(sketch.items[index], now),
            state=EntryState.COMPRESSED,
            content=short.content,
            tool_calls=None if short.tool_calls == message.tool_calls else short.tool_calls,
            token_count=short.token_count,
            token_counter=short.token_counter,
            reason=reason,
        )
        sketch.mark(index, mark, _action(ActionKind.COMPRESS, message, reason, score))

    def promote(self, sketch: Sketch, index: int, reason: str, score: Score, now: datetime) -> None:
        """Note that an entry is to move into the long-term tier."""
        item = sketch.items[index]
        state = EntryState.FULL if item.state is EntryState.ARCHIVED else item.state
        mark = replace(_mark(item, now), tier=Tier.LONG_TERM, relevance=1.0, state=state, reason=reason)
        sketch.mark(index, mark, _action(ActionKind.PROMOTE, item.message, reason, score))

    @staticmethod
    def _drop(sketch: Sketch, index: int, score: Score, now: datetime) -> None:
        item = sketch.items[index]
        reason = f"relevance {score.value:.2f}, compressed already"
        mark = replace(_mark(item, now), state=EntryState.ARCHIVED, reason=reason)
        sketch.mark(index, mark, _action(ActionKind.DROP, item.message, reason, score))

    @staticmethod
    def _droppable(items: Sequence[Shown], scores: dict[int, Score], min_relevance: float) -> set[int]:
        def is_droppable(index: int) -> bool:
            if items[index].state is EntryState.ARCHIVED:
                return True
            score = scores.get(index)
            is_low = score is not None and score.value < min_relevance
            return is_low and items[index].state is EntryState.COMPRESSED

        droppable: set[int] = set()
        for start, end in groups_of([item.message for item in items]):
            if all(is_droppable(index) for index in range(start, end)):
                droppable.update(index for index in range(start, end) if index in scores)
        return droppable


def subject_of(message: Message, now: datetime) -> Subject:
    """What of a message is scored."""
    age_hours = (now - message.created_at).total_seconds() / 3600
    return Subject(speech(message), message.role, age_hours)


def _is_kept(item: Shown) -> bool:
    return item.mark is not None and item.mark.is_kept


def _mark(item: Shown, now: datetime) -> Mark:
    return Mark(changed_at=now) if item.mark is None else replace(item.mark, changed_at=now)


def _action(kind: ActionKind, message: Message, reason: str, score: Score) -> Action:
    return Action(kind=kind, message_id=message.id, reason=reason, score=score)
