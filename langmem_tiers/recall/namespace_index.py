"""What is held in memory of a namespace: places and vectors, brought up to date before each use."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.positions import Places
from langmem_tiers.recall.ranking import KERNELS
from langmem_tiers.recall.records import Tried
from langmem_tiers.recall.vector_index import Sample, VectorIndex, find_trust, sample, trial_sizes
from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.embedders.embedding import Embedding
    from langmem_tiers.recall.records import IndexStore, Refresh, Tenant, Trust


MOST_TERMS = 100_000
"""Words of all messages together up to which they are held: reading so many takes tens of milliseconds, once."""
_COUNT_BITS = 12
_MOST = (1 << _COUNT_BITS) - 1
_BYTES_PER_TERM, _BYTES_PER_PLACE = 200, 8


class HeldWords:
    """The words of the messages that were added, in the order of their keys."""

    def __init__(self) -> None:
        self.messages = 0
        self._places: dict[str, array[int]] = {}
        self._number = 0

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self._places) * _BYTES_PER_TERM + self._number * _BYTES_PER_PLACE

    def add(self, keys: Sequence[int], terms: Mapping[int, Sequence[str]]) -> None:
        """The next messages; those without terms hold none."""
        for key in keys:
            counts = Counter(terms.get(key, ()))
            for term, count in counts.items():
                self._places.setdefault(term, array("q")).append(key << _COUNT_BITS | min(count, _MOST))
            self._number += len(counts)
        self.messages += len(keys)

    def take_between(
        self, before: NDArray[np.int64], now: NDArray[np.int64], terms: Mapping[int, Sequence[str]]
    ) -> bool:
        """Add messages that come between those that are held; False, if they are not the only ones that are missing.

        Args:
            before: The keys of the messages that there were.
            now: Those that there are.
            terms: Of new ones; those at the end may be missing and are added later.
        """
        new = np.setdiff1d(now, before).tolist()
        known = sorted(key for key in new if key in terms)
        held = len(before) + len(known)
        if self.messages != len(before) or set(now[held:].tolist()) != set(new) - set(known):
            return False
        self.add(known, terms)
        for term in {term for key in known for term in terms[key]}:
            self._places[term] = array("q", sorted(self._places[term]))
        return True

    def go_on(self, keys: NDArray[np.int64], terms: Mapping[int, Sequence[str]]) -> None:
        """Add the messages behind those that are held, if their terms are among these."""
        new = keys[self.messages :].tolist()
        if all(key in terms for key in new):
            self.add(new, terms)

    def postings(self, terms: Sequence[str]) -> Postings:
        """Where the terms are."""
        there = sorted(term for term in set(terms) if term in self._places)
        places = [self._places[term] for term in there]
        together = np.concatenate(
            [np.empty(0, np.int64), *(np.frombuffer(some, np.int64) for some in places)]
        )
        of = np.repeat(np.arange(len(there)), [len(some) for some in places])
        return Postings(there, of, together >> _COUNT_BITS, (together & _MOST).astype(np.float32))


_BYTES_PER_ROW = 270
_BYTES_AT_LEAST = 4_000
_PAGE = 10_000


class NamespaceIndex:
    """One namespace. Hold ``lock`` while using it."""

    def __init__(self, path: NamespacePath) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.filling = threading.Lock()
        """Held while a batch of its messages is embedded, by one at a time; taken before ``lock``."""
        self.tenant: Tenant | None = None
        self.knows: bool | None = None
        self.places = Places(KERNELS)
        self.vectors: VectorIndex | None = None
        self._words: HeldWords | None = HeldWords()
        self._mark = 0
        self._model: int | None = None

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        vectors = 0 if self.vectors is None else self.vectors.bytes
        words = 0 if self._words is None else self._words.bytes
        return _BYTES_AT_LEAST + self.places.count * _BYTES_PER_ROW + vectors + words

    def refresh(self, store: IndexStore) -> bool:
        """Read what others or we have written since; False if the namespace does not exist."""
        news = store.refresh(self.path, self._mark, with_terms=bool(self._mark) and self._words is not None)
        self.knows = news.knows
        if news.tenant != self.tenant or news.mark < self._mark:
            # Made anew, something was erased, or the server is an older copy now: nothing that is held holds.
            if self._mark:
                news = store.refresh(self.path, 0)
            self._start_anew(news)
        elif not self.places.extend(news.rows):
            # Another writer was slower than one who began after it: its messages come in between.
            self._take_between(store.refresh(self.path, 0), news.terms)
        elif self._words is not None and news.terms:
            self._words.go_on(self.places["keys"], news.terms)
        self._mark = news.mark
        return self.tenant is not None

    def _start_anew(self, news: Refresh) -> None:
        self.tenant, self.places, self.vectors = news.tenant, Places(KERNELS), None
        self._words = HeldWords()
        self.places.extend(news.rows)

    def _take_between(self, all_rows: Refresh, terms: Mapping[int, Sequence[str]]) -> None:
        # Where rows stand is found anew, which is quick; words and vectors that are held stay.
        if all_rows.tenant != self.tenant:
            self._start_anew(all_rows)
            return
        before, self.places = self.places["keys"].copy(), Places(KERNELS)
        self.places.extend(all_rows.rows)
        if self._words is not None and not self._words.take_between(before, self.places["keys"], terms):
            self._words = HeldWords()
        if self.vectors is not None and not self.vectors.move(before, self.places):
            self.vectors = None

    def postings(self, store: IndexStore, terms: Sequence[str]) -> Postings:
        """Where terms are: from memory where the namespace is small, else from the database."""
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        held, places = self._words, self.places
        if held is not None and held.messages < places.count:
            if float(places["lengths"].sum()) > MOST_TERMS:
                held = self._words = None  # it has outgrown that
            else:
                keys = places["keys"][held.messages :].tolist()
                held.add(keys, store.terms(keys))
        return store.postings(self.tenant.key, terms) if held is None else held.postings(terms)

    def load_vectors(self, embedding: Embedding) -> VectorIndex:
        """The vectors of this embedder, with those that were written since."""
        model = embedding.model()
        if self.vectors is None or self._model != model:
            self.vectors, self._model = VectorIndex(embedding.dimension), model
        elif self.vectors.is_complete(self.places):
            return self.vectors  # a vector that is there is never changed
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        while True:
            keys, found, mark = embedding.store.load(self.tenant.key, model, self.vectors.mark, _PAGE)
            self.vectors.put(self.places, keys, found)
            self.vectors.mark = mark
            if len(keys) < _PAGE:
                return self.vectors

    def try_model(self, embedding: Embedding, store: IndexStore, *, may_wait: bool = False) -> Tried | None:
        """Find how far the embedder is to be trusted here; again each time twice as much is known.

        It follows from what is stored, not from when this process looked at it: what another one found is taken over.
        Where a server keeps the vectors it takes time to fetch some, so what was found on fewer messages may do for
        a while; ``vectors.trial_waits`` says so.

        Args:
            embedding: The embedder.
            store: Words.
            may_wait: Whether that is allowed.

        Returns:
            What it was tried on, if nobody had done so.
        """
        vectors, places = self.vectors, self.places
        sizes = list(trial_sizes(places.count))
        if vectors is None or not sizes or vectors.tried_on == sizes[0]:
            return None
        picked = self._sample(vectors, sizes)
        if picked is None or picked.extent == vectors.tried:
            return None
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        tried = Tried(int(places["keys"][picked.size - 1]), *picked.extent)
        known = embedding.store.trust(self.tenant, embedding.model())
        if known is not None and (known[0] == tried or (vectors.tried is None and self._held_then(known[0]))):
            vectors.tried, vectors.trust = known[0].extent, known[1]
        if vectors.tried == picked.extent:
            vectors.trial_waits = False
            return None
        if may_wait and vectors.tried is not None and not vectors.holds_vectors:
            vectors.tried_on, vectors.trial_waits = 0, True
            return None
        vectors.tried, vectors.trial_waits = picked.extent, False
        vectors.trust = self._tried(embedding, store, vectors, picked)
        return tried

    def _held_then(self, tried: Tried) -> bool:
        # Whether the messages that something was tried on are still the first ones.
        keys = self.places["keys"]
        return tried.size <= len(keys) and int(keys[tried.size - 1]) == tried.last

    def _tried(self, embedding: Embedding, store: IndexStore, vectors: VectorIndex, picked: Sample) -> Trust:
        places = self.places
        keys = [places["keys"][rows].tolist() for rows in picked.parts]
        terms = store.terms([key for part in keys for key in part])
        if vectors.holds_vectors:
            tables = [vectors.vectors(rows) for rows in picked.parts]
        else:
            tables = [self._fetched(embedding, part) for part in keys]
        return find_trust(places, picked, tables, [[terms.get(key, ()) for key in part] for part in keys])

    def _sample(self, vectors: VectorIndex, sizes: list[int]) -> Sample | None:
        for size in sizes:
            whole = sample(self.places, size)
            if whole is None:  # then there is none among fewer messages either
                vectors.tried_on = sizes[0] if size == sizes[0] else 0
                return None
            picked = whole.among(vectors.there(self.places.count))
            if picked is not None:
                vectors.tried_on = size if picked.extent == whole.extent else 0
                return picked
        return None

    def _fetched(
        self, embedding: Embedding, keys: list[int]
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        found, vectors = embedding.store.vectors(embedding.model(), keys)
        table = np.zeros((len(keys), embedding.dimension), np.float32)
        order = {key: number for number, key in enumerate(keys)}
        for key, vector in zip(found.tolist(), vectors, strict=True):
            table[order[key]] = vector
        return table
