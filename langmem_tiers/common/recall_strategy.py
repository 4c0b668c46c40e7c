"""The strategies of recall and the weights of their signals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import check_score
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Strategy(StrEnum):
    """How memories are ranked."""

    BEST = "best"
    """Words and meaning of a message, its neighbours and its session, speaker and time: the default."""
    SECOND_LOOK = "second_look"
    """As ``best``, then once more by what the best hits speak of: for questions whose answer hangs on
    something that they do not name, such as "Where does the one who adopted Toby work?"."""
    WORDS = "words"
    """Only what holds words of the query itself, by BM25 alone: plain full text."""
    RECENCY = "recency"
    """The newest first."""
    SIMILARITY = "similarity"
    """By the cosine of their vectors alone."""
    IMPORTANCE = "importance"
    """The most important first, the newest among equals."""
    HYBRID = "hybrid"
    """The three above by rank and weight: 0.3, 0.5 and 0.2."""
    TF_IDF = "tf_idf"
    """Five signals: TF-IDF 0.4, key words 0.3, recency 0.2, importance 0.1, access 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridWeights:
    """What the signals of ``Strategy.HYBRID`` count."""

    recency: float = 0.3
    similarity: float = 0.5
    importance: float = 0.2

    def __post_init__(self) -> None:
        _check_weights(self, ("recency", "similarity", "importance"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TfIdfWeights:
    """What the signals of ``Strategy.TF_IDF`` count; the score is their weighted mean."""

    semantic: float = 0.4
    keyword: float = 0.3
    recency: float = 0.2
    importance: float = 0.1
    access: float = 0.0

    def __post_init__(self) -> None:
        _check_weights(self, ("semantic", "keyword", "recency", "importance", "access"))


def check_strategy(strategy: object) -> Strategy:
    """The strategy, or an error that lists those there are."""
    try:
        return Strategy(strategy)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(strategy.value for strategy in Strategy)
        raise InvalidInputError(f"unknown strategy {strategy!r}: use one of {known}") from None


def _check_weights(weights: object, names: Iterable[str]) -> None:
    values = {name: getattr(weights, name) for name in names}
    for name, value in values.items():
        check_score(value, f"the weight {name}")
    if sum(values.values()) == 0:
        raise InvalidInputError("all weights are 0: give at least one signal a weight")
