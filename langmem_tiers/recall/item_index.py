"""In-memory search index of the items under one prefix, updated in place.

Each text of an item is scored separately, and the score of an item is that of its best text. IDF is computed among
the texts of this index only.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.recall.bm25 import (
    NGRAM_WEIGHT,
    compute_idf,
    compute_length_norms,
    compute_max_idf,
    saturate_counts,
)
from langmem_tiers.recall.item_records import ItemTextKey
from langmem_tiers.text.tokenize import count_words, is_unspaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.recall.arrays import Floats, Rows
    from langmem_tiers.recall.item_records import IndexedItem, ItemNamespaceState


WORD_LIFT_WEIGHT = 0.5
"""Share of the distance from a text's cosine to 1 that a full word match adds to the score."""
# Scores are rounded: further digits depend on the order of summing, and would make ties differ between processes.
_SCORE_DIGITS = 6
# Approximate memory for the terms of a text.
_BYTES_PER_TEXT = 1500


@dataclass(frozen=True, slots=True)
class RankedItem:
    """A revision of an item with its score. The score is None if the item has no text."""

    pk: int
    revision: int
    score: float | None


@dataclass(frozen=True, slots=True)
class ItemRanking:
    """Ranked items, best first."""

    pks: Rows
    revisions: Rows
    scores: Floats
    """Scores. Items without a text are last, with minus infinity."""
    namespace_states: Mapping[int, ItemNamespaceState] = field(default_factory=dict)
    """States of the namespaces at the time of the ranking."""
    text_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of texts that contain each term of the query."""

    def __len__(self) -> int:
        return len(self.pks)

    def get_slice(self, start: int, end: int) -> list[RankedItem]:
        """Return the items at positions ``start`` to ``end - 1``."""
        columns = (column[start:end].tolist() for column in (self.pks, self.revisions, self.scores))
        return [
            RankedItem(pk, revision, None if score == -math.inf else score)
            for pk, revision, score in zip(*columns, strict=True)
        ]


@dataclass(slots=True)
class _ItemSlots:
    item: IndexedItem
    row: int
    """Slot of the item in the columns of items."""
    slots: list[int] = field(default_factory=list)
    """Slots of its texts in the columns of texts."""


class _ColumnPool:
    """Parallel arrays whose slots are allocated and reused.

    Removing an item frees its slots without moving other items, so indexes into the arrays stay valid.
    """

    def __init__(self, **kinds: type) -> None:
        self._arrays: dict[str, NDArray[Any]] = {name: np.zeros(16, kind) for name, kind in kinds.items()}
        self._free: list[int] = []
        self.size = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name][: self.size]

    @property
    def count(self) -> int:
        """Number of allocated slots."""
        return self.size - len(self._free)

    @property
    def capacity(self) -> int:
        """Number of slots that fit without growing."""
        return len(next(iter(self._arrays.values())))

    def allocate(self, **values: float) -> int:
        """Allocate a slot with the given values, and return its number."""
        slot = self._free.pop() if self._free else self.size
        self.size = max(self.size, slot + 1)
        if self.size > self.capacity:
            self._arrays = {name: double_length(array) for name, array in self._arrays.items()}
        for name, value in values.items():
            self._arrays[name][slot] = value
        return slot

    def release(self, slot: int) -> None:
        """Free a slot and set its values to 0."""
        for array in self._arrays.values():
            array[slot] = 0
        self._free.append(slot)


def double_length(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array extended to twice its length with zeros."""
    return np.concatenate([array, np.zeros_like(array)])


