"""What a search by query needs of the items under one prefix, in memory and changed in place.

Each text of an item is ranked by itself, and an item is as good as its best text. How rare a word is
counts among the texts on this shelf alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.core.clock import microseconds
from langmem_tiers.core.items import TextPlace
from langmem_tiers.retrieval.words import PIECE, idf_of, norms_of, rarest, saturated
from langmem_tiers.scoring.terms import is_unspaced, length_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.core.items import IndexedItem, ItemNamespaceState
    from langmem_tiers.retrieval.arrays import Floats, Rows

LIFT = 0.5
"""How far the words of a query, all found, lift the score of a text from its cosine towards 1."""
_DIGITS = 6  # of a score: what lies behind is noise of the order of summing
_BYTES_OF_A_TEXT = 1500  # its terms, about


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item as of a revision, with its score; None if it has no text."""

    pk: int
    revision: int
    score: float | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Items in their order, the best first."""

    pks: Rows
    revisions: Rows
    scores: Floats
    """Those without a text have none and come last: minus infinity."""

    def __len__(self) -> int:
        return len(self.pks)

    def part(self, start: int, end: int) -> list[RankedItem]:
        """Some of them."""
        columns = (column[start:end].tolist() for column in (self.pks, self.revisions, self.scores))
        return [
            RankedItem(pk, revision, None if score == -math.inf else score)
            for pk, revision, score in zip(*columns, strict=True)
        ]


@dataclass(slots=True)
class _Held:
    item: IndexedItem
    slots: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Lists:
    """The items in the order of their keys, as arrays; made anew when something changes."""

    pks: Rows
    revisions: Rows
    updated: Rows
    used: Rows
    """Slots that hold a text."""
    owners: Rows
    """Of each of these slots: the place of its item."""
    norms: Floats
    """Of each slot: what its length takes from its words."""


class Shelf:
    """Items, the places of their words and their vectors. Not safe to share between threads."""

    def __init__(self) -> None:
        self.seen: dict[int, ItemNamespaceState] = {}
        self.model: int | None = None
        self._items: dict[int, _Held] = {}
        self._postings: dict[str, dict[int, int]] = {}
        self._terms: list[Counter[str]] = []
        self._free: list[int] = []
        self._lengths = np.zeros(16)
        self._owners = np.zeros(16, np.int64)
        self._vectors = np.zeros((16, 0), np.float32)
        self._unfilled: dict[int, TextPlace] = {}
        self._lists: _Lists | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return self._vectors.nbytes + len(self._terms) * _BYTES_OF_A_TEXT

    @property
    def unfilled(self) -> list[TextPlace]:
        """Texts whose vectors are not here."""
        return list(self._unfilled.values())

    def use_model(self, model: int | None, dimension: int) -> None:
        """Hold vectors of this model, and none of another."""
        if model == self.model:
            return
        self.model = model
        self._vectors = np.zeros((len(self._lengths), dimension), np.float32)
        for held in self._items.values():
            for number, slot in enumerate(held.slots):
                self._unfilled[slot] = TextPlace(held.item.pk, held.item.revision, number)

    def put(self, item: IndexedItem) -> None:
        """Hold an item as it is now."""
        held = self._items.get(item.pk)
        if held is not None and held.item.revision == item.revision:
            return
        self.drop(item.pk)
        self._lists = None
        held = self._items[item.pk] = _Held(item)
        for number, (terms, vector) in enumerate(item.texts):
            slot = self._take(terms.split())
            held.slots.append(slot)
            self._owners[slot] = item.pk
            self._unfilled[slot] = TextPlace(item.pk, item.revision, number)
            if vector is not None:
                self._fill(slot, vector)

    def drop(self, pk: int) -> None:
        """Hold an item no longer."""
        held = self._items.pop(pk, None)
        self._lists = None
        for slot in [] if held is None else held.slots:
            for term in self._terms[slot]:
                del self._postings[term][slot]
                if not self._postings[term]:
                    del self._postings[term]
            self._terms[slot] = Counter()
            self._vectors[slot] = 0
            self._lengths[slot] = 0
            self._owners[slot] = 0
            self._unfilled.pop(slot, None)
            self._free.append(slot)

    def keep(self, namespaces: set[int], keys: set[int]) -> None:
        """Of some namespaces, hold only the items with these keys."""
        for pk in [
            pk for pk, held in self._items.items() if held.item.namespace_pk in namespaces and pk not in keys
        ]:
            self.drop(pk)

    def fill(self, vectors: Iterable[tuple[TextPlace, bytes]]) -> None:
        """Add vectors of texts that are here; an empty one for a text that can have none."""
        for place, vector in vectors:
            held = self._items.get(place.pk)
            if held is not None and held.item.revision == place.revision:
                self._fill(held.slots[place.number], vector)

    def ranked(self, terms: Sequence[str], vector: NDArray[np.float32] | None) -> Ranking:
        """All items, the best first; of those that are as good, the last updated."""
        lists = self._lists = self._lists or self._listed()
        scores = np.clip(self._word_scores(list(dict.fromkeys(terms)), lists), 0, 1)
        if vector is not None:
            cosines = self._vectors[: len(self._terms)] @ vector
            scores = cosines + (1 - cosines) * LIFT * scores
        best = np.full(len(lists.pks), -np.inf)
        np.maximum.at(best, lists.owners, scores[lists.used].astype(np.float64).round(_DIGITS))
        order = np.lexsort((-lists.pks, -lists.updated, -best))
        return Ranking(lists.pks[order], lists.revisions[order], best[order])

    def _listed(self) -> _Lists:
        held = [self._items[pk].item for pk in sorted(self._items)]
        pks = np.fromiter((item.pk for item in held), np.int64, len(held))
        used = np.flatnonzero(self._owners[: len(self._terms)])
        norms = np.ones(len(self._terms))
        if len(used):
            norms[used] = norms_of(self._lengths[used])
        return _Lists(
            pks=pks,
            revisions=np.fromiter((item.revision for item in held), np.int64, len(held)),
            updated=np.fromiter((microseconds(item.updated_at) for item in held), np.int64, len(held)),
            used=used,
            owners=np.searchsorted(pks, self._owners[used]),
            norms=norms,
        )

    def _word_scores(self, terms: Sequence[str], lists: _Lists) -> Floats:
        scores = np.zeros(len(self._terms))
        count = len(self._terms) - len(self._free)
        there = [term for term in terms if term in self._postings]
        if not there:
            return scores
        worth = np.array([PIECE if is_unspaced(term) else 1.0 for term in there])
        idf = idf_of(count, np.array([len(self._postings[term]) for term in there])) * worth
        # As in recall: words that are nowhere count no more than those that are there.
        absent = sum(term not in self._postings and not is_unspaced(term) for term in terms) * rarest(count)
        total = float(idf.sum())
        for term, share in zip(there, (idf / (total + min(absent, total))).tolist(), strict=True):
            posting = self._postings[term]
            slots = np.fromiter(posting, np.int64, len(posting))
            counts = np.fromiter(posting.values(), np.float64, len(posting))
            scores[slots] += saturated(counts, lists.norms[slots]) * share
        return scores

    def _take(self, terms: list[str]) -> int:
        counted = Counter(terms)
        if self._free:
            slot = self._free.pop()
            self._terms[slot] = counted
        else:
            slot = len(self._terms)
            self._terms.append(counted)
            if slot == len(self._lengths):
                self._grow()
        self._lengths[slot] = length_of(terms)
        for term, times in counted.items():
            self._postings.setdefault(term, {})[slot] = times
        return slot

    def _grow(self) -> None:
        more = len(self._lengths)
        self._lengths = np.concatenate([self._lengths, np.zeros(more)])
        self._owners = np.concatenate([self._owners, np.zeros(more, np.int64)])
        self._vectors = np.concatenate([self._vectors, np.zeros((more, self._vectors.shape[1]), np.float32)])

    def _fill(self, slot: int, vector: bytes) -> None:
        if vector:
            self._vectors[slot] = np.frombuffer(vector, "<f4")
        self._unfilled.pop(slot, None)
