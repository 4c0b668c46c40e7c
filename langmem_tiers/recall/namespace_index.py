"""What is held in memory of a namespace: places and vectors, brought up to date before each use."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.positions import MessagePositions
from langmem_tiers.recall.ranking import KERNELS
from langmem_tiers.recall.records import TrialRecord
from langmem_tiers.recall.vector_index import (
    TrialSample,
    VectorIndex,
    draw_trial_sample,
    find_trust,
    iter_trial_sizes,
)
from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.records import IndexChanges, IndexStore, Tenant, Trust


MAX_CACHED_TERMS = 100_000
"""Words of all messages together up to which they are held: reading so many takes tens of milliseconds, once."""
_COUNT_BITS = 12
_MAX_COUNT = (1 << _COUNT_BITS) - 1
_BYTES_PER_TERM, _BYTES_PER_POSTING = 200, 8


class LexicalCache:
    """The words of the messages that were added, in the order of their keys."""

    def __init__(self) -> None:
        self.message_count = 0
        self._postings: dict[str, array[int]] = {}
        self._posting_count = 0

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self._postings) * _BYTES_PER_TERM + self._posting_count * _BYTES_PER_POSTING

    def add(self, keys: Sequence[int], terms: Mapping[int, Sequence[str]]) -> None:
        """The next messages; those without terms hold none."""
        for key in keys:
            counts = Counter(terms.get(key, ()))
            for term, count in counts.items():
                self._postings.setdefault(term, array("q")).append(
                    key << _COUNT_BITS | min(count, _MAX_COUNT)
                )
            self._posting_count += len(counts)
        self.message_count += len(keys)

    def insert_between(
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
        if self.message_count != len(before) or set(now[held:].tolist()) != set(new) - set(known):
            return False
        self.add(known, terms)
        for term in {term for key in known for term in terms[key]}:
            self._postings[term] = array("q", sorted(self._postings[term]))
        return True

    def append_new(self, keys: NDArray[np.int64], terms: Mapping[int, Sequence[str]]) -> None:
        """Add the messages behind those that are held, if their terms are among these."""
        new = keys[self.message_count :].tolist()
        if all(key in terms for key in new):
            self.add(new, terms)

    def find_postings(self, terms: Sequence[str]) -> Postings:
        """Where the terms are."""
        there = sorted(term for term in set(terms) if term in self._postings)
        places = [self._postings[term] for term in there]
        together = np.concatenate(
            [np.empty(0, np.int64), *(np.frombuffer(some, np.int64) for some in places)]
        )
        of = np.repeat(np.arange(len(there)), [len(some) for some in places])
        return Postings(there, of, together >> _COUNT_BITS, (together & _MAX_COUNT).astype(np.float32))


_BYTES_PER_ROW = 270
_MIN_BYTES = 4_000
_PAGE_SIZE = 10_000


class NamespaceIndex:
    """One namespace. Hold ``lock`` while using it."""

    def __init__(self, path: NamespacePath) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.embedding_lock = threading.Lock()
        """Held while a batch of its messages is embedded, by one at a time; taken before ``lock``."""
        self.tenant: Tenant | None = None
        self.has_knowledge: bool | None = None
        self.positions = MessagePositions(KERNELS)
        self.vectors: VectorIndex | None = None
        self._lexical_cache: LexicalCache | None = LexicalCache()
        self._watermark = 0
        self._model: int | None = None

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        vectors = 0 if self.vectors is None else self.vectors.size_bytes
        words = 0 if self._lexical_cache is None else self._lexical_cache.size_bytes
        return _MIN_BYTES + self.positions.count * _BYTES_PER_ROW + vectors + words

    def refresh(self, store: IndexStore) -> bool:
        """Read what others or we have written since; False if the namespace does not exist."""
        news = store.load_changes(
            self.path, self._watermark, with_terms=bool(self._watermark) and self._lexical_cache is not None
        )
        self.has_knowledge = news.has_knowledge
        if news.tenant != self.tenant or news.watermark < self._watermark:
            # Made anew, something was erased, or the server is an older copy now: nothing that is held holds.
            if self._watermark:
                news = store.load_changes(self.path, 0)
            self._reset(news)
        elif not self.positions.extend(news.rows):
            # Another writer was slower than one who began after it: its messages come in between.
            self._insert_between(store.load_changes(self.path, 0), news.terms)
        elif self._lexical_cache is not None and news.terms:
            self._lexical_cache.append_new(self.positions["keys"], news.terms)
        self._watermark = news.watermark
        return self.tenant is not None

    def _reset(self, news: IndexChanges) -> None:
        self.tenant, self.positions, self.vectors = news.tenant, MessagePositions(KERNELS), None
        self._lexical_cache = LexicalCache()
        self.positions.extend(news.rows)

    def _insert_between(self, all_rows: IndexChanges, terms: Mapping[int, Sequence[str]]) -> None:
        # Where rows stand is found anew, which is quick; words and vectors that are held stay.
        if all_rows.tenant != self.tenant:
            self._reset(all_rows)
            return
        before, self.positions = self.positions["keys"].copy(), MessagePositions(KERNELS)
        self.positions.extend(all_rows.rows)
        if self._lexical_cache is not None and not self._lexical_cache.insert_between(
            before, self.positions["keys"], terms
        ):
            self._lexical_cache = LexicalCache()
        if self.vectors is not None and not self.vectors.move_rows(before, self.positions):
            self.vectors = None

    def find_postings(self, store: IndexStore, terms: Sequence[str]) -> Postings:
        """Where terms are: from memory where the namespace is small, else from the database."""
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        held, places = self._lexical_cache, self.positions
        if held is not None and held.message_count < places.count:
            if float(places["lengths"].sum()) > MAX_CACHED_TERMS:
                held = self._lexical_cache = None  # it has outgrown that
            else:
                keys = places["keys"][held.message_count :].tolist()
                held.add(keys, store.get_terms(keys))
        return store.find_postings(self.tenant.key, terms) if held is None else held.find_postings(terms)

    def load_vectors(self, embedding: EmbeddingClient) -> VectorIndex:
        """The vectors of this embedder, with those that were written since."""
        model = embedding.get_model_key()
        if self.vectors is None or self._model != model:
            self.vectors, self._model = VectorIndex(embedding.dimension), model
        elif self.vectors.is_complete(self.positions):
            return self.vectors  # a vector that is there is never changed
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        while True:
            keys, found, mark = embedding.store.load_vectors(
                self.tenant.key, model, self.vectors.watermark, _PAGE_SIZE
            )
            self.vectors.put(self.positions, keys, found)
            self.vectors.watermark = mark
            if len(keys) < _PAGE_SIZE:
                return self.vectors

    def update_trust(
        self, embedding: EmbeddingClient, store: IndexStore, *, may_wait: bool = False
    ) -> TrialRecord | None:
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
        vectors, places = self.vectors, self.positions
        sizes = list(iter_trial_sizes(places.count))
        if vectors is None or not sizes or vectors.trial_size == sizes[0]:
            return None
        picked = self._choose_sample(vectors, sizes)
        if picked is None or picked.extent == vectors.trial_extent:
            return None
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        tried = TrialRecord(int(places["keys"][picked.size - 1]), *picked.extent)
        known = embedding.store.get_trust(self.tenant, embedding.get_model_key())
        if known is not None and (
            known[0] == tried or (vectors.trial_extent is None and self._has_same_messages(known[0]))
        ):
            vectors.trial_extent, vectors.trust = known[0].extent, known[1]
        if vectors.trial_extent == picked.extent:
            vectors.is_trial_pending = False
            return None
        if may_wait and vectors.trial_extent is not None and not vectors.is_in_memory:
            vectors.trial_size, vectors.is_trial_pending = 0, True
            return None
        vectors.trial_extent, vectors.is_trial_pending = picked.extent, False
        vectors.trust = self._measure_trust(embedding, store, vectors, picked)
        return tried

    def _has_same_messages(self, tried: TrialRecord) -> bool:
        # Whether the messages that something was tried on are still the first ones.
        keys = self.positions["keys"]
        return tried.size <= len(keys) and int(keys[tried.size - 1]) == tried.last_key

    def _measure_trust(
        self, embedding: EmbeddingClient, store: IndexStore, vectors: VectorIndex, picked: TrialSample
    ) -> Trust:
        places = self.positions
        keys = [places["keys"][rows].tolist() for rows in picked.parts]
        terms = store.get_terms([key for part in keys for key in part])
        if vectors.is_in_memory:
            tables = [vectors.get_vectors(rows) for rows in picked.parts]
        else:
            tables = [self._fetch_vectors(embedding, part) for part in keys]
        return find_trust(places, picked, tables, [[terms.get(key, ()) for key in part] for part in keys])

    def _choose_sample(self, vectors: VectorIndex, sizes: list[int]) -> TrialSample | None:
        for size in sizes:
            whole = draw_trial_sample(self.positions, size)
            if whole is None:  # then there is none among fewer messages either
                vectors.trial_size = sizes[0] if size == sizes[0] else 0
                return None
            picked = whole.restrict_to(vectors.get_vector_flags(self.positions.count))
            if picked is not None:
                vectors.trial_size = size if picked.extent == whole.extent else 0
                return picked
        return None

    def _fetch_vectors(
        self, embedding: EmbeddingClient, keys: list[int]
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        found, vectors = embedding.store.get_vectors(embedding.get_model_key(), keys)
        table = np.zeros((len(keys), embedding.dimension), np.float32)
        order = {key: number for number, key in enumerate(keys)}
        for key, vector in zip(found.tolist(), vectors, strict=True):
            table[order[key]] = vector
        return table
