"""Context of a session: recent messages, knowledge, and memories of earlier messages and other sessions."""

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
from langmem_tiers.context.models import KNOWLEDGE_DID_NOT_FIT_REASON
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
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.knowledge.models import KnowledgeHit
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.recall.models import Hit, Recall
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import StoredView
    from langmem_tiers.sessions.service import SessionRecord

_log = logging.getLogger("langmem_tiers")
MAX_KNOWLEDGE_SHARE = 0.1
"""Maximum share of the budget for knowledge."""
MAX_RECALLED_SHARE = 0.4
"""Maximum share of the budget for recalled memories; the rest is for recent messages."""
# What is recalled depends on what is visible, and the other way round. This converges at once or soon.
_MAX_ATTEMPTS = 3
TYPICAL_MEMORY_TOKENS = 200
"""Tokens of a rather long memory."""
CANDIDATE_FACTOR = 2
"""Number of recalled candidates per included memory; some of them are duplicates."""
# Messages before a question such as "And when was that?" that are added to it, and characters of each.
_MAX_PRECEDING_MESSAGES = 2
_MAX_PRECEDING_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class _Question:
    """The question that recall has to answer."""

    text: str
    name: str
    """Stable name: the same question always gives its recalled messages the same ids."""
    asked_at: datetime
    item: ViewItem | None = None
    """Message that contains the question."""

    @property
    def message_id(self) -> str | None:
        """Id of the message that contains the question."""
        return None if self.item is None else self.item.message.id


