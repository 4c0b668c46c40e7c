"""Ranks the items under a prefix by a query: words and vectors together.

What is held in memory is checked against the revisions of its namespaces before each use, so a write
by another process is seen at once.
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
"""Prefixes whose items are held, however few those are: each search weighs all of them."""
_EMBED_BATCH_SIZE = 500


class _LockedIndex:
    """A shelf and the lock that keeps others from it."""

    def __init__(self) -> None:
        self.index = ItemSearchIndex()
        self.lock = threading.Lock()


class ItemRanker:
    """Holds a shelf for each prefix that is searched, the least recently used leave first.

    Args:
        index: What is on the shelves.
        embedding: Makes vectors of queries, and of texts that have none; None ranks by words alone.
        config: Limits.
        clock: Where the time comes from.
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
        self._indexes: dict[NamespacePath, _LockedIndex] = {}
        self._lock = threading.Lock()

    def rank(self, prefix: NamespacePath, query: str, *, by_words: bool = False) -> ItemRanking:
        """All items in namespaces that begin with the prefix's whole labels, the best first.

        Args:
            prefix: Where.
            query: A question, or words.
            by_words: By words alone, and no vector is made.
        """
        vector = None if by_words else self._embed_query(query)
        with self._lock:
            place = self._indexes.pop(prefix, None) or _LockedIndex()
            self._indexes[prefix] = place
        with place.lock:
            if vector is not None and self._embedding is not None:
                place.index.use_model(self._embedding.get_model_key(), len(vector))
            self._refresh(place.index, prefix)
            if vector is not None:
                self._embed_missing(place.index)
            share = None if self._embedding is None else self._embedding.share
            ranked = place.index.rank(extract_terms(query), vector, share)
        self._evict()
        return ranked

    def before_fork(self) -> None:
        """Nothing to do: the child begins with empty shelves."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """A lock may be held by a thread that this process does not have."""
        self._reset()

    def _embed_query(self, query: str) -> NDArray[np.float32] | None:
        if self._embedding is None:
            return None
        try:
            self._embedding.get_model_key()
            return self._embedding.embed_query(query)
        except EmbeddingError as error:
            _log.warning("items are ranked by words alone: %s", error)
            return None

    def _refresh(self, shelf: ItemSearchIndex, prefix: NamespacePath) -> None:
        states = {state.pk: state for state in self._index.list_namespace_states(prefix)}
        changed = [state for state in states.values() if shelf.namespace_states.get(state.pk) != state]
        gone = shelf.namespace_states.keys() - states.keys()
        erased = {
            state.pk
            for state in changed
            if state.pk in shelf.namespace_states
            and shelf.namespace_states[state.pk].erasure_epoch != state.erasure_epoch
        }
        if gone or erased:
            shelf.retain(gone | erased, self._index.list_keys(sorted(erased)))
        for seen_at, keys in _group_by_revision(shelf, [state.pk for state in changed]).items():
            for item in self._index.load_items(keys, seen_at, shelf.model):
                shelf.put(item)
        shelf.namespace_states = states

    def _embed_missing(self, shelf: ItemSearchIndex) -> None:
        until = self._clock.monotonic() + self._config.embedding.inline_seconds
        waiting = shelf.missing_vectors
        for start in range(0, len(waiting), _EMBED_BATCH_SIZE):
            if start and self._clock.monotonic() >= until:
                return  # the next search goes on; until then these are found by their words
            try:
                self._embed_batch(shelf, waiting[start : start + _EMBED_BATCH_SIZE])
            except EmbeddingError as error:
                _log.warning("%d texts of items have no vector yet: %s", len(waiting) - start, error)
                return

    def _embed_batch(self, shelf: ItemSearchIndex, places: list[ItemTextKey]) -> None:
        if self._embedding is None:
            return
        model = self._embedding.get_model_key()
        texts = self._index.get_texts(places, model)
        shelf.put_vectors((place, vector) for place, (_, vector) in texts.items() if vector is not None)
        lacking = [place for place, (_, vector) in texts.items() if vector is None]
        if not lacking:
            return
        embedded = self._embedding.embed_documents([texts[place][0] for place in lacking])
        made = {lacking[at]: embedded.vectors[at].astype("<f4").tobytes() for at in embedded.embedded_numbers}
        shelf.put_vectors(made.items())
        shelf.put_vectors(
            (lacking[at], b"") for at in embedded.refused_numbers
        )  # not asked for again by this process
        try:
            self._index.insert_vectors(made, model)
        except StorageError as error:  # they are made again by whoever needs them
            _log.warning("%d vectors of items could not be kept: %s", len(made), error)

    def _evict(self) -> None:
        most = self._config.recall.index_megabytes * 1_000_000
        with self._lock:
            weights = {prefix: place.index.size_bytes for prefix, place in self._indexes.items()}
            total = sum(weights.values())
            for prefix in list(self._indexes)[:-1]:
                if total <= most and len(self._indexes) <= _MAX_PREFIXES:
                    break
                del self._indexes[prefix]
                total -= weights[prefix]


def _group_by_revision(shelf: ItemSearchIndex, namespaces: list[int]) -> dict[int, list[int]]:
    # Namespaces that are new to the shelf are read together, each of the others from where it was left.
    found: dict[int, list[int]] = {}
    for pk in namespaces:
        at = shelf.namespace_states[pk].revision if pk in shelf.namespace_states else 0
        found.setdefault(at, []).append(pk)
    return found
