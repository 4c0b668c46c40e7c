"""Rank the items under a prefix by a query, with words and vectors.

Each cached index is compared with the revisions of its namespaces before each use, so that writes by other
processes are found at once.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.errors import EmbeddingError, StorageError
from langmem_tiers.recall.item_index import ItemSearchIndex
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.item_index import ItemRanking
    from langmem_tiers.recall.item_records import ItemIndex, ItemTextKey

_log = logging.getLogger("langmem_tiers")
_MAX_PREFIXES = 1_000
"""Maximum number of cached prefixes. Limited even if all are small, because each search measures all of them."""
_EMBED_BATCH_SIZE = 500


class _LockedIndex:
    def __init__(self) -> None:
        self.index = ItemSearchIndex()
        self.lock = threading.Lock()


class ItemRanker:
    """Ranks items, with an LRU cache of one index per searched prefix. Thread-safe.

    Args:
        index: Store of the items' texts and vectors.
        embedding: Client that embeds queries, and texts without vectors. None ranks by words only.
        config: Limits.
        clock: Source of the time.
    """

    def __init__(
        self, index: ItemIndex, embedding: EmbeddingClient | None, config: EngineConfig, clock: Clock
    ) -> None:
        self._index = index
        self._embedding = embedding
        self._config = config
        self._clock = clock
        self._reset()
        fork_safety.register_fork_aware(self)

    def _reset(self) -> None:
        # No SizedLruCache: an index grows after it was inserted, and the newest one stays, however large it is.
        self._indexes: dict[NamespacePath, _LockedIndex] = {}
        self._lock = threading.Lock()

    def rank(self, prefix: NamespacePath, query: str, *, by_words: bool = False) -> ItemRanking:
        """Rank all items in the namespaces under a prefix.

        Args:
            prefix: First labels of the namespaces.
            query: A question or words.
            by_words: True to rank by words only, without embedding anything. Default: False.
        """
        vector = None if by_words else self._embed_query(query)
        with self._lock:
            # Removing and inserting moves the prefix to the end: the first one is the least recently used.
            cached = self._indexes.pop(prefix, None) or _LockedIndex()
            self._indexes[prefix] = cached
        with cached.lock:
            # The model comes first, because the refresh loads the vectors of the current model.
            if vector is not None and self._embedding is not None:
                cached.index.use_model(self._embedding.get_model_key(), len(vector))
            self._refresh(cached.index, prefix)
            if vector is not None:
                self._embed_missing(cached.index)
            share = None if self._embedding is None else self._embedding.share
            ranked = cached.index.rank(extract_terms(query), vector, share)
        self._evict()
        return ranked

    def before_fork(self) -> None:
        """Do nothing: the child starts with an empty cache."""

    def after_fork(self) -> None:
        """Do nothing in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace the locks and the cache: a lock may be held by a thread that does not exist in the child."""
        self._reset()

    def _embed_query(self, query: str) -> NDArray[np.float32] | None:
        if self._embedding is None:
            return None
        try:
            self._embedding.get_model_key()
            return self._embedding.embed_query(query)
        except EmbeddingError as error:
            _log.warning("items are ranked by words only: %s", error)
            return None

    def _refresh(self, index: ItemSearchIndex, prefix: NamespacePath) -> None:
        states = {state.pk: state for state in self._index.list_namespace_states(prefix)}
        # New items have revisions above the known one. Deleted items leave no row, so after an erasure the remaining
        # keys are listed and all other items of the namespace are removed from the index.
        changed = [state for state in states.values() if index.namespace_states.get(state.pk) != state]
        deleted = index.namespace_states.keys() - states.keys()
        erased = {
            state.pk
            for state in changed
            if state.pk in index.namespace_states
            and index.namespace_states[state.pk].erasure_epoch != state.erasure_epoch
        }
        if deleted or erased:
            index.retain(deleted | erased, self._index.list_keys(sorted(erased)))
        for revision, keys in _group_by_revision(index, [state.pk for state in changed]).items():
            for item in self._index.load_items(keys, revision, index.model):
                index.put(item)
        # The states were read before the items. An item that was written in between is loaded again next time, but
        # never missed.
        index.namespace_states = states

    def _embed_missing(self, index: ItemSearchIndex) -> None:
        until = self._clock.monotonic() + self._config.embedding.inline_seconds
        missing = index.missing_vectors
        for start in range(0, len(missing), _EMBED_BATCH_SIZE):
            # The first batch is always embedded. The next search continues with the rest, which is found by words.
            if start and self._clock.monotonic() >= until:
                return
            try:
                self._embed_batch(index, missing[start : start + _EMBED_BATCH_SIZE])
            except EmbeddingError as error:
                _log.warning("%d texts of items have no vector yet: %s", len(missing) - start, error)
                return

    def _embed_batch(self, index: ItemSearchIndex, keys: list[ItemTextKey]) -> None:
        if self._embedding is None:
            return
        model = self._embedding.get_model_key()
        # Another process may have stored some of the vectors in the meantime.
        texts = self._index.get_texts(keys, model)
        index.put_vectors((key, vector) for key, (_, vector) in texts.items() if vector is not None)
        missing = [key for key, (_, vector) in texts.items() if vector is None]
        if not missing:
            return
        embedded = self._embedding.embed_documents([texts[key][0] for key in missing])
        vectors = {
            missing[number]: embedded.vectors[number].astype("<f4").tobytes()
            for number in embedded.embedded_numbers
        }
        index.put_vectors(vectors.items())
        # An empty vector: this process does not try a rejected text again.
        index.put_vectors((missing[number], b"") for number in embedded.refused_numbers)
        try:
            self._index.insert_vectors(vectors, model)
        except StorageError as error:
            # This search can use the vectors anyway. A process that needs them later embeds the texts again.
            _log.warning("%d vectors of items could not be stored: %s", len(vectors), error)

    def _evict(self) -> None:
        max_bytes = self._config.recall.index_megabytes * 1_000_000
        with self._lock:
            sizes = {prefix: cached.index.size_bytes for prefix, cached in self._indexes.items()}
            total = sum(sizes.values())
            # The last prefix is the most recently used one. It stays, however large it is.
            for prefix in list(self._indexes)[:-1]:
                if total <= max_bytes and len(self._indexes) <= _MAX_PREFIXES:
                    break
                del self._indexes[prefix]
                total -= sizes[prefix]


def _group_by_revision(index: ItemSearchIndex, namespaces: list[int]) -> dict[int, list[int]]:
    # Namespaces by the revision to load from, so that those with the same one are loaded by one query: above all the
    # new ones, which start at 0.
    grouped: dict[int, list[int]] = {}
    for pk in namespaces:
        revision = index.namespace_states[pk].revision if pk in index.namespace_states else 0
        grouped.setdefault(revision, []).append(pk)
    return grouped
