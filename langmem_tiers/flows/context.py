"""Building a context: what goes to the model, never more than the budget allows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.core.context import Context
from langmem_tiers.core.errors import BudgetExceededError
from langmem_tiers.core.groups import groups_of, without_orphans
from langmem_tiers.flows.standing import Standing, window_within
from langmem_tiers.scoring.partition import Sized, partition
from langmem_tiers.scoring.tokens import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.compression.compress import Compressor
    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message


class ContextBuilder:
    """Divides one view of a session by a budget.

    Args:
        items: The view, oldest first.
        budget: What there is; its window decides what is shown as it was said.
        compressor: Makes what does not fit in full smaller.
        beside: Messages that come before the conversation, such as what was recalled.
    """

    def __init__(
        self,
        items: Sequence[Shown],
        budget: TokenBudget,
        compressor: Compressor,
        beside: Sequence[Message] = (),
    ) -> None:
        self._counter = compressor.counter
        window = window_within(items, budget.full_message_window, budget, self._counter)
        self._budget = budget = replace(budget, full_message_window=window)
        self._compressor = compressor
        standing = Standing.of(items, budget.full_message_window)
        summary = standing.summary
        self._pinned = [*([] if summary is None else [summary]), *beside]
        self._shown = [
            message
            for index in range(0 if summary is None else 1, len(items))
            if (message := standing.shown(index)) is not None
        ]
        self._archived = [
            item.message.id for index, item in enumerate(items) if standing.shown(index) is None
        ]
        self._originals = {item.message.id: item.message for item in items}
        self._groups = groups_of(self._shown)
        self._short: dict[int, list[Message]] = {}

    def build(self) -> Context:
        """The context: the summary and what was recalled, then the conversation.

        Raises:
            BudgetExceededError: The summary, or the newest message with its tool call, does not fit.
        """
        pinned = count_messages(self._counter, self._pinned)
        if pinned > self._budget.available:
            raise BudgetExceededError(
                f"the summary takes {pinned} tokens of {self._budget.available}: raise the budget"
            )
        sizes = [Sized(end - start, self._tokens(self._shown[start:end])) for start, end in self._groups]
        parts = partition(
            sizes, self._budget, compressed_tokens=self._compressed_tokens, pinned_tokens=pinned
        )
        newest = len(self._groups) - 1
        if newest in parts.dropped:
            raise BudgetExceededError(
                f"the newest message takes {sizes[newest].tokens} tokens, compressed "
                f"{self._compressed_tokens(newest)}, where {self._budget.available - pinned} are left: "
                "raise the budget or store it in smaller pieces"
            )
        return self._laid_out(set(parts.compressed), set(parts.dropped))

    def _laid_out(self, compressed: set[int], dropped: set[int]) -> Context:
        messages: list[Message] = []
        left_out = list(self._archived)
        for index, (start, end) in enumerate(self._groups):
            group = self._shown[start:end]
            if index in dropped:
                left_out += [message.id for message in group]
            else:
                messages += self._compressed(index) if index in compressed else group
        messages = list(without_orphans(messages))
        is_full = {message.id: self._is_full(message) for message in messages}
        whole = (*self._pinned, *messages)
        return Context(
            messages=whole,
            token_count=count_messages(self._counter, whole),
            token_budget=self._budget.available,
            full=tuple(name for name, full in is_full.items() if full),
            compressed=tuple(name for name, full in is_full.items() if not full),
            dropped=tuple(left_out),
        )

    def _is_full(self, message: Message) -> bool:
        original = self._originals[message.id]
        return (message.content, message.tool_calls) == (original.content, original.tool_calls)

    def _tokens(self, messages: Sequence[Message]) -> int:
        return sum(count_framed(self._counter, message) for message in messages)

    def _compressed(self, index: int) -> list[Message]:
        if index not in self._short:
            start, end = self._groups[index]
            self._short[index] = [self._compressor.message(message) for message in self._shown[start:end]]
        return self._short[index]

    def _compressed_tokens(self, index: int) -> int:
        return self._tokens(self._compressed(index))
