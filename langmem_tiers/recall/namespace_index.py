"""In-memory index of a namespace: positions, terms and vectors, updated before each use."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.recall.positions import MessagePositions
from langmem_tiers.recall.ranking import KERNELS
from langmem_tiers.recall.records import TrustSampleRecord
from langmem_tiers.recall.vector_index import (
    TrustSample,
    VectorIndex,
    draw_trust_sample,
    find_trust,
    iter_sample_sizes,
)
from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.records import IndexChanges, Tenant, Trust
    from langmem_tiers.recall.repository import RecallIndexRepository


MAX_CACHED_TERMS = 100_000
"""Number of words in a namespace up to which its terms are cached. Loading them takes tens of milliseconds once."""
# A posting is one integer: the message's key, followed by 12 bits for the number of occurrences (at most 4,095).
_COUNT_BITS = 12
_MAX_COUNT = (1 << _COUNT_BITS) - 1
_BYTES_PER_TERM, _BYTES_PER_POSTING = 200, 8


class LexicalCache:
    """Postings of a namespace's first messages, in ascending order of keys."""

    def __init__(self) -> None:
        self.message_count = 0
        self._postings: dict[str, array[int]] = {}
        self._posting_count = 0

    @property
    def size_bytes(self) -> int:
        """Approximate memory use in bytes."""
        return len(self._postings) * _BYTES_PER_TERM + self._posting_count * _BYTES_PER_POSTING

    def add(self, keys: Sequence[int], terms: Mapping[int, Sequence[str]]) -> None:
        """Append messages. A message without an entry in ``terms`` has no terms."""
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
        """Insert messages between the cached ones.

        Args:
            before: Keys of all messages before the update.
            now: Keys of all messages after the update.
            terms: Terms of new messages. They may be missing for the last messages, which are added later.

        Returns:
            False, with nothing changed, if messages other than the last ones would be missing.
        """
        new = np.setdiff1d(now, before).tolist()
        known = sorted(key for key in new if key in terms)
        cached_count = len(before) + len(known)
        # find_postings() loads the messages from `message_count` on. So the cached messages have to be exactly the
        # first ones: those without terms must all come after them.
        if self.message_count != len(before) or set(now[cached_count:].tolist()) != set(new) - set(known):
            return False
        self.add(known, terms)
        # add() appended the new postings. Only the terms of the new messages are out of order.
        for term in {term for key in known for term in terms[key]}:
            self._postings[term] = array("q", sorted(self._postings[term]))
        return True

    def append_new(self, keys: NDArray[np.int64], terms: Mapping[int, Sequence[str]]) -> None:
        """Append the messages that follow the cached ones, if all of their terms are given."""
        new = keys[self.message_count :].tolist()
        if all(key in terms for key in new):
            self.add(new, terms)

    def find_postings(self, terms: Sequence[str]) -> Postings:
        """Return the postings of the terms that occur."""
        found = sorted(term for term in set(terms) if term in self._postings)
        postings = [self._postings[term] for term in found]
        # The empty array is for the case that no term occurs. np.frombuffer reads an array without a copy.
        packed = np.concatenate(
            [np.empty(0, np.int64), *(np.frombuffer(posting, np.int64) for posting in postings)]
        )
        term_numbers = np.repeat(np.arange(len(found)), [len(posting) for posting in postings])
        return Postings(found, term_numbers, packed >> _COUNT_BITS, (packed & _MAX_COUNT).astype(np.float32))


_BYTES_PER_ROW = 270
_MIN_BYTES = 4_000
_PAGE_SIZE = 10_000


