"""The visible form of a session in a prompt, and its size in tokens."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.tool_call_groups import find_orphans, find_window_start, group_tool_calls
from langmem_tiers.sessions.budget_partition import GroupSize
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.sessions.models import StoredView


MAX_WHOLE_WINDOW_SHARE = 0.75
"""Maximum share of the budget for the untrimmed window of recent messages."""
TRIMMED_WINDOW_SHARE = 0.4
"""Share of the budget to which a larger window is trimmed, to leave space for the facts of older messages."""


def fit_window_to_budget(
    items: Sequence[ViewItem], window: int, budget: TokenBudget, counter: TokenCounter
) -> int:
    """Return how many of the newest ``window`` messages fit the budget in full; at least 1."""
    newest = [count_framed(counter, item.message) for item in items[-window:]]
    if sum(newest) <= budget.share(MAX_WHOLE_WINDOW_SHARE):
        return window
    left, kept = budget.share(TRIMMED_WINDOW_SHARE), 0
    for tokens in reversed(newest):
        left -= tokens
        if left < 0:
            break
        kept += 1
    return max(1, kept)


@dataclass(frozen=True, slots=True)
class VisibleGroups:
    """Groups with at least one visible message, as ranges of the view, and their sizes."""

    ranges: Sequence[tuple[int, int]] = ()
    sizes: Sequence[GroupSize] = ()
    view_groups: Sequence[tuple[int, int]] = ()
    """All groups of the view, from which these were selected."""

    def get_unchanged(self, groups: Sequence[tuple[int, int]], end: int) -> VisibleGroups:
        """Return the groups that a newer view can reuse.

        Args:
            groups: Groups of the newer view.
            end: Index of the item up to which both views are the same.
        """
        # A tool result that arrives late joins the group of its call, which changes the groups before `end`.
        if not self.view_groups or list(groups[: len(self.view_groups)]) != list(self.view_groups):
            return VisibleGroups()
        count = bisect_right(self.ranges, end, key=itemgetter(1))
        return VisibleGroups(self.ranges[:count], self.sizes[:count])


class SessionView:
    """The items of a view in their visible form, divided into older items and the window of recent messages.

    In the window every message is in full, whatever its override says. Before the window, compressed items are
    in compressed form, and archived ones are left out.

    Args:
        items: Items of the view.
        start: Index at which the window begins.
        former: The same for an earlier view that this one extends; unchanged values are reused.
    """

    def __init__(self, items: Sequence[ViewItem], start: int, former: SessionView | None = None) -> None:
        self.items = items
        self.window_start = start
        # Items before both windows look the same in both views. Items that left the window since do not.
        kept = 0 if former is None else min(start, former.window_start)
        older = [
            item.message if item.override is None else item.get_visible_message()
            for item in items[kept:start]
        ]
        new = [*older, *(item.message for item in items[start:])]
        self.visible_messages: Sequence[Message | None] = (
            new if former is None else [*former.visible_messages[:kept], *new]
        )
        """Visible form of each item; None if the item is not visible."""
        pairs = zip(items[kept:], new, strict=True)
        verbatim = [message is not None and is_verbatim(message, item.message) for item, message in pairs]
        self.verbatim_flags: Sequence[bool] = (
            verbatim if former is None else [*former.verbatim_flags[:kept], *verbatim]
        )
        """For each item: True if it is visible in full."""
        self._tokens_by_counter: dict[str, list[int]] = {}
        self._groups_by_counter: dict[str, VisibleGroups] = {}
        self._previous = None
        if former is not None:
            self._previous = kept, former._tokens_by_counter, former._groups_by_counter  # noqa: SLF001 - same class

    @classmethod
    def from_view(cls, view: StoredView, window: int) -> SessionView:
        """Return the visible form of a view with a window of this many messages; cached in the view."""
        name = "standing", window
        cached: SessionView | None = view.derived.get(name)
        if cached is None:
            # Read `previous` once, since another thread may clear it.
            earlier = view.previous
            former = None if earlier is None else earlier.derived.get(name)
            cached = view.derived[name] = cls(view.items, find_window_start(view.groups, window), former)
        return cached

    @classmethod
    def from_items(cls, items: Sequence[ViewItem], window: int) -> SessionView:
        """Return the visible form of items that are not a stored view, such as those of a plan."""
        return cls(items, find_window_start(group_tool_calls([item.message for item in items]), window))

    @property
    def summary(self) -> Message | None:
        """Active summary, or None."""
        first = self.items[0].message if self.items else None
        return first if first is not None and first.is_summary else None

    def count_tokens_per_item(self, counter: TokenCounter) -> list[int]:
        """Return the tokens of each item in its visible form; 0 if it is not visible."""
        if counter.name not in self._tokens_by_counter:
            kept, known, _ = self._previous or (0, {}, {})
            before = known[counter.name][:kept] if counter.name in known else []
            new = (
                0 if message is None else count_framed(counter, message)
                for message in self.visible_messages[len(before) :]
            )
            self._tokens_by_counter[counter.name] = [*before, *new]
        # A copy: callers modify the list.
        return self._tokens_by_counter[counter.name].copy()

    def get_visible_groups(self, groups: Sequence[tuple[int, int]], counter: TokenCounter) -> VisibleGroups:
        """Return the groups with visible messages, and their sizes.

        Args:
            groups: All groups of the view.
            counter: Token counter.
        """
        cached = self._groups_by_counter.get(counter.name)
        if cached is None:
            kept, _, former = self._previous or (0, {}, {})
            before = former.get(counter.name, VisibleGroups()).get_unchanged(groups, kept)
            cached = self._groups_by_counter[counter.name] = self._build_groups(groups, counter, before)
            # Nothing is left to reuse: let the values of the former view be freed.
            self._previous = None
        return cached

    def _build_groups(
        self, groups: Sequence[tuple[int, int]], counter: TokenCounter, before: VisibleGroups
    ) -> VisibleGroups:
        done = before.ranges[-1][1] if before.ranges else 0
        ranges, sizes = list(before.ranges), list(before.sizes)
        tokens = self.count_tokens_per_item(counter)
        for start, end in groups[bisect_right(groups, done - 1, key=itemgetter(0)) if done else 0 :]:
            visible = sum([message is not None for message in self.visible_messages[start:end]])
            if visible:
                ranges.append((start, end))
                sizes.append(GroupSize(visible, sum(tokens[start:end])))
        return VisibleGroups(ranges, sizes, groups)

    @cached_property
    def orphan_indexes(self) -> Sequence[int]:
        """Indexes of tool results whose call is not visible."""
        return find_orphans(self.visible_messages)

    def count_tokens(self, counter: TokenCounter) -> int:
        """Return the total tokens of the visible items."""
        return sum(self.count_tokens_per_item(counter))


def is_verbatim(message: Message, original: Message) -> bool:
    """Return True if the visible form of a message is the same as the original."""
    return message is original or (
        (message.content, message.tool_calls) == (original.content, original.tool_calls)
    )
