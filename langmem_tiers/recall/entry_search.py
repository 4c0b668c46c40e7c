"""Finding entries by a text: ranked by words and meaning, then read as far as it takes to have enough that is meant."""

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
    from langmem_tiers.long_term.records import MemoryStore, StoredEntry
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.item_index import ItemRanking
    from langmem_tiers.recall.item_ranking import ItemRanker
    from langmem_tiers.recall.item_records import ItemIndex

MIN_ENTRY_SCORE = 0.05
"""What an entry must score to be found at all: what is below shares neither words nor sense with the text."""
_READ_BATCH_SIZE = 2000
_TF_IDF_CANDIDATES = 200  # that TF-IDF scores, those that rank best
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySearchRequest:
    """What is looked for."""

    namespace: NamespacePath
    text: str
    tiers: frozenset[Tier]
    filters: EntryFilters
    limit: int


@dataclass(frozen=True, slots=True)
class ScoredEntry:
    """An entry and how well it answers, from 0 to 1."""

    stored: StoredEntry
    score: float


@dataclass(frozen=True, slots=True)
class SimilarEntries:
    """The entries that share most words with a text, and the revision that this was seen at."""

    entries: tuple[StoredEntry, ...]
    revision: int


class MemorySearch:
    """Finds entries of all tiers in one namespace.

    Args:
        store: Where they are.
        index: What they are found by.
        embedding: Compares what texts mean; None finds by words alone.
        config: Limits.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        store: MemoryStore,
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
        """Whether anything was ever kept in a namespace."""
        return bool(self._index.list_namespace_states(namespace))

    def invalidate(self) -> None:
        """Hold nothing in memory; all is read anew when it is asked for."""
        self._cached_ranker = None

    def find(self, sought: EntrySearchRequest) -> list[ScoredEntry]:
        """Entries that answer a text by words or by meaning, the best first."""
        return self._read_matching(
            sought, self._get_ranker().rank(sought.namespace, sought.text), sought.limit
        )

    def find_similar(self, sought: EntrySearchRequest) -> SimilarEntries:
        """Entries that share words with a text, those with the most telling ones first."""
        ranking = self._get_ranker().rank(sought.namespace, sought.text, by_words=True)
        found = self._read_matching(sought, ranking, sought.limit)
        revision = max((state.revision for state in ranking.namespace_states.values()), default=0)
        return SimilarEntries(tuple(one.stored for one in found), revision)

    def find_by_tf_idf(
        self,
        sought: EntrySearchRequest,
        weights: TfIdfWeights,
        now: datetime,
        seen: Callable[[StoredEntry], StoredEntry],
    ) -> list[tuple[ScoredEntry, dict[str, float]]]:
        """Entries by the weighted mean of five signals, each with what they gave.

        What has to do with the text neither by words nor by meaning is left out. Where there is an embedder and meaning
        says more than words, it counts in place of TF-IDF.

        Args:
            sought: What is looked for.
            weights: What each signal counts.
            now: When.
            seen: An entry with the uses that are not written yet.
        """
        ranking = self._get_ranker().rank(sought.namespace, sought.text)
        scored = []
        for one in self._read_matching(sought, ranking, max(sought.limit, _TF_IDF_CANDIDATES)):
            kept = seen(one.stored)
            signals = compute_tf_idf_signals(kept, ranking.text_counts, len(ranking), now)
            if self._embedding is not None:
                signals["semantic"] = max(signals["semantic"], min(1.0, one.score))
            total = sum(getattr(weights, name) for name in signals)
            given = {name: getattr(weights, name) / total * value for name, value in signals.items()}
            scored.append((ScoredEntry(kept, sum(given.values())), given))
        scored.sort(key=lambda pair: (-pair[0].score, -pair[0].stored.key))
        return scored[: sought.limit]

    def _read_matching(
        self, sought: EntrySearchRequest, ranking: ItemRanking, limit: int
    ) -> list[ScoredEntry]:
        found: list[ScoredEntry] = []
        start, size = 0, limit
        while len(found) < limit and start < len(ranking):
            some = [
                one for one in ranking.get_slice(start, start + size) if (one.score or 0.0) >= MIN_ENTRY_SCORE
            ]
            if not some:
                break
            keys = [one.pk for one in some]
            kept = self._store.get_by_keys(sought.namespace, keys, sought.tiers, sought.filters)
            found += [ScoredEntry(kept[one.pk], one.score or 0.0) for one in some if one.pk in kept]
            start, size = start + size, min(2 * size, _READ_BATCH_SIZE)
        return found[:limit]

    def _get_ranker(self) -> ItemRanker:
        if self._cached_ranker is None:
            from langmem_tiers.recall.item_ranking import (  # noqa: PLC0415 - numpy, not before it is needed
                ItemRanker,
            )

            self._cached_ranker = ItemRanker(self._index, self._embedding, self._config, self._clock)
        return self._cached_ranker


def compute_tf_idf_signals(
    kept: StoredEntry, holding: Mapping[str, int], count: int, now: datetime
) -> dict[str, float]:
    """The five signals of an entry, each from 0 to 1.

    Args:
        kept: The entry.
        holding: The terms that are asked for, and how many entries hold each.
        count: How many entries there are.
        now: When it is asked.
    """
    entry, counts = kept.entry, Counter(build_search_terms(get_search_texts(kept.entry)).split())
    idf = {term: math.log(count / held) if held else 0.0 for term, held in holding.items()}
    most, best = max(counts.values(), default=1), sum(idf.values())
    there = [term for term in idf if term in counts]
    semantic = sum(counts[term] / most * idf[term] for term in there) / best if best else 0.0
    age_days = max(0.0, (now - entry.created_at).total_seconds() / _DAY_SECONDS)
    return {
        "semantic": min(1.0, semantic),
        "keyword": len(there) / len(idf) if idf else 0.0,
        "recency": 0.5 ** (age_days / 30),
        "importance": entry.importance,
        "access": min(1.0, entry.access_count * 0.1),
    }


def get_search_texts(entry: Entry) -> list[str]:
    """The texts by which an entry is found: its words, its kind, its category and its tags."""
    return [entry.content, entry.kind.replace("_", " "), entry.category or "", *sorted(entry.tags)]


def build_search_terms(texts: Sequence[str]) -> str:
    """The terms by which an entry with these texts is found, with spaces between."""
    return " ".join(term for text in texts for term in extract_terms(text))
