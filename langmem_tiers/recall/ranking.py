"""Ranking of messages.

The default ranking uses words and vectors, each combined with neighboring messages, speaker, time and form.

The weights were found by a listwise fit over conversations of several kinds, with cross-validation over
conversations. They do not depend on the length of turns, because the kernels measure distance in words.

The simple rankings are recency, importance, similarity, hybrid and TF-IDF. Their scores can be verified by hand. Hybrid
combines candidates by recency, similarity and importance, three times the limit of each. TF-IDF is a weighted mean of
five signals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.recall.positions import Kernel
from langmem_tiers.recall.vector_index import combine_neighbor_cosines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langmem_tiers.common.recall_strategy import HybridWeights, TfIdfWeights
    from langmem_tiers.recall.arrays import Flags, Floats, Rows
    from langmem_tiers.recall.bm25 import WordScores
    from langmem_tiers.recall.positions import MessagePositions
    from langmem_tiers.recall.records import Trust
    from langmem_tiers.text.time_expressions.extraction import TimeRange


NEAR_KERNEL, WIDE_KERNEL = 0, 1
"""Indexes of the kernels."""
KERNELS = (Kernel(15.0), Kernel(60.0))
"""A narrow and a wide neighborhood of each message."""
MAX_LENGTH_TERMS = 40
"""Length in terms above which a longer message gets no higher score."""
SECOND_LOOK_WEIGHT = 3.0
"""Weight of terms from the hits of a first pass. Lower than that of the query's own words."""
MAX_EXHAUSTIVE_MESSAGES = 2000
"""Number of messages up to which all are scored: choosing candidates would cost more than it saves."""
AFTERMATH_MICROSECONDS = 10 * 86_400 * 10**6
"""Time after a range during which messages may still talk about it: 10 days."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the signals."""

    near: float = 3.1
    wide: float = 3.5
    session: float = 1.8
    meaning: float = 7.6
    speaker: float = 1.1
    time: float = 3.3
    asks: float = -0.2
    answers: float = 0.1
    length: float = 1.35

    @property
    def max_score(self) -> float:
        """Approximate maximum score. Scores are divided by it."""
        signals = self.near + self.wide + self.session + self.meaning + self.speaker + self.time
        return signals + self.answers + self.length * float(np.log1p(MAX_LENGTH_TERMS))


@dataclass(slots=True)
class Evidence:
    """Evidence for the messages of a namespace. Each array covers all rows, unless noted otherwise."""

    words: WordScores
    speaker: Flags
    time: Floats
    trust: Trust | None = None
    """Trust in the vectors, or None without vectors."""
    cosines: Floats | None = None
    """Cosines of all rows, if the vectors are in memory."""
    nearest: Rows | None = None
    """The nearest allowed rows, if the store searches the vectors."""
    fetch_cosines: Callable[[Rows], Floats] | None = None
    """Return an array over all rows with the cosines of the given rows, if the store computes them."""
    second_look: Floats | None = None
    """Scores by the terms of a first pass's best hits."""


@dataclass(slots=True)
class RankedRows:
    """Rows with their scores and the score breakdown, best first."""

    rows: Rows
    scores: Floats
    signals: dict[str, Floats] = field(default_factory=dict)


def rank(
    positions: MessagePositions, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights
) -> RankedRows:
    """Return the best allowed rows.

    Args:
        positions: Positions of the namespace's messages.
        evidence: Evidence for each row.
        allowed: Flags of the rows that may be returned. None allows all.
        limit: Maximum number of rows.
        weights: Weights of the signals.
    """
    candidates = choose_candidates(positions, evidence, allowed, limit, weights)
    rows, signals = (
        np.arange(positions.count)[candidates],
        _compute_signals(positions, evidence, candidates, weights),
    )
    together = np.concatenate(list(signals.values())).reshape(len(signals), len(rows))
    scores = together.sum(axis=0)
    order = _find_best_rows(scores, limit)
    parts = together[:, order] / weights.max_score
    return RankedRows(rows[order], scores[order] / weights.max_score, dict(zip(signals, parts, strict=True)))


def _find_best_rows(scores: Floats, limit: int) -> Rows:
    # Ties are broken by the newest row, so that the order does not depend on the candidates.
    best = np.arange(len(scores))
    if limit < len(scores):
        # Find the lowest score among the best by partition, which is faster than sorting all. Keep every row with at
        # least this score: argpartition alone would choose arbitrarily among ties.
        best = np.flatnonzero(scores >= scores[np.argpartition(scores, -limit)[-limit]])
    return best[np.lexsort((-best, -scores[best]))[:limit]]