class NamespaceIndex:
    """Index of one namespace. Hold ``lock`` while using it."""

    def __init__(self, path: NamespacePath) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.embedding_lock = threading.Lock()
        """Serializes the embedding of batches. Acquire it before ``lock``, never while holding ``lock``."""
        self.tenant: Tenant | None = None
        self.has_knowledge: bool | None = None
        self.positions = MessagePositions(KERNELS)
        self.vectors: VectorIndex | None = None
        self._lexical_cache: LexicalCache | None = LexicalCache()
        self._watermark = 0
        self._model: int | None = None

    @property
    def size_bytes(self) -> int:
        """Approximate memory use in bytes."""
        vectors = 0 if self.vectors is None else self.vectors.size_bytes
        words = 0 if self._lexical_cache is None else self._lexical_cache.size_bytes
        return _MIN_BYTES + self.positions.count * _BYTES_PER_ROW + vectors + words

    def refresh(self, store: RecallIndexRepository) -> bool:
        """Load changes by this and other processes since the last call.

        Returns:
            False if the namespace does not exist.
        """
        # Terms come with new rows if they are cached. On the first read they are left out: the cache loads them later,
        # unless the namespace is too large.
        news = store.load_changes(
            self.path, self._watermark, with_terms=bool(self._watermark) and self._lexical_cache is not None
        )
        self.has_knowledge = news.has_knowledge
        if news.tenant != self.tenant or news.watermark < self._watermark:
            # The namespace was recreated, something was erased, or the database was replaced by an older copy. The
            # cached rows may be wrong, so load everything again.
            if self._watermark:
                news = store.load_changes(self.path, 0)
            self._reset(news)
        elif not self.positions.extend(news.rows):
            # A transaction with lower keys was committed after one with higher keys. Its messages belong in between.
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
        # Rebuild the positions, which is fast. Keep the cached terms and vectors if possible.
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

    def find_postings(self, store: RecallIndexRepository, terms: Sequence[str]) -> Postings:
        """Return the postings of terms: from the cache if the namespace is small, else from the store."""
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        cache, positions = self._lexical_cache, self.positions
        if cache is not None and cache.message_count < positions.count:
            if float(positions["lengths"].sum()) > MAX_CACHED_TERMS:
                # The namespace has become too large for the cache.
                cache = self._lexical_cache = None
            else:
                keys = positions["keys"][cache.message_count :].tolist()
                cache.add(keys, store.get_terms(keys))
        return store.find_postings(self.tenant.key, terms) if cache is None else cache.find_postings(terms)

    def load_vectors(self, embedding: EmbeddingClient) -> VectorIndex:
        """Return the vectors by this embedder, including those written since the last call."""
        model = embedding.get_model_key()
        if self.vectors is None or self._model != model:
            self.vectors, self._model = VectorIndex(embedding.dimension), model
        elif self.vectors.is_complete(self.positions):
            # A stored vector never changes, so there is nothing to load.
            return self.vectors
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        while True:
            keys, found, watermark = embedding.store.load_vectors(
                self.tenant.key, model, self.vectors.watermark, _PAGE_SIZE
            )
            self.vectors.put(self.positions, keys, found)
            self.vectors.watermark = watermark
            if len(keys) < _PAGE_SIZE:
                return self.vectors

    def update_trust(
        self, embedding: EmbeddingClient, store: RecallIndexRepository, *, may_wait: bool = False
    ) -> TrustSampleRecord | None:
        """Measure the trust in the embedder, each time the number of messages has doubled.

        The trust depends on the stored messages only, so a result of another process is used as it is. If the store
        searches the vectors, fetching the sample takes time. With ``may_wait``, a trust that was measured on fewer
        messages then remains in use, and ``vectors.is_measurement_pending`` is set.

        Args:
            embedding: Client of the embedder.
            store: Store of the terms.
            may_wait: True to postpone a slow measurement. Default: False.

        Returns:
            The sample, if this call has measured the trust. The caller should store it for other processes.
        """
        vectors, positions = self.vectors, self.positions
        sizes = list(iter_sample_sizes(positions.count))
        if vectors is None or not sizes or vectors.sample_size == sizes[0]:
            return None
        sample = self._choose_sample(vectors, sizes)
        if sample is None or sample.extent == vectors.sample_extent:
            return None
        assert self.tenant is not None  # noqa: S101 - refresh() came first
        sample_record = TrustSampleRecord(int(positions["keys"][sample.size - 1]), *sample.extent)
        # Use the stored trust if it was measured on the same sample. A process without a trust also uses one that was
        # measured on fewer messages, if these are still the first ones.
        known = embedding.store.get_trust(self.tenant, embedding.get_model_key())
        if known is not None and (
            known[0] == sample_record or (vectors.sample_extent is None and self._has_same_messages(known[0]))
        ):
            vectors.sample_extent, vectors.trust = known[0].extent, known[1]
        if vectors.sample_extent == sample.extent:
            vectors.is_measurement_pending = False
            return None
        if may_wait and vectors.sample_extent is not None and not vectors.is_in_memory:
            vectors.sample_size, vectors.is_measurement_pending = 0, True
            return None
        vectors.sample_extent, vectors.is_measurement_pending = sample.extent, False
        vectors.trust = self._measure_trust(embedding, store, vectors, sample)
        return sample_record

    def _has_same_messages(self, sample_record: TrustSampleRecord) -> bool:
        # True if the messages that the sample was drawn from are still the first ones of the namespace.
        keys = self.positions["keys"]
        return sample_record.size <= len(keys) and int(keys[sample_record.size - 1]) == sample_record.last_key

    def _measure_trust(
        self,
        embedding: EmbeddingClient,
        store: RecallIndexRepository,
        vectors: VectorIndex,
        sample: TrustSample,
    ) -> Trust:
        positions = self.positions
        keys = [positions["keys"][rows].tolist() for rows in sample.parts]
        terms = store.get_terms([key for part in keys for key in part])
        if vectors.is_in_memory:
            tables = [vectors.get_vectors(rows) for rows in sample.parts]
        else:
            tables = [self._fetch_vectors(embedding, part) for part in keys]
        return find_trust(positions, sample, tables, [[terms.get(key, ()) for key in part] for part in keys])

    def _choose_sample(self, vectors: VectorIndex, sizes: list[int]) -> TrustSample | None:
        # Use the largest sample that has vectors. `sample_size` remembers a final result, to skip this next time.
        for size in sizes:
            whole = draw_trust_sample(self.positions, size)
            if whole is None:
                # Fewer messages do not suffice either. Only the largest size is a final result: a smaller one is
                # reached if vectors of a larger sample are still missing.
                vectors.sample_size = sizes[0] if size == sizes[0] else 0
                return None
            sample = whole.restrict_to(vectors.get_vector_flags(self.positions.count))
            if sample is not None:
                vectors.sample_size = size if sample.extent == whole.extent else 0
                return sample
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
