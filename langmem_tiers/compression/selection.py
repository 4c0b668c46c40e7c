"""Helpers that fit lists and texts into a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def find_largest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``most`` for which ``fits`` is true, or 0. Uses binary search.

    Token counters are not additive, so every candidate text must be counted as a whole. The search needs few counts.
    """
    # Usually everything fits: one count suffices.
    if most <= 0 or fits(most):
        return max(0, most)
    low, high = 0, most  # low fits or is 0, high does not fit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def truncate_with_ellipsis(text: str, characters: int) -> str:
    """Return the text, cut to this length including a trailing "..." if it is longer."""
    if len(text) <= characters:
        return text
    return "" if characters <= 3 else text[: characters - 3].rstrip() + "..."