class ItemSearchIndex:
    """Items with the postings of their terms and their vectors. Not thread-safe."""

    def __init__(self) -> None:
        self.namespace_states: dict[int, ItemNamespaceState] = {}
        self.model: int | None = None
        self._items: dict[int, _ItemSlots] = {}
        self._rows = _ColumnPool(pk=np.int64, revision=np.int64, updated=np.int64)
        self._texts = _ColumnPool(row=np.int64, length=np.float64, used=np.bool_)
        self._terms: dict[int, Counter[str]] = {}
        self._postings: dict[str, dict[int, int]] = {}
        self._vectors = np.zeros((16, 0), np.float32)
        self._missing_vectors: dict[int, ItemTextKey] = {}

    @property
    def size_bytes(self) -> int:
        """Approximate memory use in bytes."""
        return self._vectors.nbytes + self._texts.count * _BYTES_PER_TEXT

    @property
    def missing_vectors(self) -> list[ItemTextKey]:
        """Keys of the texts whose vectors are not loaded."""
        return list(self._missing_vectors.values())

    def use_model(self, model: int | None, dimension: int) -> None:
        """Switch to the vectors of a model. Those of another model are discarded."""
        if model == self.model:
            return
        self.model = model
        self._vectors = np.zeros((self._texts.capacity, dimension), np.float32)
        for entry in self._items.values():
            for number, slot in enumerate(entry.slots):
                self._missing_vectors[slot] = ItemTextKey(entry.item.pk, entry.item.revision, number)

    def put(self, item: IndexedItem) -> None:
        """Add an item, or replace an older revision of it."""
        entry = self._items.get(item.pk)
        if entry is not None and entry.item.revision == item.revision:
            return
        self.remove(item.pk)
        updated = to_microseconds(item.updated_at)
        row = self._rows.allocate(pk=item.pk, revision=item.revision, updated=updated)
        entry = self._items[item.pk] = _ItemSlots(item, row)
        for number, (terms, vector) in enumerate(item.texts):
            slot = self._allocate_text(row, terms.split())
            entry.slots.append(slot)
            self._missing_vectors[slot] = ItemTextKey(item.pk, item.revision, number)
            if vector is not None:
                self._put_vector(slot, vector)

    def remove(self, pk: int) -> None:
        """Remove an item if it is present."""
        entry = self._items.pop(pk, None)
        if entry is None:
            return
        self._rows.release(entry.row)
        for slot in entry.slots:
            for term in self._terms.pop(slot):
                del self._postings[term][slot]
                if not self._postings[term]:
                    del self._postings[term]
            self._vectors[slot] = 0
            self._missing_vectors.pop(slot, None)
            self._texts.release(slot)

    def retain(self, namespaces: set[int], keys: set[int]) -> None:
        """Remove the items of some namespaces, except those with the given keys."""
        # A list, because remove() changes the dictionary.
        for pk in [
            pk
            for pk, entry in self._items.items()
            if entry.item.namespace_pk in namespaces and pk not in keys
        ]:
            self.remove(pk)

    def put_vectors(self, vectors: Iterable[tuple[ItemTextKey, bytes]]) -> None:
        """Add vectors of texts. Unknown items and other revisions are skipped.

        An empty vector marks a text that the embedder rejects, so that it is not embedded again.
        """
        for key, vector in vectors:
            entry = self._items.get(key.pk)
            if entry is not None and entry.item.revision == key.revision:
                self._put_vector(entry.slots[key.number], vector)

    def rank(
        self, terms: Sequence[str], vector: NDArray[np.float32] | None, share: float | None = None
    ) -> ItemRanking:
        """Rank all items. Ties are broken by the score by words, then by the last update.

        Args:
            terms: Terms of the query.
            vector: Unit vector of the query. None ranks by words only.
            share: Weight of the cosines from 0 to 1, the rest is the weight of the words. Default: the score is the
                cosine, raised towards 1 by matching words.
        """
        rows = self._rows
        scores = words = np.clip(self._score_words(list(dict.fromkeys(terms))), 0, 1)
        if vector is not None:
            cosines = self._vectors[: self._texts.size] @ vector
            if share is None:
                scores = cosines + (1 - cosines) * WORD_LIFT_WEIGHT * words
            else:
                scores = share * np.maximum(cosines, 0) + (1 - share) * words
        # Released slots have the key 0, which no item has.
        best, by_words, used = (
            self._find_best_scores(scores),
            self._find_best_scores(words),
            np.flatnonzero(rows["pk"]),
        )
        # np.lexsort sorts by its last key first.
        keys = (rows["pk"], rows["updated"], by_words, best)
        order = used[np.lexsort([-key[used] for key in keys])]
        text_counts = {term: len(self._postings.get(term, ())) for term in terms}
        return ItemRanking(
            rows["pk"][order], rows["revision"][order], best[order], dict(self.namespace_states), text_counts
        )

    def _find_best_scores(self, scores: Floats) -> Floats:
        # The score of each item's best text. Items without texts keep minus infinity. np.maximum.at is needed because
        # an item's row occurs several times in the index.
        best, used = np.full(self._rows.size, -np.inf), self._texts["used"]
        np.maximum.at(best, self._texts["row"][used], scores[used].astype(np.float64).round(_SCORE_DIGITS))
        return best

    def _score_words(self, terms: Sequence[str]) -> Floats:
        texts, scores = self._texts, np.zeros(self._texts.size)
        found = [term for term in terms if term in self._postings]
        if not found:
            return scores
        worth = np.array([NGRAM_WEIGHT if is_unspaced(term) else 1.0 for term in found])
        idf = compute_idf(texts.count, np.array([len(self._postings[term]) for term in found])) * worth
        # As in TermMatches.shares: missing words add at most as much as the words that occur.
        missing_count = sum(term not in self._postings and not is_unspaced(term) for term in terms)
        total = float(idf.sum())
        shares = idf / (total + min(missing_count * compute_max_idf(texts.count), total))
        # Released slots have length 0, so the sum is right. The mean of the array would count them.
        mean = texts["length"].sum() / texts.count
        for term, share in zip(found, shares.tolist(), strict=True):
            posting = self._postings[term]
            slots = np.fromiter(posting, np.int64, len(posting))
            counts = np.fromiter(posting.values(), np.float64, len(posting))
            scores[slots] += (
                saturate_counts(counts, compute_length_norms(texts["length"][slots], mean)) * share
            )
        return scores

    def _allocate_text(self, row: int, terms: list[str]) -> int:
        slot = self._texts.allocate(row=row, length=count_words(terms), used=True)
        if self._texts.capacity > len(self._vectors):
            self._vectors = double_length(self._vectors)
        self._terms[slot] = Counter(terms)
        for term, times in self._terms[slot].items():
            self._postings.setdefault(term, {})[slot] = times
        return slot

    def _put_vector(self, slot: int, vector: bytes) -> None:
        if vector:
            self._vectors[slot] = np.frombuffer(vector, "<f4")
        self._missing_vectors.pop(slot, None)
