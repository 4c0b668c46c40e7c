"""Building a context: what goes to the model, never more than the budget allows."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Role
from langmem_tiers.context.models import NO_ROOM_REASON, Context
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.sessions.budget_partition import partition_groups
from langmem_tiers.sessions.session_view import SessionView, fit_window_to_budget, is_verbatim
from langmem_tiers.text.token_counting import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor
    from langmem_tiers.sessions.models import StoredView


@dataclass(frozen=True, slots=True)
class ContextReasons:
    """What became of the messages of a view, by their ids.

    All of it goes over long lists, so it is done by whole lists and not message by message.
    """

    session_view: SessionView
    window_size: int
    message_ids: Sequence[str]
    """Of all items."""
    present_flags: Sequence[bool]
    """Whether each is there."""
    verbatim_flags: Sequence[bool]
    """Whether each is there as it was said."""

    def list_full_ids(self) -> tuple[str, ...]:
        """Those that are there as they were said."""
        return tuple(compress(self.message_ids, self.verbatim_flags))

    def list_compressed_ids(self) -> tuple[str, ...]:
        """Those that are there in fewer words."""
        both = zip(self.present_flags, self.verbatim_flags, strict=True)
        return tuple(compress(self.message_ids, [there and not said for there, said in both]))

    def explain_included(self) -> dict[str, str]:
        """Why messages are there."""
        start, compressed = self.session_view.window_start, self.list_compressed_ids()
        recent, older = f"among the newest {self.window_size}", "older, and there is room"
        newest = set(self.message_ids[start:])
        reasons = dict.fromkeys(
            compress(self.message_ids[:start], self.verbatim_flags[:start]), f"in full: {older}"
        )
        reasons |= dict.fromkeys(
            compress(self.message_ids[start:], self.verbatim_flags[start:]), f"in full: {recent}"
        )
        return reasons | {name: f"compressed: {recent if name in newest else older}" for name in compressed}

    def explain_excluded(self, summary: Message | None, left_out: Iterable[str]) -> dict[str, str]:
        """Why others are not.

        Args:
            summary: Stands apart from the conversation.
            left_out: Ids of what would be pinned and has no room.
        """
        missing = [index for index, there in enumerate(self.present_flags) if not there]
        against = {
            self.message_ids[index]: "archived"
            if self.session_view.visible_messages[index] is None
            else NO_ROOM_REASON
            for index in missing
        }
        if summary is not None:
            against.pop(summary.id, None)
        return against | dict.fromkeys(left_out, NO_ROOM_REASON)

    @staticmethod
    def explain_injected(summary: Iterable[Message], others: Iterable[Message]) -> dict[str, str]:
        """Why there are messages that nobody said."""
        pinned = {message.id: "pinned: it stands for what was said before" for message in summary}
        return pinned | {message.id: "recalled for the question" for message in others}


MAX_SUMMARY_SHARE = 0.3
"""What a summary takes of a context at most; one that was made for a larger budget is told again."""
MAX_SYSTEM_SHARE = 0.3
"""Up to which system messages at the beginning of a conversation are always shown."""
MAX_REJECTED_GROUPS_IN_A_ROW = 20
"""After so many groups in a row without room, all that is older is left out without being tried."""
_SUMMARY_PREFIX_TOKENS = 16  # of the summary's mark and frame, with some to spare


@dataclass(frozen=True, slots=True)
class ContextDivision:
    """How a conversation is divided when certain messages stand beside it; groups by their number."""

    pinned: tuple[Message, ...]
    """The summary and what stands beside the conversation, as far as they have room."""
    compressed_groups: frozenset[int]
    dropped_groups: frozenset[int]
    unplaced_ids: tuple[str, ...] = ()
    """Ids of what would be pinned and has no room."""


class ContextBuilder:
    """Divides one view of a session by a budget, as often as it takes, and lays it out once.

    Args:
        view: What the session shows.
        budget: What there is; its window decides what is shown as it was said.
        compressor: Makes what does not fit in full smaller.
    """

    def __init__(self, view: StoredView, budget: TokenBudget, compressor: Compressor) -> None:
        self._counter = compressor.counter
        window = fit_window_to_budget(view.items, budget.full_message_window, budget, self._counter)
        self._budget = replace(budget, full_message_window=window)
        self._compressor = compressor
        self._items = view.items
        self._session_view = standing = SessionView.from_view(view, window)
        self._summary = None if standing.summary is None else self._shorten_summary(view.items[0])
        groups = standing.get_visible_groups(view.groups, self._counter)
        first = 0 if standing.summary is None else 1
        self._groups, self._group_sizes = groups.ranges[first:], groups.sizes[first:]
        self._fixed_groups = self._find_leading_system_groups()
        self._compressed_by_group: dict[int, list[Message]] = {}
        self._placement_cache: list[tuple[ContextDivision, list[Message | None]]] = []

    def divide(
        self, beside: Sequence[Message] = (), told: frozenset[str] = frozenset(), reserved: int = 0
    ) -> ContextDivision:
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
        if (
            reserved
            and (division := self._try_divide(pinned, told, self._fixed_groups, reserved)) is not None
        ):
            return division
        while True:
            division = self._try_divide(pinned, told, self._fixed_groups)
            if division is not None:
                return replace(division, unplaced_ids=tuple(left_out))
            if not pinned:
                break
            left_out.append(pinned.pop().id)  # the newest message goes before what stands beside it
        if self._fixed_groups and (division := self._try_divide((), told, frozenset())) is not None:
            return replace(division, unplaced_ids=tuple(left_out))
        if self._groups:
            raise self._build_too_large_error()
        return ContextDivision((), frozenset(), frozenset(), tuple(left_out))

    def _try_divide(
        self, pinned: Sequence[Message], told: frozenset[str], fixed: frozenset[int], reserved: int = 0
    ) -> ContextDivision | None:
        indexes = self._list_groups_without(told, fixed)
        taken = (
            reserved
            + count_messages(self._counter, pinned)
            + sum(self._group_sizes[index].tokens for index in fixed)
        )
        parts = partition_groups(
            [self._group_sizes[index] for index in indexes] if told or fixed else self._group_sizes,
            self._budget,
            compressed_tokens=lambda index: self._count_compressed_tokens(indexes[index]),
            pinned_tokens=taken,
            patience=MAX_REJECTED_GROUPS_IN_A_ROW,
        )
        newest = len(self._groups) - 1
        if taken > self._budget.available:
            return None
        if len(parts.full) + len(fixed) == newest + 1:  # the usual case: all of it is there
            return ContextDivision(tuple(pinned), frozenset(), frozenset())
        shown = {indexes[index] for index in (*parts.full, *parts.compressed)} | fixed
        if newest not in shown:
            return None
        return ContextDivision(
            pinned=tuple(pinned),
            compressed_groups=frozenset(indexes[index] for index in parts.compressed),
            dropped_groups=frozenset(range(newest + 1)) - shown,
        )

    def get_visible_texts(self, division: ContextDivision) -> dict[int, str]:
        """What the messages of the conversation say that are shown, by their keys."""
        placed = zip(self._items, self._get_placement(division), strict=True)
        return {item.key: message.content for item, message in placed if message is not None}

    def is_newest_in_full(self, division: ContextDivision) -> bool:
        """Whether the newest message is there as it was said."""
        newest = len(self._groups) - 1
        return newest not in division.compressed_groups or is_verbatim(
            self._compress_group(newest)[-1], self._items[-1].message
        )

    def lay_out(self, division: ContextDivision, before: str | None = None) -> Context:
        """The context: the summary, the conversation, and what stands beside it before its newest question.

        What was recalled changes with every question. Where it stands, all that comes before it is the
        same as in the turn before, which is what providers cache.

        Args:
            division: What has room.
            before: Id of the message in front of which the other ones stand; of the first, if left out.
        """
        placed = self._get_placement(division)
        messages = [message for message in placed if message is not None]
        place = next((n for n in reversed(range(len(messages))) if messages[n].id == before), 0)
        summary = tuple(message for message in division.pinned if message is self._summary)
        beside = division.pinned[len(summary) :]
        everything = (*summary, *messages[:place], *beside, *messages[place:])
        why = self._build_reasons(division, placed)
        dropped = why.explain_excluded(self._summary, division.unplaced_ids)
        sections = {
            "summary": self._count_tokens(summary),
            "conversation": self._count_conversation_tokens(division, placed),
            "memories": self._count_tokens(beside),
            "frame": count_messages(self._counter, ()) if everything else 0,
        }
        return Context(
            messages=everything,
            token_count=sum(sections.values()),
            token_budget=self._budget.available,
            full=why.list_full_ids(),
            compressed=why.list_compressed_ids(),
            sections=sections,
            dropped=tuple(dropped),
            reasons=why.explain_included() | dropped | why.explain_injected(summary, beside),
            problems=self._report_compressed_newest(placed),
        )

    def _build_reasons(self, division: ContextDivision, placed: Sequence[Message | None]) -> ContextReasons:
        there = [message is not None for message in placed]
        as_said = [
            said and shown for said, shown in zip(self._session_view.verbatim_flags, there, strict=True)
        ]
        for index in division.compressed_groups:
            for at in range(*self._groups[index]):
                message = placed[at]
                as_said[at] = message is not None and is_verbatim(message, self._items[at].message)
        ids = [item.message.id for item in self._items]
        return ContextReasons(self._session_view, self._budget.full_message_window, ids, there, as_said)

    def _find_leading_system_groups(self) -> frozenset[int]:
        # How the system was told to be stays in sight, as long as it is no large part of the budget.
        leading = itertools.takewhile(
            lambda index: all(message.role is Role.SYSTEM for message in self._get_group_messages(index)),
            range(len(self._groups)),
        )
        fixed, room = set(), self._budget.share(MAX_SYSTEM_SHARE)
        for index in leading:
            room -= self._group_sizes[index].tokens
            if room < 0:
                break
            fixed.add(index)
        return frozenset(fixed)

    def _get_placement(self, division: ContextDivision) -> list[Message | None]:
        # One for each item: the message as it is shown, or None. The summary stands apart.
        known = next((placed for one, placed in self._placement_cache if one is division), None)
        if known is None:
            known = self._build_placement(division)
            self._placement_cache.append((division, known))
        return known

    def _build_placement(self, division: ContextDivision) -> list[Message | None]:
        placed = list(self._session_view.visible_messages)
        if self._summary is not None:
            placed[0] = None
        for index in division.dropped_groups:
            start, end = self._groups[index]
            placed[start:end] = [None] * (end - start)
        for index in division.compressed_groups:
            short = iter(self._compress_group(index))
            for place in range(*self._groups[index]):
                placed[place] = None if placed[place] is None else next(short)
        for index in self._session_view.orphan_indexes:  # no provider takes a result without its call
            placed[index] = None
        return placed

    def _list_groups_without(self, told: frozenset[str], fixed: frozenset[int]) -> Sequence[int]:
        if not told and not fixed:
            return range(len(self._groups))
        places = [place for place, item in enumerate(self._items) if item.message.id in told] if told else []
        before = ((place, bisect_right(self._groups, place, key=itemgetter(0)) - 1) for place in places)
        holding = {index for place, index in before if index >= 0 and place < self._groups[index][1]}
        left_out = holding | fixed
        return [index for index in range(len(self._groups)) if index not in left_out]

    def _get_group_messages(self, index: int) -> list[Message]:
        start, end = self._groups[index]
        return [message for message in self._session_view.visible_messages[start:end] if message is not None]

    def _shorten_summary(self, item: ViewItem) -> Message:
        # Made for a larger budget, it is told again in what a part of this one holds.
        room = self._budget.share(MAX_SUMMARY_SHARE)
        digest = None if item.override is None else item.override.digest
        if count_framed(self._counter, item.message) <= room or digest is None:
            return item.message
        return self._compressor.shorten_summary(item.message, digest, max(1, room - _SUMMARY_PREFIX_TOKENS))

    def _build_too_large_error(self) -> BudgetExceededError:
        newest = len(self._groups) - 1
        left = max(0, self._budget.available - count_messages(self._counter, ()))
        return BudgetExceededError(
            f"the newest message takes {self._group_sizes[newest].tokens} tokens, compressed "
            f"{self._count_compressed_tokens(newest)}, where {left} are left: "
            "raise the budget or store it in smaller pieces"
        )

    def _report_compressed_newest(self, placed: Sequence[Message | None]) -> tuple[str, ...]:
        newest = placed[-1] if self._groups else None
        if newest is None or is_verbatim(newest, said := self._items[-1].message):
            return ()
        tokens = count_framed(self._counter, said)
        return (f"the newest message was compressed: it takes {tokens} tokens of {self._budget.available}",)

    def _count_conversation_tokens(self, division: ContextDivision, placed: Sequence[Message | None]) -> int:
        sizes = self._session_view.count_tokens_per_item(self._counter)
        for index in division.compressed_groups:
            for at in range(*self._groups[index]):
                message = placed[at]
                sizes[at] = 0 if message is None else count_framed(self._counter, message)
        return sum(itertools.compress(sizes, [message is not None for message in placed]))

    def _count_tokens(self, messages: Sequence[Message]) -> int:
        return sum(count_framed(self._counter, message) for message in messages)

    def _compress_group(self, index: int) -> list[Message]:
        if index not in self._compressed_by_group:
            # From what was said: what is compressed already would lose facts if it were compressed again.
            start, end = self._groups[index]
            said = (
                self._items[place].message
                for place in range(start, end)
                if self._session_view.visible_messages[place] is not None
            )
            self._compressed_by_group[index] = [
                self._compressor.compress_message(message) for message in said
            ]
        return self._compressed_by_group[index]

    def _count_compressed_tokens(self, index: int) -> int:
        return self._count_tokens(self._compress_group(index))
