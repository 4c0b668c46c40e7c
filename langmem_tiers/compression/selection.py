"""The most of a list that fits a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def find_largest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` for which ``fits`` holds, found by halving; 0 if there is none.

    Counters are not additive, so whole texts are counted: this asks for few of them.
    """
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
    """The text, or as much of it as fits with three dots behind it."""
    if len(text) <= characters:
        return text
    return "" if characters <= 3 else text[: characters - 3].rstrip() + "..."
