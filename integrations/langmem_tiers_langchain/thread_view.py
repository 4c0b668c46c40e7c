"""What the model sees of a thread: its messages within a budget, with what memory has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_tiers.common.prompt_fences import neutralize_fence_tags, wrap_in_fence
from langmem_tiers.compression.compressor import Compressor
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.text.token_counting import FRAME_TOKENS, REPLY_TOKENS
from langmem_tiers_langchain.convert import part_tokens
from langmem_tiers_langchain.message_edits import prepend_text, replace_text, shorten_message
from langmem_tiers_langchain.message_source import SOURCE_METADATA, is_added_by_middleware
from langmem_tiers_langchain.repair import repair_tool_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langmem_tiers import Context, Hit, MemoryEngine, Message
    from langmem_tiers_langchain.prompt_budget import PromptAllowance, PromptBudgeter
    from langmem_tiers_langchain.recorder import ThreadRecord


_QUESTION_DIVISOR = 4
"""Of the room, one part in so many is the question's if it needs that."""


class ThreadTrimmer:
    """Chooses what of a thread is shown.

    Args:
        said: The thread.
        question: What of it has to stay in sight.
        size: What a message takes.
        shortened: A message within so many tokens, as far as that can be.
    """

    def __init__(
        self,
        said: Sequence[BaseMessage],
        question: BaseMessage | None,
        size: Callable[[BaseMessage], int],
        shortened: Callable[[BaseMessage, int], BaseMessage],
    ) -> None:
        self._groups = _group_messages(repair_tool_calls(said))
        self._count_tokens = size
        self._shorten = shortened
        asked = [n for n, group in enumerate(self._groups) if group[0] is question]
        self._question_index = asked[0] if asked else len(self._groups) - 1

    def trim(self, room: int) -> tuple[list[BaseMessage], bool]:
        """What has room, and whether anything was left out.

        Raises:
            BudgetExceededError: Not even the newest message and the question fit.
        """
        groups, newest, chosen = list(self._groups), len(self._groups) - 1, dict[int, list[BaseMessage]]()
        if groups:
            groups[newest] = self._fit_beside_question(groups[newest], room)
        sizes = [sum(map(self._count_tokens, group)) for group in groups]
        if groups and sizes[newest] > room:
            raise BudgetExceededError(
                f"the newest message takes {sizes[newest]} tokens where {room} are left: raise the budget"
            )
        if groups:
            chosen[newest] = groups[newest]
            room -= sizes[newest]
        if groups and self._question_index not in chosen:
            question = self._shorten(groups[self._question_index][0], room)
            if self._count_tokens(question) > room:
                raise BudgetExceededError(
                    f"the newest messages leave {room} tokens for the question, in its fewest words "
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
                break
            chosen[n] = groups[n]
            room -= sizes[n]
        return [message for n in sorted(chosen) for message in chosen[n]], len(chosen) < len(groups)

    def _fit_beside_question(self, group: list[BaseMessage], room: int) -> list[BaseMessage]:
        # The results of tools make room for the question that they are to answer.
        asked = self._groups[self._question_index][0]
        left = room if asked in group else room - min(self._count_tokens(asked), room // _QUESTION_DIVISOR)
        if sum(map(self._count_tokens, group)) <= left:
            return group
        results = [one for one in group if isinstance(one, ToolMessage)]
        left -= sum(self._count_tokens(one) for one in group if one not in results)
        return [self._shorten(one, left // len(results)) if one in results else one for one in group]


def _group_messages(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    # Repaired, so results stand right behind their calls.
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


OMITTED_NOTE = "[Earlier messages are not shown.]"
_OMITTED_NOTE_TOKENS = 16
_MAX_TRIES = 6
"""Texts that are put together may take a little more than each by itself, and made up results take some room."""
_UNRECORDED_SHARE = 0.5
"""What may be taken by what has to be in sight although the session does not show it."""
_RECALLED_SHARE = 0.3
_MIN_TEXT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class RenderedThread:
    """The messages of a prompt, and what it takes with system prompt and tools, by our counter."""

    messages: list[Any]
    tokens: int
    context: Context | None = None
    """None if nothing was asked of memory."""


class ThreadRenderer:
    """Lays a thread out for one call.

    Args:
        engine: Where memory is.
        sizes: Counts messages.
        allowance: What the call may take.
        messages: The thread, as the call would show it.
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
        asked = [one for one in messages if isinstance(one, HumanMessage)]
        said = (one for one in reversed(asked) if not is_added_by_middleware(one))
        self._question = next(said, asked[-1] if asked else None)

    def render_with_memory(
        self, thread: ThreadRecord, state: Iterable[BaseMessage], *, recall: bool
    ) -> RenderedThread:
        """The thread with what its session and its namespace remember.

        Args:
            thread: Its record.
            state: Its messages as they are in the state.
            recall: Whether what was said elsewhere comes along.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        known = {
            one.id: thread.stored_ids[one.id]
            for one in self._messages
            if one.id and one.id in thread.stored_ids
        }
        ids = frozenset(known.values())
        seen = self._fit_to_budget(thread, known, self._find_rewritten_ids(thread, state), recall=recall)
        if seen is not None and thread.session.has_summary_of(ids):
            return seen
        # The summary in force tells of another branch of the conversation too: this one is shown without it.
        return self.render_plain(self._recall_hits(thread) if recall else ())

    def render_plain(self, hits: Sequence[Hit] = ()) -> RenderedThread:
        """The thread without its record: the newest messages that have room, the question, and what was recalled.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        cut = ThreadTrimmer(self._messages, self._question, self._budgeter.count_tokens, self._shorten_to_fit)
        fixed = self._allowance.system_tokens + self._allowance.tool_tokens + REPLY_TOKENS
        room = self._allowance.conversation_budget(REPLY_TOKENS).available - _OMITTED_NOTE_TOKENS
        try:
            messages, is_cut = cut.trim(int(room * (1 - _RECALLED_SHARE)) if hits else room)
        except BudgetExceededError:
            messages, is_cut = cut.trim(room)
        left = _prepend_opening(messages, "") if is_cut else messages
        taken = fixed + sum(self._budgeter.count_tokens(one) for one in left)
        told = self._insert_memories(
            left, self._render_hits(hits, left, self._allowance.total_tokens - taken)
        )
        tokens = fixed + sum(self._budgeter.count_tokens(one) for one in told)
        return (
            RenderedThread(told, tokens)
            if tokens <= self._allowance.total_tokens
            else RenderedThread(left, taken)
        )

    def _fit_to_budget(
        self, thread: ThreadRecord, known: Mapping[str, str], rewritten: frozenset[str], *, recall: bool
    ) -> RenderedThread | None:
        others = self._limit_to_share([one for one in self._messages if one.id not in known])
        extra = _OMITTED_NOTE_TOKENS + sum(self._budgeter.count_tokens(one) for one in others.values())
        question = self._question
        asked = None if question is None else known.get(question.id or "")
        query = str(question.text) if question is not None and question.id in rewritten else None
        pinned: BaseMessage | None = None
        for _ in range(_MAX_TRIES):
            context = thread.session.build_context(
                query,
                budget=self._allowance.conversation_budget(
                    extra + (0 if pinned is None else self._budgeter.count_tokens(pinned))
                ),
                recall=recall,
                tidy=True,
                only=frozenset(known.values()),
            )
            if pinned is None and asked is not None and all(asked != one.id for one in context.messages):
                # A long run of tools has moved it out of sight.
                assert question is not None  # noqa: S101 - it is known by its id
                pinned = others[id(question)] = self._shorten_to_fit(question, self._unrecorded_limit)
                query = str(question.text)
                continue
            seen = self._lay_out(context, known, others, rewritten)
            if seen.tokens <= self._allowance.total_tokens:
                return seen
            extra += seen.tokens - self._allowance.total_tokens
        return None

    def _find_rewritten_ids(self, thread: ThreadRecord, state: Iterable[BaseMessage]) -> frozenset[str]:
        # What is shown in other words than the record has, since it was edited or other middleware says so.
        texts = {one.id: one for one in state}
        shown = (one for one in self._messages if one.id in texts and one is not texts[one.id])
        return (
            frozenset(one.id or "" for one in shown if one.content != texts[one.id].content)
            | thread.edited_ids
        )

    def _lay_out(
        self,
        context: Context,
        known: Mapping[str, str],
        others: Mapping[int, BaseMessage],
        rewritten: frozenset[str],
    ) -> RenderedThread:
        shown, short = {message.id: message for message in context.messages}, frozenset(context.compressed)
        messages: list[BaseMessage] = []
        is_newest = False
        for one in self._messages:
            is_newest = is_newest or one is self._question
            told = shown.get(known.get(one.id or "", ""))
            if told is None:
                messages += [others[id(one)]] if id(one) in others else []
            elif told.id not in short:
                messages.append(one)
            elif one.id in rewritten:
                messages.append(self._shorten_to_fit(one, told.token_count + FRAME_TOKENS))
            else:
                messages.append(shorten_message(one, told, with_parts=is_newest))
        is_cut = len(messages) < len(self._messages)
        ours = frozenset(known.values())
        beside = [message for message in context.messages if message.id not in ours]
        summary = [neutralize_fence_tags(message.content) for message in beside if message.is_summary]
        memories = "\n".join(message.content for message in beside if not message.is_summary)
        whole = self._insert_memories(repair_tool_calls(messages), memories)
        if summary or is_cut:
            whole = _prepend_opening(whole, wrap_in_fence(summary) if summary else "")
        return RenderedThread(whole, self._count_tokens(whole, known, shown), context)

    def _insert_memories(self, messages: list[BaseMessage], memories: str) -> list[BaseMessage]:
        # In front of the question: all before it stays as it was in the turn before, which providers cache.
        if not memories:
            return messages
        asked = self._question.id if self._question is not None else None
        place = next((n for n, one in enumerate(messages) if asked is not None and one.id == asked), None)
        if place is None:
            return _prepend_opening(messages, memories)
        return [*messages[:place], prepend_text(messages[place], memories), *messages[place + 1 :]]

    def _recall_hits(self, thread: ThreadRecord) -> Sequence[Hit]:
        asked = "" if self._question is None else str(self._question.text)
        if not asked.strip():
            return ()
        found = self._engine.namespace(thread.session.namespace).recall(asked)
        least = self._engine.config.recall.relevance_threshold
        return [hit for hit in found if hit.relevance >= least]

    def _render_hits(self, hits: Sequence[Hit], messages: Sequence[BaseMessage], room: int) -> str:
        seen, lines = {str(one.text) for one in (*messages, *self._messages[-1:])}, list[str]()
        seen.add("" if self._question is None else str(self._question.text))
        for hit in hits:
            entry = hit.entry
            line = neutralize_fence_tags(f"{entry.role or entry.kind}: {' '.join(entry.content.split())}")
            told = wrap_in_fence([*lines, line])
            if entry.content not in seen and self._engine.counter.count(told) + FRAME_TOKENS <= room:
                lines.append(line)
        return wrap_in_fence(lines) if lines else ""

    def _limit_to_share(self, others: Sequence[BaseMessage]) -> dict[int, BaseMessage]:
        # What is no part of the record is always in sight, such as the summary of another middleware.
        share = self._unrecorded_limit
        if sum(self._budgeter.count_tokens(one) for one in others) <= share:
            return {id(one): one for one in others}
        return {id(one): self._shorten_to_fit(one, share // len(others)) for one in others}

    def _shorten_to_fit(self, message: BaseMessage, room: int) -> BaseMessage:
        """The message within so many tokens, as far as that can be; pictures stay if they leave room for words."""
        if self._budgeter.count_tokens(message) <= room:
            return message
        parts = part_tokens(message)
        with_parts = parts + _MIN_TEXT_TOKENS <= room
        words = room - 2 * FRAME_TOKENS - (parts if with_parts else 0)
        text = self._compressor.compress(str(message.text), max_tokens=max(1, words)).text
        return replace_text(message, text, with_parts=with_parts)

    @property
    def _unrecorded_limit(self) -> int:
        return int(self._allowance.conversation_budget(0).available * _UNRECORDED_SHARE)

    def _count_tokens(
        self, messages: Sequence[BaseMessage], known: Mapping[str, str], shown: Mapping[str, Message]
    ) -> int:
        tokens = self._allowance.system_tokens + self._allowance.tool_tokens + REPLY_TOKENS
        for one in messages:
            told = shown.get(known.get(one.id or "", ""))
            if told is not None and one.content == told.content:
                tokens += told.token_count + FRAME_TOKENS
            else:
                tokens += self._budgeter.count_tokens(one)
        return tokens


def _prepend_opening(messages: list[BaseMessage], text: str) -> list[BaseMessage]:
    """With a text before everything, in the first message if a person says that; else in one of its own.

    A list that begins with an answer is refused by some providers, so there is always something before it.
    """
    place = next((n for n, one in enumerate(messages) if not isinstance(one, SystemMessage)), len(messages))
    if place < len(messages) and isinstance(messages[place], HumanMessage):
        if not text:
            return messages
        return [*messages[:place], prepend_text(messages[place], text), *messages[place + 1 :]]
    opening = HumanMessage(text or OMITTED_NOTE, additional_kwargs=dict(SOURCE_METADATA))
    return [*messages[:place], opening, *messages[place:]]
