"""Simple ranking strategies: recency, importance, similarity, hybrid and TF-IDF.

Their scores can be verified by hand. The hybrid strategy combines candidates by recency, similarity and
importance, three times the limit of each. TF-IDF is a weighted mean of five signals.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.ranking import RankedRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.common.recall_strategy import HybridWeights, TfIdfWeights
    from langmem_tiers.recall.arrays import Flags, Floats, Rows
    from langmem_tiers.recall.positions import MessagePositions

CANDIDATES_PER_RESULT = 3
"""Number of candidates of each kind per requested memory."""
HALF_LIFE_MICROSECONDS = 30 * 86_400 * 10**6
"""Half-life of recency: 30 days."""
MAX_SCORED_MESSAGES = 1000
"""Maximum number of messages that TF-IDF scores, chosen by BM25."""


def rank_by_recency(places: MessagePositions, allowed: Flags | None, limit: int) -> RankedRows:
    """Return the newest messages first. Ties are broken by the higher key."""
    rows = _list_allowed_rows(places, allowed)
    # np.lexsort sorts by its last key first. Rows ascend by key, so -rows prefers the higher key among equals.
    rows = rows[np.lexsort((-rows, -places["times"][rows]))][:limit]
    scores = 1 - np.arange(len(rows)) / limit
    return RankedRows(rows, scores, {"recency": scores})


def rank_by_importance(
    places: MessagePositions, importance: Floats, allowed: Flags | None, limit: int
) -> RankedRows:
    """Return the most important messages first. Ties are broken by the newer message."""
    rows = _list_allowed_rows(places, allowed)
    rows = rows[np.lexsort((-rows, -places["times"][rows], -importance[rows]))][:limit]
    scores = importance[rows].astype(np.float64)
    return RankedRows(rows, scores, {"importance": scores})


def rank_by_score(signal: str, rows: Rows, scores: Floats, limit: int) -> RankedRows:
    """Return the rows with the highest scores first. Ties are broken by the higher key."""
    order = np.lexsort((-rows, -scores))[:limit]
    best = scores[order].astype(np.float64)
    return RankedRows(rows[order], best, {signal: best})


def rank_hybrid(
    recent: RankedRows, similar: RankedRows, important: RankedRows, limit: int, weights: HybridWeights
) -> RankedRows:
    """Merge three lists of candidates, with the weighted sum of their scores.

    Args:
        recent: The newest messages, scored by rank.
        similar: The nearest messages, scored by cosine.
        important: The most important messages.
        limit: Maximum number of rows.
        weights: Weight of each list.
    """
    parts = (("recency", recent, weights.recency), ("similarity", similar, weights.similarity))
    rows = np.unique(np.concatenate([recent.rows, similar.rows, important.rows]))
    signals = {}
    for name, ranked, weight in (*parts, ("importance", important, weights.importance)):
        # A row that is missing from this list scores 0 in it. np.unique sorted the rows, as searchsorted requires.
        signals[name] = np.zeros(len(rows))
        signals[name][np.searchsorted(rows, ranked.rows)] = weight * ranked.scores
    return _rank_by_signals(rows, signals, limit)


def rank_tf_idf(
    places: MessagePositions,
    rows: Rows,
    texts: Sequence[Sequence[str]],
    holding: Mapping[str, int],
    others: Mapping[str, Floats],
    limit: int,
    weights: TfIdfWeights,
) -> RankedRows:
    """Rank candidates by the weighted mean of five signals.

    Args:
        places: Positions of the namespace's messages.
        rows: The candidates.
        texts: Terms of each candidate.
        holding: The query's terms, with the number of messages that contain each.
        others: Recency, importance and access of the candidates.
        limit: Maximum number of rows.
        weights: Weight of each signal.
    """
    idf = {term: float(np.log(places.count / count)) if count else 0.0 for term, count in holding.items()}
    best = sum(idf.values())
    semantic, keyword = np.zeros(len(rows)), np.zeros(len(rows))
    for number, text in enumerate(texts):
        # semantic: TF-IDF of the query's terms, with TF relative to the most frequent term of the message.
        # Divided by the sum of all IDFs, it is at most 1. keyword: share of the query's terms that occur.
        counts = Counter(text)
        most = max(counts.values(), default=1)
        known = [term for term in idf if term in counts]
        semantic[number] = sum(counts[term] / most * idf[term] for term in known) / best if best else 0.0
        keyword[number] = len(known) / len(idf) if idf else 0.0
    given = {"semantic": semantic, "keyword": keyword, **others}
    # Only the ratio of the weights matters: the configuration need not make them add up to 1.
    total = sum(getattr(weights, name) for name in given)
    return _rank_by_signals(
        rows, {name: getattr(weights, name) / total * part for name, part in given.items()}, limit
    )


def compute_recency(places: MessagePositions, rows: Rows, now: int) -> Floats:
    """Return the recency of messages: 1 for now, halved every 30 days."""
    ages = np.maximum(0, now - places["times"][rows])
    faded: Floats = np.exp2(-ages / HALF_LIFE_MICROSECONDS)
    return faded


def _list_allowed_rows(places: MessagePositions, allowed: Flags | None) -> Rows:
    return np.arange(places.count) if allowed is None else np.flatnonzero(allowed)


def _rank_by_signals(rows: Rows, signals: Mapping[str, Floats], limit: int) -> RankedRows:
    scores = sum(signals.values(), np.zeros(len(rows)))
    order = np.lexsort((-rows, -scores))[:limit]
    return RankedRows(rows[order], scores[order], {name: part[order] for name, part in signals.items()})
