"""What a model is shown of a conversation: within its limit, with what memory has to say."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import (
    ChatMessage,
    MessageRole,
)

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import fenced, harmless
from langmem_tiers.errors import BudgetExceededError, StorageError
from langmem_tiers.sessions.models import IN_LIST
from langmem_tiers_llamaindex.convert import to_message
from langmem_tiers_llamaindex.layout import Parts, lay_out
from langmem_tiers_llamaindex.placeholders import each_text, protected
from langmem_tiers_llamaindex.plain_cut import plain_cut
from langmem_tiers_llamaindex.repair import repaired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.context.models import Context
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.session import Session
    from langmem_tiers_llamaindex.layout import InsertMethod
    from langmem_tiers_llamaindex.sizes import Sizes
    from langmem_tiers_llamaindex.turns import Turn

_log = logging.getLogger("langmem_tiers")
_TRIES = 6
"""The engine counts by its own counter, so that what it gives may take more by the tokenizer of the memory."""
_LEAST_TOKENS = 64
"""Below this there is no room for anything but the newest messages."""
_LEAST_TO_TIDY = 500
"""Below this a view is not worth compressing the conversation for good."""
_USUAL_SHARE = 0.8
"""Of the largest limit of a conversation's memories; for a narrower view it is not compressed for good."""
_LEADING = 64
"""System messages at the beginning of a conversation that are looked at."""
_FEW, _PINNED_SHARE = 8, 0.5
"""So many of them stay in sight as they were said, and more up to that part of the limit."""
_NEWEST = (30, 1000)
"""Messages among which the newest one of the user is looked for, and if an agent has called many tools since."""
_PLAIN = 400
"""Messages that a plain cut looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for."""

    query: str | None
    """What memory is asked for; the newest message of the user, if None."""
    limit: int
    """Tokens."""
    insert: InsertMethod
    recall: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A view, and how it came about."""

    messages: list[ChatMessage]
    tokens: int
    context: Context | None = None
    recalled: tuple[Hit, ...] = ()
    is_from_turn: bool = False


class ConversationView:
    """Makes views of one conversation.

    Args:
        engine: Where it is.
        session: Its record.
        sizes: Counts what is shown.
        turn: What is held of it.
        waiting: What was said after what is in the record, and is not there yet.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        session: Session,
        sizes: Sizes,
        turn: Turn,
        waiting: Sequence[ChatMessage] = (),
    ) -> None:
        self._engine = engine
        self._session = session
        self._sizes = sizes
        self._turn = turn
        self._waiting = [_protected(message) for message in waiting]
        self._pinned: list[Message] = []

    def seen(self, wish: Wish) -> Seen:
        """The view for a wish."""
        self._pinned = self._leading_system(wish.limit)
        try:
            found = self._fitting(wish) if wish.limit >= _LEAST_TOKENS else None
        except BudgetExceededError:
            found = None
        return found or self._plain(wish.limit)

    def _fitting(self, wish: Wish) -> Seen | None:
        question = self._question(wish)
        told = self._told(question) if wish.recall else None
        beside = self._sizes.messages(self._waiting) + (0 if told is None else self._sizes.text(told))
        fixed = beside + self._sizes.messages(map(_shown, self._pinned))
        budget = wish.limit - beside
        for _ in range(_TRIES):
            if budget < 1 or wish.limit <= fixed:
                return None
            context = self._context(question, wish, budget, recall=wish.recall and told is None)
            memories = _memories_of(context) if told is None else told
            messages, tokens = self._laid_out(context, memories, wish.insert, question)
            if tokens <= wish.limit:
                if told is None and wish.recall:
                    self._turn.question, self._turn.memories = question.key, memories
                    self._turn.recalled, self._turn.known = context.recalled, context.knowledge
                return Seen(
                    messages, tokens, context, self._turn.recalled if wish.recall else (), told is not None
                )
            budget = min(budget - 1, budget * (wish.limit - fixed) // (tokens - fixed))
        return None

    def _context(self, question: _Question, wish: Wish, tokens: int, *, recall: bool) -> Context:
        budget = self._engine.config.budget.resized(tokens)
        build = partial(self._session.build_context, question.query, budget=budget, recall=recall)
        # For good, so only by what most views of the conversation have; and what takes no messages takes no summary.
        is_usual = wish.limit >= max(_LEAST_TO_TIDY, _USUAL_SHARE * self._turn.widest)
        if not is_usual or self._waiting:
            return build(tidy=False)
        try:
            return build(tidy=True)
        except StorageError as error:
            _log.warning("%r is not tidied this time: %s", self._session, type(error).__name__)
            return build(tidy=False)

    def _question(self, wish: Wish) -> _Question:
        # In one turn agents ask without a query, then with the text of the question that is there already.
        waiting = next((one for one in reversed(self._waiting) if one.role is MessageRole.USER), None)
        since = [] if waiting is not None else self._since_the_question()
        newest = since[0] if since else None
        said = (waiting.content or "" if waiting is not None else "") if newest is None else newest.content
        query = None if wish.query is None or wish.query.strip() in ("", said.strip()) else wish.query
        key = (self._session.key, None if newest is None else newest.id, said, query)
        # What waits is not in the record, where the engine would look for it.
        asked = said or None if waiting is not None and query is None else query
        is_said = wish.query is not None and query is None and bool(said)
        has_room = newest is not None and self._sizes.stored(newest, _shown(newest)) <= wish.limit // 2
        return _Question(asked, key, is_said, since if query is None and has_room else ())

    def _since_the_question(self) -> Sequence[Message]:
        transcript = self._session.transcript  # not the record, which has what was taken out as well
        for count in _NEWEST:
            newest = transcript.latest(count)
            places = reversed(range(len(newest)))
            place = next((place for place in places if newest[place].role is Role.USER), None)
            if place is not None:
                return newest[place:]
            if len(newest) < count:
                break
        return ()

    def _told(self, question: _Question) -> str | None:
        # What was recalled for the same question, unless something of it was erased since.
        if self._turn.question != question.key:
            return None
        tenant = self._engine.namespace(self._session.namespace)
        said: dict[str, set[str]] = defaultdict(set)
        for hit in self._turn.recalled:
            if hit.message is not None and hit.session is not None:
                said[hit.session].add(hit.message.id)
        for name, ids in said.items():
            session = tenant.find_session(name)
            if session is None or session.holds(ids) != ids:
                return None
        known = (hit.knowledge for hit in self._turn.known)
        if any(tenant.knowledge.get(one.category, one.key, use=False) is None for one in known):
            return None
        return self._turn.memories

    def _laid_out(
        self, context: Context, memories: str, insert: InsertMethod, question: _Question
    ) -> tuple[list[ChatMessage], int]:
        parts, sizes = self._parts(context, memories, question)
        messages = lay_out(parts, insert)
        return messages, sum(sizes.get(id(one)) or self._sizes.message(one) for one in messages)

    def _parts(self, context: Context, memories: str, question: _Question) -> tuple[Parts, dict[int, int]]:
        said = {*context.full, *context.compressed}
        pinned = {message.id for message in self._pinned}
        talk = [one for one in context.messages if one.id in said and one.id not in pinned]
        talk = repaired(question.in_sight(talk))
        summary = [harmless(one.content) for one in context.messages if one.is_summary and one.id not in said]
        shown = self._handed_out(talk)
        leading = [_shown(message) for message in self._pinned]
        parts = Parts(
            pinned=leading,
            talk=_not_empty([*shown, *self._waiting]),
            is_cut=bool(summary or context.dropped),
            is_asked=question.is_said,
            summary=protected(fenced(summary)) if summary else "",
            memories=protected(memories),
        )
        stored = zip((*self._pinned, *talk), (*leading, *shown), strict=True)
        return parts, {
            id(message): self._sizes.stored(one, message)
            for one, message in stored
            if one.id != self._turn.live_id  # agents write into it
        }

    def _handed_out(self, talk: Sequence[Message]) -> list[ChatMessage]:
        place = next((n for n in reversed(range(len(talk))) if talk[n].role is Role.USER), None)
        shown = [_shown(message) for message in talk]
        if place is not None and talk[place].payload_json is not None:
            shown[place] = self._live(talk[place].id, shown[place])
        return shown

    def _live(self, message_id: str, message: ChatMessage) -> ChatMessage:
        # Agents write their state into the question that they were given, and count on finding it there again.
        if self._turn.live_id != message_id:
            self._turn.live_id, self._turn.live_blocks = message_id, list(message.blocks)
        return message.model_copy(update={"blocks": list(self._turn.live_blocks)})

    def _leading_system(self, limit: int) -> list[Message]:
        first = self._session.transcript.messages(IN_LIST, limit=_FEW)
        if len(first) == _FEW and all(message.role is Role.SYSTEM for message in first):
            first = self._session.transcript.messages(IN_LIST, limit=_LEADING)
        leading = list(itertools.takewhile(lambda message: message.role is Role.SYSTEM, first))
        taken = itertools.accumulate(self._sizes.stored(one, _shown(one)) for one in leading)
        fitting = sum(tokens <= limit * _PINNED_SHARE for tokens in taken)
        return leading[: max(_FEW, fitting)]

    def _plain(self, limit: int) -> Seen:
        newest = self._session.transcript.latest(_PLAIN)
        pinned = {message.id for message in self._pinned}
        talk = self._handed_out(repaired([message for message in newest if message.id not in pinned]))
        messages, tokens = plain_cut(
            [_shown(one) for one in self._pinned],
            _not_empty([*talk, *self._waiting]),
            limit,
            self._sizes,
            is_whole=len(newest) < _PLAIN,
        )
        if tokens > limit:
            _log.warning(
                "%r shows %d tokens where %d are allowed: not even its newest message fits, raise token_limit",
                self._session,
                tokens,
                limit,
            )
        return Seen(messages, tokens)


@dataclass(frozen=True, slots=True)
class _Question:
    query: str | None
    key: object
    """The same for the whole turn."""
    is_said: bool
    """Whether the query is the newest message of the user."""
    since: Sequence[Message]
    """That message and what came after it, if it is asked and can be shown as it is."""

    def in_sight(self, talk: list[Message]) -> list[Message]:
        # A long run of tools moves it behind a summary, or out of what has room.
        if not self.since or any(one.id == self.since[0].id for one in talk):
            return talk
        later = {one.id for one in self.since}
        place = next((place for place, one in enumerate(talk) if one.id in later), len(talk))
        return [*talk[:place], self.since[0], *talk[place:]]


def _shown(message: Message) -> ChatMessage:
    return _protected(to_message(message))


def _protected(message: ChatMessage) -> ChatMessage:
    for place, block in enumerate(message.blocks):
        safe = each_text(block, protected)
        if safe is not block:
            message.blocks[place] = safe
    return message


def _not_empty(talk: Sequence[ChatMessage]) -> list[ChatMessage]:
    # Providers refuse a message that says nothing, such as an answer that never came.
    return [message for message in talk if message.blocks or message.additional_kwargs]


def _memories_of(context: Context) -> str:
    said = {*context.full, *context.compressed}
    return "\n".join(one.content for one in context.messages if one.id not in said and not one.is_summary)
