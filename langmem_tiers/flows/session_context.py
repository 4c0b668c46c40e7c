"""A conversation's context: what was said last, what is known, and what was said before or elsewhere."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import StorageError
from langmem_tiers.core.messages import Role
from langmem_tiers.flows.context import ContextBuilder
from langmem_tiers.flows.known import answering, preferences, recalled_message
from langmem_tiers.flows.packing import Packed, Packer, reasons
from langmem_tiers.retrieval.fences import without_fences
from langmem_tiers.retrieval.index_text import asks
from langmem_tiers.retrieval.retriever import wish_for
from langmem_tiers.scoring.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.context import Context
    from langmem_tiers.core.knowledge import KnowledgeHit
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.recall import Hit, Recall
    from langmem_tiers.core.records import View
    from langmem_tiers.flows.context import Division
    from langmem_tiers.flows.parts import MemoryParts
    from langmem_tiers.tiers.knowledge import KnowledgeBase
    from langmem_tiers.tiers.short_term import ShortTerm

_log = logging.getLogger("langmem_tiers")
KNOWLEDGE_SHARE = 0.1
"""What knowledge from other sessions may take of a context."""
_TRIES = 3  # what is recalled and what has room beside it settle at once or soon
RECALLED_SHARE = 0.4
"""What recalled memories may take of a context at most; recent messages have the rest."""


_LOOKED_BACK = 100  # messages among which the newest question is looked for
_TALK = 2  # messages before a short question that say what it is about
_TALK_CHARACTERS = 300
_SHORT = 2  # terms up to which a question may be about what was said before it


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
        said = [item.message for item in view.items[-_LOOKED_BACK:]]
        asked = (index for index in reversed(range(len(said))) if said[index].role is Role.USER)
        place = next(asked, None)
        self._question = None if place is None else said[place]
        self._query = query or (None if place is None else _in_its_context(said[: place + 1]))

    def alone(self) -> Context:
        """The conversation without anything beside it."""
        return self._builder.lay_out(self._builder.divide())

    def with_memories(self, *, counts: bool) -> Context:
        """The conversation with what is known and what is recalled.

        Args:
            counts: Whether what is told counts as used.
        """
        alone, question = self._builder.divide(), self._question
        if self._query is None or not self._query.strip() or question is None:
            return self._builder.lay_out(alone)
        known = self._parts.knowledge_of(self._session.namespace)
        found = answering(known.recall(self._query, use=False), self._query)
        hits = [*found, *preferences(known, found)]
        room = self._budget.share(KNOWLEDGE_SHARE)
        message, told = recalled_message(self._parts.short_term, hits, question, room)
        found_elsewhere = self._found()
        division, packed = self._with_recalled(alone, [] if message is None else [message], found_elsewhere)
        context = self._builder.lay_out(division, before=question.id)
        if message not in division.pinned:
            told = ()
        if counts and told:
            self._count_use(known, [hit for hit in told if hit in found], question)
        return replace(
            context,
            knowledge=told,
            recalled=packed.told,
            left_out=packed.left_out,
            reasons={**context.reasons, **reasons(packed, self._session.name)},
            problems=(*context.problems, *(() if found_elsewhere is None else found_elsewhere.problems)),
        )

    def _found(self) -> Recall | None:
        config = self._parts.config.recall
        wish = wish_for(self._query or "", now=self._parts.now(), limit=config.max_limit)
        if not wish.query.terms:  # small talk: nothing is asked for
            return None
        return self._parts.retriever.recall(self._session.namespace, wish, counts=False)

    def _with_recalled(
        self, alone: Division, beside: list[Message], found: Recall | None
    ) -> tuple[Division, Packed]:
        hidden = self._builder.hidden_by(alone)
        for _ in range(_TRIES):
            packed = self._packed(found, hidden)
            recalled = [] if packed.message is None else [packed.message]
            # What is told here is not told again where it was said.
            told = frozenset(hit.entry.id for hit in packed.told if hit.session == self._session.name)
            division = self._beside(alone, [*beside, *recalled], told)
            if packed.message is None or packed.message not in division.pinned:
                return division, Packed(None, (), (*packed.told, *packed.left_out))
            now_hidden = self._builder.hidden_by(division)
            if now_hidden <= hidden:
                break
            hidden |= now_hidden  # what had to make room may be worth recalling itself
        return division, packed

    def _packed(self, found: Recall | None, hidden: set[str]) -> Packed:
        config, question = self._parts.config.recall, self._question
        if found is None or question is None:
            return Packed(None, (), ())
        hits = [
            hit
            for hit in found.hits
            if hit.relevance >= config.relevance_threshold and not self._is_in_sight(hit, hidden)
        ][: config.limit]
        parts, name = self._parts, f"memories-{question.id}"
        packer = Packer(parts.short_term, parts.analyzer.compressor, name, question.created_at)
        return packer.pack(hits, self._budget.share(RECALLED_SHARE))

    def _is_in_sight(self, hit: Hit, hidden: set[str]) -> bool:
        message = hit.message
        if hit.session != self._session.name or message is None:
            return False
        # A call and its result stay where they are, so that neither is told without the other.
        is_of_a_tool = bool(message.tool_calls or message.tool_call_id)
        return is_of_a_tool or not (message.is_compressed or message.id in hidden)

    def _beside(self, alone: Division, beside: Sequence[Message], told: frozenset[str]) -> Division:
        in_full = self._builder.shows_newest_in_full
        for count in range(len(beside), 0, -1):  # what was said last goes before what is known
            division = self._builder.divide(beside[:count], told if count == len(beside) else frozenset())
            if in_full(division) or not in_full(alone):
                return division
        return alone

    def _count_use(self, known: KnowledgeBase, told: Sequence[KnowledgeHit], question: Message) -> None:
        # Once for each question, however often the context for it is built.
        now = self._parts.now()
        since = question.created_at if question.created_at <= now else now - timedelta(days=1)
        try:
            known.use([hit.knowledge for hit in told], since=since)
        except StorageError as error:  # the context is there: counting can wait
            _log.warning("a use of knowledge was not counted: %s", type(error).__name__)


def _in_its_context(said: Sequence[Message]) -> str:
    # "And when was that?" asks about what was just spoken of.
    question = said[-1].content
    if not asks(question) or len(set(terms_of(question))) > _SHORT:
        return question
    before = [m.content[:_TALK_CHARACTERS] for m in said[:-1] if m.role in (Role.USER, Role.ASSISTANT)]
    return "\n".join([question, *(without_fences(text) for text in before[-_TALK:])])
