"""Score messages by the words of a query: BM25 over messages, their neighborhoods and sessions.

All scores are computed from the postings. The terms that its neighbors add to a message are added up at
query time, so each term is indexed once. IDF is computed within one namespace, so tenants do not affect each
other's scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.text.tokenize import is_unspaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from langmem_tiers.recall.arrays import Floats, Rows
    from langmem_tiers.recall.positions import MessagePositions
    from langmem_tiers.storage.search.postings import Postings

K1, B = 1.2, 0.75
"""BM25 parameters: saturation of repeated terms, and discount of long texts. The usual values."""
MIN_IDF_SHARE = 0.15
"""Minimum IDF as a share of the maximum. Without it, a term of nearly every message would count almost nothing."""
NGRAM_WEIGHT = 0.4
"""Weight of a pair or single character relative to a word. A word of two characters makes three such terms."""


@dataclass(frozen=True, slots=True)
class TermMatches:
    """Occurrences of query terms in messages: one element per term and message that contains it.

    ``term_numbers``, ``rows`` and ``counts`` are parallel arrays, ``idf`` and ``weights`` have one element per term.
    """

    term_numbers: Rows
    """Number of the term. Ascending."""
    rows: Rows
    """Row of the message."""
    counts: Floats
    """Number of occurrences of the term in the message."""
    idf: Floats
    """IDF of each term times its weight."""
    weights: Floats
    """Weight of each term: 1 for words, less for single characters and pairs, of which a word makes several."""
    missing_weight: float = 0.0
    """Total IDF of the query's words that no message contains."""

    @property
    def total_weight(self) -> float:
        """Total IDF of the terms that occur, or 1 if there are none."""
        return float(self.idf.sum()) or 1.0

    @property
    def shares(self) -> Floats:
        """Share of each term in the total IDF of the query, so that a message with half of it scores about half.

        Missing words add at most as much to the total as the words that occur, because they may be filler.
        """
        return self.idf / (self.total_weight + min(self.missing_weight, self.total_weight))


@dataclass(frozen=True, slots=True)
class WordScores:
    """BM25 scores from 0 to about 1."""

    own: Floats
    """Scores of the messages by their own terms."""
    with_neighbors: tuple[Floats, ...]
    """Scores of the messages together with their neighbors. One array per kernel."""
    sessions: Floats
    """Scores of the sessions, by session number."""


def find_term_matches(
    positions: MessagePositions,
    postings: Postings | None,
    terms: Sequence[str] = (),
    excluded: int | None = None,
) -> TermMatches:
    """Convert postings to rows, and compute the IDF of each term.

    Args:
        positions: Positions of the namespace's messages.
        postings: Postings of the query's terms.
        terms: All terms of the query, including those without postings. Default: none.
        excluded: Row of the message that asks, which is excluded. Default: none.
    """
    if postings is None or not len(postings.keys):
        nothing = np.zeros(0, np.int64)
        return TermMatches(nothing, nothing, np.zeros(0), np.zeros(0), np.zeros(0))
    rows = positions.find_rows(postings.keys)
    # A message that was written after the positions were loaded has no row yet. The next recall finds it.
    here = rows >= 0
    if excluded is not None:
        here &= rows != excluded
    term_numbers = postings.term_numbers[here]
    text_counts = np.bincount(term_numbers, minlength=len(postings.terms))
    worth = np.array([NGRAM_WEIGHT if is_unspaced(term) else 1.0 for term in postings.terms])
    # compute_idf has a lower bound: a term whose matches were all excluded above has to be set to 0.
    idf = compute_idf(positions.count, text_counts) * (text_counts > 0) * worth
    # Missing single characters and pairs are not counted: a pair that spans two words is not expected to occur.
    found = {term for term, number in zip(postings.terms, text_counts.tolist(), strict=True) if number}
    missing_count = sum(term not in found and not is_unspaced(term) for term in terms)
    absent = missing_count * compute_max_idf(positions.count)
    return TermMatches(term_numbers, rows[here], postings.counts[here], idf, worth, absent)


def score_words(positions: MessagePositions, words: TermMatches) -> WordScores:
    """Return the BM25 scores of all messages and sessions."""
    return WordScores(
        own=score_own_words(positions, words),
        with_neighbors=_score_with_neighbors(positions, words, words.shares),
        sessions=_score_sessions(positions, words),
    )


def score_own_words(positions: MessagePositions, words: TermMatches) -> Floats:
    """Return the BM25 scores of all messages by their own terms."""
    own = (
        saturate_counts(words.counts, _get_own_norms(positions)[words.rows])
        * words.shares[words.term_numbers]
    )
    return _sum_by_row(words.rows, own, positions.count)


