"""What is made of the messages of a session: facts, entries, episodes and chunks.

Each message is read once. How far that has come is kept with what was found, so whoever stops in the middle goes on
there, and of two processes at one session each does its own part.
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
_MAX_CONTEXT_MESSAGES = 10  # messages before the new ones that say what an episode is about
_FACT_BATCH_SIZE = 200
_RAW_ANSWER_KIND = "fact"
_MAX_MESSAGE_CHARACTERS = 8000  # characters of a message
_PENDING_STATES = frozenset({FactState.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnReport(Displayable):
    """What was made of messages."""

    messages: int = 0
    """How many were read."""
    facts: tuple[ExtractedFact, ...] = ()
    """What was found in them, as it was found; ``namespace.facts`` tells what became of each."""
    receipts: tuple[Receipt, ...] = ()
    """What became of those that were promoted."""
    episodes: tuple[Episode, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    problems: tuple[str, ...] = ()
    """What did not work, such as an answer of the model that was no JSON; its text is kept in quarantine."""


class Learner:
    """Learns from one session.

    Args:
        parts: The stores and workers.
        session: Whose messages.
    """

    def __init__(self, parts: EngineServices, session: SessionRecord) -> None:
        self._services = parts
        self._session = session
        self._key = session.key
        self._namespace = session.namespace
        self._store = parts.long_term.store
        self._facts = parts.get_facts(session.namespace)
        self._episodes = parts.get_episodes(session.namespace)

    def run(self, *, whole: bool) -> LearnReport:
        """Read what is new, look through what is pending, and make chunks.

        Args:
            whole: Whether the recent messages become chunks too, because the session is over.
        """
        report, has_more = LearnReport(), True
        while has_more:
            some, has_more = self._learn_batch()
            report = _merge_reports(report, some)
        if not report.facts:  # what a run that was stopped has left
            report = replace(report, receipts=self._review_pending({}))
        chunks, problems = self._services.get_chunks(self._session).create_chunks(whole=whole)
        if report.episodes:
            self._episodes.archive_excess()
        return replace(report, chunks=chunks, problems=(*report.problems, *problems))

    def _learn_batch(self) -> tuple[LearnReport, bool]:
        cursor = self._store.get_cursor(self._key)
        turns = self._store.list_turns(
            self._key,
            after=max(0, cursor.learned_turn - _MAX_CONTEXT_MESSAGES),
            limit=_MESSAGE_BATCH_SIZE + _MAX_CONTEXT_MESSAGES,
        )
        has_more = len(turns) == _MESSAGE_BATCH_SIZE + _MAX_CONTEXT_MESSAGES
        turns = tuple(one for one in turns if not one.message.is_summary)
        new = [one for one in turns if one.number > cursor.learned_turn]
        if not new:
            return LearnReport(), False
        found, problems = self._extract_facts([one.message for one in new])
        moments = find_moments(turns, after=cursor.learned_turn, patterns=self._services.moment_patterns)
        # An order to the model, or a secret, is no moment to remember.
        times = {one.number: one.message.created_at for one in new}
        episodes = self._episodes.build_episodes(
            self._session.name,
            [one for one in moments if not find_unsafe_reason(f"{one.summary}\n{one.context}")],
            times,
        )
        write = MemoryWrite(
            put=tuple(build_episode_entry(one, self._key) for one in episodes),
            facts=tuple(found),
            cursor=CursorMove(self._key, cursor, LearningCursor(new[-1].number, cursor.chunked_turn)),
        )
        if not self._store.commit(self._namespace, write, self._services.now()):
            return LearnReport(), True  # somebody else has read these
        receipts = self._review_pending({one.message.id: one.message for one in new}) if found else ()
        known = (self._episodes.get(one.id) for one in episodes)  # with their links by now
        report = LearnReport(
            messages=len(new),
            facts=tuple(found),
            receipts=receipts,
            episodes=tuple(one for one in known if one is not None),
            problems=problems,
        )
        return report, has_more

    def _extract_facts(self, messages: Sequence[Message]) -> tuple[list[ExtractedFact], tuple[str, ...]]:
        extractor, by_model = self._services.fact_extractor, self._services.llm_fact_extractor
        found = [
            self._build_fact(draft, message) for message in messages for draft in extractor.extract(message)
        ]
        if by_model is None:
            return found, ()
        extraction = by_model.extract(messages)
        said = {fact.content for fact in found}
        # What a model makes of a conversation with an order in it may be the order in other words.
        order = next(
            (
                why
                for why in (find_injection_reason(strip_fences(message.content)) for message in messages)
                if why
            ),
            "",
        )
        for draft in extraction.facts:
            if draft.content not in said:
                fact = self._build_fact(draft, _find_source_message(draft, messages))
                state = {"state": FactState.QUARANTINED, "reason": f"beside it: {order}"} if order else {}
                found.append(replace(fact, **state))  # type: ignore[arg-type] # as the fields are
        raw = zip(extraction.raw_answers, extraction.raw_problems, strict=True)
        found += [self._build_quarantined_fact(text, problem) for text, problem in raw]
        return found, extraction.problems

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

    def _review_pending(self, said: dict[str, Message]) -> tuple[Receipt, ...]:
        # What is pending is validated, and promoted if its confidence is high enough.
        receipts: list[Receipt] = []
        entries: dict[str, list[str]] = {}
        last: str | None = None
        while facts := self._store.list_facts(
            self._namespace, _PENDING_STATES, session_key=self._key, after=last, limit=_FACT_BATCH_SIZE
        ):
            last = facts[-1].id
            for fact in facts:
                receipt = self._review_fact(fact, said)
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

    def _review_fact(self, fact: ExtractedFact, said: dict[str, Message]) -> Receipt | None:
        # Somebody else has looked at it meanwhile, or has erased it.
        with suppress(FactStateChangedError, EntryNotFoundError):
            try:
                return self._validate_and_move(
                    fact, said.get(fact.source_message_id or "") or self._get_source_message(fact)
                )
            except FactStateChangedError:
                raise
            except MessageNotFoundError:
                self._facts.move(fact, FactState.VALIDATED, "its message is gone", was=_PENDING_STATES)
            except InvalidInputError as error:
                self._facts.move(
                    fact, FactState.QUARANTINED, f"it cannot be stored: {error}", was=_PENDING_STATES
                )
        return None

    def _get_source_message(self, fact: ExtractedFact) -> Message:
        if fact.source_message_id is None:
            raise MessageNotFoundError("the fact names no message")
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
    # The message that shares most of its words; of those that are as good, the newest.
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


def _merge_reports(one: LearnReport, other: LearnReport) -> LearnReport:
    return LearnReport(
        messages=one.messages + other.messages,
        facts=(*one.facts, *other.facts),
        receipts=(*one.receipts, *other.receipts),
        episodes=(*one.episodes, *other.episodes),
        problems=(*one.problems, *other.problems),
    )
