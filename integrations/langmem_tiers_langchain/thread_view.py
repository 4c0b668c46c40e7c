"""What the model sees of a thread: its messages within a budget, with what memory has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langmem_tiers.common.prompt_fences import fenced, harmless
from langmem_tiers.compression.compressor import Compressor
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.text.token_counting import FRAME_TOKENS, REPLY_TOKENS
from langmem_tiers_langchain.convert import part_tokens
from langmem_tiers_langchain.marks import MARK, is_added
from langmem_tiers_langchain.plain_view import PlainCut
from langmem_tiers_langchain.repair import repaired
from langmem_tiers_langchain.shorten import prefixed, shortened, with_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langmem_tiers import Context, Hit, MemoryEngine, Message
    from langmem_tiers_langchain.budgeting import Allowance, Budgeting
    from langmem_tiers_langchain.record import Thread

NOT_SHOWN = "[Earlier messages are not shown.]"
_NOT_SHOWN_TOKENS = 16
_TRIES = 6
"""Texts that are put together may take a little more than each by itself, and made up results take some room."""
_SHARE = 0.5
"""What may be taken by what has to be in sight although the session does not show it."""
_RECALLED_SHARE = 0.3
_LEAST_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Seen:
    """The messages of a prompt, and what it takes with system prompt and tools, by our counter."""

    messages: list[Any]
    tokens: int
    context: Context | None = None
    """None if nothing was asked of memory."""


class ThreadView:
    """Lays a thread out for one call.

    Args:
        engine: Where memory is.
        sizes: Counts messages.
        allowance: What the call may take.
        messages: The thread, as the call would show it.
    """

    def __init__(
        self, engine: MemoryEngine, sizes: Budgeting, allowance: Allowance, messages: Sequence[BaseMessage]
    ) -> None:
        self._engine = engine
        self._compressor = Compressor(engine.counter)
        self._sizes = sizes
        self._allowance = allowance
        self._said = messages
        asked = [one for one in messages if isinstance(one, HumanMessage)]
        said = (one for one in reversed(asked) if not is_added(one))
        self._question = next(said, asked[-1] if asked else None)

    def with_memory(self, thread: Thread, state: Iterable[BaseMessage], *, recall: bool) -> Seen:
        """The thread with what its session and its namespace remember.

        Args:
            thread: Its record.
            state: Its messages as they are in the state.
            recall: Whether what was said elsewhere comes along.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        known = {one.id: thread.stored[one.id] for one in self._said if one.id and one.id in thread.stored}
        ids = frozenset(known.values())
        seen = self._fitting(thread, known, self._rewritten(thread, state), recall=recall)
        if seen is not None and thread.session.sums_up(ids):
            return seen
        # The summary in force tells of another branch of the conversation too: this one is shown without it.
        return self.plain(self._recalled(thread) if recall else ())

    def plain(self, hits: Sequence[Hit] = ()) -> Seen:
        """The thread without its record: the newest messages that have room, the question, and what was recalled.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        cut = PlainCut(self._said, self._question, self._sizes.size, self._within)
        fixed = self._allowance.system + self._allowance.tools + REPLY_TOKENS
        room = self._allowance.beside(REPLY_TOKENS).available - _NOT_SHOWN_TOKENS
        try:
            messages, is_cut = cut.within(int(room * (1 - _RECALLED_SHARE)) if hits else room)
        except BudgetExceededError:
            messages, is_cut = cut.within(room)
        left = _begun(messages, "") if is_cut else messages
        taken = fixed + sum(self._sizes.size(one) for one in left)
        told = self._told(left, self._told_of(hits, left, self._allowance.whole - taken))
        tokens = fixed + sum(self._sizes.size(one) for one in told)
        return Seen(told, tokens) if tokens <= self._allowance.whole else Seen(left, taken)

    def _fitting(
        self, thread: Thread, known: Mapping[str, str], rewritten: frozenset[str], *, recall: bool
    ) -> Seen | None:
        others = self._in_their_share([one for one in self._said if one.id not in known])
        extra = _NOT_SHOWN_TOKENS + sum(self._sizes.size(one) for one in others.values())
        question = self._question
        asked = None if question is None else known.get(question.id or "")
        query = str(question.text) if question is not None and question.id in rewritten else None
        pinned: BaseMessage | None = None
        for _ in range(_TRIES):
            context = thread.session.build_context(
                query,
                budget=self._allowance.beside(extra + (0 if pinned is None else self._sizes.size(pinned))),
                recall=recall,
                tidy=True,
                only=frozenset(known.values()),
            )
            if pinned is None and asked is not None and all(asked != one.id for one in context.messages):
                # A long run of tools has moved it out of sight.
                assert question is not None  # noqa: S101 - it is known by its id
                pinned = others[id(question)] = self._within(question, self._share)
                query = str(question.text)
                continue
            seen = self._laid_out(context, known, others, rewritten)
            if seen.tokens <= self._allowance.whole:
                return seen
            extra += seen.tokens - self._allowance.whole
        return None

    def _rewritten(self, thread: Thread, state: Iterable[BaseMessage]) -> frozenset[str]:
        # What is shown in other words than the record has, since it was edited or other middleware says so.
        texts = {one.id: one for one in state}
        shown = (one for one in self._said if one.id in texts and one is not texts[one.id])
        return (
            frozenset(one.id or "" for one in shown if one.content != texts[one.id].content) | thread.edited
        )

    def _laid_out(
        self,
        context: Context,
        known: Mapping[str, str],
        others: Mapping[int, BaseMessage],
        rewritten: frozenset[str],
    ) -> Seen:
        shown, short = {message.id: message for message in context.messages}, frozenset(context.compressed)
        messages: list[BaseMessage] = []
        is_newest = False
        for one in self._said:
            is_newest = is_newest or one is self._question
            told = shown.get(known.get(one.id or "", ""))
            if told is None:
                messages += [others[id(one)]] if id(one) in others else []
            elif told.id not in short:
                messages.append(one)
            elif one.id in rewritten:
                messages.append(self._within(one, told.token_count + FRAME_TOKENS))
            else:
                messages.append(shortened(one, told, with_parts=is_newest))
        is_cut = len(messages) < len(self._said)
        ours = frozenset(known.values())
        beside = [message for message in context.messages if message.id not in ours]
        summary = [harmless(message.content) for message in beside if message.is_summary]
        memories = "\n".join(message.content for message in beside if not message.is_summary)
        whole = self._told(repaired(messages), memories)
        if summary or is_cut:
            whole = _begun(whole, fenced(summary) if summary else "")
        return Seen(whole, self._tokens(whole, known, shown), context)

    def _told(self, messages: list[BaseMessage], memories: str) -> list[BaseMessage]:
        # In front of the question: all before it stays as it was in the turn before, which providers cache.
        if not memories:
            return messages
        asked = self._question.id if self._question is not None else None
        place = next((n for n, one in enumerate(messages) if asked is not None and one.id == asked), None)
        if place is None:
            return _begun(messages, memories)
        return [*messages[:place], prefixed(messages[place], memories), *messages[place + 1 :]]

    def _recalled(self, thread: Thread) -> Sequence[Hit]:
        asked = "" if self._question is None else str(self._question.text)
        if not asked.strip():
            return ()
        found = self._engine.namespace(thread.session.namespace).recall(asked)
        least = self._engine.config.recall.relevance_threshold
        return [hit for hit in found if hit.relevance >= least]

    def _told_of(self, hits: Sequence[Hit], messages: Sequence[BaseMessage], room: int) -> str:
        seen, lines = {str(one.text) for one in (*messages, *self._said[-1:])}, list[str]()
        seen.add("" if self._question is None else str(self._question.text))
        for hit in hits:
            entry = hit.entry
            line = harmless(f"{entry.role or entry.kind}: {' '.join(entry.content.split())}")
            told = fenced([*lines, line])
            if entry.content not in seen and self._engine.counter.count(told) + FRAME_TOKENS <= room:
                lines.append(line)
        return fenced(lines) if lines else ""

    def _in_their_share(self, others: Sequence[BaseMessage]) -> dict[int, BaseMessage]:
        # What is no part of the record is always in sight, such as the summary of another middleware.
        share = self._share
        if sum(self._sizes.size(one) for one in others) <= share:
            return {id(one): one for one in others}
        return {id(one): self._within(one, share // len(others)) for one in others}

    def _within(self, message: BaseMessage, room: int) -> BaseMessage:
        """The message within so many tokens, as far as that can be; pictures stay if they leave room for words."""
        if self._sizes.size(message) <= room:
            return message
        parts = part_tokens(message)
        with_parts = parts + _LEAST_TOKENS <= room
        words = room - 2 * FRAME_TOKENS - (parts if with_parts else 0)
        text = self._compressor.compress(str(message.text), max_tokens=max(1, words)).text
        return with_text(message, text, with_parts=with_parts)

    @property
    def _share(self) -> int:
        return int(self._allowance.beside(0).available * _SHARE)

    def _tokens(
        self, messages: Sequence[BaseMessage], known: Mapping[str, str], shown: Mapping[str, Message]
    ) -> int:
        tokens = self._allowance.system + self._allowance.tools + REPLY_TOKENS
        for one in messages:
            told = shown.get(known.get(one.id or "", ""))
            if told is not None and one.content == told.content:
                tokens += told.token_count + FRAME_TOKENS
            else:
                tokens += self._sizes.size(one)
        return tokens


def _begun(messages: list[BaseMessage], text: str) -> list[BaseMessage]:
    """With a text before everything, in the first message if a person says that; else in one of its own.

    A list that begins with an answer is refused by some providers, so there is always something before it.
    """
    place = next((n for n, one in enumerate(messages) if not isinstance(one, SystemMessage)), len(messages))
    if place < len(messages) and isinstance(messages[place], HumanMessage):
        if not text:
            return messages
        return [*messages[:place], prefixed(messages[place], text), *messages[place + 1 :]]
    opening = HumanMessage(text or NOT_SHOWN, additional_kwargs=dict(MARK))
    return [*messages[:place], opening, *messages[place:]]
