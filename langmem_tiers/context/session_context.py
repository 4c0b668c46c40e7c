"""A conversation's context: what was said last, what is known, and what was said before or elsewhere."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.context.builder import ContextBuilder
from langmem_tiers.context.knowledge_hits import (
    build_knowledge_message,
    filter_answering_hits,
    find_preferences,
)
from langmem_tiers.context.memory_hits import find_memory_hits, is_memory_hit
from langmem_tiers.context.models import KNOWLEDGE_NO_ROOM_REASON
from langmem_tiers.context.namespace_recall import merge_hits
from langmem_tiers.context.recall_message import MemoryPacker, PackingResult, explain_packing
from langmem_tiers.errors import StorageError
from langmem_tiers.recall.indexing import ends_with_question
from langmem_tiers.recall.retriever import build_recall_request
from langmem_tiers.telemetry.instruments import Operation
from langmem_tiers.text.token_counting import count_framed
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.builder import ContextDivision
    from langmem_tiers.context.models import Context
    from langmem_tiers.knowledge.models import KnowledgeHit
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.recall.models import Hit, Recall
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import StoredView
    from langmem_tiers.sessions.service import SessionRecord

_log = logging.getLogger("langmem_tiers")
MAX_KNOWLEDGE_SHARE = 0.1
"""What knowledge from other sessions may take of a context."""
MAX_RECALLED_SHARE = 0.4
"""What recalled memories may take of a context at most; recent messages have the rest."""
_MAX_ATTEMPTS = 3  # what is recalled and what has room beside it settle at once or soon
TYPICAL_MEMORY_TOKENS = 200
"""What a memory takes, if it is a long one."""
CANDIDATE_FACTOR = 2
"""How many more memories are looked at than are told: some say the same."""
_MAX_PRECEDING_MESSAGES = 2  # messages before a short question that say what it is about
_MAX_PRECEDING_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class _Question:
    """What memory is asked, by whom and where."""

    text: str
    name: str
    """The same for the same question, so that what is recalled for it has the same id."""
    asked_at: datetime
    item: ViewItem | None = None
    """The message that asks."""

    @property
    def message_id(self) -> str | None:
        """Id of the message that asks."""
        return None if self.item is None else self.item.message.id


class SessionContextBuilder:
    """Builds the context of one session for one question.

    Args:
        parts: The stores and workers.
        session: Whose.
        view: What it shows.
        budget: What there is.
        query: What memory is asked for; the newest user message, if None.
    """

    def __init__(
        self,
        parts: EngineServices,
        session: SessionRecord,
        view: StoredView,
        budget: TokenBudget,
        query: str | None,
    ) -> None:
        self._services = parts
        self._session = session
        self._budget = budget
        self._builder = ContextBuilder(view, budget, parts.analyzer.compressor)
        self._question = _build_question(view.items, query, parts.now())

    def build_without_memories(self) -> Context:
        """The conversation without anything beside it."""
        return self._builder.lay_out(self._builder.divide())

    def build_with_memories(self, *, counts: bool) -> Context:
        """The conversation with what is known and what is recalled.

        Args:
            counts: Whether what is told counts as used.
        """
        alone, question = self._builder.divide(), self._question
        if question is None:
            return self._builder.lay_out(alone)
        known = self._services.get_knowledge(self._session.namespace)
        found = filter_answering_hits(known.recall(question.text, use=False), question.text)
        hits = [*found, *find_preferences(known, found)]
        room = self._budget.share(MAX_KNOWLEDGE_SHARE)
        message, told = build_knowledge_message(
            self._services.short_term, hits, f"recalled-{question.name}", question.asked_at, room
        )
        beside = [] if message is None else [message]
        division, packed, recall = self._divide_with_recalled(alone, beside)
        if message not in division.pinned:
            message, told = None, ()
        if counts and told:
            self._count_knowledge_use(known, [hit for hit in told if hit in found], question)
        if counts:
            self._count_memory_use([hit for hit in packed.included if is_memory_hit(hit)], question)
        context = self._builder.lay_out(division, before=question.message_id)
        context = _add_knowledge(context, hits, told, self._count_framed_tokens(message))
        return self._add_report(context, packed, recall)

    def _add_report(self, context: Context, packed: PackingResult, recall: Recall | None) -> Context:
        packed = packed.exclude_visible({*context.full, *context.compressed}, self._session.name)
        told = self._get_own_ids(packed.included)
        spoken = told | self._get_own_ids(packed.summarized)
        here = {name: why for name, why in context.reasons.items() if name not in spoken}
        return replace(
            context,
            recalled=packed.included,
            left_out=packed.left_out,
            summarized=packed.summarized,
            passed_over=packed.passed_over,
            dropped=tuple(name for name in context.dropped if name not in told),
            reasons=explain_packing(packed, self._session.name) | here,
            problems=(*context.problems, *(() if recall is None else recall.problems)),
        )

    def _divide_with_recalled(
        self, alone: ContextDivision, beside: list[Message]
    ) -> tuple[ContextDivision, PackingResult, Recall | None]:
        room = self._budget.share(MAX_RECALLED_SHARE)
        # What will have to make room for memories may be worth recalling itself.
        likely = min(room, TYPICAL_MEMORY_TOKENS * self._services.config.recall.limit)
        shown = self._builder.get_visible_texts(self._builder.divide(beside, reserved=likely))
        for _ in range(_MAX_ATTEMPTS):
            recall = self._recall(shown)
            packed = self._pack(recall, shown, room)
            recalled = [] if packed.message is None else [packed.message]
            # What is told here is not told again where it was said.
            division = self._divide_beside(alone, [*beside, *recalled], self._get_own_ids(packed.included))
            if packed.message is not None and packed.message not in division.pinned:
                packed = packed.without_message()
            still = self._builder.get_visible_texts(division)
            if shown.keys() <= still.keys():
                break
            shown = {key: text for key, text in shown.items() if key in still}  # the rest had to make room
        return division, packed, recall

    def _recall(self, shown: Mapping[int, str]) -> Recall | None:
        config, question = self._services.config.recall, self._question
        if question is None:
            return None
        wish = build_recall_request(
            question.text,
            now=self._services.now(),
            limit=min(config.max_limit, CANDIDATE_FACTOR * config.limit),
            without=list(shown),
            asking=None if question.item is None else question.item.key,
        )
        if not wish.query.terms:  # small talk: nothing is asked for
            return None
        with self._services.instruments.measure(Operation.RECALL) as watch:
            found = self._services.retriever.recall(self._session.namespace, wish, counts=False)
            found = merge_hits(
                found,
                find_memory_hits(self._services, self._session.namespace, wish, counts=False),
                wish.limit,
            )
            watch.record(hits=len(found.hits), candidates=found.candidates)
            return found

    def _pack(self, recall: Recall | None, shown: Mapping[int, str], room: int) -> PackingResult:
        parts, question = self._services, self._question
        if recall is None or question is None:
            return PackingResult(None, (), ())
        config = parts.config.recall
        relevant = [hit for hit in recall.hits if hit.relevance >= config.relevance_threshold]
        packer = MemoryPacker(
            parts.short_term, parts.analyzer.compressor, f"memories-{question.name}", question.asked_at
        )
        packed = packer.pack(relevant, room, set(shown.values()), config.limit)
        rest = tuple(hit for hit in recall.hits if hit.relevance < config.relevance_threshold)
        return replace(packed, irrelevant=rest)

    def _divide_beside(
        self, alone: ContextDivision, beside: Sequence[Message], told: frozenset[str]
    ) -> ContextDivision:
        in_full = self._builder.is_newest_in_full
        for count in range(len(beside), 0, -1):  # what was said last goes before what is known
            division = self._builder.divide(beside[:count], told if count == len(beside) else frozenset())
            if in_full(division) or not in_full(alone):
                return division
        return alone

    def _get_own_ids(self, hits: Sequence[Hit]) -> frozenset[str]:
        return frozenset(hit.entry.id for hit in hits if hit.session == self._session.name)

    def _count_framed_tokens(self, message: Message | None) -> int:
        return 0 if message is None else count_framed(self._services.counter, message)

    def _count_memory_use(self, told: Sequence[Hit], question: _Question) -> None:
        # The same for entries, episodes and chunks.
        lasting, namespace = self._services.long_term, self._session.namespace
        try:
            kept = lasting.store.get(namespace, [hit.entry.id for hit in told]) if told else {}
        except StorageError as error:
            _log.warning("a use of entries was not counted: %s", type(error).__name__)
            return
        entries = [
            (one.key, lasting.access_counter.with_pending_accesses(one).entry) for one in kept.values()
        ]
        unused = [
            key
            for key, entry in entries
            if not entry.access_count
            or entry.last_access_at is None
            or entry.last_access_at < question.asked_at
        ]
        lasting.access_counter.record(namespace, unused, self._services.now())

    def _count_knowledge_use(
        self, known: KnowledgeBase, told: Sequence[KnowledgeHit], question: _Question
    ) -> None:
        # Once for each question, however often the context for it is built.
        now = self._services.now()
        since = question.asked_at if question.asked_at <= now else now - timedelta(days=1)
        try:
            known.use([hit.knowledge for hit in told], since=since)
        except StorageError as error:  # the context is there: counting can wait
            _log.warning("a use of knowledge was not counted: %s", type(error).__name__)


def _build_question(items: Sequence[ViewItem], query: str | None, now: datetime) -> _Question | None:
    asked = (index for index in reversed(range(len(items))) if items[index].message.role is Role.USER)
    place = next(asked, None)
    if place is None:
        if query is None or not query.strip():
            return None
        name = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return _Question(query, name, items[-1].message.created_at if items else now)
    message = items[place].message
    text = query or _expand_newest_question(
        [item.message for item in items[max(0, place - 2 * _MAX_PRECEDING_MESSAGES) : place + 1]]
    )
    if not text.strip():
        return None
    return _Question(text, message.id, message.created_at, items[place])


def _expand_newest_question(said: Sequence[Message]) -> str:
    return expand_question(said[-1].content, said[:-1])


def expand_question(question: str, said: Sequence[Message]) -> str:
    """A question with what was just spoken of, if it says nothing by itself, as "And when was that?"."""
    if not ends_with_question(question) or extract_terms(question):
        return question
    before = [m for m in said if m.role in (Role.USER, Role.ASSISTANT)][-_MAX_PRECEDING_MESSAGES:]
    return "\n".join([question, *(strip_fences(m.content)[:_MAX_PRECEDING_CHARACTERS] for m in before)])


def _add_knowledge(
    context: Context, hits: Sequence[KnowledgeHit], told: tuple[KnowledgeHit, ...], tokens: int
) -> Context:
    there = {(hit.knowledge.category, hit.knowledge.key) for hit in told}
    left_out = tuple(hit for hit in hits if (hit.knowledge.category, hit.knowledge.key) not in there)
    why = {hit.knowledge.id: "known" for hit in told} | {
        hit.knowledge.id: KNOWLEDGE_NO_ROOM_REASON for hit in left_out
    }
    memories = context.sections.get("memories", 0) - tokens
    return replace(
        context,
        knowledge=told,
        knowledge_left_out=left_out,
        sections={**context.sections, "known": tokens, "memories": memories},
        reasons={**context.reasons, **why},
    )