def _score_with_neighbors(
    positions: MessagePositions, words: TermMatches, weights: Floats
) -> tuple[Floats, ...]:
    count, rows = positions.count, words.rows[:, None]
    near = positions["neighbors"][words.rows]
    # Each occurrence counts for its own message and, with less weight, for the neighbors. A missing neighbor (-1) is
    # replaced by the message itself: its outgoing weight is 0, so nothing is added.
    to = np.concatenate([rows, np.where(near < 0, rows, near)], axis=1)
    kernels = range(len(positions.kernels))
    # One array serves all kernels: the cell of a message in kernel k is k * count + row. All kernels are then summed
    # and saturated by the same numpy calls.
    cells = np.concatenate([to + kernel * count for kernel in kernels], axis=1)
    whole = np.ones(rows.shape, np.float32)
    shares = [part for kernel in kernels for part in (whole, positions.outgoing_weights(kernel)[words.rows])]
    lent_counts = np.concatenate(shares, axis=1) * words.counts[:, None]
    norms, scores = _get_kernel_norms(positions), np.zeros(len(kernels) * count)
    # BM25 saturates per term, so the terms are processed one by one. term_numbers ascends: the occurrences of a term
    # are one slice, and `ends` are the ends of these slices.
    ends = np.searchsorted(words.term_numbers, np.arange(len(weights)), side="right").tolist()
    for start, end, weight in zip([0, *ends], ends, weights.tolist(), strict=False):
        filled = cells[start:end].ravel()
        term_counts = _sum_by_row(filled, lent_counts[start:end].ravel(), len(scores))[filled]
        # A cell occurs several times in `filled` if several occurrences reach it. `scores[filled] += ...` adds to
        # such a cell only once, and all of its values are equal. np.add.at would be wrong here.
        scores[filled] += saturate_counts(term_counts, norms[filled]) * weight
    return tuple(scores.reshape(len(kernels), count))


def _score_sessions(positions: MessagePositions, words: TermMatches) -> Floats:
    count = positions.session_count
    number = len(words.idf)
    if not number:
        return np.zeros(count)
    # A table of terms by sessions, filled by one bincount over flattened cells.
    cells = words.term_numbers * count + positions["session"][words.rows]
    term_counts = _sum_by_row(cells, words.counts, number * count).reshape(number, count)
    # Here a session is the document, so IDF counts sessions. The divisor is the weight by messages.
    idf = compute_idf(count, (term_counts > 0).sum(axis=1)) * words.weights / words.total_weight
    scores: Floats = (saturate_counts(term_counts, _get_session_norms(positions)) * idf[:, None]).sum(axis=0)
    return scores


def compute_idf(count: int, text_counts: NDArray[np.integer]) -> Floats:
    """Return the IDF of terms.

    Args:
        count: Number of texts.
        text_counts: Number of texts that contain each term.
    """
    idf = np.log1p((count - text_counts + 0.5) / (text_counts + 0.5))
    return np.maximum(idf, MIN_IDF_SHARE * compute_max_idf(count))


def compute_max_idf(count: int) -> float:
    """Return the IDF of a term that no text contains."""
    return math.log1p((count + 0.5) / 0.5)


def _get_kernel_norms(positions: MessagePositions) -> Floats:
    # One section per kernel, as in the cells of _score_with_neighbors, each normalized by its own mean length.
    lengths = (positions.lengths_with_neighbors(kernel) for kernel in range(len(positions.kernels)))
    return positions.get_or_compute(
        "kernel norms", lambda: np.concatenate([compute_length_norms(each) for each in lengths])
    )


def _get_own_norms(positions: MessagePositions) -> Floats:
    return positions.get_or_compute("own norms", lambda: compute_length_norms(positions["lengths"]))


def _get_session_norms(positions: MessagePositions) -> Floats:
    count = positions.session_count
    return positions.get_or_compute(
        "session norms",
        lambda: compute_length_norms(_sum_by_row(positions["session"], positions["lengths"], count)),
    )


def compute_length_norms(lengths: Floats, mean: float | None = None) -> Floats:
    """Return the BM25 length norms of texts.

    Args:
        lengths: Lengths of the texts in words.
        mean: Mean length to compare with. Default: the mean of ``lengths``.
    """
    # 1e-9 prevents a division by zero if all texts are empty.
    return K1 * (1 - B + B * lengths / max(float(lengths.mean()) if mean is None else mean, 1e-9))


def saturate_counts(counts: Floats, norms: Floats) -> Floats:
    """Return the BM25 term score for counts of a term: 1 for one occurrence in a text of mean length."""
    return counts * (K1 + 1) / (counts + norms)


def _sum_by_row(rows: Rows, values: Floats, count: int) -> Floats:
    # bincount returns integers if `rows` is empty.
    return np.bincount(rows, values, count).astype(np.float64, copy=False)
