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

from langmem_tiers.recall.positions import NEIGHBORS_PER_SIDE, MessagePositions
from langmem_tiers.recall.records import Trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.recall.records import Flags, Floats, Rows

MAX_SAMPLE_PAIRS, MAX_SAMPLE_OTHERS = 64, 512
MIN_SAMPLE_PAIRS, MIN_SAMPLE_OTHERS = 12, 4
FIRST_TRIAL_MESSAGES = 16
"""Messages that a model is tried on first; each later time there are twice as many."""
MIN_FAR_MESSAGES = 20
"""Messages of one session that lie more than so many places apart need not be about the same."""
MIN_VECTOR_SHARE = 0.9
"""The part of a sample that must have vectors. A text that the embedder refuses holds nothing up."""
MIN_ADVANTAGE = 0.05
"""By how much words or vectors must beat chance; where neither does, a trial says nothing."""
_UNKNOWN = 2**62
REFERENCE_SPREAD = 0.13
"""By how much cosines of unrelated texts differ, for the model that the weights were found with."""


@dataclass(frozen=True, slots=True)
class TrialSample:
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

    def restrict_to(self, there: Flags) -> TrialSample | None:
        """What of it has vectors; None if too much has not."""
        pairs, others = there[self.rows] & there[self.before], there[self.others]
        if min(pairs.mean(), others.mean()) < MIN_VECTOR_SHARE:
            return None
        return TrialSample(self.size, self.rows[pairs], self.before[pairs], self.others[others])


