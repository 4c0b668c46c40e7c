"""Recall strategies and the weights of their signals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import check_score
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Strategy(StrEnum):
    """Ranking strategies of recall."""

    BEST = "best"
    """Words and meaning of a message, its neighbors and its session, plus speaker and time. The default."""
    SECOND_LOOK = "second_look"
    """As ``best``, followed by a second search with terms from the best hits. For questions that depend on an entity
    they do not name, such as "Where does the one who adopted Toby work?"."""
    WORDS = "words"
    """Only messages that contain words of the query, ranked by BM25: plain full-text search."""
    RECENCY = "recency"
    """Newest first."""
    SIMILARITY = "similarity"
    """By cosine similarity of the vectors only."""
    IMPORTANCE = "importance"
    """Most important first; newest first among equals."""
    HYBRID = "hybrid"
    """Weighted ranks by recency (0.3), similarity (0.5) and importance (0.2)."""
    TF_IDF = "tf_idf"
    """Five signals: TF-IDF 0.4, keywords 0.3, recency 0.2, importance 0.1, access 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridWeights:
    """Weights of the signals of ``Strategy.HYBRID``."""

    recency: float = 0.3
    similarity: float = 0.5
    importance: float = 0.2

    def __post_init__(self) -> None:
        _check_weights(self, ("recency", "similarity", "importance"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TfIdfWeights:
    """Weights of the signals of ``Strategy.TF_IDF``; the score is their weighted mean."""

    semantic: float = 0.4
    keyword: float = 0.3
    recency: float = 0.2
    importance: float = 0.1
    access: float = 0.0

    def __post_init__(self) -> None:
        _check_weights(self, ("semantic", "keyword", "recency", "importance", "access"))


def check_strategy(strategy: object) -> Strategy:
    """Return the strategy, or raise InvalidInputError with the list of valid strategies."""
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
        raise InvalidInputError("all weights are 0: set at least one weight above 0")
