"""Quality of rankings: recall of the evidence, with confidence intervals."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Interval = tuple[float, float]
RESAMPLES = 2000
_Z = 1.959964  # 95 % of a normal distribution are within this many standard deviations


def share_found(evidence: frozenset[str], found: Iterable[str]) -> float:
    """Return the share of the evidence that was found."""
    return len(evidence.intersection(found)) / len(evidence)


@dataclass(slots=True)
class Rankings:
    """The evidence of each question and the ids found for it, best first."""

    _asked: list[tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, evidence: frozenset[str], ranked: Iterable[str]) -> None:
        """One more question."""
        if not evidence:
            raise ValueError("a question without evidence cannot be scored: leave it out")
        self._asked.append((evidence, tuple(ranked)))

    def shares(self, k: int) -> list[float]:
        """For each question, the part of its evidence among the first ``k``."""
        return [share_found(evidence, ranked[:k]) for evidence, ranked in self._asked]

    def any_found(self, k: int) -> list[bool]:
        """For each question, whether any evidence is among the first ``k``."""
        return [share > 0 for share in self.shares(k)]

    def all_found(self, k: int) -> list[bool]:
        """For each question, whether all its evidence is among the first ``k``."""
        return [share == 1 for share in self.shares(k)]


def bootstrap_interval(values: Sequence[float], seed: int = 7) -> Interval:
    """The middle 95 % of the means of resampled values; the same every time."""
    numbers = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = [float(rng.choice(numbers, len(numbers)).mean()) for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def wilson_interval(outcomes: Sequence[bool]) -> Interval:
    """Return the 95 % confidence interval of a rate, also valid near 0 and 1 and for few outcomes."""
    n, rate = len(outcomes), statistics.fmean(outcomes)
    middle = rate + _Z**2 / (2 * n)
    spread = _Z * math.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    whole = 1 + _Z**2 / n
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


def latency(milliseconds: Sequence[float]) -> dict[str, float]:
    """The middle one, and what 95 % stay under."""
    return {f"p{q}": float(np.percentile(milliseconds, q)) for q in (50, 95)}