class VectorIndex:
    """The vectors of one namespace by one model, one row for each message, of length 1."""

    def __init__(self, dimension: int) -> None:
        self.watermark = 0
        self.trust = Trust()
        self.trial_extent: tuple[int, int, int] | None = None
        """The extent of the sample that the trust was found on."""
        self.trial_size = 0
        """How many messages that sample was taken from, if nothing can be added to it."""
        self.is_trial_pending = False
        """Whether there are enough messages for another trial, which nobody had the time for."""
        self.last_cleanup_day = 0
        """The day on which vectors of other models were last looked for."""
        self.refused_until: dict[int, float] = {}
        """The keys of messages that the embedder refuses, and when it is asked again."""
        self.unsaved: list[tuple[list[int], Floats]] = []
        """Keys and vectors that are not in the store yet."""
        self.unindexed_count = _UNKNOWN
        """How many were stored since the store was last told to index them."""
        self._matrix = np.zeros((0, dimension), np.float32)
        self._has_vector = np.zeros(0, np.bool_)
        self.is_in_memory = True

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return self._matrix.nbytes

    def put(self, places: MessagePositions, keys: Rows, vectors: Floats | None) -> None:
        """Take vectors over, or, where the store keeps them, note which there are."""
        self.is_in_memory = vectors is not None
        self._grow(places.count)
        rows = places.find_rows(keys)
        here = rows >= 0
        self._has_vector[rows[here]] = True
        if vectors is not None:
            self._matrix[rows[here]] = normalize_vectors(vectors[here])

    def move_rows(self, keys: Rows, places: MessagePositions) -> bool:
        """Follow messages to their new rows, where a store keeps the vectors; False, if it does not.

        Args:
            keys: Of the messages, by the rows that they had.
            places: Where they stand now.
        """
        if self.is_in_memory:
            return False
        there = keys[self.get_vector_flags(len(keys))]
        self._has_vector = np.zeros(places.count, np.bool_)
        rows = places.find_rows(there)
        self._has_vector[rows[rows >= 0]] = True
        tried = max(self.trial_size, 0 if self.trial_extent is None else self.trial_extent[0])
        if not np.array_equal(keys[:tried], places["keys"][:tried]):
            self.trial_extent, self.trial_size, self.trust = None, 0, Trust()
        return True

    def is_complete(self, places: MessagePositions) -> bool:
        """Whether every message has a vector."""
        return len(self._has_vector) >= places.count and bool(self._has_vector[: places.count].all())

    def list_missing_keys(self, places: MessagePositions) -> Rows:
        """The keys of messages that have no vector."""
        self._grow(places.count)
        return places["keys"][~self._has_vector[: places.count]]

    def list_keys_to_embed(self, places: MessagePositions, now: float, limit: int) -> list[int]:
        """The keys of messages that are to be embedded: those that have no vector and are not left alone."""
        self.refused_until = {key: until for key, until in self.refused_until.items() if until > now}
        left_alone = [*self.refused_until, *(key for keys, _ in self.unsaved for key in keys)]
        missing = self.list_missing_keys(places)
        if left_alone and len(missing):
            missing = missing[~np.isin(missing, left_alone)]
        wanted: list[int] = missing[:limit].tolist()
        return wanted

    def mark_refused(self, keys: Sequence[int], until: float) -> None:
        """Leave messages alone until then."""
        self.refused_until.update(dict.fromkeys(keys, until))

    def add_unsaved(self, places: MessagePositions, keys: list[int], vectors: Floats) -> None:
        """Take vectors over that are not stored yet; a store that compares them itself has to get them first."""
        self.unsaved.append((keys, vectors))
        if self.is_in_memory:
            self.put(places, np.array(keys, np.int64), vectors)

    def mark_saved(self, places: MessagePositions, keys: list[int]) -> None:
        """Note that the store has them now."""
        self.unsaved = [some for some in self.unsaved if some[0] is not keys]
        if not self.is_in_memory:
            self.put(places, np.array(keys, np.int64), None)

    def mark_lost(self, rows: Rows) -> int:
        """Note that the store has no vectors for these rows; how many of them had one."""
        self._grow(int(rows.max(initial=-1)) + 1)
        gone = rows[self._has_vector[rows]]
        self._has_vector[gone] = False
        if len(gone):
            self.trial_extent, self.trial_size = None, 0
        return len(gone)

    def get_vector_flags(self, count: int) -> Flags:
        """Which of the first rows have a vector."""
        self._grow(count)
        return self._has_vector[:count]

    def get_vectors(self, rows: Rows) -> Floats:
        """The vectors of some rows."""
        return self._matrix[rows]

    def compute_cosines(self, count: int, query: Floats) -> Floats:
        """The cosine of every message; those without a vector are like the average."""
        self._grow(count)  # messages may have come since vectors were loaded
        cosines = self._matrix[:count] @ query
        there = self._has_vector[:count]
        if not there.all():
            cosines[~there] = cosines[there].mean() if there.any() else 0.0
        return cosines

    def _grow(self, needed: int) -> None:
        have = len(self._has_vector)
        if needed > have:
            size = needed if have == 0 else max(needed, have + have // 4)
            wider = np.zeros((size if self.is_in_memory else 0, self._matrix.shape[1]), np.float32)
            if self.is_in_memory:
                wider[: len(self._matrix)] = self._matrix
            self._matrix = wider
            self._has_vector = np.concatenate([self._has_vector, np.zeros(size - have, np.bool_)])


def normalize_vectors(vectors: Floats) -> Floats:
    """The vectors stretched to the length 1; those without a direction stay 0."""
    lengths = np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))
    lengths[lengths == 0] = 1
    units: Floats = (vectors / lengths).astype(np.float32, copy=False)
    return units


def combine_neighbor_cosines(
    places: MessagePositions, kernel: int, cosines: Floats, rows: Rows | slice
) -> Floats:
    """The cosine of each row's text taken together with its neighbours', each as far as it lends.

    Args:
        places: Where the messages stand.
        kernel: How far they reach.
        cosines: Of all messages.
        rows: For which.
    """
    near = cosines.take(places["neighbours"][rows])
    added = cosines[rows] + np.einsum("ij,ij->i", places.incoming_weights(kernel)[rows], near)
    together: Floats = added / places.joined_vector_lengths(kernel)[rows]
    return together


