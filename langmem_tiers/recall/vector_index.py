"""Vectors of a namespace's messages, and the trust in the model that made them.

The cosine of a message is combined with those of its neighbors, like its terms. The weight of the cosines is
measured on the messages themselves. A useful model places consecutive messages closer to each other than to
unrelated ones, about as well as shared words do. A model that does not is ignored.

The model is measured on the first 16, 32, 64, ... messages. The sample depends on the stored messages only, so all
processes arrive at the same trust, no matter when they loaded the namespace. If the database searches the vectors,
the next measurement runs in the background after a recall, and one process stores the result for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.positions import NEIGHBORS_PER_SIDE, MessagePositions
from langmem_tiers.recall.records import Trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.recall.arrays import Flags, Floats, Rows

MAX_SAMPLE_PAIRS, MAX_SAMPLE_OTHERS = 64, 512
"""Maximum size of a sample: pairs of consecutive messages, and messages to compare them with."""
MIN_SAMPLE_PAIRS, MIN_SAMPLE_OTHERS = 12, 4
"""Minimum number of pairs in a sample, and of unrelated messages per pair."""
FIRST_SAMPLE_MESSAGES = 16
"""Number of messages of the first measurement. Each later one uses twice as many."""
MIN_FAR_MESSAGES = 20
"""Distance above which two messages of the same session count as unrelated."""
MIN_VECTOR_SHARE = 0.9
"""Share of a sample that must have vectors. Below 1, so that texts that the embedder rejects do not block it."""
MIN_ADVANTAGE = 0.05
"""Minimum advantage over chance of words or vectors. If neither reaches it, the sample is inconclusive."""
# More vectors than any index holds, so that a new process checks the index of the store once.
_UNKNOWN = 2**62
REFERENCE_SPREAD = 0.13
"""Standard deviation of the cosines of unrelated texts, for the model that the weights were fitted with."""


@dataclass(frozen=True, slots=True)
class TrustSample:
    """Sample to measure a model on: messages, the message before each, and other messages for comparison."""

    size: int
    """Number of messages that the sample was drawn from."""
    rows: Rows
    before: Rows
    other_rows: Rows

    @property
    def parts(self) -> tuple[Rows, Rows, Rows]:
        """Rows of the messages, of those before them and of the others."""
        return self.rows, self.before, self.other_rows

    @property
    def extent(self) -> tuple[int, int, int]:
        """Size of the sample. Differs from that of the whole sample if some messages have no vectors."""
        return self.size, len(self.rows), len(self.other_rows)

    def restrict_to(self, there: Flags) -> TrustSample | None:
        """Return the part of the sample that has vectors, or None if it is too small.

        Args:
            there: Flags of the rows that have vectors.
        """
        pairs, other_rows = there[self.rows] & there[self.before], there[self.other_rows]
        if min(pairs.mean(), other_rows.mean()) < MIN_VECTOR_SHARE:
            return None
        return TrustSample(self.size, self.rows[pairs], self.before[pairs], self.other_rows[other_rows])


class VectorIndex:
    """Unit vectors of one namespace by one model, one row per message.

    If the store searches the vectors itself, only a flag per message is in memory.
    """

    def __init__(self, dimension: int) -> None:
        self.watermark = 0
        self.trust = Trust()
        self.sample_extent: tuple[int, int, int] | None = None
        """Size of the sample that the trust was measured on, None before the first measurement."""
        self.sample_size = 0
        """Number of messages that the sample was drawn from, if the sample is final. Else 0."""
        self.is_measurement_pending = False
        """True if there are enough messages for a larger sample that was not measured yet."""
        self.last_cleanup_day = 0
        """Day of the last search for unused vectors of other models, as a proleptic ordinal."""
        self.refused_until: dict[int, float] = {}
        """Keys of messages that the embedder rejected, with the monotonic time of the next attempt."""
        self.unsaved: list[tuple[list[int], Floats]] = []
        """Keys and vectors that are not in the store yet."""
        self.unindexed_count = _UNKNOWN
        """Number of vectors stored since the store was last asked to index them."""
        self._matrix = np.zeros((0, dimension), np.float32)
        self._has_vector = np.zeros(0, np.bool_)
        self.is_in_memory = True

    @property
    def size_bytes(self) -> int:
        """Memory used by the vectors in bytes."""
        return self._matrix.nbytes

    def put(self, positions: MessagePositions, keys: Rows, vectors: Floats | None) -> None:
        """Add vectors, or only record that they exist.

        Args:
            positions: Positions of the namespace's messages.
            keys: Keys of the messages.
            vectors: One row per message. None if the store searches the vectors itself.
        """
        self.is_in_memory = vectors is not None
        self._grow(positions.count)
        rows = positions.find_rows(keys)
        here = rows >= 0
        self._has_vector[rows[here]] = True
        if vectors is not None:
            self._matrix[rows[here]] = normalize_vectors(vectors[here])

    def move_rows(self, keys: Rows, positions: MessagePositions) -> bool:
        """Update the rows after messages were inserted between others.

        Args:
            keys: Keys of the messages by their previous rows.
            positions: The new positions.

        Returns:
            False, with nothing changed, if the vectors are in memory: they have to be loaded again.
        """
        if self.is_in_memory:
            return False
        keys_with_vector = keys[self.get_vector_flags(len(keys))]
        self._has_vector = np.zeros(positions.count, np.bool_)
        rows = positions.find_rows(keys_with_vector)
        self._has_vector[rows[rows >= 0]] = True
        # The trust holds only for the messages it was measured on. Measure again if one was inserted among them.
        sample_count = max(self.sample_size, 0 if self.sample_extent is None else self.sample_extent[0])
        if not np.array_equal(keys[:sample_count], positions["keys"][:sample_count]):
            self.sample_extent, self.sample_size, self.trust = None, 0, Trust()
        return True

    def is_complete(self, positions: MessagePositions) -> bool:
        """Return True if every message has a vector."""
        return len(self._has_vector) >= positions.count and bool(self._has_vector[: positions.count].all())

    def list_missing_keys(self, positions: MessagePositions) -> Rows:
        """Return the keys of the messages that have no vector."""
        self._grow(positions.count)
        return positions["keys"][~self._has_vector[: positions.count]]

    def list_keys_to_embed(self, positions: MessagePositions, now: float, limit: int) -> list[int]:
        """Return keys of messages to embed: without a vector, not rejected recently, not waiting to be stored.

        Args:
            positions: Positions of the namespace's messages.
            now: Current monotonic time.
            limit: Maximum number of keys.
        """
        self.refused_until = {key: until for key, until in self.refused_until.items() if until > now}
        # Unsaved vectors are marked as present only if they are in memory, so they have to be excluded here.
        skipped = [*self.refused_until, *(key for keys, _ in self.unsaved for key in keys)]
        missing = self.list_missing_keys(positions)
        if skipped and len(missing):
            missing = missing[~np.isin(missing, skipped)]
        selected: list[int] = missing[:limit].tolist()
        return selected

    def mark_refused(self, keys: Sequence[int], until: float) -> None:
        """Record that the embedder rejected messages, and when to try again."""
        self.refused_until.update(dict.fromkeys(keys, until))

    def add_unsaved(self, positions: MessagePositions, keys: list[int], vectors: Floats) -> None:
        """Add vectors that are not stored yet.

        They can be compared at once if vectors are in memory. Otherwise the store has to receive them first.
        """
        self.unsaved.append((keys, vectors))
        if self.is_in_memory:
            self.put(positions, np.array(keys, np.int64), vectors)

    def mark_saved(self, positions: MessagePositions, keys: list[int]) -> None:
        """Record that a batch of vectors was stored.

        Args:
            positions: Positions of the namespace's messages.
            keys: The list of keys in ``unsaved``, compared by identity.
        """
        self.unsaved = [batch for batch in self.unsaved if batch[0] is not keys]
        if not self.is_in_memory:
            self.put(positions, np.array(keys, np.int64), None)

    def mark_lost(self, rows: Rows) -> int:
        """Record that the store has no vectors for these rows, and return the number of lost vectors."""
        self._grow(int(rows.max(initial=-1)) + 1)
        lost = rows[self._has_vector[rows]]
        self._has_vector[lost] = False
        if len(lost):
            self.sample_extent, self.sample_size = None, 0
        return len(lost)

    def get_vector_flags(self, count: int) -> Flags:
        """Return flags of the first ``count`` rows: True if the message has a vector."""
        self._grow(count)
        return self._has_vector[:count]

    def get_vectors(self, rows: Rows) -> Floats:
        """Return the vectors of rows."""
        return self._matrix[rows]

    def compute_cosines(self, count: int, query: Floats) -> Floats:
        """Return the cosine of every message. Messages without a vector get the mean of the others."""
        # Messages may have been added since the vectors were loaded.
        self._grow(count)
        cosines = self._matrix[:count] @ query
        has_vector = self._has_vector[:count]
        # 0 would be an extreme value for models whose cosines are all high. The mean is neutral.
        if not has_vector.all():
            cosines[~has_vector] = cosines[has_vector].mean() if has_vector.any() else 0.0
        return cosines

    def _grow(self, needed: int) -> None:
        have = len(self._has_vector)
        if needed > have:
            # The first allocation is exact. Later ones leave spare capacity, so that not every new message copies all.
            size = needed if have == 0 else max(needed, have + have // 4)
            wider = np.zeros((size if self.is_in_memory else 0, self._matrix.shape[1]), np.float32)
            if self.is_in_memory:
                wider[: len(self._matrix)] = self._matrix
            self._matrix = wider
            self._has_vector = np.concatenate([self._has_vector, np.zeros(size - have, np.bool_)])


def normalize_vectors(vectors: Floats) -> Floats:
    """Return the vectors scaled to length 1. Zero vectors remain zero."""
    lengths = np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))
    lengths[lengths == 0] = 1
    units: Floats = (vectors / lengths).astype(np.float32, copy=False)
    return units


def combine_neighbor_cosines(
    positions: MessagePositions, kernel: int, cosines: Floats, rows: Rows | slice
) -> Floats:
    """Return the cosines of the query with each message and its neighbors combined.

    Args:
        positions: Positions of the namespace's messages.
        kernel: Number of the kernel.
        cosines: Cosines of all messages.
        rows: Rows to combine.
    """
    # The dot product is linear: the cosine with a weighted sum of vectors is the weighted sum of the cosines, divided
    # by the length of the vector sum. A missing neighbor (-1) reads some other cosine, but its weight is 0.
    near = cosines.take(positions["neighbors"][rows])
    added = cosines[rows] + np.einsum("ij,ij->i", positions.incoming_weights(kernel)[rows], near)
    together: Floats = added / positions.joined_vector_lengths(kernel)[rows]
    return together


def iter_sample_sizes(count: int) -> Iterator[int]:
    """Yield the sample sizes for a number of messages: 16 * 2**n, from the largest that fits down to 16."""
    size = FIRST_SAMPLE_MESSAGES << max(0, (count // FIRST_SAMPLE_MESSAGES).bit_length() - 1)
    while FIRST_SAMPLE_MESSAGES <= size <= count:
        yield size
        size //= 2


def draw_trust_sample(positions: MessagePositions, size: int) -> TrustSample | None:
    """Draw a sample from the first ``size`` messages. None if too few are suitable."""
    # The slot before the middle is offset -1, the previous message of the session.
    before = positions["neighbors"][:size, NEIGHBORS_PER_SIDE - 1].astype(np.int64)
    # Very short messages ("Yes.") say nothing about the model.
    is_suitable = positions["lengths"][:size] >= 4
    rows = np.flatnonzero((before >= 0) & (before < size) & is_suitable)
    rows = rows[is_suitable[before[rows]]]
    if len(rows) < MIN_SAMPLE_PAIRS:
        return None
    # A fixed seed: every process draws the same sample from the same messages.
    rng = np.random.default_rng(size)
    rows = rng.permutation(rows)[:MAX_SAMPLE_PAIRS]
    other_rows = rng.permutation(np.flatnonzero(is_suitable))[:MAX_SAMPLE_OTHERS]
    return TrustSample(size, rows, before[rows], other_rows)


def find_trust(
    positions: MessagePositions,
    sample: TrustSample,
    vectors: Sequence[Floats],
    terms: Sequence[Sequence[Sequence[str]]],
) -> Trust:
    """Measure how well vectors separate the previous message from unrelated ones, compared with shared words.

    Args:
        positions: Positions of the namespace's messages.
        sample: The sample.
        vectors: Vectors of the three parts of the sample.
        terms: Terms of the three parts of the sample.
    """
    units = [normalize_vectors(part) for part in vectors]
    elsewhere = _find_unrelated(positions, sample)
    # Rows with too few unrelated messages, as in a short single session, are not counted.
    counted = elsewhere.sum(axis=1) >= MIN_SAMPLE_OTHERS
    if counted.sum() < MIN_SAMPLE_PAIRS:
        return Trust()
    # Cosines of some models vary little. The scale brings their spread to the one that the weights were fitted with,
    # within limits, so that an extreme spread does not dominate the score.
    spread = float((units[0] @ units[2].T)[elsewhere].std())
    scale = float(np.clip(REFERENCE_SPREAD / max(spread, 1e-3), 0.5, 4))
    by_vectors = _measure_separation(units, elsewhere, counted) - 0.5
    by_words = _measure_separation(_build_term_vectors(terms), elsewhere, counted) - 0.5
    if max(by_vectors, by_words) < MIN_ADVANTAGE:
        return Trust(scale=scale)
    # Vectors below 40 % of the advantage of words are ignored, from 80 % on they count fully.
    share = by_vectors / max(by_words, MIN_ADVANTAGE)
    return Trust(share=float(np.clip((share - 0.4) / 0.4, 0, 1)), scale=scale)


def _find_unrelated(positions: MessagePositions, sample: TrustSample) -> Flags:
    # A table of rows by others: True if the other message is in another session, or far away in the same one.
    # `order` is the rank of each row when all rows are sorted by session and position.
    session = positions["session"][: sample.size]
    order = np.empty(sample.size, np.int64)
    order[np.lexsort((positions["positions"][: sample.size], session))] = np.arange(sample.size)
    apart: Flags = np.abs(order[sample.other_rows][None, :] - order[sample.rows][:, None]) > MIN_FAR_MESSAGES
    other: Flags = session[sample.other_rows][None, :] != session[sample.rows][:, None]
    return np.logical_or(other, apart)


def _measure_separation(parts: Sequence[Floats], elsewhere: Flags, counted: Flags) -> float:
    # Share of comparisons in which the previous message is nearer than an unrelated one, averaged over the rows. Ties
    # count half. This is the area under the ROC curve: 0.5 is chance, 1 is perfect.
    rows, before, other_rows = parts
    near = (rows * before).sum(axis=1)[:, None]
    far = rows @ other_rows.T
    wins = ((far < near) + 0.5 * (far == near)) * elsewhere
    return float((wins[counted].sum(axis=1) / elsewhere[counted].sum(axis=1)).mean())


def _build_term_vectors(terms: Sequence[Sequence[Sequence[str]]]) -> list[Floats]:
    # TF-IDF vectors of the sample, with binary term counts. IDF is computed within the sample.
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
