"""What vectors say for each message, and how far they are to be trusted.

A message's cosine is taken together with those of its neighbours, like its words. How much that counts
is found on the messages themselves: a useful model places what was said in a row nearer to each other
than to the rest, about as well as shared words do. One that does not has no say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.retrieval.arrays import Flags, Floats, Rows
    from langmem_tiers.retrieval.places import Places

SAMPLE_PAIRS, SAMPLE_OTHERS = 64, 512
LEAST_PAIRS = 12
UNTRIED = 0.5
"""The trust in a model where there is too little to try it on."""
USUAL_SPREAD = 0.13
"""By how much cosines of unrelated texts differ, for the model that the weights were found with."""


@dataclass(frozen=True, slots=True)
class Trust:
    """How much the cosines of a model count here, and by what they are stretched."""

    share: float = UNTRIED
    scale: float = 1.0


class VectorIndex:
    """The vectors of one namespace by one model, one row for each message, of length 1."""

    def __init__(self, dimension: int) -> None:
        self.mark = 0
        self.trust = Trust()
        self.tried_on = 0
        """How many messages there were when the trust was found."""
        self._matrix = np.zeros((0, dimension), np.float32)
        self._there = np.zeros(0, np.bool_)
        self.holds_vectors = True

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return self._matrix.nbytes

    def put(self, places: Places, keys: Rows, vectors: Floats | None) -> None:
        """Take vectors over, or, where the store keeps them, note which there are."""
        self.holds_vectors = vectors is not None
        self._grow(places.count)
        rows = places.rows_of(keys)
        here = rows >= 0
        self._there[rows[here]] = True
        if vectors is not None:
            self._matrix[rows[here]] = unit(vectors[here])

    def is_complete(self, places: Places) -> bool:
        """Whether every message has a vector."""
        return len(self._there) >= places.count and bool(self._there[: places.count].all())

    def missing(self, places: Places) -> Rows:
        """The keys of messages that have no vector."""
        self._grow(places.count)
        return places["keys"][~self._there[: places.count]]

    def vectors(self, rows: Rows) -> Floats:
        """The vectors of some rows."""
        return self._matrix[rows]

    def cosines(self, count: int, query: Floats) -> Floats:
        """The cosine of every message; those without a vector are like the average."""
        cosines = self._matrix[:count] @ query
        there = self._there[:count]
        if not there.all():
            cosines[~there] = cosines[there].mean() if there.any() else 0.0
        return cosines

    def _grow(self, needed: int) -> None:
        have = len(self._there)
        if needed > have:
            size = needed if have == 0 else max(needed, have + have // 4)
            wider = np.zeros((size if self.holds_vectors else 0, self._matrix.shape[1]), np.float32)
            if self.holds_vectors:
                wider[: len(self._matrix)] = self._matrix
            self._matrix = wider
            self._there = np.concatenate([self._there, np.zeros(size - have, np.bool_)])


def unit(vectors: Floats) -> Floats:
    """The vectors stretched to the length 1; those without a direction stay 0."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def with_neighbours(places: Places, kernel: int, cosines: Floats, rows: Rows | slice) -> Floats:
    """The cosine of each row's text taken together with its neighbours', each as far as it lends.

    Args:
        places: Where the messages stand.
        kernel: How far they reach.
        cosines: Of all messages.
        rows: For which.
    """
    near = cosines.take(places["neighbours"][rows])
    added = cosines[rows] + np.einsum("ij,ij->i", places.borrowed(kernel)[rows], near)
    together: Floats = added / places.joined(kernel)[rows]
    return together


def sample(places: Places) -> tuple[Rows, Rows, Rows] | None:
    """Messages to try a model on: some, for each the one before it, and others."""
    before = places["neighbours"][:, 3]
    worth = places["lengths"] >= 4
    rows = np.flatnonzero((before >= 0) & worth & worth[before])
    if len(rows) < LEAST_PAIRS:
        return None
    rng = np.random.default_rng(places.count)  # the same messages, the same sample
    rows = rng.permutation(rows)[:SAMPLE_PAIRS]
    others = rng.permutation(np.flatnonzero(worth))[:SAMPLE_OTHERS]
    return rows, before[rows].astype(np.int64), others


def find_trust(
    places: Places,
    picked: tuple[Rows, Rows, Rows],
    vectors: Sequence[Floats],
    terms: Sequence[Sequence[Sequence[str]]],
) -> Trust:
    """Compare how well vectors and shared words tell the message before from others.

    Args:
        places: Where the messages stand.
        picked: The sample.
        vectors: Of each of its three parts.
        terms: Of each of its three parts.
    """
    rows, _, others = picked
    elsewhere = places["session"][others][None, :] != places["session"][rows][:, None]
    by_vectors = _told_apart([unit(part) for part in vectors], elsewhere)
    by_words = _told_apart(_term_vectors(terms), elsewhere)
    share = (by_vectors - 0.5) / max(by_words - 0.5, 0.05)
    spread = float((unit(vectors[2]) @ unit(vectors[0]).T).std())
    return Trust(
        share=float(np.clip((share - 0.4) / 0.4, 0, 1)),
        scale=float(np.clip(USUAL_SPREAD / max(spread, 1e-3), 0.5, 4)),
    )


def _told_apart(parts: Sequence[Floats], elsewhere: Flags) -> float:
    # How often the message before is nearer than one of another session: 0.5 is chance, 1 is always.
    rows, before, others = parts
    near = (rows * before).sum(axis=1)[:, None]
    far = rows @ others.T
    wins = (far < near) + 0.5 * (far == near)
    counted = elsewhere.sum(axis=1)
    some = counted > 0
    return float(((wins * elsewhere).sum(axis=1)[some] / counted[some]).mean()) if some.any() else 0.5


def _term_vectors(terms: Sequence[Sequence[Sequence[str]]]) -> list[Floats]:
    texts = [text for part in terms for text in part]
    columns = {term: number for number, term in enumerate(sorted({t for text in texts for t in text}))}
    table = np.zeros((len(texts), max(1, len(columns))), np.float32)
    for row, text in enumerate(texts):
        for term in text:
            table[row, columns[term]] = 1.0
    holding = table.sum(axis=0)
    table = unit(table * np.log(len(texts) / np.maximum(holding, 1)))
    ends = np.cumsum([len(part) for part in terms])[:-1]
    return list(np.split(table, ends))
