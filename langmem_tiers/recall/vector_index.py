"""What vectors say for each message, and how far they are to be trusted.

A message's cosine is taken together with those of its neighbours, like its words. How much that counts
is found on the messages themselves: a useful model places what was said in a row nearer to each other
than to the rest, about as well as shared words do. One that does not has no say. It is tried on the first
16, 32, 64, ... messages, so that whoever looks at the same memory trusts it alike, whenever they came; where a
server keeps the vectors, that of so many more is made behind a recall, by one process for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.positions import REACH, Places
from langmem_tiers.recall.records import Trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.recall.records import Flags, Floats, Rows

SAMPLE_PAIRS, SAMPLE_OTHERS = 64, 512
LEAST_PAIRS, LEAST_OTHERS = 12, 4
FIRST_TRIAL = 16
"""Messages that a model is tried on first; each later time there are twice as many."""
FAR = 20
"""Messages of one session that lie more than so many places apart need not be about the same."""
ENOUGH = 0.9
"""The part of a sample that must have vectors. A text that the embedder refuses holds nothing up."""
TELLING = 0.05
"""By how much words or vectors must beat chance; where neither does, a trial says nothing."""
_UNKNOWN = 2**62
USUAL_SPREAD = 0.13
"""By how much cosines of unrelated texts differ, for the model that the weights were found with."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages to try a model on: some, for each the one before it, and others to tell it from."""

    size: int
    """How many messages it was taken from."""
    rows: Rows
    before: Rows
    others: Rows

    @property
    def parts(self) -> tuple[Rows, Rows, Rows]:
        """The rows of each kind."""
        return self.rows, self.before, self.others

    @property
    def extent(self) -> tuple[int, int, int]:
        """What tells it from a sample that more of the messages had vectors for."""
        return self.size, len(self.rows), len(self.others)

    def among(self, there: Flags) -> Sample | None:
        """What of it has vectors; None if too much has not."""
        pairs, others = there[self.rows] & there[self.before], there[self.others]
        if min(pairs.mean(), others.mean()) < ENOUGH:
            return None
        return Sample(self.size, self.rows[pairs], self.before[pairs], self.others[others])


class VectorIndex:
    """The vectors of one namespace by one model, one row for each message, of length 1."""

    def __init__(self, dimension: int) -> None:
        self.mark = 0
        self.trust = Trust()
        self.tried: tuple[int, int, int] | None = None
        """The extent of the sample that the trust was found on."""
        self.tried_on = 0
        """How many messages that sample was taken from, if nothing can be added to it."""
        self.trial_waits = False
        """Whether there are enough messages for another trial, which nobody had the time for."""
        self.tidied_on = 0
        """The day on which vectors of other models were last looked for."""
        self.refused: dict[int, float] = {}
        """The keys of messages that the embedder refuses, and when it is asked again."""
        self.unsaved: list[tuple[list[int], Floats]] = []
        """Keys and vectors that are not in the store yet."""
        self.unindexed = _UNKNOWN
        """How many were stored since the store was last told to index them."""
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

    def move(self, keys: Rows, places: Places) -> bool:
        """Follow messages to their new rows, where a store keeps the vectors; False, if it does not.

        Args:
            keys: Of the messages, by the rows that they had.
            places: Where they stand now.
        """
        if self.holds_vectors:
            return False
        there = keys[self.there(len(keys))]
        self._there = np.zeros(places.count, np.bool_)
        rows = places.rows_of(there)
        self._there[rows[rows >= 0]] = True
        tried = max(self.tried_on, 0 if self.tried is None else self.tried[0])
        if not np.array_equal(keys[:tried], places["keys"][:tried]):
            self.tried, self.tried_on, self.trust = None, 0, Trust()
        return True

    def is_complete(self, places: Places) -> bool:
        """Whether every message has a vector."""
        return len(self._there) >= places.count and bool(self._there[: places.count].all())

    def missing(self, places: Places) -> Rows:
        """The keys of messages that have no vector."""
        self._grow(places.count)
        return places["keys"][~self._there[: places.count]]

    def wanted(self, places: Places, now: float, limit: int) -> list[int]:
        """The keys of messages that are to be embedded: those that have no vector and are not left alone."""
        self.refused = {key: until for key, until in self.refused.items() if until > now}
        left_alone = [*self.refused, *(key for keys, _ in self.unsaved for key in keys)]
        missing = self.missing(places)
        if left_alone and len(missing):
            missing = missing[~np.isin(missing, left_alone)]
        wanted: list[int] = missing[:limit].tolist()
        return wanted

    def refuse(self, keys: Sequence[int], until: float) -> None:
        """Leave messages alone until then."""
        self.refused.update(dict.fromkeys(keys, until))

    def add(self, places: Places, keys: list[int], vectors: Floats) -> None:
        """Take vectors over that are not stored yet; a store that compares them itself has to get them first."""
        self.unsaved.append((keys, vectors))
        if self.holds_vectors:
            self.put(places, np.array(keys, np.int64), vectors)

    def saved(self, places: Places, keys: list[int]) -> None:
        """Note that the store has them now."""
        self.unsaved = [some for some in self.unsaved if some[0] is not keys]
        if not self.holds_vectors:
            self.put(places, np.array(keys, np.int64), None)

    def lose(self, rows: Rows) -> int:
        """Note that the store has no vectors for these rows; how many of them had one."""
        self._grow(int(rows.max(initial=-1)) + 1)
        gone = rows[self._there[rows]]
        self._there[gone] = False
        if len(gone):
            self.tried, self.tried_on = None, 0
        return len(gone)

    def there(self, count: int) -> Flags:
        """Which of the first rows have a vector."""
        self._grow(count)
        return self._there[:count]

    def vectors(self, rows: Rows) -> Floats:
        """The vectors of some rows."""
        return self._matrix[rows]

    def cosines(self, count: int, query: Floats) -> Floats:
        """The cosine of every message; those without a vector are like the average."""
        self._grow(count)  # messages may have come since vectors were loaded
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
    lengths = np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))
    lengths[lengths == 0] = 1
    units: Floats = (vectors / lengths).astype(np.float32, copy=False)
    return units


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


