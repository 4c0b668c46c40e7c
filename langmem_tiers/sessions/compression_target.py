"""Bringing a session back to its target: compress the oldest, then put them behind a summary."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import EntryState
from langmem_tiers.common.tool_call_groups import group_tool_calls
from langmem_tiers.sessions.session_view import SessionView
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.sessions.analysis import Analyzer
    from langmem_tiers.sessions.compression_plan import PlanDraft
    from langmem_tiers.tuning.models import TuningParameters

TARGET_SLACK_SHARE = 0.08
"""Fitting goes this far below the target, and is not called for again before it can save as much."""
MAX_UNDERSHOOT_SHARE = 0.1
"""And never further than this, if one step less will do."""
SUMMARY_SHARES = (0.05, 0.1, 0.25)
"""A summary takes its target or a tenth of the budget; a quarter at most, a twentieth at least."""
MAX_SUMMARY_ROOM_SHARE = 0.75
"""What a summary takes at most of the room that the window leaves."""
SUMMARY_GROWTH_RATIO = 0.3
"""What a summary grows by for each token that newly stands behind it, as long as there is room."""
EXPECTED_COMPRESSION_RATIO = 0.2
"""What a compressed message is expected to take of its full size."""
LONG_VIEW_MESSAGES = 5000
"""Messages in a view from which on the oldest go behind a summary, however few tokens they take."""


@dataclass(frozen=True, slots=True)
class CompressionTarget:
    """What a session should take, and from when on something is done about it."""

    trigger_tokens: int
    target_tokens: int
    ceiling_tokens: int
    """The target itself: good enough where one more step would fall below the floor."""
    floor_tokens: int
    min_saving_tokens: int
    """What must be there to save for a new summary to be worth it."""
    summary_token_range: tuple[int, int]
    """The least and the most that a summary takes."""

    @classmethod
    def from_budget(
        cls, budget: TokenBudget, parameters: TuningParameters, summary_target: int
    ) -> CompressionTarget:
        """The goal under a budget."""
        target = parameters.target_usage
        least, usual, most = (budget.share(share) for share in SUMMARY_SHARES)
        return cls(
            trigger_tokens=budget.share(max(target, parameters.compression_trigger)),
            target_tokens=budget.share(max(0.0, target - TARGET_SLACK_SHARE)),
            ceiling_tokens=budget.share(target),
            floor_tokens=budget.share(max(0.0, target - MAX_UNDERSHOOT_SHARE)),
            min_saving_tokens=budget.share(TARGET_SLACK_SHARE),
            summary_token_range=(least, min(most, max(usual, summary_target))),
        )

    def is_reached(self, tokens: float, step: float) -> bool:
        """Whether to stop, where going on would take off so many tokens."""
        return tokens <= self.target_tokens or (
            tokens <= self.ceiling_tokens and tokens - step < self.floor_tokens
        )

    def compute_summary_tokens(self, window_tokens: int) -> int:
        """What a summary may take beside a window of that size."""
        least, most = self.summary_token_range
        return max(least, min(most, int((self.target_tokens - window_tokens) * MAX_SUMMARY_ROOM_SHARE)))

    def compute_summary_tokens_beside(self, left: SessionLoad) -> int:
        """What a summary may take beside all that is left: the room up to the goal, if it needs it."""
        room = self.target_tokens - left.window_tokens - left.older_tokens
        return max(self.compute_summary_tokens(left.window_tokens), min(self.summary_token_range[1], room))


class SessionLoad:
    """What a session takes: its window, what is older, and its summary."""

    def __init__(self, standing: SessionView, counter: TokenCounter) -> None:
        self.session_view = standing
        self.item_tokens = standing.count_tokens_per_item(counter)
        self.summary_tokens = 0
        if standing.summary is not None:
            self.summary_tokens, self.item_tokens[0] = self.item_tokens[0], 0
        self._cumulative_tokens = [0, *accumulate(self.item_tokens)]
        self.window_tokens = sum(self.item_tokens[standing.window_start :])
        self.older_tokens = sum(self.item_tokens[: standing.window_start])

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.window_tokens + self.older_tokens + self.summary_tokens

    def needs_compression(self, goal: CompressionTarget) -> bool:
        """Whether it takes more than it should, and something can be done about it."""
        if len(self.session_view.items) > LONG_VIEW_MESSAGES:
            return True
        excess = max(0, self.summary_tokens - goal.compute_summary_tokens(self.window_tokens))
        return self.tokens > goal.trigger_tokens and self.older_tokens + excess > goal.min_saving_tokens

    def estimate_summary_tokens(self, hidden: int, goal: CompressionTarget) -> int:
        """What the summary will take, about, when so many of the oldest stand behind it."""
        more = self._cumulative_tokens[hidden] * SUMMARY_GROWTH_RATIO
        return (
            min(goal.compute_summary_tokens(self.window_tokens), int(self.summary_tokens + more))
            if hidden
            else self.summary_tokens
        )


def compress_to_target(
    sketch: PlanDraft, analyzer: Analyzer, goal: CompressionTarget, window: int, now: datetime
) -> int:
    """Compress what is older than the window, oldest first, until the goal is reached.

    Returns:
        How many of the oldest entries must go behind a summary to reach it; 0 if that is enough.
    """
    counter = analyzer.compressor.counter
    load = SessionLoad(SessionView.from_items(sketch.items, window), counter)
    if not load.needs_compression(goal):
        return 0
    hidden = _count_to_hide(load, goal, EXPECTED_COMPRESSION_RATIO)  # these need not be compressed
    tokens = sum(load.item_tokens[hidden:]) + load.estimate_summary_tokens(hidden, goal)
    for index in range(hidden, load.session_view.window_start):
        if goal.is_reached(tokens, load.item_tokens[index] * (1 - EXPECTED_COMPRESSION_RATIO)):
            return hidden
        item = sketch.items[index]
        if item.state is EntryState.FULL and not item.message.is_summary:
            reason = f"the session takes {tokens} tokens, {goal.target_tokens} are its goal"
            analyzer.compress(sketch, index, reason, analyzer.score(item, now), now)
            tokens += (
                count_framed(counter, sketch.items[index].get_overridden_message()) - load.item_tokens[index]
            )
    if tokens <= goal.ceiling_tokens:
        return hidden
    compressed = SessionLoad(SessionView(sketch.items, load.session_view.window_start), counter)
    return _count_to_hide(compressed, goal, 1.0)


def _count_to_hide(load: SessionLoad, goal: CompressionTarget, ratio: float) -> int:
    # As few of the oldest as it takes for the rest to fit beside the summary that stands for them,
    # full ones at that ratio of their size.
    items, hidden = load.session_view.items, 0
    kept = sum(
        size * (ratio if item.state is EntryState.FULL else 1.0)
        for item, size in zip(items[: load.session_view.window_start], load.item_tokens, strict=False)
    )
    for begin, end in group_tool_calls([item.message for item in items[: load.session_view.window_start]]):
        step = sum(
            load.item_tokens[index] * (ratio if items[index].state is EntryState.FULL else 1.0)
            for index in range(begin, end)
        )
        tokens = load.window_tokens + kept + load.estimate_summary_tokens(hidden, goal)
        if goal.is_reached(tokens, step) and len(items) - hidden <= LONG_VIEW_MESSAGES // 2:
            break
        kept -= step
        hidden = end
    return hidden if any(not item.message.is_summary for item in items[:hidden]) else 0
