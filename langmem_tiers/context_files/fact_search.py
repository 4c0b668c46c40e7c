"""Search of facts by words and by vectors."""

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
    from langmem_tiers.recall.vector_repository import VectorRepository

MIN_FACT_SCORE = 0.03
"""Minimum score of a search result. Facts below it are unrelated to the text."""
_MAX_CACHED_VECTORS = 20_000
# The item index needs a time; facts have none, so all get the same.
_FIXED_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that matches a text."""

    fact: str
    score: float
    """Relevance, at most 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHits:
    """Facts that match a text, best first."""

    hits: tuple[FactHit, ...]
    problems: tuple[str, ...] = ()
    """Reasons why vectors were not used."""


class _InMemoryVectors:
    """The part of ``VectorRepository`` that an `EmbeddingClient` calls, without a database."""

    def __init__(self) -> None:
        self._vectors: LRUCache[bytes, bytes] = LRUCache(_MAX_CACHED_VECTORS)

    def register_model(self, *_: object, **__: object) -> int:
        return 1

    def get_cached_vectors(self, _: int, hashes: Sequence[bytes], __: datetime) -> Mapping[bytes, bytes]:
        return {text_hash: self._vectors[text_hash] for text_hash in hashes if text_hash in self._vectors}

    def insert_cached_vectors(
        self, _: int, vectors: Mapping[bytes, bytes], *__: object, **___: object
    ) -> None:
        self._vectors.update(vectors)


class FactSearch:
    """Ranks facts like items. Each fact is embedded once, and its vector is cached in memory.

    Args:
        embedder: Embeds texts. None ranks by words only.
        clock: Source of the current time.
        config: Settings of the embedder. Default: `EmbeddingConfig()`.
    """

    def __init__(
        self, embedder: Embedder | None, clock: Clock, config: EmbeddingConfig | None = None
    ) -> None:
        self._embedding = (
            None
            if embedder is None
            else EmbeddingClient(
                embedder,
                cast("VectorRepository", _InMemoryVectors()),
                EmbeddingConfig() if config is None else config,
                clock,
            )
        )
        self._vectors: LRUCache[str, bytes] = LRUCache(_MAX_CACHED_VECTORS)

    def find(
        self, facts: Sequence[str], text: str, *, limit: int = 5, min_score: float = MIN_FACT_SCORE
    ) -> FactHits:
        """Return the facts that match a text, best first.

        Args:
            facts: The facts to search.
            text: A question or keywords.
            limit: Maximum number of results. Default: 5.
            min_score: Minimum score of a result.
        """
        from langmem_tiers.recall.item_index import ItemSearchIndex  # noqa: PLC0415 - loads numpy

        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(f"text must be a string, got a {type(text).__name__}: use a str")
        unique = list(dict.fromkeys(facts))
        vector, problems = self._embed(unique, text)
        index = ItemSearchIndex()
        if vector is not None:
            index.use_model(1, len(vector))
        # Numbers start at 1 because they serve as primary keys of the index; ``pk - 1`` below leads back.
        for number, fact in enumerate(unique, 1):
            fact_vector = None if vector is None else self._vectors.get(fact)
            texts = ((" ".join(extract_terms(fact)), fact_vector),)
            index.put(IndexedItem(number, 1, number, _FIXED_TIME, texts))
        share = None if self._embedding is None else self._embedding.share
        ranked = index.rank(extract_terms(text), vector, share).get_slice(0, limit)
        hits = tuple(FactHit(unique[item.pk - 1], item.score or 0.0) for item in ranked)
        return FactHits(hits=tuple(hit for hit in hits if hit.score >= min_score), problems=problems)

    def _embed(self, facts: Sequence[str], text: str) -> tuple[NDArray[np.float32] | None, tuple[str, ...]]:
        if self._embedding is None or not facts:
            return None, ()
        try:
            new = [fact for fact in facts if fact not in self._vectors]
            result = self._embedding.embed_documents(new)
            for index in result.embedded_numbers:
                self._vectors[new[index]] = result.vectors[index].astype("<f4").tobytes()
            return self._embedding.embed_query(text), ()
        except EmbeddingError as error:
            # The search continues with words only; the caller sees the reason in ``problems``.
            return None, (str(error),)
