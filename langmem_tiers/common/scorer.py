"""Scores as sums of named signals, so that each score can be explained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.messages import Role


@dataclass(frozen=True, slots=True)
class Subject:
    """Text and metadata to be scored."""

    content: str
    role: Role | None = None
    age_hours: float = 0.0
    access_count: int = 0
    lowered: str = field(init=False)
    """Content in lower case, stripped of surrounding whitespace."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lowered", self.content.strip().lower())


@dataclass(frozen=True, slots=True)
class Signal:
    """A named function that raises or lowers a score.

    Args:
        name: Name in the breakdown of a score.
        points: Returns the points for a subject; 0 if the signal does not apply.
    """

    name: str
    points: Callable[[Subject], float]

    def __post_init__(self) -> None:
        if not callable(self.points):
            raise InvalidInputError(
                f"the points of signal {self.name!r} must be a function of a Subject, "
                f"got {type(self.points).__name__}: use e.g. lambda subject: 0.3"
            )


SignalTable: TypeAlias = tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """A score in [0, 1] with its breakdown."""

    value: float
    base: float
    parts: tuple[tuple[str, float], ...]
    """Names and points of the signals that applied."""

    def __str__(self) -> str:
        reasons = "".join(f" {points:+.2f} {name}" for name, points in self.parts)
        return f"{self.value:.2f} = {self.base:.2f}{reasons}"


class Scorer:
    """Adds the points of a table of signals to a base value and clamps the sum to [0, 1].

    Args:
        signals: Table of signals. Extend it with your own: ``Scorer((*RELEVANCE_SIGNALS, mine))``.
        base: Initial value of each score.
    """

    def __init__(self, signals: SignalTable, base: float = 0.5) -> None:
        self.signals = signals
        self.base = base

    def score(self, subject: Subject) -> Score:
        """Return the score of one subject with its breakdown."""
        # Signals of 0 points are left out of the breakdown.
        parts = tuple(
            (signal.name, points) for signal in self.signals if (points := signal.points(subject)) != 0
        )
        total = self.base + sum(points for _, points in parts)
        # Rounded, because 0.5 + 0.2 + 0.1 is 0.7999... in binary and would miss a threshold of 0.8.
        return Score(round(min(1.0, max(0.0, total)), 6), self.base, parts)


def build_word_signal(name: str, points: float, *words: str) -> Signal:
    """Return a signal for texts that contain one of the words, given in lower case."""
    return Signal(name, lambda subject: points if any(word in subject.lowered for word in words) else 0.0)
