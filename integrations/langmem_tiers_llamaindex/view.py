"""What a model is shown of a conversation: within its limit, with what memory has to say."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, TextBlock

from langmem_tiers.core.errors import BudgetExceededError
from langmem_tiers.core.fences import fenced, harmless
from langmem_tiers.core.messages import Message, Role
from langmem_tiers.core.transcripts import IN_LIST
from langmem_tiers_llamaindex.convert import to_message
from langmem_tiers_llamaindex.layout import Parts, lay_out
from langmem_tiers_llamaindex.placeholders import protected
from langmem_tiers_llamaindex.plain_cut import plain_cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.context import Context
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.flows.session import Session
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
_LEADING = 8
"""System messages at the beginning of a conversation that stay in sight."""
_NEWEST = 30
"""Messages among which the newest one of the user is looked for."""
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
    is_from_turn: bool = False


class ConversationView:
    """Makes views of one conversation.

    Args:
        engine: Where it is.
        session: Its record.
        sizes: Counts what is shown.
        turn: What is held of it.
    """

    def __init__(self, engine: MemoryEngine, session: Session, sizes: Sizes, turn: Turn) -> None:
        self._engine = engine
        self._session = session
        self._sizes = sizes
        self._turn = turn
        self._pinned = self._leading_system()

    def seen(self, wish: Wish) -> Seen:
        """The view for a wish."""
        try:
            found = self._fitting(wish) if wish.limit >= _LEAST_TOKENS else None
        except BudgetExceededError:
            found = None
        return found or self._plain(wish.limit)

    def _fitting(self, wish: Wish) -> Seen | None:
        question = self._question(wish)
        told = self._turn.memories if self._turn.question == question.key and wish.recall else None
        extra = 0 if told is None else self._sizes.text(told)
        for _ in range(_TRIES):
            if wish.limit - extra < 1:
                return None
            context = self._session.build_context(
                question.query,
                budget=self._engine.config.budget.resized(wish.limit - extra),
                recall=wish.recall and told is None,
                tidy=wish.limit >= _LEAST_TO_TIDY,
            )
            memories = _memories_of(context) if told is None else told
            parts, tokens = self._parts(context, memories)
            if tokens <= wish.limit:
                if told is None and wish.recall:
                    self._turn.question, self._turn.memories = question.key, memories
                    self._turn.context = context
                return Seen(lay_out(parts, wish.insert), tokens, context, told is not None)
            extra += tokens - wish.limit
        return None

    def _question(self, wish: Wish) -> _Question:
        # In one turn agents ask without a query, then with the text of the question that is there already.
        newest = next((one for one in reversed(self._session.latest(_NEWEST)) if one.role is Role.USER), None)
        query = wish.query
        if query is not None and (not query.strip() or (newest and query.strip() == newest.content.strip())):
            query = None
        return _Question(query, (self._session.key, None if newest is None else newest.id, query))

    def _parts(self, context: Context, memories: str) -> tuple[Parts, int]:
        said = {*context.full, *context.compressed}
        pinned = {message.id for message in self._pinned}
        talk = [one for one in context.messages if one.id in said and one.id not in pinned]
        summary = [harmless(one.content) for one in context.messages if one.is_summary and one.id not in said]
        shown = self._handed_out(talk)
        leading = [_shown(message) for message in self._pinned]
        parts = Parts(
            pinned=leading,
            talk=[message for message in shown if message.blocks or message.additional_kwargs],
            is_cut=bool(summary or context.dropped),
            summary=protected(fenced(summary)) if summary else "",
            memories=protected(memories),
        )
        stored = zip((*self._pinned, *talk), (*leading, *shown), strict=True)
        tokens = sum(
            self._sizes.message(message) if one.id == self._turn.live_id else self._sizes.stored(one, message)
            for one, message in stored
        )
        return parts, tokens + self._sizes.text(parts.summary) + self._sizes.text(parts.memories)

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

    def _leading_system(self) -> list[Message]:
        first = self._session.transcript.messages(IN_LIST, limit=_LEADING)
        return list(itertools.takewhile(lambda message: message.role is Role.SYSTEM, first))

    def _plain(self, limit: int) -> Seen:
        transcript = self._session.transcript
        newest = transcript.messages(IN_LIST, offset=max(0, transcript.count() - _PLAIN))
        pinned = {message.id for message in self._pinned}
        talk = self._handed_out([message for message in newest if message.id not in pinned])
        messages, tokens = plain_cut([_shown(one) for one in self._pinned], talk, limit, self._sizes)
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


def _shown(message: Message) -> ChatMessage:
    shown = to_message(message)
    for place, block in enumerate(shown.blocks):
        if type(block) is TextBlock and (safe := protected(block.text)) is not block.text:
            shown.blocks[place] = TextBlock(text=safe)
    return shown


def _memories_of(context: Context) -> str:
    said = {*context.full, *context.compressed}
    return "\n".join(one.content for one in context.messages if one.id not in said and not one.is_summary)
