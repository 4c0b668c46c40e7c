"""Definition of a case of `benchmarks.growth`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


Given = TypeVar("Given")

LINEAR = 1.5
"""The largest exponent of a case that may grow with its input: quadratic work has 2."""
KNOWN = 2.2
"""The largest exponent of a case that is known to grow faster than its input. The case says why."""
CONSTANT = 0.5
"""The largest exponent of a case whose cost must not depend on the size."""
NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
HOME = "https://example.com/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Generic[Given]):
    """One function on one kind of input.

    Args:
        name: The function or the operation. Cases with the same name form a group.
        detail: The input, in a few words or as the repeated text.
        size: The smaller of the two sizes at scale 1. The larger one is four times as long.
        build: Makes an input of a size. This is not measured.
        call: The work that is measured.
        unit: What the size counts.
        limit: The largest growth exponent that is accepted.
    """

    name: str
    detail: str
    size: int
    build: Callable[[int], Given]
    call: Callable[[Given], object]
    unit: str = "characters"
    limit: float = LINEAR


def repeat_to_size(unit: str, size: int, head: str = "", tail: str = "") -> str:
    """Return a unit repeated to about `size` characters."""
    return head + unit * max(1, size // len(unit)) + tail
