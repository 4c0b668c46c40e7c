"""The ways of ranking that can be checked by hand, as presets beside the default.

Recency, importance and their mixture with similarity take three times as many candidates of each as are
asked for. The five signals of TF-IDF are a weighted mean.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.ranking import RankedRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.common.recall_strategy import HybridWeights, TfIdfWeights
    from langmem_tiers.recall.positions import MessagePositions
    from langmem_tiers.recall.records import Flags, Floats, Rows

CANDIDATES_PER_RESULT = 3
"""Candidates of each kind for each memory that is asked for."""
HALF_LIFE_MICROSECONDS = 30 * 86_400 * 10**6
"""In microseconds."""
MAX_SCORED_MESSAGES = 1000
"""Messages that TF-IDF looks at, those with the rarest words first."""


def rank_by_recency(places: MessagePositions, allowed: Flags | None, limit: int) -> RankedRows:
    """The newest first, the later key among equals."""
    rows = _list_allowed_rows(places, allowed)
    rows = rows[np.lexsort((-rows, -places["times"][rows]))][:limit]
    scores = 1 - np.arange(len(rows)) / limit
    return RankedRows(rows, scores, {"recency": scores})


def rank_by_importance(
    places: MessagePositions, importance: Floats, allowed: Flags | None, limit: int
) -> RankedRows:
    """The most important first, the newest among equals."""
    rows = _list_allowed_rows(places, allowed)
    rows = rows[np.lexsort((-rows, -places["times"][rows], -importance[rows]))][:limit]
    scores = importance[rows].astype(np.float64)
    return RankedRows(rows, scores, {"importance": scores})


def rank_by_score(signal: str, rows: Rows, scores: Floats, limit: int) -> RankedRows:
    """The highest first, the later key among equals."""
    order = np.lexsort((-rows, -scores))[:limit]
    best = scores[order].astype(np.float64)
    return RankedRows(rows[order], best, {signal: best})


def rank_hybrid(
    recent: RankedRows, similar: RankedRows, important: RankedRows, limit: int, weights: HybridWeights
) -> RankedRows:
    """The three lists of candidates, each row's scores added up.

    Args:
        recent: The newest, scored by rank.
        similar: The nearest, scored by their cosine.
        important: The most important.
        limit: How many to keep.
        weights: What each list counts.
    """
    parts = (("recency", recent, weights.recency), ("similarity", similar, weights.similarity))
    rows = np.unique(np.concatenate([recent.rows, similar.rows, important.rows]))
    signals = {}
    for name, ranked, weight in (*parts, ("importance", important, weights.importance)):
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
    """The weighted mean of five signals.

    Args:
        places: Where the messages stand.
        rows: The candidates.
        texts: Their terms.
        holding: The query's terms, and how many messages hold each.
        others: Recency, importance and access of the candidates.
        limit: How many to keep.
        weights: What each signal counts.
    """
    idf = {term: float(np.log(places.count / count)) if count else 0.0 for term, count in holding.items()}
    best = sum(idf.values())
    semantic, keyword = np.zeros(len(rows)), np.zeros(len(rows))
    for number, text in enumerate(texts):
        counts = Counter(text)
        most = max(counts.values(), default=1)
        known = [term for term in idf if term in counts]
        semantic[number] = sum(counts[term] / most * idf[term] for term in known) / best if best else 0.0
        keyword[number] = len(known) / len(idf) if idf else 0.0
    given = {"semantic": semantic, "keyword": keyword, **others}
    total = sum(getattr(weights, name) for name in given)
    return _rank_by_signals(
        rows, {name: getattr(weights, name) / total * part for name, part in given.items()}, limit
    )


def compute_recency(places: MessagePositions, rows: Rows, now: int) -> Floats:
    """1 for now, half as much each 30 days."""
    ages = np.maximum(0, now - places["times"][rows])
    faded: Floats = np.exp2(-ages / HALF_LIFE_MICROSECONDS)
    return faded


def _list_allowed_rows(places: MessagePositions, allowed: Flags | None) -> Rows:
    return np.arange(places.count) if allowed is None else np.flatnonzero(allowed)


def _rank_by_signals(rows: Rows, signals: Mapping[str, Floats], limit: int) -> RankedRows:
    scores = sum(signals.values(), np.zeros(len(rows)))
    order = np.lexsort((-rows, -scores))[:limit]
    return RankedRows(rows[order], scores[order], {name: part[order] for name, part in signals.items()})
