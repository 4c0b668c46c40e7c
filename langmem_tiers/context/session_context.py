"""A conversation's context: what was said last, what is known, and what was said before or elsewhere."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Role
from langmem_tiers.common.prompt_fences import without_fences
from langmem_tiers.context.builder import ContextBuilder
from langmem_tiers.context.knowledge_hits import answering, preferences, recalled_message
from langmem_tiers.context.memory_hits import is_lasting, lasting_hits
from langmem_tiers.context.models import KNOWN_NO_ROOM
from langmem_tiers.context.namespace_recall import with_hits
from langmem_tiers.context.recall_message import Packed, Packer, reasons
from langmem_tiers.errors import StorageError
from langmem_tiers.recall.indexing import asks
from langmem_tiers.recall.retriever import wish_for
from langmem_tiers.telemetry.instruments import Verb
from langmem_tiers.text.token_counting import count_framed
from langmem_tiers.text.tokenize import terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.builder import Division
    from langmem_tiers.context.models import Context
    from langmem_tiers.knowledge.models import KnowledgeHit
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.recall.models import Hit, Recall
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.models import View
    from langmem_tiers.sessions.service import ShortTerm

_log = logging.getLogger("langmem_tiers")
KNOWLEDGE_SHARE = 0.1
"""What knowledge from other sessions may take of a context."""
RECALLED_SHARE = 0.4
"""What recalled memories may take of a context at most; recent messages have the rest."""
_TRIES = 3  # what is recalled and what has room beside it settle at once or soon
USUAL_TOKENS = 200
"""What a memory takes, if it is a long one."""
SPARE = 2
"""How many more memories are looked at than are told: some say the same."""
_TALK = 2  # messages before a short question that say what it is about
_TALK_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class _Question:
    """What memory is asked, by whom and where."""

    text: str
    name: str
    """The same for the same question, so that what is recalled for it has the same id."""
    asked_at: datetime
    said: Shown | None = None
    """The message that asks."""

    @property
    def id(self) -> str | None:
        """Id of the message that asks."""
        return None if self.said is None else self.said.message.id


class SessionContext:
    """Builds the context of one session for one question.

    Args:
        parts: The stores and workers.
        session: Whose.
        view: What it shows.
        budget: What there is.
        query: What memory is asked for; the newest user message, if None.
    """

    def __init__(
        self, parts: MemoryParts, session: ShortTerm, view: View, budget: TokenBudget, query: str | None
    ) -> None:
        self._parts = parts
        self._session = session
        self._budget = budget
        self._builder = ContextBuilder(view, budget, parts.analyzer.compressor)
        self._question = _question(view.items, query, parts.now())

    def alone(self) -> Context:
        """The conversation without anything beside it."""
        return self._builder.lay_out(self._builder.divide())

    def with_memories(self, *, counts: bool) -> Context:
        """The conversation with what is known and what is recalled.

        Args:
            counts: Whether what is told counts as used.
        """
        alone, question = self._builder.divide(), self._question
        if question is None:
            return self._builder.lay_out(alone)
        known = self._parts.knowledge_of(self._session.namespace)
        found = answering(known.recall(question.text, use=False), question.text)
        hits = [*found, *preferences(known, found)]
        room = self._budget.share(KNOWLEDGE_SHARE)
        message, told = recalled_message(
            self._parts.short_term, hits, f"recalled-{question.name}", question.asked_at, room
        )
        beside = [] if message is None else [message]
        division, packed, recall = self._with_recalled(alone, beside)
        if message not in division.pinned:
            message, told = None, ()
        if counts and told:
            self._count_use(known, [hit for hit in told if hit in found], question)
        if counts:
            self._count_lasting([hit for hit in packed.told if is_lasting(hit)], question)
        context = self._builder.lay_out(division, before=question.id)
        context = _with_knowledge(context, hits, told, self._framed(message))
        return self._with_report(context, packed, recall)

    def _with_report(self, context: Context, packed: Packed, recall: Recall | None) -> Context:
        packed = packed.beside({*context.full, *context.compressed}, self._session.name)
        told = self._own(packed.told)
        spoken = told | self._own(packed.summarised)
        here = {name: why for name, why in context.reasons.items() if name not in spoken}
        return replace(
            context,
            recalled=packed.told,
            left_out=packed.left_out,
            summarised=packed.summarised,
            passed_over=packed.passed_over,
            dropped=tuple(name for name in context.dropped if name not in told),
            reasons=reasons(packed, self._session.name) | here,
            problems=(*context.problems, *(() if recall is None else recall.problems)),
        )

    def _with_recalled(
        self, alone: Division, beside: list[Message]
    ) -> tuple[Division, Packed, Recall | None]:
        room = self._budget.share(RECALLED_SHARE)
        # What will have to make room for memories may be worth recalling itself.
        likely = min(room, USUAL_TOKENS * self._parts.config.recall.limit)
        shown = self._builder.shown_by(self._builder.divide(beside, reserved=likely))
        for _ in range(_TRIES):
            recall = self._recall(shown)
            packed = self._packed(recall, shown, room)
            recalled = [] if packed.message is None else [packed.message]
            # What is told here is not told again where it was said.
            division = self._beside(alone, [*beside, *recalled], self._own(packed.told))
            if packed.message is not None and packed.message not in division.pinned:
                packed = packed.unsent()
            still = self._builder.shown_by(division)
            if shown.keys() <= still.keys():
                break
            shown = {key: text for key, text in shown.items() if key in still}  # the rest had to make room
        return division, packed, recall

    def _recall(self, shown: Mapping[int, str]) -> Recall | None:
        config, question = self._parts.config.recall, self._question
        if question is None:
            return None
        wish = wish_for(
            question.text,
            now=self._parts.now(),
            limit=min(config.max_limit, SPARE * config.limit),
            without=list(shown),
            asking=None if question.said is None else question.said.key,
        )
        if not wish.query.terms:  # small talk: nothing is asked for
            return None
        with self._parts.instruments.watch(Verb.RECALL) as watch:
            found = self._parts.retriever.recall(self._session.namespace, wish, counts=False)
            found = with_hits(
                found, lasting_hits(self._parts, self._session.namespace, wish, counts=False), wish.limit
            )
            watch.note(hits=len(found.hits), candidates=found.candidates)
            return found

    def _packed(self, recall: Recall | None, shown: Mapping[int, str], room: int) -> Packed:
        parts, question = self._parts, self._question
        if recall is None or question is None:
            return Packed(None, (), ())
        config = parts.config.recall
        relevant = [hit for hit in recall.hits if hit.relevance >= config.relevance_threshold]
        packer = Packer(
            parts.short_term, parts.analyzer.compressor, f"memories-{question.name}", question.asked_at
        )
        packed = packer.pack(relevant, room, set(shown.values()), config.limit)
        rest = tuple(hit for hit in recall.hits if hit.relevance < config.relevance_threshold)
        return replace(packed, irrelevant=rest)

    def _beside(self, alone: Division, beside: Sequence[Message], told: frozenset[str]) -> Division:
        in_full = self._builder.shows_newest_in_full
        for count in range(len(beside), 0, -1):  # what was said last goes before what is known
            division = self._builder.divide(beside[:count], told if count == len(beside) else frozenset())
            if in_full(division) or not in_full(alone):
                return division
        return alone

    def _own(self, hits: Sequence[Hit]) -> frozenset[str]:
        return frozenset(hit.entry.id for hit in hits if hit.session == self._session.name)

    def _framed(self, message: Message | None) -> int:
        return 0 if message is None else count_framed(self._parts.counter, message)

    def _count_lasting(self, told: Sequence[Hit], question: _Question) -> None:
        # The same for entries, episodes and chunks.
        lasting, namespace = self._parts.lasting, self._session.namespace
        try:
            kept = lasting.store.get(namespace, [hit.entry.id for hit in told]) if told else {}
        except StorageError as error:
            _log.warning("a use of entries was not counted: %s", type(error).__name__)
            return
        entries = [(one.key, lasting.uses.seen(one).entry) for one in kept.values()]
        unused = [
            key
            for key, entry in entries
            if not entry.access_count
            or entry.last_access_at is None
            or entry.last_access_at < question.asked_at
        ]
        lasting.uses.note(namespace, unused, self._parts.now())

    def _count_use(self, known: KnowledgeBase, told: Sequence[KnowledgeHit], question: _Question) -> None:
        # Once for each question, however often the context for it is built.
        now = self._parts.now()
        since = question.asked_at if question.asked_at <= now else now - timedelta(days=1)
        try:
            known.use([hit.knowledge for hit in told], since=since)
        except StorageError as error:  # the context is there: counting can wait
            _log.warning("a use of knowledge was not counted: %s", type(error).__name__)


def _question(items: Sequence[Shown], query: str | None, now: datetime) -> _Question | None:
    asked = (index for index in reversed(range(len(items))) if items[index].message.role is Role.USER)
    place = next(asked, None)
    if place is None:
        if query is None or not query.strip():
            return None
        name = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return _Question(query, name, items[-1].message.created_at if items else now)
    message = items[place].message
    text = query or _in_its_context([item.message for item in items[max(0, place - 2 * _TALK) : place + 1]])
    if not text.strip():
        return None
    return _Question(text, message.id, message.created_at, items[place])


def _in_its_context(said: Sequence[Message]) -> str:
    return in_its_context(said[-1].content, said[:-1])


def in_its_context(question: str, said: Sequence[Message]) -> str:
    """A question with what was just spoken of, if it says nothing by itself, as "And when was that?"."""
    if not asks(question) or terms_of(question):
        return question
    before = [m for m in said if m.role in (Role.USER, Role.ASSISTANT)][-_TALK:]
    return "\n".join([question, *(without_fences(m.content)[:_TALK_CHARACTERS] for m in before)])


def _with_knowledge(
    context: Context, hits: Sequence[KnowledgeHit], told: tuple[KnowledgeHit, ...], tokens: int
) -> Context:
    there = {(hit.knowledge.category, hit.knowledge.key) for hit in told}
    left_out = tuple(hit for hit in hits if (hit.knowledge.category, hit.knowledge.key) not in there)
    why = {hit.knowledge.id: "known" for hit in told} | {hit.knowledge.id: KNOWN_NO_ROOM for hit in left_out}
    memories = context.sections.get("memories", 0) - tokens
    return replace(
        context,
        knowledge=told,
        knowledge_left_out=left_out,
        sections={**context.sections, "known": tokens, "memories": memories},
        reasons={**context.reasons, **why},
    )
