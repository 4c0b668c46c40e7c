"""Learning from the messages of a session: extract facts, entries, episodes and chunks.

Each message is processed once. A cursor is stored in the same transaction as the results, so an interrupted run resumes
where it stopped, and two processes on the same session do not process a message twice.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.episodes.detection import find_moments
from langmem_tiers.episodes.service import build_episode_entry
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, MessageNotFoundError
from langmem_tiers.facts.models import (
    UNREADABLE_ANSWER_REASON,
    ExtractedFact,
    FactDraft,
    FactState,
    FactStateChangedError,
)
from langmem_tiers.facts.validation import validate_fact
from langmem_tiers.long_term.records import CursorMove, LearningCursor, MemoryWrite
from langmem_tiers.text.prompt_injection import find_injection_reason, find_unsafe_reason
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.entries import Chunk
    from langmem_tiers.episodes.models import Episode
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.service import SessionRecord

_MESSAGE_BATCH_SIZE = 100
_MAX_CONTEXT_MESSAGES = 10  # earlier messages that are read again, as context of new episodes
_FACT_BATCH_SIZE = 200
_RAW_ANSWER_KIND = "fact"
_MAX_MESSAGE_CHARACTERS = 8000  # of a message, compared with a fact
_PENDING_STATES = frozenset({FactState.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnReport(Displayable):
    """Result of learning from the new messages of a session."""

    messages: int = 0
    """Number of messages that were processed."""
    facts: tuple[ExtractedFact, ...] = ()
    """New facts in their initial state; ``namespace.facts`` has the current states."""
    receipts: tuple[Receipt, ...] = ()
    """Receipts of the promoted facts."""
    episodes: tuple[Episode, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    problems: tuple[str, ...] = ()
    """Problems, such as a model answer without JSON; the text of such an answer is quarantined as a fact."""


class Learner:
    """Learner for one session.

    Args:
        services: Services of the engine.
        session: Session whose messages are processed.
    """

    def __init__(self, services: EngineServices, session: SessionRecord) -> None:
        self._services = services
        self._session = session
        self._key = session.key
        self._namespace = session.namespace
        self._store = services.long_term.store
        self._facts = services.get_facts(session.namespace)
        self._episodes = services.get_episodes(session.namespace)

    def run(self, *, whole: bool) -> LearnReport:
        """Process new messages, review pending facts, and create chunks.

        Args:
            whole: If True, recent messages become chunks too, because the session is over.
        """
        report, has_more = LearnReport(), True
        while has_more:
            batch_report, has_more = self._learn_batch()
            report = _merge_reports(report, batch_report)
        # A batch with facts reviews all pending ones. Without new facts, there may still be some that an
        # interrupted run stored but did not review.
        if not report.facts:
            report = replace(report, receipts=self._review_pending({}))
        chunks, problems = self._services.get_chunks(self._session).create_chunks(whole=whole)
        if report.episodes:
            self._episodes.archive_excess()
        return replace(report, chunks=chunks, problems=(*report.problems, *problems))

    def _learn_batch(self) -> tuple[LearnReport, bool]:
        cursor = self._store.get_cursor(self._key)
        # Some learned messages are read again: a new episode may refer to them.
        turns = self._store.list_turns(
            self._key,
            after=max(0, cursor.learned_turn - _MAX_CONTEXT_MESSAGES),
            limit=_MESSAGE_BATCH_SIZE + _MAX_CONTEXT_MESSAGES,
        )
        has_more = len(turns) == _MESSAGE_BATCH_SIZE + _MAX_CONTEXT_MESSAGES
        turns = tuple(turn for turn in turns if not turn.message.is_summary)
        new = [turn for turn in turns if turn.number > cursor.learned_turn]
        if not new:
            return LearnReport(), False
        facts, problems = self._extract_facts([turn.message for turn in new])
        moments = find_moments(turns, after=cursor.learned_turn, patterns=self._services.moment_patterns)
        times = {turn.number: turn.message.created_at for turn in new}
        # Unlike facts, episodes have no quarantine: drop those that contain an injection or a secret.
        episodes = self._episodes.build_episodes(
            self._session.name,
            [moment for moment in moments if not find_unsafe_reason(f"{moment.summary}\n{moment.context}")],
            times,
        )
        write = MemoryWrite(
            put=tuple(build_episode_entry(episode, self._key) for episode in episodes),
            facts=tuple(facts),
            cursor=CursorMove(self._key, cursor, LearningCursor(new[-1].number, cursor.chunked_turn)),
        )
        if not self._store.commit(self._namespace, write, self._services.now()):
            # Another process moved the cursor first: nothing was stored here. Continue from the new cursor.
            return LearnReport(), True
        receipts = self._review_pending({turn.message.id: turn.message for turn in new}) if facts else ()
        # Read the episodes again: the review has linked them with the promoted entries.
        stored = (self._episodes.get(episode.id) for episode in episodes)
        report = LearnReport(
            messages=len(new),
            facts=tuple(facts),
            receipts=receipts,
            episodes=tuple(episode for episode in stored if episode is not None),
            problems=problems,
        )
        return report, has_more

    def _extract_facts(self, messages: Sequence[Message]) -> tuple[list[ExtractedFact], tuple[str, ...]]:
        extractor, llm_extractor = self._services.fact_extractor, self._services.llm_fact_extractor
        facts = [
            self._build_fact(draft, message) for message in messages for draft in extractor.extract(message)
        ]
        if llm_extractor is None:
            return facts, ()
        extraction = llm_extractor.extract(messages)
        known_contents = {fact.content for fact in facts}
        # A model that reads a prompt injection may paraphrase it, so that no pattern detects it in the fact.
        # Therefore one injection anywhere in the batch quarantines all facts from the model.
        injection = next(
            (
                reason
                for reason in (find_injection_reason(strip_fences(message.content)) for message in messages)
                if reason
            ),
            "",
        )
        for draft in extraction.facts:
            if draft.content not in known_contents:
                fact = self._build_fact(draft, _find_source_message(draft, messages))
                if injection:
                    reason = f"another part of the messages: {injection}"
                    fact = replace(fact, state=FactState.QUARANTINED, reason=reason)
                facts.append(fact)
        raw = zip(extraction.raw_answers, extraction.raw_problems, strict=True)
        facts += [self._build_quarantined_fact(text, problem) for text, problem in raw]
        return facts, extraction.problems

    def _build_fact(self, draft: FactDraft, message: Message) -> ExtractedFact:
        now = self._services.now()
        return ExtractedFact(
            id=self._services.long_term.new_id(),
            content=draft.content,
            kind=draft.kind,
            confidence=draft.confidence,
            session=self._session.name,
            source_message_id=message.id,
            extracted_at=now,
            category=draft.category,
            tags=draft.tags,
            mentions=draft.mentions,
            valid_from=min(now, message.created_at),
        )

    def _build_quarantined_fact(self, text: str, problem: str) -> ExtractedFact:
        return ExtractedFact(
            id=self._services.long_term.new_id(),
            content=text,
            kind=_RAW_ANSWER_KIND,
            confidence=0.0,
            session=self._session.name,
            source_message_id=None,
            extracted_at=self._services.now(),
            state=FactState.QUARANTINED,
            reason=f"{UNREADABLE_ANSWER_REASON}: {problem}",
        )

    def _review_pending(self, messages: dict[str, Message]) -> tuple[Receipt, ...]:
        # Validates all pending facts of the session and promotes those with a sufficient confidence. `messages`
        # are the messages already loaded, by id.
        receipts: list[Receipt] = []
        entries: dict[str, list[str]] = {}
        last: str | None = None
        while facts := self._store.list_facts(
            self._namespace, _PENDING_STATES, session_key=self._key, after=last, limit=_FACT_BATCH_SIZE
        ):
            # Reviewed facts are no longer pending, so pages are addressed by the last id, not by an offset.
            last = facts[-1].id
            for fact in facts:
                receipt = self._review_fact(fact, messages)
                if receipt is None:
                    continue
                receipts.append(receipt)
                if receipt.entry is not None and fact.source_message_id is not None:
                    entries.setdefault(fact.source_message_id, []).append(receipt.entry.id)
        self._episodes.link(self._key, self._map_to_turns(entries))
        return tuple(receipts)

    def _map_to_turns(self, entries: dict[str, list[str]]) -> dict[int, list[str]]:
        numbers = self._store.get_turn_numbers(self._key, list(entries)) if entries else {}
        return {number: entries[name] for name, number in numbers.items()}

    def _review_fact(self, fact: ExtractedFact, messages: dict[str, Message]) -> Receipt | None:
        # Suppressed: another process has reviewed or erased the fact in the meantime.
        with suppress(FactStateChangedError, EntryNotFoundError):
            try:
                return self._validate_and_move(
                    fact, messages.get(fact.source_message_id or "") or self._get_source_message(fact)
                )
            except FactStateChangedError:
                raise  # a subclass of InvalidInputError, which would quarantine the fact below
            except MessageNotFoundError:
                self._facts.move(fact, FactState.VALIDATED, "source message deleted", was=_PENDING_STATES)
            except InvalidInputError as error:
                self._facts.move(
                    fact, FactState.QUARANTINED, f"cannot be stored: {error}", was=_PENDING_STATES
                )
        return None

    def _get_source_message(self, fact: ExtractedFact) -> Message:
        if fact.source_message_id is None:
            raise MessageNotFoundError("the fact has no source message")
        return self._session.get(fact.source_message_id)

    def _validate_and_move(self, fact: ExtractedFact, message: Message) -> Receipt | None:
        checked = validate_fact(_to_draft(fact), message)
        is_believed = checked.confidence > self._services.config.learning.promotion_threshold
        if checked.is_safe and is_believed:
            reason = f"confidence {checked.confidence:.2f}"
            return self._facts.promote_fact(fact, reason, confidence=checked.confidence, was=_PENDING_STATES)
        state = FactState.VALIDATED if checked.is_safe else FactState.QUARANTINED
        self._facts.move(fact, state, checked.reason, confidence=checked.confidence, was=_PENDING_STATES)
        return None


def _find_source_message(draft: FactDraft, messages: Sequence[Message]) -> Message:
    # The message that shares the most words with the fact; the newest among equals, because `max` returns the
    # first maximum and the messages are reversed.
    words = set(extract_terms(draft.content))
    spoken = [message for message in messages if message.role in (Role.USER, Role.ASSISTANT)] or list(
        messages
    )
    return max(
        reversed(spoken),
        key=lambda message: len(words.intersection(extract_terms(message.content[:_MAX_MESSAGE_CHARACTERS]))),
    )


def _to_draft(fact: ExtractedFact) -> FactDraft:
    return FactDraft(
        content=fact.content,
        kind=fact.kind,
        confidence=fact.confidence,
        category=fact.category,
        tags=fact.tags,
        mentions=fact.mentions,
    )


def _merge_reports(first: LearnReport, second: LearnReport) -> LearnReport:
    # Without chunks: they are created once, after all batches.
    return LearnReport(
        messages=first.messages + second.messages,
        facts=(*first.facts, *second.facts),
        receipts=(*first.receipts, *second.receipts),
        episodes=(*first.episodes, *second.episodes),
        problems=(*first.problems, *second.problems),
    )
