"""The default ranking: words and vectors, each combined with neighboring messages, speaker, time and form.

The weights were found by a listwise fit over conversations of several kinds, with cross-validation over
conversations. They do not depend on the length of turns, because the kernels measure distance in words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.recall.positions import Kernel
from langmem_tiers.recall.vector_index import combine_neighbor_cosines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    places: MessagePositions, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights
) -> RankedRows:
    """Return the best allowed rows.

    Args:
        places: Positions of the namespace's messages.
        evidence: Evidence for each row.
        allowed: Flags of the rows that may be returned. None allows all.
        limit: Maximum number of rows.
        weights: Weights of the signals.
    """
    candidates = choose_candidates(places, evidence, allowed, limit, weights)
    rows, signals = (
        np.arange(places.count)[candidates],
        _compute_signals(places, evidence, candidates, weights),
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
    places: MessagePositions, evidence: Evidence, rows: Rows | slice, weights: Weights
) -> dict[str, Floats]:
    found = _compute_match_features(places, evidence, rows)
    near, wide = found["near"], found["wide"]
    # Report the part of the word score that the message reaches alone as "message", the rest as "neighbours". Length
    # norms differ, so the own score may exceed the others: cap it, or "neighbours" would become negative.
    own = np.minimum(evidence.words.own[rows], np.minimum(near, wide))
    signals: dict[str, Floats] = {
        "message": (weights.near + weights.wide) * own,
        "neighbours": weights.near * (near - own) + weights.wide * (wide - own),
        "session": weights.session * found["session"],
        "meaning": weights.meaning * found["meaning"],
        "speaker": weights.speaker * found["speaker"],
        "time": weights.time * found["time"],
        "form": _score_form(places, rows, weights),
    }
    if evidence.second_look is not None:
        signals["second look"] = SECOND_LOOK_WEIGHT * evidence.second_look[rows]
    return signals


def compute_features(places: MessagePositions, evidence: Evidence, rows: Rows | slice) -> dict[str, Floats]:
    """Return the unweighted features of rows: one array per field of ``Weights``."""
    return _compute_match_features(places, evidence, rows) | _compute_form_features(places, rows)


def _compute_match_features(
    places: MessagePositions, evidence: Evidence, rows: Rows | slice
) -> dict[str, Floats]:
    words = evidence.words
    near = words.with_neighbors[NEAR_KERNEL][rows]
    return {
        "near": near,
        "wide": words.with_neighbors[WIDE_KERNEL][rows],
        "session": words.sessions[places["session"][rows]],
        "meaning": _score_meaning(places, evidence, rows, len(near)),
        "speaker": evidence.speaker[rows],
        "time": evidence.time[rows],
    }


def _compute_form_features(places: MessagePositions, rows: Rows | slice) -> dict[str, Floats]:
    return {
        "asks": places["asks"][rows],
        "answers": places["follows_question"][rows],
        "length": np.log1p(np.minimum(places["lengths"][rows], MAX_LENGTH_TERMS)),
    }


def choose_candidates(
    places: MessagePositions, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights
) -> Rows | slice:
    """Return the rows to score: all allowed rows of a small namespace, else the best by each kind of evidence.

    The result is the union of the best rows by words, speaker and time, by cosine, and by the second pass. A message
    that only one kind of evidence supports is therefore not lost.
    """
    # slice(None) means all rows. Indexing with it creates views, while an array of all rows would copy.
    if places.count <= MAX_EXHAUSTIVE_MESSAGES:
        return slice(None) if allowed is None else np.flatnonzero(allowed)
    if allowed is not None and np.count_nonzero(allowed) <= MAX_EXHAUSTIVE_MESSAGES:
        return np.flatnonzero(allowed)
    words = evidence.words
    by_words = (
        weights.near * words.with_neighbors[NEAR_KERNEL] + weights.wide * words.with_neighbors[WIDE_KERNEL]
    )
    by_words += weights.session * words.sessions[places["session"]]
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


def score_times(places: MessagePositions, ranges: Sequence[TimeRange]) -> Floats:
    """Return 1 for messages within one of the ranges, falling to 0 over the 10 days after it."""
    scores = np.zeros(places.count)
    for span in ranges:
        times, start, end = places["times"], to_microseconds(span.start), to_microseconds(span.end)
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


def _score_meaning(places: MessagePositions, evidence: Evidence, rows: Rows | slice, count: int) -> Floats:
    if evidence.trust is None or evidence.trust.share == 0 or not count:
        return np.zeros(count)
    cosines = evidence.cosines
    if cosines is None:
        if evidence.fetch_cosines is None:
            return np.zeros(count)
        # The store computes cosines on demand: for the candidates and for their neighbors.
        near, own = places["neighbours"][rows], np.arange(places.count)[rows]
        cosines = evidence.fetch_cosines(np.unique(np.concatenate([own, near[near >= 0]])))
    together = combine_neighbor_cosines(places, NEAR_KERNEL, cosines, rows)
    return evidence.trust.share * evidence.trust.scale * together


def _score_form(places: MessagePositions, rows: Rows | slice, weights: Weights) -> Floats:
    # A slice is always all rows. Their form does not depend on the query, so it is cached until rows are added.
    if isinstance(rows, slice):
        return places.get_or_compute(weights, lambda: _compute_form_score(places, rows, weights))
    return _compute_form_score(places, rows, weights)


def _compute_form_score(places: MessagePositions, rows: Rows | slice, weights: Weights) -> Floats:
    parts = _compute_form_features(places, rows)
    form: Floats = (
        weights.length * parts["length"] + weights.asks * parts["asks"] + weights.answers * parts["answers"]
    )
    return form