def iter_trial_sizes(count: int) -> Iterator[int]:
    """How many of the first messages a model is tried on, the most first."""
    size = FIRST_TRIAL_MESSAGES << max(0, (count // FIRST_TRIAL_MESSAGES).bit_length() - 1)
    while FIRST_TRIAL_MESSAGES <= size <= count:
        yield size
        size //= 2


def draw_trial_sample(places: MessagePositions, size: int) -> TrialSample | None:
    """Some of the first ``size`` messages to try a model on; None if there are too few."""
    before = places["neighbours"][:size, NEIGHBORS_PER_SIDE - 1].astype(np.int64)
    worth = places["lengths"][:size] >= 4
    rows = np.flatnonzero((before >= 0) & (before < size) & worth)
    rows = rows[worth[before[rows]]]
    if len(rows) < MIN_SAMPLE_PAIRS:
        return None
    rng = np.random.default_rng(size)  # the same messages, the same sample
    rows = rng.permutation(rows)[:MAX_SAMPLE_PAIRS]
    return TrialSample(size, rows, before[rows], rng.permutation(np.flatnonzero(worth))[:MAX_SAMPLE_OTHERS])


def find_trust(
    places: MessagePositions,
    picked: TrialSample,
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
    units = [normalize_vectors(part) for part in vectors]
    elsewhere = _find_unrelated(places, picked)
    counted = elsewhere.sum(axis=1) >= MIN_SAMPLE_OTHERS
    if counted.sum() < MIN_SAMPLE_PAIRS:
        return Trust()
    spread = float((units[0] @ units[2].T)[elsewhere].std())
    scale = float(np.clip(REFERENCE_SPREAD / max(spread, 1e-3), 0.5, 4))
    by_vectors = _measure_separation(units, elsewhere, counted) - 0.5
    by_words = _measure_separation(_build_term_vectors(terms), elsewhere, counted) - 0.5
    if max(by_vectors, by_words) < MIN_ADVANTAGE:
        return Trust(scale=scale)
    share = by_vectors / max(by_words, MIN_ADVANTAGE)
    return Trust(share=float(np.clip((share - 0.4) / 0.4, 0, 1)), scale=scale)


def _find_unrelated(places: MessagePositions, picked: TrialSample) -> Flags:
    # Which of the others are of another session than each row, or far away in its own.
    session = places["session"][: picked.size]
    order = np.empty(picked.size, np.int64)
    order[np.lexsort((places["positions"][: picked.size], session))] = np.arange(picked.size)
    apart: Flags = np.abs(order[picked.others][None, :] - order[picked.rows][:, None]) > MIN_FAR_MESSAGES
    other: Flags = session[picked.others][None, :] != session[picked.rows][:, None]
    return np.logical_or(other, apart)


def _measure_separation(parts: Sequence[Floats], elsewhere: Flags, counted: Flags) -> float:
    # How often the message before is nearer than one from elsewhere: 0.5 is chance, 1 is always.
    rows, before, others = parts
    near = (rows * before).sum(axis=1)[:, None]
    far = rows @ others.T
    wins = ((far < near) + 0.5 * (far == near)) * elsewhere
    return float((wins[counted].sum(axis=1) / elsewhere[counted].sum(axis=1)).mean())


def _build_term_vectors(terms: Sequence[Sequence[Sequence[str]]]) -> list[Floats]:
    texts = [text for part in terms for text in part]
    columns = {term: number for number, term in enumerate(sorted({t for text in texts for t in text}))}
    table = np.zeros((len(texts), max(1, len(columns))), np.float32)
    for row, text in enumerate(texts):
        for term in text:
            table[row, columns[term]] = 1.0
    holding = table.sum(axis=0)
    table = normalize_vectors(table * np.log(len(texts) / np.maximum(holding, 1)))
    ends = np.cumsum([len(part) for part in terms])[:-1]
    return list(np.split(table, ends))
