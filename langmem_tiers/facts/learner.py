"""What is made of the messages of a session: facts, entries, episodes and chunks.

Each message is read once. How far that has come is kept with what was found, so whoever stops in the middle goes on
there, and of two processes at one session each does its own part.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import without_fences
from langmem_tiers.display.displayable import Told
from langmem_tiers.episodes.detection import find_moments
from langmem_tiers.episodes.service import new_episode
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, MessageNotFoundError
from langmem_tiers.facts.models import UNREAD, ExtractedFact, FactDraft, FactMovedError, FactState
from langmem_tiers.facts.validation import validated
from langmem_tiers.long_term.records import Cursor, CursorMove, MemoryWrite
from langmem_tiers.text.prompt_injection import orders_in, why_unsafe
from langmem_tiers.text.tokenize import terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.entries import Chunk
    from langmem_tiers.episodes.models import Episode
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.service import ShortTerm

_READ_AT_ONCE = 100
_BEFORE = 10  # messages before the new ones that say what an episode is about
_FACTS_AT_ONCE = 200
_RAW_KIND = "fact"
_READ = 8000  # characters of a message
_PENDING = frozenset({FactState.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnReport(Told):
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

    def __init__(self, parts: MemoryParts, session: ShortTerm) -> None:
        self._parts = parts
        self._session = session
        self._key = session.key
        self._namespace = session.namespace
        self._store = parts.lasting.store
        self._facts = parts.facts_of(session.namespace)
        self._episodes = parts.episodes_of(session.namespace)

    def run(self, *, whole: bool) -> LearnReport:
        """Read what is new, look through what is pending, and make chunks.

        Args:
            whole: Whether the recent messages become chunks too, because the session is over.
        """
        report, has_more = LearnReport(), True
        while has_more:
            some, has_more = self._read()
            report = _together(report, some)
        if not report.facts:  # what a run that was stopped has left
            report = replace(report, receipts=self._review({}))
        chunks, problems = self._parts.chunks_of(self._session).make(whole=whole)
        if report.episodes:
            self._episodes.make_room()
        return replace(report, chunks=chunks, problems=(*report.problems, *problems))

    def _read(self) -> tuple[LearnReport, bool]:
        cursor = self._store.cursor(self._key)
        turns = self._store.turns(
            self._key, after=max(0, cursor.learned - _BEFORE), limit=_READ_AT_ONCE + _BEFORE
        )
        has_more = len(turns) == _READ_AT_ONCE + _BEFORE
        turns = tuple(one for one in turns if not one.message.is_summary)
        new = [one for one in turns if one.number > cursor.learned]
        if not new:
            return LearnReport(), False
        found, problems = self._found([one.message for one in new])
        moments = find_moments(turns, after=cursor.learned, patterns=self._parts.moments)
        # An order to the model, or a secret, is no moment to remember.
        times = {one.number: one.message.created_at for one in new}
        episodes = self._episodes.drafted(
            self._session.name,
            [one for one in moments if not why_unsafe(f"{one.summary}\n{one.context}")],
            times,
        )
        write = MemoryWrite(
            put=tuple(new_episode(one, self._key) for one in episodes),
            facts=tuple(found),
            cursor=CursorMove(self._key, cursor, Cursor(new[-1].number, cursor.chunked)),
        )
        if not self._store.commit(self._namespace, write, self._parts.now()):
            return LearnReport(), True  # somebody else has read these
        receipts = self._review({one.message.id: one.message for one in new}) if found else ()
        known = (self._episodes.get(one.id) for one in episodes)  # with their links by now
        report = LearnReport(
            messages=len(new),
            facts=tuple(found),
            receipts=receipts,
            episodes=tuple(one for one in known if one is not None),
            problems=problems,
        )
        return report, has_more

    def _found(self, messages: Sequence[Message]) -> tuple[list[ExtractedFact], tuple[str, ...]]:
        extractor, by_model = self._parts.extractor, self._parts.model_facts
        found = [self._fact(draft, message) for message in messages for draft in extractor.extract(message)]
        if by_model is None:
            return found, ()
        extraction = by_model.extract(messages)
        said = {fact.content for fact in found}
        # What a model makes of a conversation with an order in it may be the order in other words.
        order = next(
            (why for why in (orders_in(without_fences(message.content)) for message in messages) if why), ""
        )
        for draft in extraction.facts:
            if draft.content not in said:
                fact = self._fact(draft, _source_of(draft, messages))
                state = {"state": FactState.QUARANTINED, "reason": f"beside it: {order}"} if order else {}
                found.append(replace(fact, **state))  # type: ignore[arg-type] # as the fields are
        raw = zip(extraction.raw, extraction.raw_problems, strict=True)
        found += [self._raw(text, problem) for text, problem in raw]
        return found, extraction.problems

    def _fact(self, draft: FactDraft, message: Message) -> ExtractedFact:
        now = self._parts.now()
        return ExtractedFact(
            id=self._parts.lasting.new_id(),
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

    def _raw(self, text: str, problem: str) -> ExtractedFact:
        return ExtractedFact(
            id=self._parts.lasting.new_id(),
            content=text,
            kind=_RAW_KIND,
            confidence=0.0,
            session=self._session.name,
            source_message_id=None,
            extracted_at=self._parts.now(),
            state=FactState.QUARANTINED,
            reason=f"{UNREAD}: {problem}",
        )

    def _review(self, said: dict[str, Message]) -> tuple[Receipt, ...]:
        # What is pending is validated, and promoted if its confidence is high enough.
        receipts: list[Receipt] = []
        entries: dict[str, list[str]] = {}
        last: str | None = None
        while facts := self._store.facts(
            self._namespace, _PENDING, session_key=self._key, after=last, limit=_FACTS_AT_ONCE
        ):
            last = facts[-1].id
            for fact in facts:
                receipt = self._reviewed(fact, said)
                if receipt is None:
                    continue
                receipts.append(receipt)
                if receipt.entry is not None and fact.source_message_id is not None:
                    entries.setdefault(fact.source_message_id, []).append(receipt.entry.id)
        self._episodes.link(self._key, self._by_turn(entries))
        return tuple(receipts)

    def _by_turn(self, entries: dict[str, list[str]]) -> dict[int, list[str]]:
        numbers = self._store.numbers(self._key, list(entries)) if entries else {}
        return {number: entries[name] for name, number in numbers.items()}

    def _reviewed(self, fact: ExtractedFact, said: dict[str, Message]) -> Receipt | None:
        # Somebody else has looked at it meanwhile, or has erased it.
        with suppress(FactMovedError, EntryNotFoundError):
            try:
                return self._moved(fact, said.get(fact.source_message_id or "") or self._source(fact))
            except FactMovedError:
                raise
            except MessageNotFoundError:
                self._facts.move(fact, FactState.VALIDATED, "its message is gone", was=_PENDING)
            except InvalidInputError as error:
                self._facts.move(fact, FactState.QUARANTINED, f"it cannot be stored: {error}", was=_PENDING)
        return None

    def _source(self, fact: ExtractedFact) -> Message:
        if fact.source_message_id is None:
            raise MessageNotFoundError("the fact names no message")
        return self._session.get(fact.source_message_id)

    def _moved(self, fact: ExtractedFact, message: Message) -> Receipt | None:
        checked = validated(_draft(fact), message)
        is_believed = checked.confidence > self._parts.config.learning.promotion_threshold
        if checked.is_safe and is_believed:
            reason = f"confidence {checked.confidence:.2f}"
            return self._facts.promoted(fact, reason, confidence=checked.confidence, was=_PENDING)
        state = FactState.VALIDATED if checked.is_safe else FactState.QUARANTINED
        self._facts.move(fact, state, checked.reason, confidence=checked.confidence, was=_PENDING)
        return None


def _source_of(draft: FactDraft, messages: Sequence[Message]) -> Message:
    # The message that shares most of its words; of those that are as good, the newest.
    words = set(terms_of(draft.content))
    spoken = [message for message in messages if message.role in (Role.USER, Role.ASSISTANT)] or list(
        messages
    )
    return max(
        reversed(spoken), key=lambda message: len(words.intersection(terms_of(message.content[:_READ])))
    )


def _draft(fact: ExtractedFact) -> FactDraft:
    return FactDraft(
        content=fact.content,
        kind=fact.kind,
        confidence=fact.confidence,
        category=fact.category,
        tags=fact.tags,
        mentions=fact.mentions,
    )


def _together(one: LearnReport, other: LearnReport) -> LearnReport:
    return LearnReport(
        messages=one.messages + other.messages,
        facts=(*one.facts, *other.facts),
        receipts=(*one.receipts, *other.receipts),
        episodes=(*one.episodes, *other.episodes),
        problems=(*one.problems, *other.problems),
    )
