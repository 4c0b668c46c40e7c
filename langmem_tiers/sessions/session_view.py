"""How a session stands in a prompt: what is shown of it, and what that takes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.tool_call_groups import groups_of, orphans, window_start
from langmem_tiers.sessions.budget_partition import Sized
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.sessions.models import View


WHOLE_WINDOW_SHARE = 0.75
"""Up to this share of the budget the window of recent messages is whole."""
CUT_WINDOW_SHARE = 0.4
"""A window that takes more is cut to this share, so that what is older keeps its facts."""


def window_within(items: Sequence[Shown], window: int, budget: TokenBudget, counter: TokenCounter) -> int:
    """How many of the newest ``window`` messages the budget can afford to show as they were said."""
    newest = [count_framed(counter, item.message) for item in items[-window:]]
    if sum(newest) <= budget.share(WHOLE_WINDOW_SHARE):
        return window
    room, kept = budget.share(CUT_WINDOW_SHARE), 0
    for tokens in reversed(newest):
        room -= tokens
        if room < 0:
            break
        kept += 1
    return max(1, kept)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of which something is shown, as ranges of the view, and what each takes."""

    ranges: Sequence[tuple[int, int]] = ()
    sizes: Sequence[Sized] = ()
    of: Sequence[tuple[int, int]] = ()
    """The groups of the view that they are taken from."""

    def still_there(self, of: Sequence[tuple[int, int]], end: int) -> Groups:
        """The first of them, up to a place; none, if a late result has made other groups of the view."""
        if not self.of or list(of[: len(self.of)]) != list(self.of):
            return Groups()
        count = bisect_right(self.ranges, end, key=itemgetter(1))
        return Groups(self.ranges[:count], self.sizes[:count])


class Standing:
    """The entries of a view as they are shown, and where its window of recent messages begins.

    In the window everything is shown as it was said, whatever its mark says; before it, compressed
    entries are shown compressed and archived ones not at all.

    Args:
        items: The entries.
        start: Where the window begins.
        former: The standing of the first of these entries, from which all that holds still is taken.
    """

    def __init__(self, items: Sequence[Shown], start: int, former: Standing | None = None) -> None:
        self.items = items
        self.window_start = start
        kept = 0 if former is None else min(start, former.window_start)
        marked = [item.message if item.mark is None else item.shown() for item in items[kept:start]]
        new = [*marked, *(item.message for item in items[start:])]
        self.shown: Sequence[Message | None] = new if former is None else [*former.shown[:kept], *new]
        """Each entry as it is shown; None if it is not."""
        there = zip(items[kept:], new, strict=True)
        same = [message is not None and says_the_same(message, item.message) for item, message in there]
        self.as_said: Sequence[bool] = same if former is None else [*former.as_said[:kept], *same]
        """Whether each is shown as it was said."""
        self._sizes: dict[str, list[int]] = {}
        self._sized: dict[str, Groups] = {}
        self._former = None if former is None else (kept, former._sizes, former._sized)  # noqa: SLF001 - one of us

    @classmethod
    def of(cls, view: View, window: int) -> Standing:
        """The standing of a view with a window of so many messages; the same one for the same view."""
        name = "standing", window
        known: Standing | None = view.derived.get(name)
        if known is None:
            earlier = view.earlier  # read once: another thread may let go of it
            former = None if earlier is None else earlier.derived.get(name)
            known = view.derived[name] = cls(view.items, window_start(view.groups, window), former)
        return known

    @classmethod
    def of_items(cls, items: Sequence[Shown], window: int) -> Standing:
        """The same of entries that are no view yet."""
        return cls(items, window_start(groups_of([item.message for item in items]), window))

    @property
    def summary(self) -> Message | None:
        """The summary in force."""
        first = self.items[0].message if self.items else None
        return first if first is not None and first.is_summary else None

    def sizes(self, counter: TokenCounter) -> list[int]:
        """What each entry takes as it is shown."""
        if counter.name not in self._sizes:
            kept, known, _ = self._former or (0, {}, {})
            before = known[counter.name][:kept] if counter.name in known else []
            new = (
                0 if message is None else count_framed(counter, message)
                for message in self.shown[len(before) :]
            )
            self._sizes[counter.name] = [*before, *new]
        return self._sizes[counter.name].copy()

    def groups(self, of: Sequence[tuple[int, int]], counter: TokenCounter) -> Groups:
        """Those of the groups of which anything is shown, and what they take.

        Args:
            of: The groups of the view.
            counter: Counts tokens.
        """
        known = self._sized.get(counter.name)
        if known is None:
            kept, _, former = self._former or (0, {}, {})
            before = former.get(counter.name, Groups()).still_there(of, kept)
            known = self._sized[counter.name] = self._new_groups(of, counter, before)
            self._former = None
        return known

    def _new_groups(self, of: Sequence[tuple[int, int]], counter: TokenCounter, before: Groups) -> Groups:
        done = before.ranges[-1][1] if before.ranges else 0
        ranges, sizes = list(before.ranges), list(before.sizes)
        tokens = self.sizes(counter)
        for start, end in of[bisect_right(of, done - 1, key=itemgetter(0)) if done else 0 :]:
            there = sum([message is not None for message in self.shown[start:end]])
            if there:
                ranges.append((start, end))
                sizes.append(Sized(there, sum(tokens[start:end])))
        return Groups(ranges, sizes, of)

    @cached_property
    def orphans(self) -> Sequence[int]:
        """Where results of tools stand whose call is not in view."""
        return orphans(self.shown)

    def tokens(self, counter: TokenCounter) -> int:
        """What all that is shown takes."""
        return sum(self.sizes(counter))


def says_the_same(message: Message, original: Message) -> bool:
    """Whether a message is shown as it was said."""
    return message is original or (
        (message.content, message.tool_calls) == (original.content, original.tool_calls)
    )
