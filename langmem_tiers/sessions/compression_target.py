"""Bringing a session back to its target: compress the oldest, then put them behind a summary."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import EntryState
from langmem_tiers.common.tool_call_groups import groups_of
from langmem_tiers.sessions.session_view import Standing
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.sessions.analysis import Analyzer
    from langmem_tiers.sessions.compression_plan import Sketch
    from langmem_tiers.tuning.models import TuningParameters

SLACK = 0.08
"""Fitting goes this far below the target, and is not called for again before it can save as much."""
FLOOR = 0.1
"""And never further than this, if one step less will do."""
SUMMARY_SHARES = (0.05, 0.1, 0.25)
"""A summary takes its target or a tenth of the budget; a quarter at most, a twentieth at least."""
SUMMARY_OF_ROOM = 0.75
"""What a summary takes at most of the room that the window leaves."""
SUMMARY_OF_HIDDEN = 0.3
"""What a summary grows by for each token that newly stands behind it, as long as there is room."""
EXPECTED_RATIO = 0.2
"""What a compressed message is expected to take of its full size."""
LONG_VIEW = 5000
"""Messages in a view from which on the oldest go behind a summary, however few tokens they take."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a session should take, and from when on something is done about it."""

    pressure: int
    tokens: int
    ceiling: int
    """The target itself: good enough where one more step would fall below the floor."""
    floor: int
    worthwhile: int
    """What must be there to save for a new summary to be worth it."""
    summary_tokens: tuple[int, int]
    """The least and the most that a summary takes."""

    @classmethod
    def of(cls, budget: TokenBudget, parameters: TuningParameters, summary_target: int) -> Goal:
        """The goal under a budget."""
        target = parameters.target_usage
        least, usual, most = (budget.share(share) for share in SUMMARY_SHARES)
        return cls(
            pressure=budget.share(max(target, parameters.compression_trigger)),
            tokens=budget.share(max(0.0, target - SLACK)),
            ceiling=budget.share(target),
            floor=budget.share(max(0.0, target - FLOOR)),
            worthwhile=budget.share(SLACK),
            summary_tokens=(least, min(most, max(usual, summary_target))),
        )

    def is_reached(self, tokens: float, step: float) -> bool:
        """Whether to stop, where going on would take off so many tokens."""
        return tokens <= self.tokens or (tokens <= self.ceiling and tokens - step < self.floor)

    def summary_for(self, window_tokens: int) -> int:
        """What a summary may take beside a window of that size."""
        least, most = self.summary_tokens
        return max(least, min(most, int((self.tokens - window_tokens) * SUMMARY_OF_ROOM)))

    def summary_beside(self, left: Load) -> int:
        """What a summary may take beside all that is left: the room up to the goal, if it needs it."""
        room = self.tokens - left.window - left.older
        return max(self.summary_for(left.window), min(self.summary_tokens[1], room))


class Load:
    """What a session takes: its window, what is older, and its summary."""

    def __init__(self, standing: Standing, counter: TokenCounter) -> None:
        self.standing = standing
        self.sizes = standing.sizes(counter)
        self.summary = 0
        if standing.summary is not None:
            self.summary, self.sizes[0] = self.sizes[0], 0
        self._before = [0, *accumulate(self.sizes)]
        self.window = sum(self.sizes[standing.window_start :])
        self.older = sum(self.sizes[: standing.window_start])

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.window + self.older + self.summary

    def is_pressed(self, goal: Goal) -> bool:
        """Whether it takes more than it should, and something can be done about it."""
        if len(self.standing.items) > LONG_VIEW:
            return True
        excess = max(0, self.summary - goal.summary_for(self.window))
        return self.tokens > goal.pressure and self.older + excess > goal.worthwhile

    def summary_if(self, hidden: int, goal: Goal) -> int:
        """What the summary will take, about, when so many of the oldest stand behind it."""
        more = self._before[hidden] * SUMMARY_OF_HIDDEN
        return min(goal.summary_for(self.window), int(self.summary + more)) if hidden else self.summary


def fit(sketch: Sketch, analyzer: Analyzer, goal: Goal, window: int, now: datetime) -> int:
    """Compress what is older than the window, oldest first, until the goal is reached.

    Returns:
        How many of the oldest entries must go behind a summary to reach it; 0 if that is enough.
    """
    counter = analyzer.compressor.counter
    load = Load(Standing.of_items(sketch.items, window), counter)
    if not load.is_pressed(goal):
        return 0
    hidden = _how_many_to_hide(load, goal, EXPECTED_RATIO)  # these need not be compressed
    tokens = sum(load.sizes[hidden:]) + load.summary_if(hidden, goal)
    for index in range(hidden, load.standing.window_start):
        if goal.is_reached(tokens, load.sizes[index] * (1 - EXPECTED_RATIO)):
            return hidden
        item = sketch.items[index]
        if item.state is EntryState.FULL and not item.message.is_summary:
            reason = f"the session takes {tokens} tokens, {goal.tokens} are its goal"
            analyzer.compress(sketch, index, reason, analyzer.score(item, now), now)
            tokens += count_framed(counter, sketch.items[index].as_marked()) - load.sizes[index]
    if tokens <= goal.ceiling:
        return hidden
    compressed = Load(Standing(sketch.items, load.standing.window_start), counter)
    return _how_many_to_hide(compressed, goal, 1.0)


def _how_many_to_hide(load: Load, goal: Goal, ratio: float) -> int:
    # As few of the oldest as it takes for the rest to fit beside the summary that stands for them,
    # full ones at that ratio of their size.
    items, hidden = load.standing.items, 0
    kept = sum(
        size * (ratio if item.state is EntryState.FULL else 1.0)
        for item, size in zip(items[: load.standing.window_start], load.sizes, strict=False)
    )
    for begin, end in groups_of([item.message for item in items[: load.standing.window_start]]):
        step = sum(
            load.sizes[index] * (ratio if items[index].state is EntryState.FULL else 1.0)
            for index in range(begin, end)
        )
        tokens = load.window + kept + load.summary_if(hidden, goal)
        if goal.is_reached(tokens, step) and len(items) - hidden <= LONG_VIEW // 2:
            break
        kept -= step
        hidden = end
    return hidden if any(not item.message.is_summary for item in items[:hidden]) else 0