class SessionContextBuilder:
    """Builds the context of one session for one question.

    Args:
        services: Services of the engine.
        session: The session.
        view: The visible messages of the session.
        budget: Token budget.
        query: Question for recall, or None for the newest user message.
    """

    def __init__(
        self,
        services: EngineServices,
        session: SessionRecord,
        view: StoredView,
        budget: TokenBudget,
        query: str | None,
    ) -> None:
        self._services = services
        self._session = session
        self._budget = budget
        self._builder = ContextBuilder(view, budget, services.analyzer.compressor)
        self._question = _build_question(view.items, query, services.now())

    def build_without_memories(self) -> MemoryContext:
        """Build a context of the conversation alone."""
        return self._builder.lay_out(self._builder.divide())

    def build_with_memories(self, *, counts: bool) -> MemoryContext:
        """Build a context of the conversation with knowledge and recalled memories.

        Args:
            counts: Count the included knowledge and memories as used.
        """
        alone, question = self._builder.divide(), self._question
        if question is None:
            return self._builder.lay_out(alone)
        knowledge = self._services.get_knowledge(self._session.namespace)
        answering = filter_answering_hits(knowledge.recall(question.text, use=False), question.text)
        hits = [*answering, *find_preferences(knowledge, answering)]
        max_tokens = self._budget.share(MAX_KNOWLEDGE_SHARE)
        message, included = build_knowledge_message(
            self._services.short_term, hits, f"recalled-{question.name}", question.asked_at, max_tokens
        )
        extra_messages = [] if message is None else [message]
        division, packed, recall = self._divide_with_recalled(alone, extra_messages)
        # The knowledge message may have been dropped in favor of the newest message.
        if message not in division.pinned:
            message, included = None, ()
        # Preferences are included whatever the question is, so they do not count as used.
        if counts and included:
            self._count_knowledge_use(knowledge, [hit for hit in included if hit in answering], question)
        if counts:
            self._count_memory_use([hit for hit in packed.included if is_memory_hit(hit)], question)
        context = self._builder.lay_out(division, before=question.message_id)
        context = _add_knowledge(context, hits, included, self._count_framed_tokens(message))
        return self._add_report(context, packed, recall)

    def _add_report(
        self, context: MemoryContext, packed: PackingResult, recall: Recall | None
    ) -> MemoryContext:
        packed = packed.exclude_visible({*context.full, *context.compressed}, self._session.name)
        recalled = self._get_own_ids(packed.included)
        # A message that is recalled or summarized keeps that reason; the builder knows it only as dropped.
        reported = recalled | self._get_own_ids(packed.summarized)
        reasons = {name: reason for name, reason in context.reasons.items() if name not in reported}
        return replace(
            context,
            recalled=packed.included,
            left_out=packed.left_out,
            summarized=packed.summarized,
            passed_over=packed.passed_over,
            dropped=tuple(name for name in context.dropped if name not in recalled),
            reasons=explain_packing(packed, self._session.name) | reasons,
            problems=(*context.problems, *(() if recall is None else recall.problems)),
        )

    def _divide_with_recalled(
        self, alone: ContextDivision, extra_messages: list[Message]
    ) -> tuple[ContextDivision, PackingResult, Recall | None]:
        # Recall skips visible messages, but including memories pushes messages out, and those may be worth
        # recalling themselves. So start with space reserved for memories, and repeat until all messages that
        # recall skipped are in fact visible. The visible set only shrinks, so this ends.
        max_tokens = self._budget.share(MAX_RECALLED_SHARE)
        reserved = min(max_tokens, TYPICAL_MEMORY_TOKENS * self._services.config.recall.limit)
        visible = self._builder.get_visible_texts(self._builder.divide(extra_messages, reserved=reserved))
        for _ in range(_MAX_ATTEMPTS):
            recall = self._recall(visible)
            packed = self._pack(recall, visible, max_tokens)
            recalled = [] if packed.message is None else [packed.message]
            # A recalled message of this session is not repeated at its place in the conversation.
            division = self._divide_beside(
                alone, [*extra_messages, *recalled], self._get_own_ids(packed.included)
            )
            if packed.message is not None and packed.message not in division.pinned:
                packed = packed.without_message()
            still_visible = self._builder.get_visible_texts(division)
            if visible.keys() <= still_visible.keys():
                break
            visible = {key: text for key, text in visible.items() if key in still_visible}
        return division, packed, recall

    def _recall(self, visible: Mapping[int, str]) -> Recall | None:
        config, question = self._services.config.recall, self._question
        if question is None:
            return None
        request = build_recall_request(
            question.text,
            now=self._services.now(),
            limit=min(config.max_limit, CANDIDATE_FACTOR * config.limit),
            excluded_keys=list(visible),
            asking_key=None if question.item is None else question.item.key,
        )
        # Small talk has no terms to search for.
        if not request.query.terms:
            return None
        with self._services.instruments.measure(Operation.RECALL) as watch:
            recall = self._services.retriever.recall(self._session.namespace, request, counts=False)
            recall = merge_hits(
                recall,
                find_memory_hits(self._services, self._session.namespace, request, counts=False),
                request.limit,
            )
            watch.record(hits=len(recall.hits), candidates=recall.candidates)
            return recall

    def _pack(self, recall: Recall | None, visible: Mapping[int, str], max_tokens: int) -> PackingResult:
        services, question = self._services, self._question
        if recall is None or question is None:
            return PackingResult(None, (), ())
        config = services.config.recall
        relevant = [hit for hit in recall.hits if hit.relevance >= config.relevance_threshold]
        packer = MemoryPacker(
            services.short_term, services.analyzer.compressor, f"memories-{question.name}", question.asked_at
        )
        packed = packer.pack(relevant, max_tokens, set(visible.values()), config.limit)
        irrelevant = tuple(hit for hit in recall.hits if hit.relevance < config.relevance_threshold)
        return replace(packed, irrelevant=irrelevant)

    def _divide_beside(
        self, alone: ContextDivision, extra_messages: Sequence[Message], recalled_ids: frozenset[str]
    ) -> ContextDivision:
        # The newest message has priority: if it would have to be compressed for the sake of memories, leave
        # memories out, the last first. If it does not fit in full even alone, they do not make it worse.
        in_full = self._builder.is_newest_in_full
        for count in range(len(extra_messages), 0, -1):
            # Only the last message of `beside` contains the recalled texts. Without it, the originals may stay.
            division = self._builder.divide(
                extra_messages[:count], recalled_ids if count == len(extra_messages) else frozenset()
            )
            if in_full(division) or not in_full(alone):
                return division
        return alone

    def _get_own_ids(self, hits: Sequence[Hit]) -> frozenset[str]:
        return frozenset(hit.entry.id for hit in hits if hit.session == self._session.name)

    def _count_framed_tokens(self, message: Message | None) -> int:
        return 0 if message is None else count_framed(self._services.counter, message)

    def _count_memory_use(self, included: Sequence[Hit], question: _Question) -> None:
        # Count the use of entries, episodes and chunks once per question, however often its context is built.
        long_term, namespace = self._services.long_term, self._session.namespace
        try:
            stored = long_term.store.get(namespace, [hit.entry.id for hit in included]) if included else {}
        except StorageError as error:
            _log.warning("could not count the use of memories: %s", type(error).__name__)
            return
        entries = [
            (entry.key, long_term.access_counter.with_pending_accesses(entry).entry)
            for entry in stored.values()
        ]
        unused = [
            key
            for key, entry in entries
            if not entry.access_count
            or entry.last_access_at is None
            or entry.last_access_at < question.asked_at
        ]
        long_term.access_counter.record(namespace, unused, self._services.now())

    def _count_knowledge_use(
        self, knowledge: KnowledgeBase, included: Sequence[KnowledgeHit], question: _Question
    ) -> None:
        # Count each use once per question, however often its context is built: skip values that were used
        # since the question was asked. A question dated in the future would be counted on each call.
        now = self._services.now()
        since = question.asked_at if question.asked_at <= now else now - timedelta(days=1)
        try:
            knowledge.use([hit.knowledge for hit in included], since=since)
        except StorageError as error:
            # The context is complete: a missing count must not make it fail.
            _log.warning("could not count the use of knowledge: %s", type(error).__name__)


