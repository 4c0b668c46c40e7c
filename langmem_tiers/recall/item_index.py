"""What a search by query needs of the items under one prefix, in memory and changed in place.

Each text of an item is ranked by itself, and an item is as good as its best text. How rare a word is
counts among the texts on this shelf alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.errors import EmbeddingError
from langmem_tiers.recall.bm25 import (
    NGRAM_WEIGHT,
    compute_idf,
    compute_length_norms,
    compute_max_idf,
    saturate_counts,
)
from langmem_tiers.recall.item_records import ItemText, ItemTextKey
from langmem_tiers.text.tokenize import count_words, extract_terms, is_unspaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.item_records import IndexedItem, ItemNamespaceState
    from langmem_tiers.recall.records import Floats, Rows


def to_search_text(value: Mapping[str, Any]) -> str:
    """All that a value says, a line for each of its parts: ``{"user": {"name": "Ann"}}`` is "user name: Ann"."""
    return "\n".join(_iter_lines(value, ""))


def build_item_texts(texts: Sequence[str], vectors: Mapping[str, bytes]) -> tuple[ItemText, ...]:
    """Texts with their terms, and the vectors that there are."""
    return tuple(
        ItemText(text=text, terms=" ".join(extract_terms(text)), vector=vectors.get(text)) for text in texts
    )


def embed_texts(texts: Sequence[str], embedding: EmbeddingClient) -> dict[str, bytes]:
    """The vectors of all texts, each asked for once.

    Raises:
        EmbeddingError: The embedder failed, or refuses one of them.
    """
    each = list(dict.fromkeys(texts))
    embedded = embedding.embed_documents(each)
    if embedded.refused_numbers:
        raise EmbeddingError(
            f"the embedder {embedding.identity!r} refuses {len(embedded.refused_numbers)} of {len(each)} texts: "
            "leave them out of the index, or shorten them; nothing was written"
        )
    return {text: vector.astype("<f4").tobytes() for text, vector in zip(each, embedded.vectors, strict=True)}


def _iter_lines(value: object, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _iter_lines(part, f"{name} {key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iter_lines(part, name)
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)


WORD_LIFT_WEIGHT = 0.5
"""How far the words of a query, all found, lift the score of a text from its cosine towards 1."""
_SCORE_DIGITS = 6  # of a score: what lies behind is noise of the order of summing
_BYTES_PER_TEXT = 1500  # its terms, about


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item as of a revision, with its score; None if it has no text."""

    pk: int
    revision: int
    score: float | None


@dataclass(frozen=True, slots=True)
class ItemRanking:
    """Items in their order, the best first."""

    pks: Rows
    revisions: Rows
    scores: Floats
    """Those without a text have none and come last: minus infinity."""
    namespace_states: Mapping[int, ItemNamespaceState] = field(default_factory=dict)
    """The namespaces as they were when it was made."""
    text_counts: Mapping[str, int] = field(default_factory=dict)
    """The terms of the query, and how many texts hold each."""

    def __len__(self) -> int:
        return len(self.pks)

    def get_slice(self, start: int, end: int) -> list[RankedItem]:
        """Some of them."""
        columns = (column[start:end].tolist() for column in (self.pks, self.revisions, self.scores))
        return [
            RankedItem(pk, revision, None if score == -math.inf else score)
            for pk, revision, score in zip(*columns, strict=True)
        ]


@dataclass(slots=True)
class _ItemSlots:
    item: IndexedItem
    row: int
    """Its place in the columns of items."""
    slots: list[int] = field(default_factory=list)
    """The places of its texts."""


class _ColumnPool:
    """Arrays of one length whose places are taken and given back."""

    def __init__(self, **kinds: type) -> None:
        self._arrays: dict[str, NDArray[Any]] = {name: np.zeros(16, kind) for name, kind in kinds.items()}
        self._free: list[int] = []
        self.size = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name][: self.size]

    @property
    def count(self) -> int:
        """Places that are taken."""
        return self.size - len(self._free)

    @property
    def capacity(self) -> int:
        """Places that there is room for."""
        return len(next(iter(self._arrays.values())))

    def allocate(self, **values: float) -> int:
        """A place that holds these values."""
        place = self._free.pop() if self._free else self.size
        self.size = max(self.size, place + 1)
        if self.size > self.capacity:
            self._arrays = {name: double_length(array) for name, array in self._arrays.items()}
        for name, value in values.items():
            self._arrays[name][place] = value
        return place

    def release(self, place: int) -> None:
        """Free a place; it holds zeros."""
        for array in self._arrays.values():
            array[place] = 0
        self._free.append(place)


def double_length(array: NDArray[Any]) -> NDArray[Any]:
    """The array with as many zeros behind it."""
    return np.concatenate([array, np.zeros_like(array)])


