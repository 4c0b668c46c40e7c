"""Weights for signals, so that what answers a question is likely to be chosen among all messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_STEPS = 100  # a handful is enough
_CLOSE = 1e-6
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class RankingExample:
    """A question: the signals of every message, a row for each, and which rows answer it."""

    signals: Floats
    answers: NDArray[np.int64]
    weight: float = 1.0
    """Weight compared with other choices."""


@dataclass(frozen=True, slots=True)
class _Likelihood:
    """Likelihood of the answers under some weights, with its gradient."""

    value: float
    slope: Floats
    curve: Floats


def fit(choices: Sequence[RankingExample], l2: float) -> Floats:
    """The weights under which the answers are likeliest, by Newton's method: there is one best point.

    A message is chosen with a probability that is the softmax of its score over all messages. What is
    made large is the mean log-probability of the answers, less ``l2`` times the squares of the weights.
    """
    weights = np.zeros(choices[0].signals.shape[1])
    here = _compute_likelihood(choices, weights, l2)
    for _ in range(_STEPS):
        step = np.linalg.solve(here.curve, here.slope)
        for _ in range(_HALVINGS):
            there = _compute_likelihood(choices, weights + step, l2)
            if there.value >= here.value:
                break
            step /= 2
        else:
            break  # as good as numbers can tell
        weights, here = weights + step, there
        if np.abs(step).max() < _CLOSE:
            break
    return weights


def sort_best_first(scores: Floats) -> NDArray[np.int64]:
    """Rows in the order of recall: among equals the newest first."""
    rows = np.arange(len(scores))
    return np.lexsort((-rows, -scores))


def _compute_likelihood(choices: Sequence[RankingExample], weights: Floats, l2: float) -> _Likelihood:
    size = len(weights)
    value, slope, curve = 0.0, np.zeros(size), np.zeros((size, size))
    for choice in choices:
        scores = choice.signals @ weights
        top = scores.max()
        chances = np.exp(scores - top)
        whole = chances.sum()
        chances /= whole
        usual = chances @ choice.signals
        spread = (choice.signals * chances[:, None]).T @ choice.signals - np.outer(usual, usual)
        value += choice.weight * float((scores[choice.answers] - top - np.log(whole)).mean())
        slope += choice.weight * (choice.signals[choice.answers].mean(axis=0) - usual)
        curve += choice.weight * spread
    whole = sum(choice.weight for choice in choices)
    return _Likelihood(
        value / whole - l2 * float(weights @ weights),
        slope / whole - 2 * l2 * weights,
        curve / whole + 2 * l2 * np.eye(size),
    )