def _build_question(items: Sequence[ViewItem], query: str | None, now: datetime) -> _Question | None:
    user_indexes = (index for index in reversed(range(len(items))) if items[index].message.role is Role.USER)
    newest = next(user_indexes, None)
    if newest is None:
        if query is None or not query.strip():
            return None
        name = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return _Question(query, name, items[-1].message.created_at if items else now)
    message = items[newest].message
    # Twice as many items as needed: tool messages among them do not count.
    text = query or _expand_newest_question(
        [item.message for item in items[max(0, newest - 2 * _MAX_PRECEDING_MESSAGES) : newest + 1]]
    )
    if not text.strip():
        return None
    return _Question(text, message.id, message.created_at, items[newest])


def _expand_newest_question(messages: Sequence[Message]) -> str:
    return expand_question(messages[-1].content, messages[:-1])


def expand_question(question: str, preceding_messages: Sequence[Message]) -> str:
    """Append the preceding messages to a question that is not meaningful alone, such as "And when was that?".

    Args:
        question: The question. Returned unchanged if it contains words to search for.
        preceding_messages: The messages before it, oldest first.
    """
    if not ends_with_question(question) or extract_terms(question):
        return question
    preceding = [m for m in preceding_messages if m.role in (Role.USER, Role.ASSISTANT)][
        -_MAX_PRECEDING_MESSAGES:
    ]
    return "\n".join([question, *(strip_fences(m.content)[:_MAX_PRECEDING_CHARACTERS] for m in preceding)])


def _add_knowledge(
    context: MemoryContext, hits: Sequence[KnowledgeHit], included: tuple[KnowledgeHit, ...], tokens: int
) -> MemoryContext:
    names = {(hit.knowledge.category, hit.knowledge.key) for hit in included}
    left_out = tuple(hit for hit in hits if (hit.knowledge.category, hit.knowledge.key) not in names)
    reasons = {hit.knowledge.id: "known" for hit in included} | {
        hit.knowledge.id: KNOWLEDGE_DID_NOT_FIT_REASON for hit in left_out
    }
    # The builder counts the knowledge message with the memories; report it as a section of its own.
    memories = context.sections.get("memories", 0) - tokens
    return replace(
        context,
        knowledge=included,
        knowledge_left_out=left_out,
        sections={**context.sections, "known": tokens, "memories": memories},
        reasons={**context.reasons, **reasons},
    )
