"""How a session stands in a prompt: what is shown of it, and what that takes."""

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
"""Up to this share of the budget the window of recent messages is whole."""
TRIMMED_WINDOW_SHARE = 0.4
"""A window that takes more is cut to this share, so that what is older keeps its facts."""


def fit_window_to_budget(
    items: Sequence[ViewItem], window: int, budget: TokenBudget, counter: TokenCounter
) -> int:
    """How many of the newest ``window`` messages the budget can afford to show as they were said."""
    newest = [count_framed(counter, item.message) for item in items[-window:]]
    if sum(newest) <= budget.share(MAX_WHOLE_WINDOW_SHARE):
        return window
    room, kept = budget.share(TRIMMED_WINDOW_SHARE), 0
    for tokens in reversed(newest):
        room -= tokens
        if room < 0:
            break
        kept += 1
    return max(1, kept)


@dataclass(frozen=True, slots=True)
class VisibleGroups:
    """Groups of which something is shown, as ranges of the view, and what each takes."""

    ranges: Sequence[tuple[int, int]] = ()
    sizes: Sequence[GroupSize] = ()
    view_groups: Sequence[tuple[int, int]] = ()
    """The groups of the view that they are taken from."""

    def get_unchanged(self, of: Sequence[tuple[int, int]], end: int) -> VisibleGroups:
        """The first of them, up to a place; none, if a late result has made other groups of the view."""
        if not self.view_groups or list(of[: len(self.view_groups)]) != list(self.view_groups):
            return VisibleGroups()
        count = bisect_right(self.ranges, end, key=itemgetter(1))
        return VisibleGroups(self.ranges[:count], self.sizes[:count])


class SessionView:
    """The entries of a view as they are shown, and where its window of recent messages begins.

    In the window everything is shown as it was said, whatever its mark says; before it, compressed
    entries are shown compressed and archived ones not at all.

    Args:
        items: The entries.
        start: Where the window begins.
        former: The standing of the first of these entries, from which all that holds still is taken.
    """

    def __init__(self, items: Sequence[ViewItem], start: int, former: SessionView | None = None) -> None:
        self.items = items
        self.window_start = start
        kept = 0 if former is None else min(start, former.window_start)
        marked = [
            item.message if item.override is None else item.get_visible_message()
            for item in items[kept:start]
        ]
        new = [*marked, *(item.message for item in items[start:])]
        self.visible_messages: Sequence[Message | None] = (
            new if former is None else [*former.visible_messages[:kept], *new]
        )
        """Each entry as it is shown; None if it is not."""
        there = zip(items[kept:], new, strict=True)
        same = [message is not None and is_verbatim(message, item.message) for item, message in there]
        self.verbatim_flags: Sequence[bool] = (
            same if former is None else [*former.verbatim_flags[:kept], *same]
        )
        """Whether each is shown as it was said."""
        self._tokens_by_counter: dict[str, list[int]] = {}
        self._groups_by_counter: dict[str, VisibleGroups] = {}
        self._previous = None
        if former is not None:
            self._previous = kept, former._tokens_by_counter, former._groups_by_counter  # noqa: SLF001 - same class

    @classmethod
    def from_view(cls, view: StoredView, window: int) -> SessionView:
        """The standing of a view with a window of so many messages; the same one for the same view."""
        name = "standing", window
        known: SessionView | None = view.derived.get(name)
        if known is None:
            earlier = view.previous  # read once: another thread may let go of it
            former = None if earlier is None else earlier.derived.get(name)
            known = view.derived[name] = cls(view.items, find_window_start(view.groups, window), former)
        return known

    @classmethod
    def from_items(cls, items: Sequence[ViewItem], window: int) -> SessionView:
        """The same of entries that are no view yet."""
        return cls(items, find_window_start(group_tool_calls([item.message for item in items]), window))

    @property
    def summary(self) -> Message | None:
        """The summary in force."""
        first = self.items[0].message if self.items else None
        return first if first is not None and first.is_summary else None

    def count_tokens_per_item(self, counter: TokenCounter) -> list[int]:
        """What each entry takes as it is shown."""
        if counter.name not in self._tokens_by_counter:
            kept, known, _ = self._previous or (0, {}, {})
            before = known[counter.name][:kept] if counter.name in known else []
            new = (
                0 if message is None else count_framed(counter, message)
                for message in self.visible_messages[len(before) :]
            )
            self._tokens_by_counter[counter.name] = [*before, *new]
        return self._tokens_by_counter[counter.name].copy()

    def get_visible_groups(self, of: Sequence[tuple[int, int]], counter: TokenCounter) -> VisibleGroups:
        """Those of the groups of which anything is shown, and what they take.

        Args:
            of: The groups of the view.
            counter: Counts tokens.
        """
        known = self._groups_by_counter.get(counter.name)
        if known is None:
            kept, _, former = self._previous or (0, {}, {})
            before = former.get(counter.name, VisibleGroups()).get_unchanged(of, kept)
            known = self._groups_by_counter[counter.name] = self._build_groups(of, counter, before)
            self._previous = None
        return known

    def _build_groups(
        self, of: Sequence[tuple[int, int]], counter: TokenCounter, before: VisibleGroups
    ) -> VisibleGroups:
        done = before.ranges[-1][1] if before.ranges else 0
        ranges, sizes = list(before.ranges), list(before.sizes)
        tokens = self.count_tokens_per_item(counter)
        for start, end in of[bisect_right(of, done - 1, key=itemgetter(0)) if done else 0 :]:
            there = sum([message is not None for message in self.visible_messages[start:end]])
            if there:
                ranges.append((start, end))
                sizes.append(GroupSize(there, sum(tokens[start:end])))
        return VisibleGroups(ranges, sizes, of)

    @cached_property
    def orphan_indexes(self) -> Sequence[int]:
        """Where results of tools stand whose call is not in view."""
        return find_orphans(self.visible_messages)

    def count_tokens(self, counter: TokenCounter) -> int:
        """What all that is shown takes."""
        return sum(self.count_tokens_per_item(counter))


def is_verbatim(message: Message, original: Message) -> bool:
    """Whether a message is shown as it was said."""
    return message is original or (
        (message.content, message.tool_calls) == (original.content, original.tool_calls)
    )
