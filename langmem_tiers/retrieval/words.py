"""What the words of a query say for each message: BM25 over messages, neighbourhoods and sessions.

All of it comes from where the words stand. What a message borrows from its neighbours is added up at
query time, so nothing is indexed twice, and how rare a word is counts within one namespace alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.scoring.terms import is_unspaced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.core.indexes import Postings
    from langmem_tiers.retrieval.arrays import Floats, Rows
    from langmem_tiers.retrieval.places import Places

K1, B = 1.2, 0.75
"""How soon more of the same word adds nothing, and how much longer texts are discounted."""
PIECE = 0.4
"""What a pair or a single character counts beside a word: a word of two characters makes three of them."""

_CELLS = 20_000  # that are scored at once: a few words of a small namespace, one of a large


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a query where they stand: one entry for each word in each message that holds it."""

    of: Rows
    """Which word."""
    rows: Rows
    counts: Floats
    idf: Floats
    """Of each word: how rare it is, times what it is worth."""
    worth: Floats
    """Of each word: less for a piece of a run of characters, of which a word makes several."""
    absent: float = 0.0
    """What the words of the query that are nowhere would be worth."""

    @property
    def total(self) -> float:
        """What all words that are there are worth together."""
        return float(self.idf.sum()) or 1.0

    @property
    def shares(self) -> Floats:
        """Of each word in what the whole query is worth: half a query that is found is half an answer."""
        return self.idf / (self.total + self.absent)


@dataclass(frozen=True, slots=True)
class WordScores:
    """Scores in [0, about 1], for messages by themselves, with their neighbours, and for sessions."""

    own: Floats
    with_neighbours: tuple[Floats, ...]
    """One for each kernel."""
    sessions: Floats


def words_of(places: Places, postings: Postings | None, asked: Sequence[str] = ()) -> Words:
    """The words that are in the namespace, as rows of its places.

    Args:
        places: The namespace.
        postings: Where words are.
        asked: The words that were looked for.
    """
    if postings is None or not len(postings.keys):
        nothing = np.zeros(0, np.int64)
        return Words(nothing, nothing, np.zeros(0), np.zeros(0), np.zeros(0))
    rows = places.rows_of(postings.keys)
    here = rows >= 0  # what was written since the places were read is found the next time
    of = postings.of[here]
    holding = np.bincount(of, minlength=len(postings.terms))
    worth = np.array([PIECE if is_unspaced(term) else 1.0 for term in postings.terms])
    idf = _idf(places.count, holding) * (holding > 0) * worth
    # Pieces across two words are in no text: that they are nowhere says nothing.
    there = {term for term, held in zip(postings.terms, holding.tolist(), strict=True) if held}
    nowhere = sum(term not in there and not is_unspaced(term) for term in asked)
    absent = nowhere * float(np.log1p((places.count + 0.5) / 0.5))
    return Words(of, rows[here], postings.counts[here], idf, worth, absent)


def score_words(places: Places, words: Words) -> WordScores:
    """BM25 of all messages and sessions."""
    return WordScores(
        own=own_scores(places, words),
        with_neighbours=_neighbour_scores(places, words, words.shares),
        sessions=_session_scores(places, words),
    )


def own_scores(places: Places, words: Words) -> Floats:
    """BM25 of all messages by their own words."""
    own = _saturated(words.counts, _own_norms(places)[words.rows]) * words.shares[words.of]
    return _summed(words.rows, own, places.count)


def _neighbour_scores(places: Places, words: Words, weights: Floats) -> tuple[Floats, ...]:
    kernels, count = range(len(places.kernels)), places.count
    scores = tuple(np.zeros(count) for _ in kernels)
    at_once = max(1, _CELLS // max(1, count))
    for first in range(0, len(weights), at_once):
        some = (words.of >= first) & (words.of < first + at_once)
        of, rows, counts = words.of[some] - first, words.rows[some], words.counts[some]
        near = places["neighbours"][rows]
        there = near >= 0
        # Each word has a stretch of cells of its own, one for each message.
        cells = np.concatenate([of * count + rows, (near + (of * count)[:, None])[there]])
        width = min(at_once, len(weights) - first) * count
        for kernel in kernels:
            lent = (places.lent(kernel)[rows] * counts[:, None])[there]
            held = _summed(cells, np.concatenate([counts, lent]), width)
            filled = np.flatnonzero(held)
            row = filled % count
            gave = _saturated(held[filled], _kernel_norms(places, kernel)[row])
            scores[kernel][:] += _summed(row, gave * weights[first + filled // count], count)
    return scores


def _session_scores(places: Places, words: Words) -> Floats:
    count = places.session_count
    number = len(words.idf)
    if not number:
        return np.zeros(count)
    cells = words.of * count + places["session"][words.rows]
    held = _summed(cells, words.counts, number * count).reshape(number, count)
    idf = _idf(count, (held > 0).sum(axis=1)) * words.worth / words.total
    scores: Floats = (_saturated(held, _session_norms(places)) * idf[:, None]).sum(axis=0)
    return scores


def _idf(count: int, holding: NDArray[np.integer]) -> Floats:
    return np.log1p((count - holding + 0.5) / (holding + 0.5))


def _kernel_norms(places: Places, kernel: int) -> Floats:
    return _norms(places, kernel, lambda: places.lengths_with_neighbours(kernel))


def _own_norms(places: Places) -> Floats:
    return _norms(places, "own", lambda: places["lengths"])


def _session_norms(places: Places) -> Floats:
    count = places.session_count
    return _norms(places, "session", lambda: _summed(places["session"], places["lengths"], count))


def _norms(places: Places, of: object, lengths: Callable[[], Floats]) -> Floats:
    known = places.derived.get(of)
    if known is None:
        each = lengths()
        known = places.derived[of] = K1 * (1 - B + B * each / max(float(each.mean()), 1e-9))
    return known


def _saturated(counts: Floats, norms: Floats) -> Floats:
    return counts * (K1 + 1) / (counts + norms)


def _summed(where: Rows, what: Floats, count: int) -> Floats:
    return np.bincount(where, what, count).astype(np.float64, copy=False)
