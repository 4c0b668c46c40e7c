"""Building a context: what goes to the model, never more than the budget allows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.compression.digest import Digest
from langmem_tiers.core.context import Context
from langmem_tiers.core.errors import BudgetExceededError
from langmem_tiers.core.groups import groups_of, without_orphans
from langmem_tiers.core.messages import SUMMARY_PREFIX
from langmem_tiers.flows.standing import Standing, window_within
from langmem_tiers.scoring.partition import Sized, partition
from langmem_tiers.scoring.tokens import count_draft, count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.compression.compress import Compressor
    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message


SUMMARY_SHARE = 0.3
"""What a summary takes of a context at most; one that was made for a larger budget is told again."""
_PREFIX_TOKENS = 16  # of the summary's mark and frame, with some to spare


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
        self._pinned = [*([] if summary is None else [self._summary(items[0])]), *beside]
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
            BudgetExceededError: The newest message, with its tool call, does not fit beside the summary.
        """
        sizes = [Sized(end - start, self._tokens(self._shown[start:end])) for start, end in self._groups]
        newest = len(self._groups) - 1
        left_out: list[str] = []
        while True:
            pinned = count_messages(self._counter, self._pinned)
            parts = partition(
                sizes, self._budget, compressed_tokens=self._compressed_tokens, pinned_tokens=pinned
            )
            if newest not in parts.dropped and pinned <= self._budget.available:
                return self._laid_out(set(parts.compressed), set(parts.dropped), left_out)
            if not self._pinned:
                break
            left_out.append(self._pinned.pop().id)  # the newest message goes before what stands beside it
        if newest < 0:
            return self._laid_out(set(), set(), left_out)
        raise BudgetExceededError(
            f"the newest message takes {sizes[newest].tokens} tokens, compressed "
            f"{self._compressed_tokens(newest)}, where {self._budget.available - pinned} are left: "
            "raise the budget or store it in smaller pieces"
        )

    def _summary(self, item: Shown) -> Message:
        # Made for a larger budget, it is told again in what a quarter of this one holds.
        room = self._budget.share(SUMMARY_SHARE)
        digest = None if item.mark is None else item.mark.digest
        if count_framed(self._counter, item.message) <= room or digest is None:
            return item.message
        text = Digest.from_carried(digest).render(self._counter, max(1, room - _PREFIX_TOKENS)).text
        short = replace(item.message, content=f"{SUMMARY_PREFIX}\n{text}")
        return replace(short, token_count=count_draft(self._counter, short), token_counter=self._counter.name)

    def _laid_out(self, compressed: set[int], dropped: set[int], left_out: list[str]) -> Context:
        messages: list[Message] = []
        left_out = [*self._archived, *left_out]
        for index, (start, end) in enumerate(self._groups):
            group = self._shown[start:end]
            if index in dropped:
                left_out += [message.id for message in group]
            else:
                messages += self._compressed(index) if index in compressed else group
        whole = messages
        messages = list(without_orphans(messages))
        there = {message.id for message in messages}
        left_out += [message.id for message in whole if message.id not in there]
        is_full = {message.id: self._is_full(message) for message in messages}
        everything = (*self._pinned, *messages)
        return Context(
            messages=everything,
            token_count=count_messages(self._counter, everything) if everything else 0,
            token_budget=self._budget.available,
            full=tuple(name for name, full in is_full.items() if full),
            compressed=tuple(name for name, full in is_full.items() if not full),
            dropped=tuple(left_out),
            reasons=self._reasons(is_full, left_out),
            problems=self._cut_newest(is_full),
        )

    def _reasons(self, is_full: dict[str, bool], left_out: Sequence[str]) -> dict[str, str]:
        window = self._budget.full_message_window
        recent = {message.id for message in self._shown[-window:]}
        archived = set(self._archived)
        reasons = {message.id: "pinned: it comes before the conversation" for message in self._pinned}
        for name, full in is_full.items():
            kind = "in full" if full else "compressed"
            place = f"among the newest {window}" if name in recent else "older, and there is room"
            reasons[name] = f"{kind}: {place}"
        for name in left_out:
            reasons[name] = "archived" if name in archived else "no room"
        return reasons

    def _cut_newest(self, is_full: dict[str, bool]) -> tuple[str, ...]:
        newest = self._shown[-1] if self._shown else None
        if newest is None or is_full.get(newest.id, True):
            return ()
        tokens = count_framed(self._counter, self._originals[newest.id])
        return (f"the newest message was compressed: it takes {tokens} tokens of {self._budget.available}",)

    def _is_full(self, message: Message) -> bool:
        original = self._originals[message.id]
        return (message.content, message.tool_calls) == (original.content, original.tool_calls)

    def _tokens(self, messages: Sequence[Message]) -> int:
        return sum(count_framed(self._counter, message) for message in messages)

    def _compressed(self, index: int) -> list[Message]:
        if index not in self._short:
            start, end = self._groups[index]
            # From what was said: what is compressed already would lose facts if it were compressed again.
            said = (self._originals[message.id] for message in self._shown[start:end])
            self._short[index] = [self._compressor.message(message) for message in said]
        return self._short[index]

    def _compressed_tokens(self, index: int) -> int:
        return self._tokens(self._compressed(index))