def _compute_signals(
    positions: MessagePositions, evidence: Evidence, rows: Rows | slice, weights: Weights
) -> dict[str, Floats]:
    found = _compute_match_features(positions, evidence, rows)
    near, wide = found["near"], found["wide"]
    # Report the part of the word score that the message reaches alone as "message", the rest as "neighbors". Length
    # norms differ, so the own score may exceed the others: cap it, or "neighbors" would become negative.
    own = np.minimum(evidence.words.own[rows], np.minimum(near, wide))
    signals: dict[str, Floats] = {
        "message": (weights.near + weights.wide) * own,
        "neighbors": weights.near * (near - own) + weights.wide * (wide - own),
        "session": weights.session * found["session"],
        "meaning": weights.meaning * found["meaning"],
        "speaker": weights.speaker * found["speaker"],
        "time": weights.time * found["time"],
        "form": _score_form(positions, rows, weights),
    }
    if evidence.second_look is not None:
        signals["second look"] = SECOND_LOOK_WEIGHT * evidence.second_look[rows]
    return signals


def _compute_match_features(
    positions: MessagePositions, evidence: Evidence, rows: Rows | slice
) -> dict[str, Floats]:
    words = evidence.words
    near = words.with_neighbors[NEAR_KERNEL][rows]
    return {
        "near": near,
        "wide": words.with_neighbors[WIDE_KERNEL][rows],
        "session": words.sessions[positions["session"][rows]],
        "meaning": _score_meaning(positions, evidence, rows, len(near)),
        "speaker": evidence.speaker[rows],
        "time": evidence.time[rows],
    }


def _compute_form_features(positions: MessagePositions, rows: Rows | slice) -> dict[str, Floats]:
    return {
        "asks": positions["is_question"][rows],
        "answers": positions["follows_question"][rows],
        "length": np.log1p(np.minimum(positions["lengths"][rows], MAX_LENGTH_TERMS)),
    }


def choose_candidates(
    positions: MessagePositions, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights
) -> Rows | slice:
    """Return the rows to score: all allowed rows of a small namespace, else the best by each kind of evidence.

    The result is the union of the best rows by words, speaker and time, by cosine, and by the second pass. A message
    that only one kind of evidence supports is therefore not lost.
    """
    # slice(None) means all rows. Indexing with it creates views, while an array of all rows would copy.
    if positions.count <= MAX_EXHAUSTIVE_MESSAGES:
        return slice(None) if allowed is None else np.flatnonzero(allowed)
    if allowed is not None and np.count_nonzero(allowed) <= MAX_EXHAUSTIVE_MESSAGES:
        return np.flatnonzero(allowed)
    words = evidence.words
    by_words = (
        weights.near * words.with_neighbors[NEAR_KERNEL] + weights.wide * words.with_neighbors[WIDE_KERNEL]
    )
    by_words += weights.session * words.sessions[positions["session"]]
    by_words += weights.time * evidence.time
    hint = by_words + weights.speaker * evidence.speaker
    # Several times the limit: a candidate that is mediocre by one kind of evidence may win by the sum.
    many = max(100, 4 * limit)
    found = [_find_top_rows(hint, allowed, many)]
    if evidence.cosines is not None and evidence.trust is not None and evidence.trust.share > 0:
        found.append(_find_top_rows(evidence.cosines, allowed, many))
    if evidence.second_look is not None:
        found.append(_find_top_rows(evidence.second_look, allowed, many))
    if evidence.nearest is not None:
        found.append(evidence.nearest)
    return np.unique(np.concatenate(found))


def score_times(positions: MessagePositions, ranges: Sequence[TimeRange]) -> Floats:
    """Return 1 for messages within one of the ranges, falling to 0 over the 10 days after it."""
    scores = np.zeros(positions.count)
    for span in ranges:
        times, start, end = positions["times"], to_microseconds(span.start), to_microseconds(span.end)
        late = 1 - (times - end) / AFTERMATH_MICROSECONDS
        scores = np.maximum(scores, np.where(times < start, 0, np.where(times < end, 1, np.clip(late, 0, 1))))
    return scores


def _find_top_rows(scores: Floats, allowed: Flags | None, many: int) -> Rows:
    rows = None if allowed is None else np.flatnonzero(allowed)
    if rows is not None:
        scores = scores[rows]
    count = len(scores)
    best = np.argpartition(scores, count - many)[-many:] if count > many else np.arange(count)
    return best if rows is None else rows[best]


def _score_meaning(positions: MessagePositions, evidence: Evidence, rows: Rows | slice, count: int) -> Floats:
    if evidence.trust is None or evidence.trust.share == 0 or not count:
        return np.zeros(count)
    cosines = evidence.cosines
    if cosines is None:
        if evidence.fetch_cosines is None:
            return np.zeros(count)
        # The store computes cosines on demand: for the candidates and for their neighbors.
        near, own = positions["neighbors"][rows], np.arange(positions.count)[rows]
        cosines = evidence.fetch_cosines(np.unique(np.concatenate([own, near[near >= 0]])))
    together = combine_neighbor_cosines(positions, NEAR_KERNEL, cosines, rows)
    return evidence.trust.share * evidence.trust.scale * together


