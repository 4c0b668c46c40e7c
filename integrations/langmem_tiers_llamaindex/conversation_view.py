"""Model view of a conversation: its messages within a limit, with summary and recalled memories."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from langmem_tiers import BudgetExceededError, Message, Role, StorageError
from langmem_tiers.integration_kit import IN_LIST, NO_RESULT_TEXT, neutralize_fence_tags, wrap_in_fence
from langmem_tiers_llamaindex.convert import map_text, protect_placeholders, to_message
from langmem_tiers_llamaindex.message_layout import ViewParts, arrange_messages, cut_to_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers import Hit, MemoryContext, MemoryEngine, MessageToolCall, Session
    from langmem_tiers_llamaindex.message_layout import InsertMethod
    from langmem_tiers_llamaindex.token_counter import TokenCountCache
    from langmem_tiers_llamaindex.turn_state import TurnState


def repair_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with a result directly after every tool call.

    A late result moves to its call, a result without a call is dropped, and a missing result is replaced by a
    placeholder. The newest message gets no placeholders, because its calls may still be running.
    """
    results_by_index = _match_results(messages)
    newest = max(
        (index for index, message in enumerate(messages) if message.tool_call_id is None), default=-1
    )
    repaired: list[Message] = []
    for index, message in enumerate(messages):
        if message.tool_call_id is not None:
            continue  # inserted after its call below, or dropped
        results = results_by_index.get(index, {})
        missing = {call.id: call for call in message.tool_calls if call.id not in results and index != newest}
        repaired += [
            message,
            *results.values(),
            *(_build_missing_result(message, call) for call in missing.values()),
        ]
    return repaired


def _match_results(messages: Sequence[Message]) -> dict[int, dict[str, Message]]:
    results: dict[int, dict[str, Message]] = {}
    open_calls: dict[str, int] = {}  # ids may be reused: a result belongs to the latest call with its id
    for index, message in enumerate(messages):
        open_calls.update((call.id, index) for call in message.tool_calls)
        start = open_calls.pop(message.tool_call_id or "", None)
        if message.tool_call_id is not None and start is not None:
            results.setdefault(start, {})[message.tool_call_id] = message
    return results


def _build_missing_result(message: Message, call: MessageToolCall) -> Message:
    return replace(
        message,
        id=f"{message.id}-{call.id}",
        role=Role.TOOL,
        content=NO_RESULT_TEXT,
        tool_calls=(),
        tool_call_id=call.id,
        payload_json=None,
    )


