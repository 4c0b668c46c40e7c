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
from langmem_tiers.recall.item_index import Shelf
from langmem_tiers.text.tokenize import terms_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.recall.embedders.embedding import Embedding
    from langmem_tiers.recall.item_index import Ranking
    from langmem_tiers.recall.item_records import ItemIndex, TextPlace

_log = logging.getLogger("langmem_tiers")
_MOST_SHELVES = 1_000
"""Prefixes whose items are held, however few those are: each search weighs all of them."""
_FILLED_AT_ONCE = 500


class _Place:
    """A shelf and the lock that keeps others from it."""

    def __init__(self) -> None:
        self.shelf = Shelf()
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
        self, index: ItemIndex, embedding: Embedding | None, config: EngineConfig, clock: Clock
    ) -> None:
        self._index = index
        self._embedding = embedding
        self._config = config
        self._clock = clock
        self._reset()
        fork_safety.watch(self)

    def _reset(self) -> None:
        self._places: dict[NamespacePath, _Place] = {}
        self._lock = threading.Lock()

    def rank(self, prefix: NamespacePath, query: str, *, by_words: bool = False) -> Ranking:
        """All items in namespaces that begin with the prefix's whole labels, the best first.

        Args:
            prefix: Where.
            query: A question, or words.
            by_words: By words alone, and no vector is made.
        """
        vector = None if by_words else self._query_vector(query)
        with self._lock:
            place = self._places.pop(prefix, None) or _Place()
            self._places[prefix] = place
        with place.lock:
            if vector is not None and self._embedding is not None:
                place.shelf.use_model(self._embedding.model(), len(vector))
            self._refresh(place.shelf, prefix)
            if vector is not None:
                self._fill(place.shelf)
            share = None if self._embedding is None else self._embedding.share
            ranked = place.shelf.ranked(terms_of(query), vector, share)
        self._make_room()
        return ranked

    def before_fork(self) -> None:
        """Nothing to do: the child begins with empty shelves."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """A lock may be held by a thread that this process does not have."""
        self._reset()

    def _query_vector(self, query: str) -> NDArray[np.float32] | None:
        if self._embedding is None:
            return None
        try:
            self._embedding.model()
            return self._embedding.query(query)
        except EmbeddingError as error:
            _log.warning("items are ranked by words alone: %s", error)
            return None

    def _refresh(self, shelf: Shelf, prefix: NamespacePath) -> None:
        states = {state.pk: state for state in self._index.states(prefix)}
        changed = [state for state in states.values() if shelf.seen.get(state.pk) != state]
        gone = shelf.seen.keys() - states.keys()
        erased = {
            state.pk
            for state in changed
            if state.pk in shelf.seen and shelf.seen[state.pk].erased != state.erased
        }
        if gone or erased:
            shelf.keep(gone | erased, self._index.keys(sorted(erased)))
        for seen_at, keys in _by_revision(shelf, [state.pk for state in changed]).items():
            for item in self._index.load(keys, seen_at, shelf.model):
                shelf.put(item)
        shelf.seen = states

    def _fill(self, shelf: Shelf) -> None:
        until = self._clock.monotonic() + self._config.embedding.inline_seconds
        waiting = shelf.unfilled
        for start in range(0, len(waiting), _FILLED_AT_ONCE):
            if start and self._clock.monotonic() >= until:
                return  # the next search goes on; until then these are found by their words
            try:
                self._fill_some(shelf, waiting[start : start + _FILLED_AT_ONCE])
            except EmbeddingError as error:
                _log.warning("%d texts of items have no vector yet: %s", len(waiting) - start, error)
                return

    def _fill_some(self, shelf: Shelf, places: list[TextPlace]) -> None:
        if self._embedding is None:
            return
        model = self._embedding.model()
        texts = self._index.texts(places, model)
        shelf.fill((place, vector) for place, (_, vector) in texts.items() if vector is not None)
        lacking = [place for place, (_, vector) in texts.items() if vector is None]
        if not lacking:
            return
        embedded = self._embedding.documents([texts[place][0] for place in lacking])
        made = {lacking[at]: embedded.vectors[at].astype("<f4").tobytes() for at in embedded.done}
        shelf.fill(made.items())
        shelf.fill((lacking[at], b"") for at in embedded.refused)  # not asked for again by this process
        try:
            self._index.put_vectors(made, model)
        except StorageError as error:  # they are made again by whoever needs them
            _log.warning("%d vectors of items could not be kept: %s", len(made), error)

    def _make_room(self) -> None:
        most = self._config.recall.index_megabytes * 1_000_000
        with self._lock:
            weights = {prefix: place.shelf.weight for prefix, place in self._places.items()}
            total = sum(weights.values())
            for prefix in list(self._places)[:-1]:
                if total <= most and len(self._places) <= _MOST_SHELVES:
                    break
                del self._places[prefix]
                total -= weights[prefix]


def _by_revision(shelf: Shelf, namespaces: list[int]) -> dict[int, list[int]]:
    # Namespaces that are new to the shelf are read together, each of the others from where it was left.
    found: dict[int, list[int]] = {}
    for pk in namespaces:
        at = shelf.seen[pk].revision if pk in shelf.seen else 0
        found.setdefault(at, []).append(pk)
    return found
