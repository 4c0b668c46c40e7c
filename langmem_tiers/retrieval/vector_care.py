"""What is done for stored vectors while nobody waits: the index of large namespaces, and what old models left."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import EmbeddingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.core.clock import Clock
    from langmem_tiers.core.indexes import Tenant, Tried, Trust
    from langmem_tiers.retrieval.background import Background
    from langmem_tiers.retrieval.embedding import Embedding
    from langmem_tiers.retrieval.meaning import VectorIndex
    from langmem_tiers.retrieval.namespace_index import NamespaceIndex

_UNINDEXED = 1000  # vectors that were made since the index was last looked after
UNUSED = timedelta(days=7)
"""For so long nobody must have used a model before its vectors are erased."""


class VectorCare:
    """Looks after the vectors of namespaces that are in use.

    Args:
        embedding: Knows the model and the store.
        background: Does it.
        clock: Where the time comes from.
    """

    def __init__(self, embedding: Embedding, background: Background, clock: Clock) -> None:
        self._embedding = embedding
        self._background = background
        self._clock = clock

    def look_after(self, held: NamespaceIndex, vectors: VectorIndex) -> None:
        """Do later what there is to do."""
        today = self._clock.now().toordinal()
        # While two models are in use, as when one takes over from the other, neither erases the other's work.
        if vectors.tidied_on != today and vectors.is_complete(held.places):
            vectors.tidied_on = today
            self._background.submit(("tidy", held.path), lambda: self._tidy(held))
        if vectors.unindexed >= _UNINDEXED:
            vectors.unindexed = 0
            self._background.submit(("index", held.path), lambda: self._index_soon(held))

    def tell(self, held: NamespaceIndex, vectors: VectorIndex, tried: Tried) -> None:
        """Have other processes spared the trial that was made."""
        tenant, trust = held.tenant, vectors.trust
        if tenant is not None:
            self._background.submit(("trust", held.path), lambda: self._tell(tenant, tried, trust))

    def index(self, held: NamespaceIndex, go_on: Callable[[], bool]) -> None:
        """Have the nearest of a large namespace found sooner."""
        if held.tenant is not None:
            self._embedding.store.index(held.tenant.key, self._embedding.model(), held.places.count, go_on)

    def _index_soon(self, held: NamespaceIndex) -> None:
        try:
            self.index(held, lambda: not self._background.is_stopping)
        except (EmbeddingError, StorageError):
            return  # another time; until then they are found one by one

    def _tell(self, tenant: Tenant, tried: Tried, trust: Trust) -> None:
        try:
            self._embedding.store.keep_trust(tenant, self._embedding.model(), tried, trust)
        except (EmbeddingError, StorageError):
            return  # they find out for themselves

    def _tidy(self, held: NamespaceIndex) -> None:
        tenant, since = held.tenant, self._clock.now() - UNUSED
        try:
            if tenant is not None:
                self._embedding.store.drop_others(tenant.key, self._embedding.model(), since)
        except (EmbeddingError, StorageError):
            return  # another time
