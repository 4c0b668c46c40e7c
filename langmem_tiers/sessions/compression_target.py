"""Reduce a session to its target size: compress the oldest messages, then replace them with a summary."""

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
"""Share of the budget by which compression goes below the target; it starts again once it can save as much."""
MAX_UNDERSHOOT_SHARE = 0.1
"""Maximum share of the budget below the target, unless a single step goes further."""
SUMMARY_SHARES = (0.05, 0.1, 0.25)
"""Minimum, usual and maximum share of the budget for a summary. A larger configured target replaces the usual one."""
MAX_SUMMARY_ROOM_SHARE = 0.75
"""Maximum share for a summary of the tokens that the window leaves free."""
SUMMARY_GROWTH_RATIO = 0.3
"""Expected growth of a summary in tokens for each token that it newly covers."""
EXPECTED_COMPRESSION_RATIO = 0.2
"""Expected size of a compressed message relative to its full size."""
LONG_VIEW_MESSAGES = 5000
"""Number of visible messages above which the oldest are summarized, however few tokens they take."""


@dataclass(frozen=True, slots=True)
class CompressionTarget:
    """Target size of a session in tokens, and the size at which compression starts."""

    trigger_tokens: int
    """Size above which the session is compressed."""
    target_tokens: int
    """Size to which it is compressed: the target usage less the slack."""
    ceiling_tokens: int
    """Target usage itself: good enough if one more step would go below the floor."""
    floor_tokens: int
    """Size below which compression should not go."""
    min_saving_tokens: int
    """Minimum number of tokens to save for a new summary to be worthwhile."""
    summary_token_range: tuple[int, int]
    """Minimum and maximum size of a summary."""

    @classmethod
    def from_budget(
        cls, budget: TokenBudget, parameters: TuningParameters, summary_target: int
    ) -> CompressionTarget:
        """Compute the target for a budget.

        Args:
            budget: The budget.
            parameters: Parameters of the namespace.
            summary_target: Configured size of a summary in tokens.
        """
        target = parameters.target_usage
        min_tokens, usual, max_tokens = (budget.share(share) for share in SUMMARY_SHARES)
        return cls(
            trigger_tokens=budget.share(max(target, parameters.compression_trigger)),
            target_tokens=budget.share(max(0.0, target - TARGET_SLACK_SHARE)),
            ceiling_tokens=budget.share(target),
            floor_tokens=budget.share(max(0.0, target - MAX_UNDERSHOOT_SHARE)),
            min_saving_tokens=budget.share(TARGET_SLACK_SHARE),
            summary_token_range=(min_tokens, min(max_tokens, max(usual, summary_target))),
        )

    def is_reached(self, tokens: float, step: float) -> bool:
        """Return True if compression should stop at this size.

        Args:
            tokens: Current size of the session.
            step: Number of tokens that the next step would save.
        """
        return tokens <= self.target_tokens or (
            tokens <= self.ceiling_tokens and tokens - step < self.floor_tokens
        )

    def compute_summary_tokens(self, window_tokens: int) -> int:
        """Return the size of a summary beside a window of this size."""
        min_tokens, max_tokens = self.summary_token_range
        return max(
            min_tokens, min(max_tokens, int((self.target_tokens - window_tokens) * MAX_SUMMARY_ROOM_SHARE))
        )

    def compute_summary_tokens_beside(self, left: SessionLoad) -> int:
        """Return the size of a summary beside everything else: larger if tokens are free up to the target."""
        free = self.target_tokens - left.window_tokens - left.older_tokens
        return max(self.compute_summary_tokens(left.window_tokens), min(self.summary_token_range[1], free))


