"""Model view of a thread: its messages within a token budget, with summary and recalled memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_tiers import BudgetExceededError, Compressor
from langmem_tiers.integration_kit import FRAME_TOKENS, REPLY_TOKENS, neutralize_fence_tags, wrap_in_fence
from langmem_tiers_langchain.convert import SOURCE_METADATA, is_added_by_middleware, part_tokens
from langmem_tiers_langchain.message_edits import prepend_text, replace_text, shorten_message
from langmem_tiers_langchain.tool_call_repair import repair_tool_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langmem_tiers import Hit, MemoryContext, MemoryEngine, Message
    from langmem_tiers_langchain.prompt_budget import PromptAllowance, PromptBudgeter
    from langmem_tiers_langchain.recorder import ThreadRecord


_QUESTION_DIVISOR = 4
"""The question may use up to 1/4 of the available tokens."""


class ThreadTrimmer:
    """Selects the messages of a thread that fit a budget.

    Args:
        said: Messages of the thread.
        question: Message that must be kept; the newest message if it is not part of the thread.
        size: Function that returns the tokens of a message.
        shortened: Function that shortens a message to a number of tokens, as far as possible.
    """

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        question: BaseMessage | None,
        size: Callable[[BaseMessage], int],
        shortened: Callable[[BaseMessage, int], BaseMessage],
    ) -> None:
        self._groups = _group_messages(repair_tool_calls(messages))
        self._count_tokens = size
        self._shorten = shortened
        question_indexes = [n for n, group in enumerate(self._groups) if group[0] is question]
        self._question_index = question_indexes[0] if question_indexes else len(self._groups) - 1

    def trim(self, room: int) -> tuple[list[BaseMessage], bool]:
        """Return the messages that fit, and True if any message was left out.

        The newest group and the question come first, then a leading system message, then the other groups from
        new to old until one does not fit.

        Raises:
            BudgetExceededError: Not even the newest message and the question fit.
        """
        groups, newest, chosen = list(self._groups), len(self._groups) - 1, dict[int, list[BaseMessage]]()
        if groups:
            groups[newest] = self._fit_beside_question(groups[newest], room)
        sizes = [sum(map(self._count_tokens, group)) for group in groups]
        if groups and sizes[newest] > room:
            raise BudgetExceededError(
                f"the newest message takes {sizes[newest]} tokens, but only {room} are left: raise the budget"
            )
        if groups:
            chosen[newest] = groups[newest]
            room -= sizes[newest]
        if groups and self._question_index not in chosen:
            question = self._shorten(groups[self._question_index][0], room)
            if self._count_tokens(question) > room:
                raise BudgetExceededError(
                    f"the newest messages leave {room} tokens for the question, which takes at least "
                    f"{self._count_tokens(question)}: raise the budget"
                )
            chosen[self._question_index] = [question]
            room -= self._count_tokens(question)
        leading = [n for n, group in enumerate(groups[:1]) if isinstance(group[0], SystemMessage)]
        older = (n for n in reversed(range(newest)) if n not in leading)
        for n in [*leading, *older]:
            if n in chosen:
                continue
            if sizes[n] > room:
                break  # smaller ones before it would leave a gap in the conversation
            chosen[n] = groups[n]
            room -= sizes[n]
        return [message for n in sorted(chosen) for message in chosen[n]], len(chosen) < len(groups)

    def _fit_beside_question(self, group: list[BaseMessage], room: int) -> list[BaseMessage]:
        # Shorten tool results so that the question which they answer fits as well.
        question = self._groups[self._question_index][0]
        left = room
        if question not in group:
            left -= min(self._count_tokens(question), room // _QUESTION_DIVISOR)
        if sum(map(self._count_tokens, group)) <= left:
            return group
        results = [message for message in group if isinstance(message, ToolMessage)]
        left -= sum(self._count_tokens(message) for message in group if message not in results)
        return [
            self._shorten(message, left // len(results)) if message in results else message
            for message in group
        ]


def _group_messages(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    # A call and its results form one group, because providers reject one without the other. The messages were
    # repaired, so results directly follow their calls.
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


OMITTED_NOTE = "[Earlier messages are not shown.]"
_OMITTED_NOTE_TOKENS = 16
_MAX_ATTEMPTS = 6
"""Attempts to fit the budget: joined texts and placeholder results may take more tokens than estimated."""
_UNRECORDED_SHARE = 0.5
"""Maximum share of the conversation budget for messages that are required but not stored in the session."""
_RECALLED_SHARE = 0.3
"""Share of the tokens reserved for recalled memories in a view without the session's context."""
_MIN_TEXT_TOKENS = 16
"""Minimum number of tokens left for text if images and other parts are kept."""


