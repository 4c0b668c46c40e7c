"""A conversation's context: what was said last, what is known, and what was said before or elsewhere."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import StorageError
from langmem_tiers.core.messages import Role
from langmem_tiers.flows.context import ContextBuilder
from langmem_tiers.flows.packing import Packed, Packer
from langmem_tiers.flows.recalled import answering, preferences, recalled_message
from langmem_tiers.retrieval.retriever import wish_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.context import Context
    from langmem_tiers.core.knowledge import KnowledgeHit
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.ports import View
    from langmem_tiers.core.recall import Hit, Recall
    from langmem_tiers.flows.parts import MemoryParts
    from langmem_tiers.tiers.knowledge import KnowledgeBase
    from langmem_tiers.tiers.short_term import ShortTerm

_log = logging.getLogger("langmem_tiers")
KNOWLEDGE_SHARE = 0.1
"""What knowledge from other sessions may take of a context."""
RECALLED_SHARE = 0.4
"""What recalled memories may take of a context at most; recent messages have the rest."""


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
        self._view = view
        self._budget = budget
        said = (item.message for item in reversed(view.items))
        self._question = next((message for message in said if message.role is Role.USER), None)
        self._query = query or (None if self._question is None else self._question.content)

    def alone(self) -> Context:
        """The conversation without anything beside it."""
        return self._built(())

    def with_memories(self, *, counts: bool) -> Context:
        """The conversation with what is known and what is recalled.

        Args:
            counts: Whether what is told counts as used.
        """
        alone = self.alone()
        question = self._question
        if self._query is None or not self._query.strip() or question is None:
            return alone
        known = self._parts.knowledge_of(self._session.namespace)
        found = answering(known.recall(self._query, use=False), self._query)
        hits = [*found, *preferences(known, found)]
        room = self._budget.share(KNOWLEDGE_SHARE)
        message, told = recalled_message(self._parts.short_term, hits, question, room)
        recalled, packed = self._recalled(alone, question)
        beside = [one for one in (message, packed.message) if one is not None]
        context = self._beside(alone, beside)
        if message is None or message.id in context.dropped or message not in context.messages:
            told = ()
        if counts and told:
            self._count_use(known, [hit for hit in told if hit in found], question)
        is_told = packed.message is not None and packed.message in context.messages
        memories = packed.told if is_told else ()
        left_out = packed.left_out if is_told else (*packed.told, *packed.left_out)
        return replace(
            context,
            knowledge=told,
            recalled=memories,
            left_out=left_out,
            reasons={**context.reasons, **_reasons(memories, "recalled"), **_reasons(left_out, "no room")},
            problems=(*context.problems, *recalled.problems),
        )

    def _recalled(self, alone: Context, question: Message) -> tuple[Recall, Packed]:
        config, session = self._parts.config.recall, self._session
        wish = wish_for(self._query or "", now=self._parts.now(), limit=config.max_limit)
        found = self._parts.retriever.recall(session.namespace, wish, counts=False)
        shown = {*alone.full, *alone.compressed}
        hits = [
            hit
            for hit in found.hits
            if hit.relevance >= config.relevance_threshold
            and not (hit.session == session.name and hit.entry.id in shown)
        ][: config.limit]
        room = min(self._budget.share(RECALLED_SHARE), self._budget.available - alone.token_count)
        packed = Packer(self._parts.short_term, f"memories-{question.id}", question.created_at).pack(
            hits, room
        )
        return found, packed

    def _beside(self, alone: Context, beside: Sequence[Message]) -> Context:
        newest = self._view.items[-1].message.id
        for count in range(len(beside), 0, -1):  # what was said last goes before what is known
            context = self._built(beside[:count])
            if newest in context.full or newest not in alone.full:
                return context
        return alone

    def _built(self, beside: Sequence[Message]) -> Context:
        compressor = self._parts.analyzer.compressor
        return ContextBuilder(self._view.items, self._budget, compressor, beside).build()

    def _count_use(self, known: KnowledgeBase, told: Sequence[KnowledgeHit], question: Message) -> None:
        # Once for each question, however often the context for it is built.
        now = self._parts.now()
        since = question.created_at if question.created_at <= now else now - timedelta(days=1)
        try:
            known.use([hit.knowledge for hit in told], since=since)
        except StorageError as error:  # the context is there: counting can wait
            _log.warning("a use of knowledge was not counted: %s", type(error).__name__)


def _reasons(hits: Sequence[Hit], verdict: str) -> dict[str, str]:
    return {
        f"{hit.session}/{hit.entry.id}": f"{verdict}: score {hit.score:.2f}, found by {hit.found_by}"
        for hit in hits
    }