def _score_form(positions: MessagePositions, rows: Rows | slice, weights: Weights) -> Floats:
    # A slice is always all rows. Their form does not depend on the query, so it is cached until rows are added.
    if isinstance(rows, slice):
        return positions.get_or_compute(weights, lambda: _compute_form_score(positions, rows, weights))
    return _compute_form_score(positions, rows, weights)


def _compute_form_score(positions: MessagePositions, rows: Rows | slice, weights: Weights) -> Floats:
    parts = _compute_form_features(positions, rows)
    form: Floats = (
        weights.length * parts["length"] + weights.asks * parts["asks"] + weights.answers * parts["answers"]
    )
    return form


CANDIDATES_PER_RESULT = 3
"""Number of candidates of each kind per requested memory."""
HALF_LIFE_MICROSECONDS = 30 * 86_400 * 10**6
"""Half-life of recency: 30 days."""
MAX_SCORED_MESSAGES = 1000
"""Maximum number of messages that TF-IDF scores, chosen by BM25."""


def rank_by_recency(positions: MessagePositions, allowed: Flags | None, limit: int) -> RankedRows:
    """Return the newest messages first. Ties are broken by the higher key."""
    rows = _list_allowed_rows(positions, allowed)
    # np.lexsort sorts by its last key first. Rows ascend by key, so -rows prefers the higher key among equals.
    rows = rows[np.lexsort((-rows, -positions["times"][rows]))][:limit]
    scores = 1 - np.arange(len(rows)) / limit
    return RankedRows(rows, scores, {"recency": scores})


def rank_by_importance(
    positions: MessagePositions, importance: Floats, allowed: Flags | None, limit: int
) -> RankedRows:
    """Return the most important messages first. Ties are broken by the newer message."""
    rows = _list_allowed_rows(positions, allowed)
    rows = rows[np.lexsort((-rows, -positions["times"][rows], -importance[rows]))][:limit]
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
    positions: MessagePositions,
    rows: Rows,
    texts: Sequence[Sequence[str]],
    text_counts: Mapping[str, int],
    other_scores: Mapping[str, Floats],
    limit: int,
    weights: TfIdfWeights,
) -> RankedRows:
    """Rank candidates by the weighted mean of five signals.

    Args:
        positions: Positions of the namespace's messages.
        rows: The candidates.
        texts: Terms of each candidate.
        text_counts: The query's terms, with the number of messages that contain each.
        other_scores: Recency, importance and access of the candidates.
        limit: Maximum number of rows.
        weights: Weight of each signal.
    """
    idf = {
        term: float(np.log(positions.count / count)) if count else 0.0 for term, count in text_counts.items()
    }
    best = sum(idf.values())
    semantic, keyword = np.zeros(len(rows)), np.zeros(len(rows))
    for number, text in enumerate(texts):
        # semantic: TF-IDF of the query's terms, with TF relative to the most frequent term of the message.
        # Divided by the sum of all IDFs, it is at most 1. keyword: share of the query's terms that occur.
        counts = Counter(text)
        max_count = max(counts.values(), default=1)
        known = [term for term in idf if term in counts]
        semantic[number] = sum(counts[term] / max_count * idf[term] for term in known) / best if best else 0.0
        keyword[number] = len(known) / len(idf) if idf else 0.0
    signals = {"semantic": semantic, "keyword": keyword, **other_scores}
    # Only the ratio of the weights matters: the configuration need not make them add up to 1.
    total = sum(getattr(weights, name) for name in signals)
    return _rank_by_signals(
        rows, {name: getattr(weights, name) / total * part for name, part in signals.items()}, limit
    )


def compute_recency(positions: MessagePositions, rows: Rows, now: int) -> Floats:
    """Return the recency of messages: 1 for now, halved every 30 days."""
    ages = np.maximum(0, now - positions["times"][rows])
    faded: Floats = np.exp2(-ages / HALF_LIFE_MICROSECONDS)
    return faded


def _list_allowed_rows(positions: MessagePositions, allowed: Flags | None) -> Rows:
    return np.arange(positions.count) if allowed is None else np.flatnonzero(allowed)


def _rank_by_signals(rows: Rows, signals: Mapping[str, Floats], limit: int) -> RankedRows:
    scores = sum(signals.values(), np.zeros(len(rows)))
    order = np.lexsort((-rows, -scores))[:limit]
    return RankedRows(rows[order], scores[order], {name: part[order] for name, part in signals.items()})
