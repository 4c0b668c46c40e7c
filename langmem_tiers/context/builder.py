"""Building a context: what goes to the model, never more than the budget allows."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Role
from langmem_tiers.context.models import NO_ROOM, Context
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.sessions.budget_partition import partition
from langmem_tiers.sessions.session_view import Standing, says_the_same, window_within
from langmem_tiers.text.token_counting import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor
    from langmem_tiers.sessions.models import View


@dataclass(frozen=True, slots=True)
class Reasons:
    """What became of the messages of a view, by their ids.

    All of it goes over long lists, so it is done by whole lists and not message by message.
    """

    standing: Standing
    window: int
    ids: Sequence[str]
    """Of all items."""
    there: Sequence[bool]
    """Whether each is there."""
    as_said: Sequence[bool]
    """Whether each is there as it was said."""

    def full(self) -> tuple[str, ...]:
        """Those that are there as they were said."""
        return tuple(compress(self.ids, self.as_said))

    def compressed(self) -> tuple[str, ...]:
        """Those that are there in fewer words."""
        both = zip(self.there, self.as_said, strict=True)
        return tuple(compress(self.ids, [there and not said for there, said in both]))

    def in_favour(self) -> dict[str, str]:
        """Why messages are there."""
        start, compressed = self.standing.window_start, self.compressed()
        recent, older = f"among the newest {self.window}", "older, and there is room"
        newest = set(self.ids[start:])
        reasons = dict.fromkeys(compress(self.ids[:start], self.as_said[:start]), f"in full: {older}")
        reasons |= dict.fromkeys(compress(self.ids[start:], self.as_said[start:]), f"in full: {recent}")
        return reasons | {name: f"compressed: {recent if name in newest else older}" for name in compressed}

    def against(self, summary: Message | None, left_out: Iterable[str]) -> dict[str, str]:
        """Why others are not.

        Args:
            summary: Stands apart from the conversation.
            left_out: Ids of what would be pinned and has no room.
        """
        missing = [index for index, there in enumerate(self.there) if not there]
        against = {
            self.ids[index]: "archived" if self.standing.shown[index] is None else NO_ROOM
            for index in missing
        }
        if summary is not None:
            against.pop(summary.id, None)
        return against | dict.fromkeys(left_out, NO_ROOM)

    @staticmethod
    def beside(summary: Iterable[Message], others: Iterable[Message]) -> dict[str, str]:
        """Why there are messages that nobody said."""
        pinned = {message.id: "pinned: it stands for what was said before" for message in summary}
        return pinned | {message.id: "recalled for the question" for message in others}


SUMMARY_SHARE = 0.3
"""What a summary takes of a context at most; one that was made for a larger budget is told again."""
SYSTEM_SHARE = 0.3
"""Up to which system messages at the beginning of a conversation are always shown."""
PATIENCE = 20
"""After so many groups in a row without room, all that is older is left out without being tried."""
_PREFIX_TOKENS = 16  # of the summary's mark and frame, with some to spare


@dataclass(frozen=True, slots=True)
class Division:
    """How a conversation is divided when certain messages stand beside it; groups by their number."""

    pinned: tuple[Message, ...]
    """The summary and what stands beside the conversation, as far as they have room."""
    compressed: frozenset[int]
    dropped: frozenset[int]
    left_out: tuple[str, ...] = ()
    """Ids of what would be pinned and has no room."""


class ContextBuilder:
    """Divides one view of a session by a budget, as often as it takes, and lays it out once.

    Args:
        view: What the session shows.
        budget: What there is; its window decides what is shown as it was said.
        compressor: Makes what does not fit in full smaller.
    """

    def __init__(self, view: View, budget: TokenBudget, compressor: Compressor) -> None:
        self._counter = compressor.counter
        window = window_within(view.items, budget.full_message_window, budget, self._counter)
        self._budget = replace(budget, full_message_window=window)
        self._compressor = compressor
        self._items = view.items
        self._standing = standing = Standing.of(view, window)
        self._summary = None if standing.summary is None else self._short_summary(view.items[0])
        groups = standing.groups(view.groups, self._counter)
        first = 0 if standing.summary is None else 1
        self._groups, self._sizes = groups.ranges[first:], groups.sizes[first:]
        self._fixed = self._leading_system()
        self._short: dict[int, list[Message]] = {}
        self._known: list[tuple[Division, list[Message | None]]] = []

    def divide(
        self, beside: Sequence[Message] = (), told: frozenset[str] = frozenset(), reserved: int = 0
    ) -> Division:
        """What has room in full, what compressed, and what not at all.

        Args:
            beside: Messages that are no part of the conversation, such as what was recalled. The newest
                message goes before them; the last of them is left out first.
            told: Ids of messages that are told in one of those, and so not again where they were said.
            reserved: Tokens to keep free for more of them, if the newest message has room all the same.

        Raises:
            BudgetExceededError: The newest message, with its tool call, does not fit by itself.
        """
        pinned = [*([] if self._summary is None else [self._summary]), *beside]
        left_out: list[str] = []
        if reserved and (division := self._divided(pinned, told, self._fixed, reserved)) is not None:
            return division
        while True:
            division = self._divided(pinned, told, self._fixed)
            if division is not None:
                return replace(division, left_out=tuple(left_out))
            if not pinned:
                break
            left_out.append(pinned.pop().id)  # the newest message goes before what stands beside it
        if self._fixed and (division := self._divided((), told, frozenset())) is not None:
            return replace(division, left_out=tuple(left_out))
        if self._groups:
            raise self._too_large()
        return Division((), frozenset(), frozenset(), tuple(left_out))

    def _divided(
        self, pinned: Sequence[Message], told: frozenset[str], fixed: frozenset[int], reserved: int = 0
    ) -> Division | None:
        indexes = self._without(told, fixed)
        taken = (
            reserved
            + count_messages(self._counter, pinned)
            + sum(self._sizes[index].tokens for index in fixed)
        )
        parts = partition(
            [self._sizes[index] for index in indexes] if told or fixed else self._sizes,
            self._budget,
            compressed_tokens=lambda index: self._compressed_tokens(indexes[index]),
            pinned_tokens=taken,
            patience=PATIENCE,
        )
        newest = len(self._groups) - 1
        if taken > self._budget.available:
            return None
        if len(parts.full) + len(fixed) == newest + 1:  # the usual case: all of it is there
            return Division(tuple(pinned), frozenset(), frozenset())
        shown = {indexes[index] for index in (*parts.full, *parts.compressed)} | fixed
        if newest not in shown:
            return None
        return Division(
            pinned=tuple(pinned),
            compressed=frozenset(indexes[index] for index in parts.compressed),
            dropped=frozenset(range(newest + 1)) - shown,
        )

    def shown_by(self, division: Division) -> dict[int, str]:
        """What the messages of the conversation say that are shown, by their keys."""
        placed = zip(self._items, self._placed(division), strict=True)
        return {item.key: message.content for item, message in placed if message is not None}

    def shows_newest_in_full(self, division: Division) -> bool:
        """Whether the newest message is there as it was said."""
        newest = len(self._groups) - 1
        return newest not in division.compressed or says_the_same(
            self._compressed(newest)[-1], self._items[-1].message
        )

    def lay_out(self, division: Division, before: str | None = None) -> Context:
        """The context: the summary, the conversation, and what stands beside it before its newest question.

        What was recalled changes with every question. Where it stands, all that comes before it is the
        same as in the turn before, which is what providers cache.

        Args:
            division: What has room.
            before: Id of the message in front of which the other ones stand; of the first, if left out.
        """
        placed = self._placed(division)
        messages = [message for message in placed if message is not None]
        place = next((n for n in reversed(range(len(messages))) if messages[n].id == before), 0)
        summary = tuple(message for message in division.pinned if message is self._summary)
        beside = division.pinned[len(summary) :]
        everything = (*summary, *messages[:place], *beside, *messages[place:])
        why = self._why(division, placed)
        dropped = why.against(self._summary, division.left_out)
        sections = {
            "summary": self._tokens(summary),
            "conversation": self._tokens_of(division, placed),
            "memories": self._tokens(beside),
            "frame": count_messages(self._counter, ()) if everything else 0,
        }
        return Context(
            messages=everything,
            token_count=sum(sections.values()),
            token_budget=self._budget.available,
            full=why.full(),
            compressed=why.compressed(),
            sections=sections,
            dropped=tuple(dropped),
            reasons=why.in_favour() | dropped | why.beside(summary, beside),
            problems=self._cut_newest(placed),
        )

    def _why(self, division: Division, placed: Sequence[Message | None]) -> Reasons:
        there = [message is not None for message in placed]
        as_said = [said and shown for said, shown in zip(self._standing.as_said, there, strict=True)]
        for index in division.compressed:
            for at in range(*self._groups[index]):
                message = placed[at]
                as_said[at] = message is not None and says_the_same(message, self._items[at].message)
        ids = [item.message.id for item in self._items]
        return Reasons(self._standing, self._budget.full_message_window, ids, there, as_said)

    def _leading_system(self) -> frozenset[int]:
        # How the system was told to be stays in sight, as long as it is no large part of the budget.
        leading = itertools.takewhile(
            lambda index: all(message.role is Role.SYSTEM for message in self._group(index)),
            range(len(self._groups)),
        )
        fixed, room = set(), self._budget.share(SYSTEM_SHARE)
        for index in leading:
            room -= self._sizes[index].tokens
            if room < 0:
                break
            fixed.add(index)
        return frozenset(fixed)

    def _placed(self, division: Division) -> list[Message | None]:
        # One for each item: the message as it is shown, or None. The summary stands apart.
        known = next((placed for one, placed in self._known if one is division), None)
        if known is None:
            known = self._place(division)
            self._known.append((division, known))
        return known

    def _place(self, division: Division) -> list[Message | None]:
        placed = list(self._standing.shown)
        if self._summary is not None:
            placed[0] = None
        for index in division.dropped:
            start, end = self._groups[index]
            placed[start:end] = [None] * (end - start)
        for index in division.compressed:
            short = iter(self._compressed(index))
            for place in range(*self._groups[index]):
                placed[place] = None if placed[place] is None else next(short)
        for index in self._standing.orphans:  # no provider takes a result without its call
            placed[index] = None
        return placed

    def _without(self, told: frozenset[str], fixed: frozenset[int]) -> Sequence[int]:
        if not told and not fixed:
            return range(len(self._groups))
        places = [place for place, item in enumerate(self._items) if item.message.id in told] if told else []
        before = ((place, bisect_right(self._groups, place, key=itemgetter(0)) - 1) for place in places)
        holding = {index for place, index in before if index >= 0 and place < self._groups[index][1]}
        left_out = holding | fixed
        return [index for index in range(len(self._groups)) if index not in left_out]

    def _group(self, index: int) -> list[Message]:
        start, end = self._groups[index]
        return [message for message in self._standing.shown[start:end] if message is not None]

    def _short_summary(self, item: Shown) -> Message:
        # Made for a larger budget, it is told again in what a part of this one holds.
        room = self._budget.share(SUMMARY_SHARE)
        digest = None if item.mark is None else item.mark.digest
        if count_framed(self._counter, item.message) <= room or digest is None:
            return item.message
        return self._compressor.retold(item.message, digest, max(1, room - _PREFIX_TOKENS))

    def _too_large(self) -> BudgetExceededError:
        newest = len(self._groups) - 1
        left = max(0, self._budget.available - count_messages(self._counter, ()))
        return BudgetExceededError(
            f"the newest message takes {self._sizes[newest].tokens} tokens, compressed "
            f"{self._compressed_tokens(newest)}, where {left} are left: "
            "raise the budget or store it in smaller pieces"
        )

    def _cut_newest(self, placed: Sequence[Message | None]) -> tuple[str, ...]:
        newest = placed[-1] if self._groups else None
        if newest is None or says_the_same(newest, said := self._items[-1].message):
            return ()
        tokens = count_framed(self._counter, said)
        return (f"the newest message was compressed: it takes {tokens} tokens of {self._budget.available}",)

    def _tokens_of(self, division: Division, placed: Sequence[Message | None]) -> int:
        sizes = self._standing.sizes(self._counter)
        for index in division.compressed:
            for at in range(*self._groups[index]):
                message = placed[at]
                sizes[at] = 0 if message is None else count_framed(self._counter, message)
        return sum(itertools.compress(sizes, [message is not None for message in placed]))

    def _tokens(self, messages: Sequence[Message]) -> int:
        return sum(count_framed(self._counter, message) for message in messages)

    def _compressed(self, index: int) -> list[Message]:
        if index not in self._short:
            # From what was said: what is compressed already would lose facts if it were compressed again.
            start, end = self._groups[index]
            said = (
                self._items[place].message
                for place in range(start, end)
                if self._standing.shown[place] is not None
            )
            self._short[index] = [self._compressor.message(message) for message in said]
        return self._short[index]

    def _compressed_tokens(self, index: int) -> int:
        return self._tokens(self._compressed(index))
