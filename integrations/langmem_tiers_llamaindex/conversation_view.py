"""What a model is shown of a conversation: within its limit, with what memory has to say."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import neutralize_fence_tags, wrap_in_fence
from langmem_tiers.errors import BudgetExceededError, StorageError
from langmem_tiers.sessions.models import IN_LIST
from langmem_tiers_llamaindex.convert import to_message
from langmem_tiers_llamaindex.layout import ViewParts, arrange_messages, cut_to_limit
from langmem_tiers_llamaindex.placeholders import map_text, protect_placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import ToolCall
    from langmem_tiers.context.models import Context
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.session import Session
    from langmem_tiers_llamaindex.layout import InsertMethod
    from langmem_tiers_llamaindex.token_count_cache import TokenCountCache
    from langmem_tiers_llamaindex.turn_state import TurnState


_NO_RESULT_TEXT = "[no result: the call did not come to its end]"


def repair_messages(messages: Sequence[Message]) -> list[Message]:
    """The messages with every tool call answered right behind it.

    A result that came late moves to its call, one without a call is left out, and where none came a result says so,
    unless nothing but results follows: that call may still be running.
    """
    answers = _match_results(messages)
    newest = max((place for place, one in enumerate(messages) if one.tool_call_id is None), default=-1)
    whole: list[Message] = []
    for place, message in enumerate(messages):
        if message.tool_call_id is not None:
            continue  # behind its call, or left out
        given = answers.get(place, {})
        calls = {call.id: call for call in message.tool_calls if call.id not in given and place != newest}
        whole += [
            message,
            *given.values(),
            *(_build_missing_result(message, call) for call in calls.values()),
        ]
    return whole


def _match_results(messages: Sequence[Message]) -> dict[int, dict[str, Message]]:
    answers: dict[int, dict[str, Message]] = {}
    opened: dict[str, int] = {}  # an id may be used again: a result belongs to the latest call
    for place, message in enumerate(messages):
        opened.update((call.id, place) for call in message.tool_calls)
        start = opened.pop(message.tool_call_id or "", None)
        if message.tool_call_id is not None and start is not None:
            answers.setdefault(start, {})[message.tool_call_id] = message
    return answers


def _build_missing_result(message: Message, call: ToolCall) -> Message:
    return replace(
        message,
        id=f"{message.id}-{call.id}",
        role=Role.TOOL,
        content=_NO_RESULT_TEXT,
        tool_calls=(),
        tool_call_id=call.id,
        payload_json=None,
    )


_log = logging.getLogger("langmem_tiers")
_MAX_TRIES = 6
"""The engine counts by its own counter, so that what it gives may take more by the tokenizer of the memory."""
_MIN_VIEW_TOKENS = 64
"""Below this there is no room for anything but the newest messages."""
_MIN_TIDY_TOKENS = 500
"""Below this a view is not worth compressing the conversation for good."""
_USUAL_SHARE = 0.8
"""Of the largest limit of a conversation's memories; for a narrower view it is not compressed for good."""
_MAX_LEADING_MESSAGES = 64
"""System messages at the beginning of a conversation that are looked at."""
_MIN_PINNED_MESSAGES, _PINNED_SHARE = 8, 0.5
"""So many of them stay in sight as they were said, and more up to that part of the limit."""
_QUESTION_LOOKBACK_MESSAGES = (30, 1000)
"""Messages among which the newest one of the user is looked for, and if an agent has called many tools since."""
_MAX_PLAIN_MESSAGES = 400
"""Messages that a plain cut looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRequest:
    """What is asked for."""

    query: str | None
    """What memory is asked for; the newest message of the user, if None."""
    limit: int
    """Tokens."""
    insert: InsertMethod
    recall: bool


@dataclass(frozen=True, slots=True)
class RenderedConversation:
    """A view, and how it came about."""

    messages: list[ChatMessage]
    tokens: int
    context: Context | None = None
    recalled: tuple[Hit, ...] = ()
    is_from_turn: bool = False


class ConversationRenderer:
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
        sizes: TokenCountCache,
        turn: TurnState,
        waiting: Sequence[ChatMessage] = (),
    ) -> None:
        self._engine = engine
        self._session = session
        self._token_counts = sizes
        self._turn = turn
        self._unsaved_messages = [_protect_message(message) for message in waiting]
        self._pinned: list[Message] = []

    def render(self, wish: ViewRequest) -> RenderedConversation:
        """The view for a wish."""
        self._pinned = self._find_leading_system(wish.limit)
        try:
            found = self._render_to_fit(wish) if wish.limit >= _MIN_VIEW_TOKENS else None
        except BudgetExceededError:
            found = None
        return found or self._render_plain(wish.limit)

    def _render_to_fit(self, wish: ViewRequest) -> RenderedConversation | None:
        question = self._find_question(wish)
        told = self._get_cached_memories(question) if wish.recall else None
        beside = self._token_counts.count_messages(self._unsaved_messages) + (
            0 if told is None else self._token_counts.count_text(told)
        )
        fixed = beside + self._token_counts.count_messages(map(_to_shown_message, self._pinned))
        budget = wish.limit - beside
        for _ in range(_MAX_TRIES):
            if budget < 1 or wish.limit <= fixed:
                return None
            context = self._build_context(question, wish, budget, recall=wish.recall and told is None)
            memories = _join_memories(context) if told is None else told
            messages, tokens = self._lay_out(context, memories, wish.insert, question)
            if tokens <= wish.limit:
                if told is None and wish.recall:
                    self._turn.question, self._turn.memories = question.key, memories
                    self._turn.recalled_hits, self._turn.knowledge_hits = context.recalled, context.knowledge
                return RenderedConversation(
                    messages,
                    tokens,
                    context,
                    self._turn.recalled_hits if wish.recall else (),
                    told is not None,
                )
            budget = min(budget - 1, budget * (wish.limit - fixed) // (tokens - fixed))
        return None

    def _build_context(self, question: _Question, wish: ViewRequest, tokens: int, *, recall: bool) -> Context:
        budget = self._engine.config.budget.resized(tokens)
        build = partial(self._session.build_context, question.query, budget=budget, recall=recall)
        # For good, so only by what most views of the conversation have; and what takes no messages takes no summary.
        is_usual = wish.limit >= max(_MIN_TIDY_TOKENS, _USUAL_SHARE * self._turn.max_token_limit)
        if not is_usual or self._unsaved_messages:
            return build(tidy=False)
        try:
            return build(tidy=True)
        except StorageError as error:
            _log.warning("%r is not tidied this time: %s", self._session, type(error).__name__)
            return build(tidy=False)

    def _find_question(self, wish: ViewRequest) -> _Question:
        # In one turn agents ask without a query, then with the text of the question that is there already.
        waiting = next(
            (one for one in reversed(self._unsaved_messages) if one.role is MessageRole.USER), None
        )
        since = [] if waiting is not None else self._list_since_question()
        newest = since[0] if since else None
        said = (waiting.content or "" if waiting is not None else "") if newest is None else newest.content
        query = None if wish.query is None or wish.query.strip() in ("", said.strip()) else wish.query
        key = (self._session.key, None if newest is None else newest.id, said, query)
        # What waits is not in the record, where the engine would look for it.
        asked = said or None if waiting is not None and query is None else query
        is_said = wish.query is not None and query is None and bool(said)
        has_room = (
            newest is not None
            and self._token_counts.count_stored(newest, _to_shown_message(newest)) <= wish.limit // 2
        )
        return _Question(asked, key, is_said, since if query is None and has_room else ())

    def _list_since_question(self) -> Sequence[Message]:
        transcript = self._session.transcript  # not the record, which has what was taken out as well
        for count in _QUESTION_LOOKBACK_MESSAGES:
            newest = transcript.latest(count)
            places = reversed(range(len(newest)))
            place = next((place for place in places if newest[place].role is Role.USER), None)
            if place is not None:
                return newest[place:]
            if len(newest) < count:
                break
        return ()

    def _get_cached_memories(self, question: _Question) -> str | None:
        # What was recalled for the same question, unless something of it was erased since.
        if self._turn.question != question.key:
            return None
        tenant = self._engine.namespace(self._session.namespace)
        said: dict[str, set[str]] = defaultdict(set)
        for hit in self._turn.recalled_hits:
            if hit.message is not None and hit.session is not None:
                said[hit.session].add(hit.message.id)
        for name, ids in said.items():
            session = tenant.find_session(name)
            if session is None or session.find_known_ids(ids) != ids:
                return None
        known = (hit.knowledge for hit in self._turn.knowledge_hits)
        if any(tenant.knowledge.get(one.category, one.key, use=False) is None for one in known):
            return None
        return self._turn.memories

    def _lay_out(
        self, context: Context, memories: str, insert: InsertMethod, question: _Question
    ) -> tuple[list[ChatMessage], int]:
        parts, sizes = self._build_parts(context, memories, question)
        messages = arrange_messages(parts, insert)
        return messages, sum(sizes.get(id(one)) or self._token_counts.count_message(one) for one in messages)

    def _build_parts(
        self, context: Context, memories: str, question: _Question
    ) -> tuple[ViewParts, dict[int, int]]:
        said = {*context.full, *context.compressed}
        pinned = {message.id for message in self._pinned}
        talk = [one for one in context.messages if one.id in said and one.id not in pinned]
        talk = repair_messages(question.keep_in_sight(talk))
        summary = [
            neutralize_fence_tags(one.content)
            for one in context.messages
            if one.is_summary and one.id not in said
        ]
        shown = self._to_shown_messages(talk)
        leading = [_to_shown_message(message) for message in self._pinned]
        parts = ViewParts(
            pinned=leading,
            conversation=_remove_empty([*shown, *self._unsaved_messages]),
            is_cut=bool(summary or context.dropped),
            has_question=question.is_in_conversation,
            summary=protect_placeholders(wrap_in_fence(summary)) if summary else "",
            memories=protect_placeholders(memories),
        )
        stored = zip((*self._pinned, *talk), (*leading, *shown), strict=True)
        return parts, {
            id(message): self._token_counts.count_stored(one, message)
            for one, message in stored
            if one.id != self._turn.live_id  # agents write into it
        }

    def _to_shown_messages(self, talk: Sequence[Message]) -> list[ChatMessage]:
        place = next((n for n in reversed(range(len(talk))) if talk[n].role is Role.USER), None)
        shown = [_to_shown_message(message) for message in talk]
        if place is not None and talk[place].payload_json is not None:
            shown[place] = self._share_question_blocks(talk[place].id, shown[place])
        return shown

    def _share_question_blocks(self, message_id: str, message: ChatMessage) -> ChatMessage:
        # Agents write their state into the question that they were given, and count on finding it there again.
        if self._turn.live_id != message_id:
            self._turn.live_id, self._turn.live_blocks = message_id, list(message.blocks)
        return message.model_copy(update={"blocks": list(self._turn.live_blocks)})

    def _find_leading_system(self, limit: int) -> list[Message]:
        first = self._session.transcript.messages(IN_LIST, limit=_MIN_PINNED_MESSAGES)
        if len(first) == _MIN_PINNED_MESSAGES and all(message.role is Role.SYSTEM for message in first):
            first = self._session.transcript.messages(IN_LIST, limit=_MAX_LEADING_MESSAGES)
        leading = list(itertools.takewhile(lambda message: message.role is Role.SYSTEM, first))
        taken = itertools.accumulate(
            self._token_counts.count_stored(one, _to_shown_message(one)) for one in leading
        )
        fitting = sum(tokens <= limit * _PINNED_SHARE for tokens in taken)
        return leading[: max(_MIN_PINNED_MESSAGES, fitting)]

    def _render_plain(self, limit: int) -> RenderedConversation:
        newest = self._session.transcript.latest(_MAX_PLAIN_MESSAGES)
        pinned = {message.id for message in self._pinned}
        talk = self._to_shown_messages(
            repair_messages([message for message in newest if message.id not in pinned])
        )
        messages, tokens = cut_to_limit(
            [_to_shown_message(one) for one in self._pinned],
            _remove_empty([*talk, *self._unsaved_messages]),
            limit,
            self._token_counts,
            is_whole=len(newest) < _MAX_PLAIN_MESSAGES,
        )
        if tokens > limit:
            _log.warning(
                "%r shows %d tokens where %d are allowed: not even its newest message fits, raise token_limit",
                self._session,
                tokens,
                limit,
            )
        return RenderedConversation(messages, tokens)


@dataclass(frozen=True, slots=True)
class _Question:
    query: str | None
    key: object
    """The same for the whole turn."""
    is_in_conversation: bool
    """Whether the query is the newest message of the user."""
    messages_since: Sequence[Message]
    """That message and what came after it, if it is asked and can be shown as it is."""

    def keep_in_sight(self, talk: list[Message]) -> list[Message]:
        # A long run of tools moves it behind a summary, or out of what has room.
        if not self.messages_since or any(one.id == self.messages_since[0].id for one in talk):
            return talk
        later = {one.id for one in self.messages_since}
        place = next((place for place, one in enumerate(talk) if one.id in later), len(talk))
        return [*talk[:place], self.messages_since[0], *talk[place:]]


def _to_shown_message(message: Message) -> ChatMessage:
    return _protect_message(to_message(message))


def _protect_message(message: ChatMessage) -> ChatMessage:
    for place, block in enumerate(message.blocks):
        safe = map_text(block, protect_placeholders)
        if safe is not block:
            message.blocks[place] = safe
    return message


def _remove_empty(talk: Sequence[ChatMessage]) -> list[ChatMessage]:
    # Providers refuse a message that says nothing, such as an answer that never came.
    return [message for message in talk if message.blocks or message.additional_kwargs]


def _join_memories(context: Context) -> str:
    said = {*context.full, *context.compressed}
    return "\n".join(one.content for one in context.messages if one.id not in said and not one.is_summary)
