"""Search of entries by text: rank all, then read the best until enough of them match the filters."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.entries import Entry, Tier
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.recall_strategy import TfIdfWeights
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.long_term.models import EntryFilters
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.long_term.repository import LongTermRepository
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.item_index import ItemRanking
    from langmem_tiers.recall.item_ranking import ItemRanker
    from langmem_tiers.recall.item_records import ItemIndex

MIN_ENTRY_SCORE = 0.05
"""Minimum score of a hit. Entries below it have neither words nor meaning in common with the text."""
_READ_BATCH_SIZE = 2000
# Maximum number of entries that TF-IDF scores: those that rank best by words and vectors.
_TF_IDF_CANDIDATES = 200
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySearchRequest:
    """A search text with its filters."""

    namespace: NamespacePath
    text: str
    tiers: frozenset[Tier]
    filters: EntryFilters
    limit: int


@dataclass(frozen=True, slots=True)
class ScoredEntry:
    """An entry with its score from 0 to 1."""

    stored: StoredEntry
    score: float


@dataclass(frozen=True, slots=True)
class SimilarEntries:
    """Entries that share words with a text, and the revision of the namespace at the time of the search."""

    entries: tuple[StoredEntry, ...]
    revision: int


class MemorySearch:
    """Finds entries of all tiers in one namespace.

    Args:
        store: Store of the entries.
        index: Store of their search texts and vectors.
        embedding: Client of the embedder. None searches by words only.
        config: Limits.
        clock: Source of the time.
    """

    def __init__(
        self,
        store: LongTermRepository,
        index: ItemIndex,
        embedding: EmbeddingClient | None,
        config: EngineConfig,
        clock: Clock,
    ) -> None:
        self._store = store
        self._index = index
        self._embedding = embedding
        self._config = config
        self._clock = clock
        self._cached_ranker: ItemRanker | None = None

    def has_entries(self, namespace: NamespacePath) -> bool:
        """Return True if anything was ever stored in a namespace."""
        return bool(self._index.list_namespace_states(namespace))

    def invalidate(self) -> None:
        """Discard everything that is cached."""
        self._cached_ranker = None

    def find(self, request: EntrySearchRequest) -> list[ScoredEntry]:
        """Return entries that match a text by words or meaning, best first."""
        return self._read_matching(
            request, self._get_ranker().rank(request.namespace, request.text), request.limit
        )

    def find_similar(self, request: EntrySearchRequest) -> SimilarEntries:
        """Return entries that share words with a text, those with the rarest words first."""
        ranking = self._get_ranker().rank(request.namespace, request.text, by_words=True)
        found = self._read_matching(request, ranking, request.limit)
        revision = max((state.revision for state in ranking.namespace_states.values()), default=0)
        return SimilarEntries(tuple(match.stored for match in found), revision)

    def find_by_tf_idf(
        self,
        request: EntrySearchRequest,
        weights: TfIdfWeights,
        now: datetime,
        seen: Callable[[StoredEntry], StoredEntry],
    ) -> list[tuple[ScoredEntry, dict[str, float]]]:
        """Return entries by the weighted mean of five signals, each with its score breakdown.

        Entries that match neither by words nor by meaning are left out. With an embedder, the semantic signal is the
        higher one of TF-IDF and the score by vectors.

        Args:
            request: The search.
            weights: Weight of each signal.
            now: Current time.
            seen: Function that adds the access counts that are not written yet to an entry.
        """
        ranking = self._get_ranker().rank(request.namespace, request.text)
        scored = []
        for match in self._read_matching(request, ranking, max(request.limit, _TF_IDF_CANDIDATES)):
            kept = seen(match.stored)
            signals = compute_tf_idf_signals(kept, ranking.text_counts, len(ranking), now)
            if self._embedding is not None:
                signals["semantic"] = max(signals["semantic"], min(1.0, match.score))
            total = sum(getattr(weights, name) for name in signals)
            breakdown = {name: getattr(weights, name) / total * value for name, value in signals.items()}
            scored.append((ScoredEntry(kept, sum(breakdown.values())), breakdown))
        scored.sort(key=lambda pair: (-pair[0].score, -pair[0].stored.key))
        return scored[: request.limit]

    def _read_matching(
        self, request: EntrySearchRequest, ranking: ItemRanking, limit: int
    ) -> list[ScoredEntry]:
        # The index does not know tiers and filters, the store applies them. Read the ranking in batches of growing size
        # until enough entries match or the scores are too low.
        found: list[ScoredEntry] = []
        start, size = 0, limit
        while len(found) < limit and start < len(ranking):
            batch = [
                ranked
                for ranked in ranking.get_slice(start, start + size)
                if (ranked.score or 0.0) >= MIN_ENTRY_SCORE
            ]
            if not batch:
                break
            keys = [ranked.pk for ranked in batch]
            kept = self._store.get_by_keys(request.namespace, keys, request.tiers, request.filters)
            found += [
                ScoredEntry(kept[ranked.pk], ranked.score or 0.0) for ranked in batch if ranked.pk in kept
            ]
            start, size = start + size, min(2 * size, _READ_BATCH_SIZE)
        return found[:limit]

    def _get_ranker(self) -> ItemRanker:
        if self._cached_ranker is None:
            from langmem_tiers.recall.item_ranking import (  # noqa: PLC0415 - imports numpy
                ItemRanker,
            )

            self._cached_ranker = ItemRanker(self._index, self._embedding, self._config, self._clock)
        return self._cached_ranker


def compute_tf_idf_signals(
    kept: StoredEntry, text_counts: Mapping[str, int], count: int, now: datetime
) -> dict[str, float]:
    """Return the five signals of an entry, each from 0 to 1.

    Args:
        kept: The entry.
        text_counts: Terms of the query, with the number of texts that contain each.
        count: Number of entries.
        now: Current time.
    """
    entry, counts = kept.entry, Counter(build_search_terms(get_search_texts(kept.entry)).split())
    idf = {term: math.log(count / texts) if texts else 0.0 for term, texts in text_counts.items()}
    most, best = max(counts.values(), default=1), sum(idf.values())
    found = [term for term in idf if term in counts]
    # TF is relative to the most frequent term of the entry. The sum is divided by that of all IDFs.
    semantic = sum(counts[term] / most * idf[term] for term in found) / best if best else 0.0
    age_days = max(0.0, (now - entry.created_at).total_seconds() / _DAY_SECONDS)
    return {
        "semantic": min(1.0, semantic),
        "keyword": len(found) / len(idf) if idf else 0.0,
        "recency": 0.5 ** (age_days / 30),
        "importance": entry.importance,
        "access": min(1.0, entry.access_count * 0.1),
    }


def get_search_texts(entry: Entry) -> list[str]:
    """Return the search texts of an entry: content, kind, category and tags."""
    return [entry.content, entry.kind.replace("_", " "), entry.category or "", *sorted(entry.tags)]


def build_search_terms(texts: Sequence[str]) -> str:
    """Return the search terms of texts, separated by spaces."""
    return " ".join(term for text in texts for term in extract_terms(text))