class SessionLoad:
    """Size of a session in tokens: its window, older messages and summary."""

    def __init__(self, view: SessionView, counter: TokenCounter) -> None:
        self.session_view = view
        self.item_tokens = view.count_tokens_per_item(counter)
        self.summary_tokens = 0
        # The summary is the first item. It is counted separately, so that the sums below cover messages only.
        if view.summary is not None:
            self.summary_tokens, self.item_tokens[0] = self.item_tokens[0], 0
        self._cumulative_tokens = [0, *accumulate(self.item_tokens)]
        self.window_tokens = sum(self.item_tokens[view.window_start :])
        self.older_tokens = sum(self.item_tokens[: view.window_start])

    @property
    def tokens(self) -> int:
        """Total size of the session."""
        return self.window_tokens + self.older_tokens + self.summary_tokens

    def needs_compression(self, target: CompressionTarget) -> bool:
        """Return True if the session is too large and compression can reduce it."""
        if len(self.session_view.items) > LONG_VIEW_MESSAGES:
            return True
        # The window is never compressed. Only older messages and an oversized summary can be reduced.
        excess = max(0, self.summary_tokens - target.compute_summary_tokens(self.window_tokens))
        return self.tokens > target.trigger_tokens and self.older_tokens + excess > target.min_saving_tokens

    def estimate_summary_tokens(self, hidden: int, target: CompressionTarget) -> int:
        """Estimate the size of the summary if it covers the ``hidden`` oldest items."""
        growth = self._cumulative_tokens[hidden] * SUMMARY_GROWTH_RATIO
        return (
            min(target.compute_summary_tokens(self.window_tokens), int(self.summary_tokens + growth))
            if hidden
            else self.summary_tokens
        )


def compress_to_target(
    draft: PlanDraft, analyzer: Analyzer, target: CompressionTarget, window: int, now: datetime
) -> int:
    """Compress entries older than the window, oldest first, until the target is reached.

    Args:
        draft: Draft of the plan; receives the compressions.
        analyzer: Compresses and scores entries.
        target: The target.
        window: Number of newest messages that stay in full.
        now: The current time.

    Returns:
        The number of oldest entries that a summary must replace to reach the target; 0 if none.
    """
    counter = analyzer.compressor.counter
    load = SessionLoad(SessionView.from_items(draft.items, window), counter)
    if not load.needs_compression(target):
        return 0
    # Entries that would have to be hidden even if all others were compressed. They need not be compressed first.
    hidden = _count_to_hide(load, target, EXPECTED_COMPRESSION_RATIO)
    tokens = sum(load.item_tokens[hidden:]) + load.estimate_summary_tokens(hidden, target)
    for index in range(hidden, load.session_view.window_start):
        if target.is_reached(tokens, load.item_tokens[index] * (1 - EXPECTED_COMPRESSION_RATIO)):
            return hidden
        item = draft.items[index]
        if item.state is EntryState.FULL and not item.message.is_summary:
            reason = f"the session takes {tokens} tokens, the target is {target.target_tokens}"
            analyzer.compress(draft, index, reason, analyzer.score(item, now), now)
            tokens += (
                count_framed(counter, draft.items[index].get_overridden_message()) - load.item_tokens[index]
            )
    if tokens <= target.ceiling_tokens:
        return hidden
    # Compressing everything is not enough: hide entries, now counted at their actual compressed size.
    compressed = SessionLoad(SessionView(draft.items, load.session_view.window_start), counter)
    return _count_to_hide(compressed, target, 1.0)


def _count_to_hide(load: SessionLoad, target: CompressionTarget, ratio: float) -> int:
    # The smallest number of oldest entries to hide for the rest to fit beside the summary that covers them.
    # Entries in full count with `ratio` of their size, the size they would have when compressed.
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
        tokens = load.window_tokens + kept + load.estimate_summary_tokens(hidden, target)
        if target.is_reached(tokens, step) and len(items) - hidden <= LONG_VIEW_MESSAGES // 2:
            break
        kept -= step
        hidden = end
    # Hiding nothing but the summary would only replace it with itself.
    return hidden if any(not item.message.is_summary for item in items[:hidden]) else 0
