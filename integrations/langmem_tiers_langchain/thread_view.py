"""What the model sees of a thread: its messages within a budget, with what memory has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_tiers.compression.compress import Compressor
from langmem_tiers.core.errors import BudgetExceededError
from langmem_tiers.scoring.tokens.lists import FRAME_TOKENS, REPLY_TOKENS
from langmem_tiers_langchain.marks import MARK, is_added
from langmem_tiers_langchain.repair import repaired
from langmem_tiers_langchain.shorten import prefixed, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers import Context, MemoryEngine, Message
    from langmem_tiers_langchain.budgeting import Allowance, Budgeting
    from langmem_tiers_langchain.record import Thread

NOT_SHOWN = "[Earlier messages are not shown.]"
_NOT_SHOWN_TOKENS = 16
_TRIES = 6
"""Texts that are put together may take a little more than each by itself, and made up results take some room."""
_SHARE = 0.5
"""What may be taken by what has to be in sight although the session does not show it."""


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
        self._compressor = Compressor(engine.counter)
        self._sizes = sizes
        self._allowance = allowance
        self._said = messages
        asked = [one for one in messages if isinstance(one, HumanMessage)]
        self._question = next(
            (one for one in reversed(asked) if not is_added(one)), asked[-1] if asked else None
        )

    def with_memory(self, thread: Thread, *, recall: bool) -> Seen:
        """The thread with what its session and its namespace remember.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        known = {one.id: thread.stored[one.id] for one in self._said if one.id and one.id in thread.stored}
        others = self._in_their_share([one for one in self._said if one.id not in known])
        extra = _NOT_SHOWN_TOKENS + sum(self._sizes.size(one) for one in others.values())
        asked = None if self._question is None else known.get(self._question.id or "")
        pinned: BaseMessage | None = None
        for _ in range(_TRIES):
            context = thread.session.build_context(
                None if pinned is None else str(pinned.text),
                budget=self._allowance.beside(extra + (0 if pinned is None else self._sizes.size(pinned))),
                recall=recall,
                tidy=True,
                only=frozenset(known.values()),
            )
            if pinned is None and asked is not None and all(asked != one.id for one in context.messages):
                pinned = self._in_share(self._question)  # a long run of tools has moved it out of sight
                continue
            seen = self._laid_out(
                context, known, others if pinned is None else {**others, id(self._question): pinned}
            )
            if seen.tokens <= self._allowance.whole:
                return seen
            extra += seen.tokens - self._allowance.whole
        return self.plain()

    def plain(self) -> Seen:
        """The thread without memory: the newest messages that have room, and the question.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        groups = _groups(repaired(self._said))
        sizes = [sum(self._sizes.size(message) for message in group) for group in groups]
        fixed = self._allowance.system + self._allowance.tools + REPLY_TOKENS
        room = self._allowance.whole - fixed - _NOT_SHOWN_TOKENS
        chosen, newest = set[int](), len(groups) - 1
        asked = next((n for n, group in enumerate(groups) if group[0] is self._question), newest)
        leading = [n for n, group in enumerate(groups[:1]) if isinstance(group[0], SystemMessage)]
        for n in (newest, asked, *leading):
            if n >= 0 and n not in chosen and sizes[n] <= room:
                chosen.add(n)
                room -= sizes[n]
        if groups and newest not in chosen:
            raise BudgetExceededError(
                f"the newest message takes {sizes[newest]} tokens where {room} are left: raise the budget"
            )
        for n in reversed(range(newest)):
            if n not in chosen:
                if sizes[n] > room:
                    break
                chosen.add(n)
                room -= sizes[n]
        left = [message for n in sorted(chosen) for message in groups[n]]
        if len(chosen) < len(groups):
            left = _begun(left, "")
        return Seen(left, fixed + sum(self._sizes.size(message) for message in left))

    def _laid_out(
        self, context: Context, known: Mapping[str, str], others: Mapping[int, BaseMessage]
    ) -> Seen:
        shown = {message.id: message for message in context.messages}
        short = frozenset(context.compressed)
        messages: list[BaseMessage] = []
        for one in self._said:
            told = shown.get(known.get(one.id or "", ""))
            if told is not None:
                messages.append(shortened(one, told) if told.id in short else one)
            elif id(one) in others:
                messages.append(others[id(one)])
        ours = frozenset(known.values())
        beside = [message for message in context.messages if message.id not in ours]
        summary = "".join(message.content for message in beside if message.is_summary)
        memories = "\n".join(message.content for message in beside if not message.is_summary)
        messages = self._told(repaired(messages), memories)
        is_cut = len(messages) < len(self._said)
        whole = _begun(messages, summary) if summary or is_cut else messages
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

    def _in_their_share(self, others: Sequence[BaseMessage]) -> dict[int, BaseMessage]:
        # What is no part of the record is always in sight, such as the summary of another middleware.
        sizes = [self._sizes.size(one) for one in others]
        if sum(sizes) <= self._share:
            return {id(one): one for one in others}
        return {id(one): self._in_share(one, len(others)) for one in others}

    def _in_share(self, message: BaseMessage | None, of: int = 1) -> Any:  # noqa: ANN401 - as it came
        room = self._share // of
        if message is None or self._sizes.size(message) <= room:
            return message
        text = self._compressor.compress(str(message.text), max_tokens=max(1, room - 2 * FRAME_TOKENS)).text
        return message.model_copy(update={"content": text})

    @property
    def _share(self) -> int:
        return int(self._allowance.beside(0).available * _SHARE)

    def _tokens(
        self, messages: Sequence[BaseMessage], known: Mapping[str, str], shown: Mapping[str, Message]
    ) -> int:
        tokens = self._allowance.system + self._allowance.tools + REPLY_TOKENS
        for one in messages:
            told = shown.get(known.get(one.id or "", ""))
            is_counted = told is not None and (one.content == told.content)
            tokens += (
                told.token_count + FRAME_TOKENS if told is not None and is_counted else self._sizes.size(one)
            )
        return tokens


def _groups(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    # Repaired, so results stand right behind their calls.
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


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