_log = logging.getLogger("langmem_tiers")
_MAX_ATTEMPTS = 6
"""Attempts to fit the limit: the memory's tokenizer may count more tokens than the engine's counter."""
_MIN_VIEW_TOKENS = 64
"""Minimum limit for a view with context; below it, only the newest messages are shown."""
_MIN_TIDY_TOKENS = 500
"""Minimum limit of a view that may permanently compress the conversation."""
_USUAL_SHARE = 0.8
"""Views below this share of the conversation's largest limit do not permanently compress it."""
_MAX_LEADING_MESSAGES = 64
"""Maximum number of leading system messages to read."""
_MIN_PINNED_MESSAGES, _PINNED_SHARE = 8, 0.5
"""Leading system messages that are always shown unchanged, and the share of the limit for further ones."""
_QUESTION_LOOKBACK_MESSAGES = (30, 1000)
"""Numbers of newest messages to search for the question; the second is used after many tool calls."""
_MAX_PLAIN_MESSAGES = 400
"""Maximum number of messages to read for a view without context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRequest:
    """Request for a view."""

    query: str | None
    """Recall query; None for the newest message of the user."""
    limit: int
    """Maximum number of tokens."""
    insert: InsertMethod
    recall: bool


@dataclass(frozen=True, slots=True)
class RenderedConversation:
    """View of a conversation, with the context and the memories it is built from."""

    messages: list[ChatMessage]
    tokens: int
    context: MemoryContext | None = None
    recalled: tuple[Hit, ...] = ()
    is_from_turn: bool = False
    """True if the memories were recalled by an earlier call in the same turn."""


class ConversationRenderer:
    """Builds views of one conversation.

    Args:
        engine: Memory engine.
        session: Session of the conversation.
        sizes: Token counts of messages.
        turn: State of the current turn.
        waiting: Messages that follow the stored ones and are not stored yet.
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

    def render(self, request: ViewRequest) -> RenderedConversation:
        """Return the view for a request; without context if that does not fit."""
        self._pinned = self._find_leading_system(request.limit)
        try:
            view = self._render_to_fit(request) if request.limit >= _MIN_VIEW_TOKENS else None
        except BudgetExceededError:
            view = None
        return view or self._render_plain(request.limit)

    def _render_to_fit(self, request: ViewRequest) -> RenderedConversation | None:
        question = self._find_question(request)
        cached = self._get_cached_memories(question) if request.recall else None
        # Unsaved messages and cached memories are not part of the context. Pinned messages are, but they are always
        # shown in full.
        outside = self._token_counts.count_messages(self._unsaved_messages) + (
            0 if cached is None else self._token_counts.count_text(cached)
        )
        fixed = outside + self._token_counts.count_messages(map(_to_shown_message, self._pinned))
        budget = request.limit - outside
        for _ in range(_MAX_ATTEMPTS):
            if budget < 1 or request.limit <= fixed:
                return None
            context = self._build_context(question, request, budget, recall=request.recall and cached is None)
            memories = _join_memories(context) if cached is None else cached
            messages, tokens = self._lay_out(context, memories, request.insert, question)
            if tokens <= request.limit:
                if cached is None and request.recall:
                    self._turn.question, self._turn.memories = question.key, memories
                    self._turn.recalled_hits, self._turn.knowledge_hits = context.recalled, context.knowledge
                return RenderedConversation(
                    messages,
                    tokens,
                    context,
                    self._turn.recalled_hits if request.recall else (),
                    cached is not None,
                )
            # Scale the budget by the ratio of both counts without the fixed part; the -1 guarantees progress.
            budget = min(budget - 1, budget * (request.limit - fixed) // (tokens - fixed))
        return None

    def _build_context(
        self, question: _Question, request: ViewRequest, tokens: int, *, recall: bool
    ) -> MemoryContext:
        budget = self._engine.config.budget.resized(tokens)
        build = partial(self._session.build_context, question.query, budget=budget, recall=recall)
        # tidy=True stores summaries permanently. A single narrow view must not compress the conversation for wider
        # ones, and a store that rejects messages would also reject summaries.
        is_usual = request.limit >= max(_MIN_TIDY_TOKENS, _USUAL_SHARE * self._turn.max_token_limit)
        if not is_usual or self._unsaved_messages:
            return build(tidy=False)
        try:
            return build(tidy=True)
        except StorageError as error:
            _log.warning("%r could not be compressed this time: %s", self._session, type(error).__name__)
            return build(tidy=False)

    def _find_question(self, request: ViewRequest) -> _Question:
        # Within one turn, agents request views first without a query and later with the text of the stored question.
        # Both must have the same key, so a query that repeats the question is dropped.
        unsaved = next(
            (message for message in reversed(self._unsaved_messages) if message.role is MessageRole.USER),
            None,
        )
        since = [] if unsaved is not None else self._list_since_question()
        newest = since[0] if since else None
        text = (unsaved.content or "" if unsaved is not None else "") if newest is None else newest.content
        query = (
            None if request.query is None or request.query.strip() in ("", text.strip()) else request.query
        )
        key = (self._session.key, None if newest is None else newest.id, text, query)
        # Without a query the engine uses the newest stored question, so an unsaved one must be passed explicitly.
        recall_query = text or None if unsaved is not None and query is None else query
        is_in_conversation = request.query is not None and query is None and bool(text)
        has_room = (
            newest is not None
            and self._token_counts.count_stored(newest, _to_shown_message(newest)) <= request.limit // 2
        )
        return _Question(recall_query, key, is_in_conversation, since if query is None and has_room else ())

    def _list_since_question(self) -> Sequence[Message]:
        transcript = self._session.transcript  # without messages that were removed from the list
        for count in _QUESTION_LOOKBACK_MESSAGES:
            newest = transcript.latest(count)
            indexes = reversed(range(len(newest)))
            index = next((index for index in indexes if newest[index].role is Role.USER), None)
            if index is not None:
                return newest[index:]
            if len(newest) < count:
                break
        return ()

    def _get_cached_memories(self, question: _Question) -> str | None:
        # Reuse the memories of the same question, unless one of them was erased in the meantime.
        if self._turn.question != question.key:
            return None
        tenant = self._engine.namespace(self._session.namespace)
        ids_by_session: dict[str, set[str]] = defaultdict(set)
        for hit in self._turn.recalled_hits:
            if hit.message is not None and hit.session is not None:
                ids_by_session[hit.session].add(hit.message.id)
        for name, ids in ids_by_session.items():
            session = tenant.find_session(name)
            if session is None or session.find_known_ids(ids) != ids:
                return None
        entries = (hit.knowledge for hit in self._turn.knowledge_hits)
        if any(tenant.knowledge.get(entry.category, entry.key, use=False) is None for entry in entries):
            return None
        return self._turn.memories

    def _lay_out(
        self, context: MemoryContext, memories: str, insert: InsertMethod, question: _Question
    ) -> tuple[list[ChatMessage], int]:
        parts, sizes = self._build_parts(context, memories, question)
        messages = arrange_messages(parts, insert)
        return messages, sum(
            sizes.get(id(message)) or self._token_counts.count_message(message) for message in messages
        )

    def _build_parts(
        self, context: MemoryContext, memories: str, question: _Question
    ) -> tuple[ViewParts, dict[int, int]]:
        # Return the parts of a view, and the tokens of stored messages by the identity of the shown messages.
        conversation_ids = {*context.full, *context.compressed}
        pinned = {message.id for message in self._pinned}
        talk = [
            message
            for message in context.messages
            if message.id in conversation_ids and message.id not in pinned
        ]
        talk = repair_messages(question.keep_in_sight(talk))
        summary = [
            neutralize_fence_tags(message.content)
            for message in context.messages
            if message.is_summary and message.id not in conversation_ids
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
        pairs = zip((*self._pinned, *talk), (*leading, *shown), strict=True)
        return parts, {
            id(message): self._token_counts.count_stored(stored, message)
            for stored, message in pairs
            if stored.id != self._turn.live_id  # agents change this message, so its count is not cached
        }

    def _to_shown_messages(self, talk: Sequence[Message]) -> list[ChatMessage]:
        index = next((n for n in reversed(range(len(talk))) if talk[n].role is Role.USER), None)
        shown = [_to_shown_message(message) for message in talk]
        if index is not None and talk[index].payload_json is not None:
            shown[index] = self._share_question_blocks(talk[index].id, shown[index])
        return shown

    def _share_question_blocks(self, message_id: str, message: ChatMessage) -> ChatMessage:
        # Agents write their state into the blocks of the question and expect to find it in the next view of the turn.
        if self._turn.live_id != message_id:
            self._turn.live_id, self._turn.live_blocks = message_id, list(message.blocks)
        return message.model_copy(update={"blocks": list(self._turn.live_blocks)})

    def _find_leading_system(self, limit: int) -> list[Message]:
        first = self._session.transcript.messages(IN_LIST, limit=_MIN_PINNED_MESSAGES)
        if len(first) == _MIN_PINNED_MESSAGES and all(message.role is Role.SYSTEM for message in first):
            first = self._session.transcript.messages(IN_LIST, limit=_MAX_LEADING_MESSAGES)
        leading = list(itertools.takewhile(lambda message: message.role is Role.SYSTEM, first))
        running_totals = itertools.accumulate(
            self._token_counts.count_stored(message, _to_shown_message(message)) for message in leading
        )
        fitting = sum(total <= limit * _PINNED_SHARE for total in running_totals)
        return leading[: max(_MIN_PINNED_MESSAGES, fitting)]

    def _render_plain(self, limit: int) -> RenderedConversation:
        newest = self._session.transcript.latest(_MAX_PLAIN_MESSAGES)
        pinned = {message.id for message in self._pinned}
        talk = self._to_shown_messages(
            repair_messages([message for message in newest if message.id not in pinned])
        )
        messages, tokens = cut_to_limit(
            [_to_shown_message(message) for message in self._pinned],
            _remove_empty([*talk, *self._unsaved_messages]),
            limit,
            self._token_counts,
            is_whole=len(newest) < _MAX_PLAIN_MESSAGES,
        )
        if tokens > limit:
            _log.warning(
                "the view of %r takes %d tokens, the limit is %d: its newest message does not fit, raise token_limit",
                self._session,
                tokens,
                limit,
            )
        return RenderedConversation(messages, tokens)


@dataclass(frozen=True, slots=True)
class _Question:
    query: str | None
    key: object
    """Identity of the question; the same for the whole turn."""
    is_in_conversation: bool
    """True if the query is the newest message of the user."""
    messages_since: Sequence[Message]
    """The question and the messages after it; empty if it must not be added to the view."""

    def keep_in_sight(self, talk: list[Message]) -> list[Message]:
        # After many tool calls, the question may be part of a summary or no longer fit. Insert it before the first
        # message that follows it.
        if not self.messages_since or any(message.id == self.messages_since[0].id for message in talk):
            return talk
        later = {message.id for message in self.messages_since}
        index = next((index for index, message in enumerate(talk) if message.id in later), len(talk))
        return [*talk[:index], self.messages_since[0], *talk[index:]]


def _to_shown_message(message: Message) -> ChatMessage:
    return _protect_message(to_message(message))


def _protect_message(message: ChatMessage) -> ChatMessage:
    for index, block in enumerate(message.blocks):
        safe = map_text(block, protect_placeholders)
        if safe is not block:
            message.blocks[index] = safe
    return message


def _remove_empty(talk: Sequence[ChatMessage]) -> list[ChatMessage]:
    # Providers reject empty messages, such as an answer that was never completed.
    return [message for message in talk if message.blocks or message.additional_kwargs]


def _join_memories(context: MemoryContext) -> str:
    conversation_ids = {*context.full, *context.compressed}
    return "\n".join(
        message.content
        for message in context.messages
        if message.id not in conversation_ids and not message.is_summary
    )
