"""Finding the facts that a text is about, by words and by vectors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from cachetools import LRUCache

from langmem_tiers.config import EmbeddingConfig, check_limit
from langmem_tiers.errors import EmbeddingError, InvalidInputError
from langmem_tiers.recall.embedders.embedding import EmbeddingClient
from langmem_tiers.recall.item_records import IndexedItem
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ports import Embedder
    from langmem_tiers.recall.records import VectorStore

MIN_FACT_SCORE = 0.03
"""What words and meaning must give to a fact for it to be about a text at all."""
_MAX_CACHED_VECTORS = 20_000
_FIXED_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that a text is about."""

    fact: str
    score: float
    """Up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHits:
    """Facts that a text is about, best first."""

    hits: tuple[FactHit, ...]
    problems: tuple[str, ...] = ()
    """Why vectors were not used."""


class _InMemoryVectorStore:
    """What an embedding asks of a store of vectors, in memory."""

    def __init__(self) -> None:
        self._vectors: LRUCache[bytes, bytes] = LRUCache(_MAX_CACHED_VECTORS)

    def register_model(self, *_: object, **__: object) -> int:
        return 1

    def get_cached_vectors(self, _: int, hashes: Sequence[bytes], __: datetime) -> Mapping[bytes, bytes]:
        return {one: self._vectors[one] for one in hashes if one in self._vectors}

    def insert_cached_vectors(
        self, _: int, vectors: Mapping[bytes, bytes], *__: object, **___: object
    ) -> None:
        self._vectors.update(vectors)


class FactSearch:
    """Ranks facts as items are ranked. Vectors are made once for each fact and held in memory.

    Args:
        embedder: Makes vectors; None ranks by words alone.
        clock: Where the time comes from.
        config: How an embedder is asked.
    """

    def __init__(
        self, embedder: Embedder | None, clock: Clock, config: EmbeddingConfig | None = None
    ) -> None:
        self._embedding = (
            None
            if embedder is None
            else EmbeddingClient(
                embedder,
                cast("VectorStore", _InMemoryVectorStore()),
                EmbeddingConfig() if config is None else config,
                clock,
            )
        )
        self._vectors: LRUCache[str, bytes] = LRUCache(_MAX_CACHED_VECTORS)

    def find(
        self, facts: Sequence[str], text: str, *, limit: int = 5, min_score: float = MIN_FACT_SCORE
    ) -> FactHits:
        """The facts that a text is about, best first.

        Args:
            facts: Among these.
            text: A question, or words.
            limit: How many at most.
            min_score: What is worse than that is left out.
        """
        from langmem_tiers.recall.item_index import ItemSearchIndex  # noqa: PLC0415 - numpy, not before it is needed

        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(f"facts are found by a text, got a {type(text).__name__}: use a str")
        unique = list(dict.fromkeys(facts))
        vector, problems = self._embed(unique, text)
        shelf = ItemSearchIndex()
        if vector is not None:
            shelf.use_model(1, len(vector))
        for number, fact in enumerate(unique, 1):
            held = None if vector is None else self._vectors.get(fact)
            texts = ((" ".join(extract_terms(fact)), held),)
            shelf.put(IndexedItem(number, 1, number, _FIXED_TIME, texts))
        share = None if self._embedding is None else self._embedding.share
        ranked = shelf.rank(extract_terms(text), vector, share).get_slice(0, limit)
        hits = tuple(FactHit(unique[one.pk - 1], one.score or 0.0) for one in ranked)
        return FactHits(hits=tuple(hit for hit in hits if hit.score >= min_score), problems=problems)

    def _embed(self, facts: Sequence[str], text: str) -> tuple[NDArray[np.float32] | None, tuple[str, ...]]:
        if self._embedding is None or not facts:
            return None, ()
        try:
            new = [fact for fact in facts if fact not in self._vectors]
            done = self._embedding.embed_documents(new)
            for at in done.embedded_numbers:
                self._vectors[new[at]] = done.vectors[at].astype("<f4").tobytes()
            return self._embedding.embed_query(text), ()
        except EmbeddingError as error:
            return None, (str(error),)