class ItemSearchIndex:
    """Items, the places of their words and their vectors. Not safe to share between threads."""

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
        """About how many bytes it takes."""
        return self._vectors.nbytes + self._texts.count * _BYTES_PER_TEXT

    @property
    def missing_vectors(self) -> list[ItemTextKey]:
        """Texts whose vectors are not here."""
        return list(self._missing_vectors.values())

    def use_model(self, model: int | None, dimension: int) -> None:
        """Hold vectors of this model, and none of another."""
        if model == self.model:
            return
        self.model = model
        self._vectors = np.zeros((self._texts.capacity, dimension), np.float32)
        for held in self._items.values():
            for number, slot in enumerate(held.slots):
                self._missing_vectors[slot] = ItemTextKey(held.item.pk, held.item.revision, number)

    def put(self, item: IndexedItem) -> None:
        """Hold an item as it is now."""
        held = self._items.get(item.pk)
        if held is not None and held.item.revision == item.revision:
            return
        self.remove(item.pk)
        updated = to_microseconds(item.updated_at)
        row = self._rows.allocate(pk=item.pk, revision=item.revision, updated=updated)
        held = self._items[item.pk] = _ItemSlots(item, row)
        for number, (terms, vector) in enumerate(item.texts):
            slot = self._allocate_text(row, terms.split())
            held.slots.append(slot)
            self._missing_vectors[slot] = ItemTextKey(item.pk, item.revision, number)
            if vector is not None:
                self._put_vector(slot, vector)

    def remove(self, pk: int) -> None:
        """Hold an item no longer."""
        held = self._items.pop(pk, None)
        if held is None:
            return
        self._rows.release(held.row)
        for slot in held.slots:
            for term in self._terms.pop(slot):
                del self._postings[term][slot]
                if not self._postings[term]:
                    del self._postings[term]
            self._vectors[slot] = 0
            self._missing_vectors.pop(slot, None)
            self._texts.release(slot)

    def retain(self, namespaces: set[int], keys: set[int]) -> None:
        """Of some namespaces, hold only the items with these keys."""
        for pk in [
            pk for pk, held in self._items.items() if held.item.namespace_pk in namespaces and pk not in keys
        ]:
            self.remove(pk)

    def put_vectors(self, vectors: Iterable[tuple[ItemTextKey, bytes]]) -> None:
        """Add vectors of texts that are here; an empty one for a text that can have none."""
        for place, vector in vectors:
            held = self._items.get(place.pk)
            if held is not None and held.item.revision == place.revision:
                self._put_vector(held.slots[place.number], vector)

    def rank(
        self, terms: Sequence[str], vector: NDArray[np.float32] | None, share: float | None = None
    ) -> ItemRanking:
        """All items, the best first; of those that are as good, the one by words, then the last updated.

        Args:
            terms: Of the query.
            vector: Of the query; None ranks by words alone.
            share: What cosines count beside words; if left out, they are the score, which words lift.
        """
        rows = self._rows
        scores = words = np.clip(self._score_words(list(dict.fromkeys(terms))), 0, 1)
        if vector is not None:
            cosines = self._vectors[: self._texts.size] @ vector
            if share is None:
                scores = cosines + (1 - cosines) * WORD_LIFT_WEIGHT * words
            else:
                scores = share * np.maximum(cosines, 0) + (1 - share) * words
        best, by_words, there = (
            self._find_best_scores(scores),
            self._find_best_scores(words),
            np.flatnonzero(rows["pk"]),
        )
        keys = (rows["pk"], rows["updated"], by_words, best)  # the last one counts first
        order = there[np.lexsort([-key[there] for key in keys])]
        holding = {term: len(self._postings.get(term, ())) for term in terms}
        return ItemRanking(
            rows["pk"][order], rows["revision"][order], best[order], dict(self.namespace_states), holding
        )

    def _find_best_scores(self, scores: Floats) -> Floats:
        # Of each item: the score of its best text.
        best, used = np.full(self._rows.size, -np.inf), self._texts["used"]
        np.maximum.at(best, self._texts["row"][used], scores[used].astype(np.float64).round(_SCORE_DIGITS))
        return best

    def _score_words(self, terms: Sequence[str]) -> Floats:
        texts, scores = self._texts, np.zeros(self._texts.size)
        there = [term for term in terms if term in self._postings]
        if not there:
            return scores
        worth = np.array([NGRAM_WEIGHT if is_unspaced(term) else 1.0 for term in there])
        idf = compute_idf(texts.count, np.array([len(self._postings[term]) for term in there])) * worth
        # As in recall: words that are nowhere count no more than those that are there.
        nowhere = sum(term not in self._postings and not is_unspaced(term) for term in terms)
        total = float(idf.sum())
        shares = idf / (total + min(nowhere * compute_max_idf(texts.count), total))
        mean = texts["length"].sum() / texts.count
        for term, share in zip(there, shares.tolist(), strict=True):
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
