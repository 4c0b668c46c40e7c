"""The analyzer: scores every entry of a session and suggests to compress, drop or promote it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import EntryOverride, EntryState, Tier
from langmem_tiers.common.messages import Role
from langmem_tiers.common.scorer import Score, Scorer, Signal, SignalTable, Subject, build_word_signal
from langmem_tiers.common.tool_call_groups import group_tool_calls
from langmem_tiers.compression.message_text import message_to_text
from langmem_tiers.sessions.compression_plan import PlanAction, PlanActionKind, PlanDraft
from langmem_tiers.sessions.redundancy import DEFAULT_REDUNDANCY_THRESHOLD, find_redundant
from langmem_tiers.text.facts import find_key_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor


def _score_tool_result(subject: Subject) -> float:
    return 0.1 if subject.role is Role.TOOL else 0.0


def _score_age(subject: Subject) -> float:
    return max(0.0, 0.2 - max(0.0, subject.age_hours) / 24 * 0.1)


def _score_access_count(subject: Subject) -> float:
    return min(0.1, subject.access_count * 0.02)


IMPORTANCE_SIGNALS: SignalTable = (
    build_word_signal("about the user", 0.3, "my name is", "i prefer", "remember that"),
    build_word_signal("decision", 0.2, "i will", "let's do", "let’s do", "decided"),
    Signal("tool result", _score_tool_result),
    Signal("recency", _score_age),
    Signal("access", _score_access_count),
)

IMPORTANCE_SCORER = Scorer(IMPORTANCE_SIGNALS)


_MAX_SHORT_CHARACTERS = 20
_SMALL_TALK = re.compile(r"(?:ok|yes|no|sure|thanks|hi|hello)\b")


def _score_recency(subject: Subject) -> float:
    if subject.age_hours <= 1:
        return 0.2
    return 0.1 if subject.age_hours <= 24 else -0.1


def _score_shortness(subject: Subject) -> float:
    return -0.2 if len(subject.lowered) < _MAX_SHORT_CHARACTERS else 0.0


def _score_small_talk(subject: Subject) -> float:
    return -0.3 if _SMALL_TALK.match(subject.lowered) else 0.0


def _score_role(subject: Subject) -> float:
    if subject.role is Role.TOOL:
        return 0.15
    return 0.1 if subject.role is Role.SYSTEM else 0.0


RELEVANCE_SIGNALS: SignalTable = (
    Signal("recency", _score_recency),
    build_word_signal("error", 0.15, "error", "failed"),
    build_word_signal("url", 0.1, "http://", "https://"),
    build_word_signal("selector", 0.1, "selector", "xpath"),
    build_word_signal("credential", 0.2, "password", "credential"),
    build_word_signal("stressed", 0.15, "important", "critical"),
    Signal("short", _score_shortness),
    Signal("small talk", _score_small_talk),
    Signal("role", _score_role),
)

RELEVANCE_SCORER = Scorer(RELEVANCE_SIGNALS)


MIN_PROMOTION_RELEVANCE = 0.8
"""Minimum relevance at which an entry with key facts is promoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyzer:
    """Suggests actions for entries by relevance, redundancy and key facts."""

    compressor: Compressor
    relevance: Scorer = RELEVANCE_SCORER
    importance: Scorer = IMPORTANCE_SCORER
    key_facts: Callable[[str], Sequence[str]] = find_key_facts
    redundancy_threshold: float = field(default=DEFAULT_REDUNDANCY_THRESHOLD)

    def score(self, item: ViewItem, now: datetime) -> Score:
        """Return the relevance of an entry; the fixed relevance of a promoted entry overrides its score."""
        if item.override is not None and item.override.relevance is not None:
            return Score(item.override.relevance, item.override.relevance, ())
        return self.relevance.score(build_subject(item.message, now))

    def draft_plan(self, items: Sequence[ViewItem], now: datetime, min_relevance: float) -> PlanDraft:
        """Draft a plan of what to do with each entry.

        Below ``min_relevance``, a full entry is compressed, and a compressed one is dropped; a tool call is
        dropped only together with all its results. Of two duplicates, the older one is compressed. A short-term
        entry with key facts and a relevance of at least 0.8 is promoted. Pinned entries do not change.

        Args:
            items: Entries of a view, oldest first.
            now: The current time, from which ages are computed.
            min_relevance: The threshold, from 0 to 1.
        """
        draft = PlanDraft(list(items))
        live = [
            index
            for index, item in enumerate(items)
            if item.state is not EntryState.ARCHIVED and not item.message.is_summary and not _is_pinned(item)
        ]
        texts = {index: message_to_text(items[index].message) for index in live}
        scores = {index: self.score(items[index], now) for index in live}
        # Indexes in `live` are translated to indexes in `items`.
        duplicates = find_redundant([texts[index] for index in live], self.redundancy_threshold)
        redundant = {live[older]: live[newer] for older, newer in duplicates.items()}
        droppable = self._find_droppable(items, scores, min_relevance)
        # The first case that applies decides. A full duplicate is compressed, never promoted, because the newer message
        # has the same content; promotion comes last, so that it never applies to an entry below the threshold.
        for index in live:
            item, score = items[index], scores[index]
            if index in droppable:
                self._archive(draft, index, score, now)
            elif item.state is EntryState.FULL and index in redundant:
                reason = f"duplicate of {items[redundant[index]].message.id}"
                self.compress(draft, index, reason, score, now)
            elif item.state is EntryState.FULL and score.value < min_relevance:
                reason = f"relevance {score.value:.2f} is below {min_relevance:.2f}"
                self.compress(draft, index, reason, score, now)
            elif facts := self._find_promoting_facts(item, score, texts[index]):
                self.promote(draft, index, f"key facts: {', '.join(facts)}", score, now)
        return draft

    def _find_promoting_facts(self, item: ViewItem, score: Score, text: str) -> Sequence[str]:
        if item.tier is not Tier.SHORT_TERM or score.value < MIN_PROMOTION_RELEVANCE:
            return ()
        return self.key_facts(text)

    def compress(self, draft: PlanDraft, index: int, reason: str, score: Score, now: datetime) -> None:
        """Add the compression of an entry to a plan."""
        message = draft.items[index].message
        compressed = self.compressor.compress_message(message)
        override = replace(
            _build_override(draft.items[index], now),
            state=EntryState.COMPRESSED,
            content=compressed.content,
            tool_calls=None if compressed.tool_calls == message.tool_calls else compressed.tool_calls,
            token_count=compressed.token_count,
            token_counter=compressed.token_counter,
            reason=reason,
        )
        draft.set_override(index, override, _build_action(PlanActionKind.COMPRESS, message, reason, score))

    def promote(self, draft: PlanDraft, index: int, reason: str, score: Score, now: datetime) -> None:
        """Add the promotion of an entry to the long-term tier to a plan."""
        item = draft.items[index]
        # An archived entry becomes visible again.
        state = EntryState.FULL if item.state is EntryState.ARCHIVED else item.state
        override = replace(
            _build_override(item, now), tier=Tier.LONG_TERM, relevance=1.0, state=state, reason=reason
        )
        draft.set_override(
            index, override, _build_action(PlanActionKind.PROMOTE, item.message, reason, score)
        )

    @staticmethod
    def _archive(draft: PlanDraft, index: int, score: Score, now: datetime) -> None:
        item = draft.items[index]
        reason = f"relevance {score.value:.2f}, already compressed"
        override = replace(_build_override(item, now), state=EntryState.ARCHIVED, reason=reason)
        draft.set_override(index, override, _build_action(PlanActionKind.DROP, item.message, reason, score))

    @staticmethod
    def _find_droppable(
        items: Sequence[ViewItem], scores: dict[int, Score], min_relevance: float
    ) -> set[int]:
        def is_droppable(index: int) -> bool:
            if items[index].state is EntryState.ARCHIVED:
                return True
            score = scores.get(index)
            is_low = score is not None and score.value < min_relevance
            return is_low and items[index].state is EntryState.COMPRESSED

        # All or none of a group: a call without its results, or the other way round, is invalid in a prompt.
        droppable: set[int] = set()
        for start, end in group_tool_calls([item.message for item in items]):
            if all(is_droppable(index) for index in range(start, end)):
                droppable.update(index for index in range(start, end) if index in scores)
        return droppable


def build_subject(message: Message, now: datetime) -> Subject:
    """Return the properties of a message that are scored."""
    age_hours = (now - message.created_at).total_seconds() / 3600
    return Subject(message_to_text(message), message.role, age_hours)


def _is_pinned(item: ViewItem) -> bool:
    return item.override is not None and item.override.is_pinned


def _build_override(item: ViewItem, now: datetime) -> EntryOverride:
    return EntryOverride(changed_at=now) if item.override is None else replace(item.override, changed_at=now)


def _build_action(kind: PlanActionKind, message: Message, reason: str, score: Score) -> PlanAction:
    return PlanAction(kind=kind, message_id=message.id, reason=reason, score=score)
