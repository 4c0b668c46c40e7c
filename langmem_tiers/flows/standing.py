"""How a session stands in a prompt: what is shown of it, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.entries import EntryState
from langmem_tiers.core.groups import window_start
from langmem_tiers.scoring.tokens import count_framed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.ports import TokenCounter


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
class Standing:
    """The entries of a view and where its window of recent messages begins.

    In the window everything is shown as it was said, whatever its mark says; before it, compressed
    entries are shown compressed and archived ones not at all.
    """

    items: Sequence[Shown]
    window_start: int

    @classmethod
    def of(cls, items: Sequence[Shown], window: int) -> Standing:
        """The standing with a window of so many messages."""
        return cls(items, window_start([item.message for item in items], window))

    @property
    def summary(self) -> Message | None:
        """The summary in force."""
        first = self.items[0].message if self.items else None
        return first if first is not None and first.is_summary else None

    def shown(self, index: int) -> Message | None:
        """The message with that index as it is shown; None if it is not."""
        item = self.items[index]
        if index >= self.window_start or item.message.is_summary:
            return item.message
        return None if item.state is EntryState.ARCHIVED else item.as_marked()

    def tokens(self, counter: TokenCounter) -> int:
        """What all that is shown takes."""
        shown = (self.shown(index) for index in range(len(self.items)))
        return sum(count_framed(counter, message) for message in shown if message is not None)
