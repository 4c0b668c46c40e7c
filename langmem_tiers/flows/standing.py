"""How a session stands in a prompt: what is shown of it, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.core.groups import groups_of, window_start
from langmem_tiers.scoring.tokens import count_framed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.ports import TokenCounter
    from langmem_tiers.core.records import View


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
    """The entries of a view as they are shown, and where its window of recent messages begins.

    In the window everything is shown as it was said, whatever its mark says; before it, compressed
    entries are shown compressed and archived ones not at all.
    """

    items: Sequence[Shown]
    shown: Sequence[Message | None]
    """Each entry as it is shown; None if it is not."""
    window_start: int
    _sizes: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, view: View, window: int) -> Standing:
        """The standing of a view with a window of so many messages; the same one for the same view."""
        known: Standing | None = view.derived.get(("standing", window))
        if known is None:
            known = cls.with_window(view.items, window_start(view.groups, window))
            view.derived["standing", window] = known
        return known

    @classmethod
    def of_items(cls, items: Sequence[Shown], window: int) -> Standing:
        """The same of entries that are no view yet."""
        return cls.with_window(items, window_start(groups_of([item.message for item in items]), window))

    @classmethod
    def with_window(cls, items: Sequence[Shown], start: int) -> Standing:
        """The same with a window that begins there."""
        marked = [item.message if item.mark is None else item.shown() for item in items[:start]]
        return cls(items, [*marked, *(item.message for item in items[start:])], start)

    @property
    def summary(self) -> Message | None:
        """The summary in force."""
        first = self.items[0].message if self.items else None
        return first if first is not None and first.is_summary else None

    def sizes(self, counter: TokenCounter) -> list[int]:
        """What each entry takes as it is shown."""
        if counter.name not in self._sizes:
            self._sizes[counter.name] = [
                0 if message is None else count_framed(counter, message) for message in self.shown
            ]
        return self._sizes[counter.name].copy()

    def tokens(self, counter: TokenCounter) -> int:
        """What all that is shown takes."""
        return sum(self.sizes(counter))
