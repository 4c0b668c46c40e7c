"""Scores as sums of signals, each with its name, so that every score can say why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.messages import Role


@dataclass(frozen=True, slots=True)
class Subject:
    """What is scored."""

    content: str
    role: Role | None = None
    age_hours: float = 0.0
    access_count: int = 0
    lowered: str = field(init=False)
    """The content in lower case, without space around it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lowered", self.content.strip().lower())


@dataclass(frozen=True, slots=True)
class Signal:
    """One reason for a higher or lower score.

    Args:
        name: What the breakdown calls it.
        points: How much it adds for a subject; 0 where it does not apply.
    """

    name: str
    points: Callable[[Subject], float]

    def __post_init__(self) -> None:
        if not callable(self.points):
            raise InvalidInputError(
                f"the points of signal {self.name!r} must be a function of a Subject, "
                f"got a {type(self.points).__name__}: use e.g. lambda subject: 0.3"
            )


SignalTable: TypeAlias = tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """A score in [0, 1] and what it is made of."""

    value: float
    base: float
    parts: tuple[tuple[str, float], ...]
    """The signals that applied, with their points."""

    def __str__(self) -> str:
        reasons = "".join(f" {points:+.2f} {name}" for name, points in self.parts)
        return f"{self.value:.2f} = {self.base:.2f}{reasons}"


class Scorer:
    """Adds up the signals of a table from a start value and clamps the sum to [0, 1].

    Args:
        signals: The table. Add rows of your own: ``Scorer((*RELEVANCE_SIGNALS, mine))``.
        base: Where every score starts.
    """

    def __init__(self, signals: SignalTable, base: float = 0.5) -> None:
        self.signals = signals
        self.base = base

    def score(self, subject: Subject) -> Score:
        """The score of one subject with its breakdown."""
        parts = tuple(
            (signal.name, points) for signal in self.signals if (points := signal.points(subject)) != 0
        )
        total = self.base + sum(points for _, points in parts)
        # Rounded, so that 0.5 + 0.2 + 0.1 reaches 0.8, which in binary it does not.
        return Score(round(min(1.0, max(0.0, total)), 6), self.base, parts)


def build_word_signal(name: str, points: float, *words: str) -> Signal:
    """A signal for a text that holds one of the words, in lower case."""
    return Signal(name, lambda subject: points if any(word in subject.lowered for word in words) else 0.0)
