"""What the words of a query say for each message: BM25 over messages, neighbourhoods and sessions.

All of it comes from where the words stand. What a message borrows from its neighbours is added up at
query time, so nothing is indexed twice, and how rare a word is counts within one namespace alone.
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

    from langmem_tiers.recall.positions import MessagePositions
    from langmem_tiers.recall.records import Floats, Rows
    from langmem_tiers.storage.search.postings import Postings

K1, B = 1.2, 0.75
"""How soon more of the same word adds nothing, and how much longer texts are discounted."""
MIN_IDF_SHARE = 0.15
"""What a word counts at least, beside one that is nowhere else: where all speak of boats, boats still matter."""
NGRAM_WEIGHT = 0.4
"""What a pair or a single character counts beside a word: a word of two characters makes three of them."""


@dataclass(frozen=True, slots=True)
class TermMatches:
    """The words of a query where they stand: one entry for each word in each message that holds it."""

    term_numbers: Rows
    """Which word, in their order."""
    rows: Rows
    counts: Floats
    idf: Floats
    """Of each word: how rare it is, times what it is worth."""
    weights: Floats
    """Of each word: less for a piece of a run of characters, of which a word makes several."""
    missing_weight: float = 0.0
    """What the words of the query that are nowhere would be worth."""

    @property
    def total_weight(self) -> float:
        """What all words that are there are worth together."""
        return float(self.idf.sum()) or 1.0

    @property
    def shares(self) -> Floats:
        """Of each word in what the whole query is worth: half a query that is found is half an answer.

        Words that are nowhere count no more than those that are there: they may be mere phrases.
        """
        return self.idf / (self.total_weight + min(self.missing_weight, self.total_weight))


@dataclass(frozen=True, slots=True)
class WordScores:
    """Scores in [0, about 1], for messages by themselves, with their neighbours, and for sessions."""

    own: Floats
    with_neighbors: tuple[Floats, ...]
    """One for each kernel."""
    sessions: Floats


def find_term_matches(
    places: MessagePositions, postings: Postings | None, asked: Sequence[str] = (), asking: int | None = None
) -> TermMatches:
    """The words that are in the namespace, as rows of its places.

    Args:
        places: The namespace.
        postings: Where words are.
        asked: The words that were looked for.
        asking: The row of the message that asks, which is no place for its words to be found.
    """
    if postings is None or not len(postings.keys):
        nothing = np.zeros(0, np.int64)
        return TermMatches(nothing, nothing, np.zeros(0), np.zeros(0), np.zeros(0))
    rows = places.find_rows(postings.keys)
    here = rows >= 0  # what was written since the places were read is found the next time
    if asking is not None:
        here &= rows != asking
    of = postings.term_numbers[here]
    holding = np.bincount(of, minlength=len(postings.terms))
    worth = np.array([NGRAM_WEIGHT if is_unspaced(term) else 1.0 for term in postings.terms])
    idf = compute_idf(places.count, holding) * (holding > 0) * worth
    # Pieces across two words are in no text: that they are nowhere says nothing.
    there = {term for term, held in zip(postings.terms, holding.tolist(), strict=True) if held}
    nowhere = sum(term not in there and not is_unspaced(term) for term in asked)
    absent = nowhere * compute_max_idf(places.count)
    return TermMatches(of, rows[here], postings.counts[here], idf, worth, absent)


def score_words(places: MessagePositions, words: TermMatches) -> WordScores:
    """BM25 of all messages and sessions."""
    return WordScores(
        own=score_own_words(places, words),
        with_neighbors=_score_with_neighbors(places, words, words.shares),
        sessions=_score_sessions(places, words),
    )


def score_own_words(places: MessagePositions, words: TermMatches) -> Floats:
    """BM25 of all messages by their own words."""
    own = saturate_counts(words.counts, _get_own_norms(places)[words.rows]) * words.shares[words.term_numbers]
    return _sum_by_row(words.rows, own, places.count)


def _score_with_neighbors(
    places: MessagePositions, words: TermMatches, weights: Floats
) -> tuple[Floats, ...]:
    count, rows = places.count, words.rows[:, None]
    near = places["neighbours"][words.rows]
    # Each word goes to its own message and to its neighbours. Where there is none, nothing is lent.
    to = np.concatenate([rows, np.where(near < 0, rows, near)], axis=1)
    kernels = range(len(places.kernels))
    # Each kernel has a stretch of cells, one for each message, so that all are filled in one go.
    cells = np.concatenate([to + kernel * count for kernel in kernels], axis=1)
    whole = np.ones(rows.shape, np.float32)
    shares = [part for kernel in kernels for part in (whole, places.outgoing_weights(kernel)[words.rows])]
    given = np.concatenate(shares, axis=1) * words.counts[:, None]
    norms, scores = _get_kernel_norms(places), np.zeros(len(kernels) * count)
    ends = np.searchsorted(words.term_numbers, np.arange(len(weights)), side="right").tolist()
    for start, end, weight in zip([0, *ends], ends, weights.tolist(), strict=False):
        filled = cells[start:end].ravel()
        held = _sum_by_row(filled, given[start:end].ravel(), len(scores))[filled]
        # A cell that is filled several times holds the same each time, and is set, not added to.
        scores[filled] += saturate_counts(held, norms[filled]) * weight
    return tuple(scores.reshape(len(kernels), count))


def _score_sessions(places: MessagePositions, words: TermMatches) -> Floats:
    count = places.session_count
    number = len(words.idf)
    if not number:
        return np.zeros(count)
    cells = words.term_numbers * count + places["session"][words.rows]
    held = _sum_by_row(cells, words.counts, number * count).reshape(number, count)
    idf = compute_idf(count, (held > 0).sum(axis=1)) * words.weights / words.total_weight
    scores: Floats = (saturate_counts(held, _get_session_norms(places)) * idf[:, None]).sum(axis=0)
    return scores


def compute_idf(count: int, holding: NDArray[np.integer]) -> Floats:
    """How rare words are that so many of all texts hold."""
    idf = np.log1p((count - holding + 0.5) / (holding + 0.5))
    return np.maximum(idf, MIN_IDF_SHARE * compute_max_idf(count))


def compute_max_idf(count: int) -> float:
    """What a word counts that none of the texts holds."""
    return math.log1p((count + 0.5) / 0.5)


def _get_kernel_norms(places: MessagePositions) -> Floats:
    # One stretch for each kernel, each with a mean of its own.
    lengths = (places.lengths_with_neighbors(kernel) for kernel in range(len(places.kernels)))
    return places.get_or_compute(
        "kernel norms", lambda: np.concatenate([compute_length_norms(each) for each in lengths])
    )


def _get_own_norms(places: MessagePositions) -> Floats:
    return places.get_or_compute("own norms", lambda: compute_length_norms(places["lengths"]))


def _get_session_norms(places: MessagePositions) -> Floats:
    count = places.session_count
    return places.get_or_compute(
        "session norms",
        lambda: compute_length_norms(_sum_by_row(places["session"], places["lengths"], count)),
    )


def compute_length_norms(lengths: Floats, mean: float | None = None) -> Floats:
    """What the lengths of texts take from their words, beside a mean length; their own if left out."""
    return K1 * (1 - B + B * lengths / max(float(lengths.mean()) if mean is None else mean, 1e-9))


def saturate_counts(counts: Floats, norms: Floats) -> Floats:
    """What so many of the same word in a text count; 1 for one in a text of middling length."""
    return counts * (K1 + 1) / (counts + norms)


def _sum_by_row(where: Rows, what: Floats, count: int) -> Floats:
    return np.bincount(where, what, count).astype(np.float64, copy=False)