@dataclass(frozen=True, slots=True)
class RenderedThread:
    """Messages of a prompt with their total tokens."""

    messages: list[Any]
    tokens: int
    """Tokens including system prompt and tools, by the engine's counter."""
    context: MemoryContext | None = None
    """Context that was used; None if the view was built without memory."""


class ThreadRenderer:
    """Builds the view of a thread for one model call.

    Args:
        engine: Memory engine.
        sizes: Token counts of messages.
        allowance: Token budget of the call.
        messages: Messages of the model request, possibly rewritten by other middleware.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        sizes: PromptBudgeter,
        allowance: PromptAllowance,
        messages: Sequence[BaseMessage],
    ) -> None:
        self._engine = engine
        self._compressor = Compressor(engine.counter)
        self._budgeter = sizes
        self._allowance = allowance
        self._messages = messages
        # The question is the newest message of the user; one that a middleware added counts only if there is no
        # other.
        human = [message for message in messages if isinstance(message, HumanMessage)]
        from_user = (message for message in reversed(human) if not is_added_by_middleware(message))
        self._question = next(from_user, human[-1] if human else None)

    def render_with_memory(
        self, thread: ThreadRecord, state: Iterable[BaseMessage], *, recall: bool
    ) -> RenderedThread:
        """Return the view with the summary of the session and recalled memories.

        Args:
            thread: Record of the thread.
            state: Messages of the agent's state.
            recall: True to include memories from other sessions.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        stored_ids = {
            message.id: thread.stored_ids[message.id]
            for message in self._messages
            if message.id and message.id in thread.stored_ids
        }
        view = self._fit_to_budget(thread, stored_ids, self._find_rewritten_ids(thread, state), recall=recall)
        if view is not None and thread.session.has_summary_of(frozenset(stored_ids.values())):
            return view
        # The active summary also covers messages of another branch of the conversation, so it is not shown here.
        return self.render_plain(self._recall_hits(thread) if recall else ())

    def render_plain(self, hits: Sequence[Hit] = ()) -> RenderedThread:
        """Return the view without the session: the newest messages that fit, the question, and recalled memories.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        cut = ThreadTrimmer(self._messages, self._question, self._budgeter.count_tokens, self._shorten_to_fit)
        fixed = self._allowance.system_tokens + self._allowance.tool_tokens + REPLY_TOKENS
        room = self._allowance.conversation_budget(REPLY_TOKENS).available - _OMITTED_NOTE_TOKENS
        try:
            messages, is_cut = cut.trim(int(room * (1 - _RECALLED_SHARE)) if hits else room)
        except BudgetExceededError:
            messages, is_cut = cut.trim(room)  # the conversation takes precedence over recalled memories
        plain = _prepend_opening(messages, "") if is_cut else messages
        plain_tokens = fixed + sum(map(self._budgeter.count_tokens, plain))
        with_memories = self._insert_memories(
            plain, self._render_hits(hits, plain, self._allowance.total_tokens - plain_tokens)
        )
        tokens = fixed + sum(map(self._budgeter.count_tokens, with_memories))
        return (
            RenderedThread(with_memories, tokens)
            if tokens <= self._allowance.total_tokens
            else RenderedThread(plain, plain_tokens)
        )

    def _fit_to_budget(
        self, thread: ThreadRecord, stored_ids: Mapping[str, str], rewritten: frozenset[str], *, recall: bool
    ) -> RenderedThread | None:
        unrecorded = self._limit_to_share(
            [message for message in self._messages if message.id not in stored_ids]
        )
        extra = _OMITTED_NOTE_TOKENS + sum(map(self._budgeter.count_tokens, unrecorded.values()))
        question = self._question
        question_id = None if question is None else stored_ids.get(question.id or "")
        # The session has the original text of a rewritten question, so the text of the request is the query.
        query = str(question.text) if question is not None and question.id in rewritten else None
        pinned: BaseMessage | None = None
        for _ in range(_MAX_ATTEMPTS):
            context = thread.session.build_context(
                query,
                budget=self._allowance.conversation_budget(
                    extra + (0 if pinned is None else self._budgeter.count_tokens(pinned))
                ),
                recall=recall,
                tidy=True,
                only=frozenset(stored_ids.values()),
            )
            if (
                pinned is None
                and question_id is not None
                and all(question_id != message.id for message in context.messages)
            ):
                # Many tool calls moved the question out of the context: add it back and rebuild with less budget.
                assert question is not None  # noqa: S101 - question_id is set only if there is a question
                pinned = unrecorded[id(question)] = self._shorten_to_fit(question, self._unrecorded_limit)
                query = str(question.text)
                continue
            view = self._lay_out(context, stored_ids, unrecorded, rewritten)
            if view.tokens <= self._allowance.total_tokens:
                return view
            extra += view.tokens - self._allowance.total_tokens
        return None

    def _find_rewritten_ids(self, thread: ThreadRecord, state: Iterable[BaseMessage]) -> frozenset[str]:
        # Messages whose content differs from the session: edited ones, and those that other middleware rewrote.
        originals = {message.id: message for message in state}
        replaced = (
            message
            for message in self._messages
            if message.id in originals and message is not originals[message.id]
        )
        return (
            frozenset(
                message.id or "" for message in replaced if message.content != originals[message.id].content
            )
            | thread.edited_ids
        )

    def _lay_out(
        self,
        context: MemoryContext,
        stored_ids: Mapping[str, str],
        unrecorded: Mapping[int, BaseMessage],
        rewritten: frozenset[str],
    ) -> RenderedThread:
        shown, compressed = (
            {message.id: message for message in context.messages},
            frozenset(context.compressed),
        )
        messages: list[BaseMessage] = []
        is_newest = False  # True from the question on: images of the current turn are kept
        for message in self._messages:
            is_newest = is_newest or message is self._question
            stored = shown.get(stored_ids.get(message.id or "", ""))
            if stored is None:
                # Either required although it is not part of the context, or left out by the context.
                messages += [unrecorded[id(message)]] if id(message) in unrecorded else []
            elif stored.id not in compressed:
                messages.append(message)
            elif message.id in rewritten:
                # The stored text is outdated: compress the text of the request instead.
                messages.append(self._shorten_to_fit(message, stored.token_count + FRAME_TOKENS))
            else:
                messages.append(shorten_message(message, stored, with_parts=is_newest))
        is_cut = len(messages) < len(self._messages)
        conversation_ids = frozenset(stored_ids.values())
        injected = [message for message in context.messages if message.id not in conversation_ids]
        summary = [neutralize_fence_tags(message.content) for message in injected if message.is_summary]
        memories = "\n".join(message.content for message in injected if not message.is_summary)
        view = self._insert_memories(repair_tool_calls(messages), memories)
        if summary or is_cut:
            view = _prepend_opening(view, wrap_in_fence(summary) if summary else "")
        return RenderedThread(view, self._count_tokens(view, stored_ids, shown), context)

    def _insert_memories(self, messages: list[BaseMessage], memories: str) -> list[BaseMessage]:
        # Insert before the question: earlier messages stay the same as in the last turn, so that prompt caches of
        # providers remain valid.
        if not memories:
            return messages
        question_id = self._question.id if self._question is not None else None
        index = next(
            (
                n
                for n, message in enumerate(messages)
                if question_id is not None and message.id == question_id
            ),
            None,
        )
        if index is None:
            return _prepend_opening(messages, memories)
        return [*messages[:index], prepend_text(messages[index], memories), *messages[index + 1 :]]

    def _recall_hits(self, thread: ThreadRecord) -> Sequence[Hit]:
        query = "" if self._question is None else str(self._question.text)
        if not query.strip():
            return ()
        hits = self._engine.namespace(thread.session.namespace).recall(query)
        threshold = self._engine.config.recall.relevance_threshold
        return [hit for hit in hits if hit.relevance >= threshold]

    def _render_hits(self, hits: Sequence[Hit], messages: Sequence[BaseMessage], room: int) -> str:
        # Skip memories that the model sees as messages anyway.
        visible = {str(message.text) for message in (*messages, *self._messages[-1:])}
        visible.add("" if self._question is None else str(self._question.text))
        lines: list[str] = []
        for hit in hits:
            entry = hit.entry
            line = neutralize_fence_tags(f"{entry.role or entry.kind}: {' '.join(entry.content.split())}")
            text = wrap_in_fence([*lines, line])
            if entry.content not in visible and self._engine.counter.count(text) + FRAME_TOKENS <= room:
                lines.append(line)
        return wrap_in_fence(lines) if lines else ""

    def _limit_to_share(self, unrecorded: Sequence[BaseMessage]) -> dict[int, BaseMessage]:
        # Messages that are not stored are always shown, such as the summary of another middleware. If they exceed
        # their share, each is shortened to an equal part of it.
        limit = self._unrecorded_limit
        if sum(map(self._budgeter.count_tokens, unrecorded)) <= limit:
            return {id(message): message for message in unrecorded}
        return {
            id(message): self._shorten_to_fit(message, limit // len(unrecorded)) for message in unrecorded
        }

    def _shorten_to_fit(self, message: BaseMessage, room: int) -> BaseMessage:
        """Shorten a message to ``room`` tokens as far as possible; images are kept if text still fits."""
        if self._budgeter.count_tokens(message) <= room:
            return message
        parts = part_tokens(message)
        with_parts = parts + _MIN_TEXT_TOKENS <= room
        text_tokens = room - 2 * FRAME_TOKENS - (parts if with_parts else 0)
        text = self._compressor.compress(str(message.text), max_tokens=max(1, text_tokens)).text
        return replace_text(message, text, with_parts=with_parts)

    @property
    def _unrecorded_limit(self) -> int:
        return int(self._allowance.conversation_budget(0).available * _UNRECORDED_SHARE)

    def _count_tokens(
        self, messages: Sequence[BaseMessage], stored_ids: Mapping[str, str], shown: Mapping[str, Message]
    ) -> int:
        tokens = self._allowance.system_tokens + self._allowance.tool_tokens + REPLY_TOKENS
        for message in messages:
            stored = shown.get(stored_ids.get(message.id or "", ""))
            if stored is not None and message.content == stored.content:
                tokens += stored.token_count + FRAME_TOKENS  # counted when it was stored
            else:
                tokens += self._budgeter.count_tokens(message)
        return tokens


def _prepend_opening(messages: list[BaseMessage], text: str) -> list[BaseMessage]:
    """Put a text before the conversation: in a leading user message, or else in a new message.

    Some providers reject a conversation that begins with an answer of the model. If the first message is not from
    the user, a message is always inserted, with ``OMITTED_NOTE`` if the text is empty.
    """
    index = next(
        (n for n, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages)
    )
    if index < len(messages) and isinstance(messages[index], HumanMessage):
        if not text:
            return messages
        return [*messages[:index], prepend_text(messages[index], text), *messages[index + 1 :]]
    opening = HumanMessage(text or OMITTED_NOTE, additional_kwargs=dict(SOURCE_METADATA))
    return [*messages[:index], opening, *messages[index:]]