def trial_sizes(count: int) -> Iterator[int]:
    """How many of the first messages a model is tried on, the most first."""
    size = FIRST_TRIAL << max(0, (count // FIRST_TRIAL).bit_length() - 1)
    while FIRST_TRIAL <= size <= count:
        yield size
        size //= 2


def sample(places: Places, size: int) -> Sample | None:
    """Some of the first ``size`` messages to try a model on; None if there are too few."""
    before = places["neighbours"][:size, REACH - 1].astype(np.int64)
    worth = places["lengths"][:size] >= 4
    rows = np.flatnonzero((before >= 0) & (before < size) & worth)
    rows = rows[worth[before[rows]]]
    if len(rows) < LEAST_PAIRS:
        return None
    rng = np.random.default_rng(size)  # the same messages, the same sample
    rows = rng.permutation(rows)[:SAMPLE_PAIRS]
    return Sample(size, rows, before[rows], rng.permutation(np.flatnonzero(worth))[:SAMPLE_OTHERS])


def find_trust(
    places: Places, picked: Sample, vectors: Sequence[Floats], terms: Sequence[Sequence[Sequence[str]]]
) -> Trust:
    """Compare how well vectors and shared words tell the message before from others.

    Args:
        places: Where the messages stand.
        picked: The sample.
        vectors: Of each of its three parts.
        terms: Of each of its three parts.
    """
    units = [unit(part) for part in vectors]
    elsewhere = _elsewhere(places, picked)
    counted = elsewhere.sum(axis=1) >= LEAST_OTHERS
    if counted.sum() < LEAST_PAIRS:
        return Trust()
    spread = float((units[0] @ units[2].T)[elsewhere].std())
    scale = float(np.clip(USUAL_SPREAD / max(spread, 1e-3), 0.5, 4))
    by_vectors = _told_apart(units, elsewhere, counted) - 0.5
    by_words = _told_apart(_term_vectors(terms), elsewhere, counted) - 0.5
    if max(by_vectors, by_words) < TELLING:
        return Trust(scale=scale)
    share = by_vectors / max(by_words, TELLING)
    return Trust(share=float(np.clip((share - 0.4) / 0.4, 0, 1)), scale=scale)


def _elsewhere(places: Places, picked: Sample) -> Flags:
    # Which of the others are of another session than each row, or far away in its own.
    session = places["session"][: picked.size]
    order = np.empty(picked.size, np.int64)
    order[np.lexsort((places["positions"][: picked.size], session))] = np.arange(picked.size)
    apart: Flags = np.abs(order[picked.others][None, :] - order[picked.rows][:, None]) > FAR
    other: Flags = session[picked.others][None, :] != session[picked.rows][:, None]
    return np.logical_or(other, apart)


def _told_apart(parts: Sequence[Floats], elsewhere: Flags, counted: Flags) -> float:
    # How often the message before is nearer than one from elsewhere: 0.5 is chance, 1 is always.
    rows, before, others = parts
    near = (rows * before).sum(axis=1)[:, None]
    far = rows @ others.T
    wins = ((far < near) + 0.5 * (far == near)) * elsewhere
    return float((wins[counted].sum(axis=1) / elsewhere[counted].sum(axis=1)).mean())


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
