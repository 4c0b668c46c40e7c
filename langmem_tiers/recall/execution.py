"""Execution of one query on one namespace: filter, gather evidence and rank by the requested strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import Role
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.recall.bm25 import find_term_matches, score_own_words, score_words
from langmem_tiers.recall.ranking import (
    CANDIDATES_PER_RESULT,
    MAX_EXHAUSTIVE_MESSAGES,
    MAX_SCORED_MESSAGES,
    NEAR_KERNEL,
    Evidence,
    RankedRows,
    Weights,
    compute_recency,
    rank,
    rank_by_importance,
    rank_by_recency,
    rank_by_score,
    rank_hybrid,
    rank_tf_idf,
    score_times,
)
from langmem_tiers.recall.records import VectorSearchFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.recall.arrays import Flags, Floats, Rows
    from langmem_tiers.recall.embedding_backfill import QueryVector
    from langmem_tiers.recall.models import RecallFilters
    from langmem_tiers.recall.namespace_index import NamespaceIndex
    from langmem_tiers.recall.retriever import RecallRequest, Retriever
    from langmem_tiers.storage.search.postings import Postings

_ROLE_NUMBERS = {role: number for number, role in enumerate(Role)}
_MIN_NEAREST = 200
"""Minimum number of nearest messages that a store is asked for."""
MAX_LEADS, MAX_LEAD_TERMS, LEAD_SPEAKER_WEIGHT = 3, 48, 0.3
"""Second look: number of first hits to follow, of their terms to search, and weight of a speaker named in them."""
ALL_ROWS = slice(None)
WEIGHTS = Weights()


class QueryExecution:
    """Ranks the messages of a namespace for one request. The caller must hold the lock of the index.

    Args:
        retriever: Stores and configuration.
        held: Index of the namespace.
        request: The request.
        meaning: Vector of the query.
    """

    def __init__(
        self, retriever: Retriever, index: NamespaceIndex, request: RecallRequest, meaning: QueryVector
    ) -> None:
        self._retriever = retriever
        self._index = index
        self._positions = index.positions
        self._request = request
        self._asking_row = None if request.asking_key is None else self._find_row(request.asking_key)
        self._vector = meaning.vector
        self.problems = list(meaning.problems)
        self.embedder = meaning.embedder
        self.candidates = 0
        self._session_keys: tuple[int, ...] | None = None

    def run(self) -> RankedRows:
        """Return the best rows by the requested strategy."""
        allowed = self._find_allowed_rows()
        if allowed is not None and not allowed.any():
            return RankedRows(np.zeros(0, np.int64), np.zeros(0), {"message": np.zeros(0)})
        self.candidates = self._count_allowed_rows(allowed)
        by = {
            Strategy.BEST: self._rank_best,
            Strategy.SECOND_LOOK: self._rank_second_look,
            Strategy.WORDS: self._rank_by_words,
            Strategy.RECENCY: lambda rows, limit: rank_by_recency(self._positions, rows, limit),
            Strategy.IMPORTANCE: self._rank_by_importance,
            Strategy.SIMILARITY: self._rank_by_similarity,
            Strategy.HYBRID: self._rank_hybrid,
            Strategy.TF_IDF: self._rank_tf_idf,
        }
        return by[self._request.strategy](allowed, self._request.limit)

    def compute_importance(self, rows: Rows | slice = ALL_ROWS) -> Floats:
        """Return the current importance of messages from 0 to 1, by content, age and use."""
        # To the stored importance by content, add up to 0.2 for the last two days and up to 0.1 for five accesses.
        positions = self._positions
        hours = np.maximum(0, to_microseconds(self._request.now) - positions["times"][rows]) / 3.6e9
        recent = np.maximum(0.0, 0.2 - hours / 24 * 0.1)
        used = np.minimum(0.1, positions["accesses"][rows].astype(np.float64) * 0.02)
        together: Floats = np.round(positions["importance"][rows] + recent + used, 6)
        return np.minimum(np.maximum(together, 0.0), 1.0)

    def gather_evidence(self, allowed: Flags | None = None) -> Evidence:
        """Return the evidence for each message: words, speaker, time and cosines.

        Args:
            allowed: Flags of the rows that may be returned, for the search of the nearest. Default: all.
        """
        query, positions = self._request.query, self._positions
        speakers, spoken = positions.find_speakers(query.find_speaker_names(positions.speakers))
        # A speaker's name is evidence for who spoke. As a term it would match the messages of others, who address the
        # speaker by name.
        terms = query.get_terms_without(speakers)
        postings = self._find_postings(terms)
        evidence = Evidence(
            words=score_words(positions, find_term_matches(positions, postings, terms, self._asking_row)),
            speaker=spoken,
            time=score_times(positions, query.times),
        )
        self._add_cosines(evidence, allowed)
        return evidence

    def _rank_best(self, allowed: Flags | None, limit: int) -> RankedRows:
        return rank(self._positions, self.gather_evidence(allowed), allowed, limit, WEIGHTS)

    def _rank_second_look(self, allowed: Flags | None, limit: int) -> RankedRows:
        # For questions that depend on an entity they do not name: rank once, then search for the other terms of the
        # best hits and rank again.
        positions, evidence = self._positions, self.gather_evidence(allowed)
        first = rank(positions, evidence, allowed, MAX_LEADS, WEIGHTS)
        # Follow only hits that match by themselves, at least half as well as the best.
        match_scores = first.signals["message"] + first.signals["meaning"]
        leads = first.rows[match_scores >= match_scores.max(initial=0) / 2]
        lead_terms = self._retriever.index.get_terms(positions["keys"][leads].tolist())
        query_terms = {*self._request.query.terms, *self._request.query.names}
        terms = list(
            dict.fromkeys(term for text in lead_terms.values() for term in text if term not in query_terms)
        )
        postings = self._find_postings(terms[:MAX_LEAD_TERMS])
        _, spoken = positions.find_speakers(terms)
        evidence.second_look = score_words(positions, find_term_matches(positions, postings)).with_neighbors[
            NEAR_KERNEL
        ]
        evidence.second_look += LEAD_SPEAKER_WEIGHT * spoken
        # Each lead contains all of its own terms and would match best.
        evidence.second_look[leads] = 0
        return rank(positions, evidence, allowed, limit, WEIGHTS)

    def _find_postings(self, terms: Sequence[str]) -> Postings | None:
        if not terms:
            return None
        return self._index.find_postings(self._retriever.index, terms)

    def _add_cosines(self, evidence: Evidence, allowed: Flags | None) -> None:
        vector, vectors = self._vector, self._index.vectors
        if vector is None or vectors is None:
            return
        evidence.trust = vectors.trust
        if vectors.is_in_memory:
            evidence.cosines = vectors.compute_cosines(self._positions.count, vector)
            # The cosine of the message that asks is close to 1, which would also raise the score of its neighbors.
            if self._asking_row is not None:
                evidence.cosines[self._asking_row] = 0
            return
        evidence.fetch_cosines = self._fetch_cosines
        # In a small namespace all messages are candidates, so the nearest need not be searched.
        if evidence.trust.share > 0 and self._count_allowed_rows(allowed) > MAX_EXHAUSTIVE_MESSAGES:
            evidence.nearest = self._find_nearest_allowed(vector, allowed)

    def _count_allowed_rows(self, allowed: Flags | None) -> int:
        return self._positions.count if allowed is None else int(np.count_nonzero(allowed))

    def _find_nearest_allowed(self, vector: Floats, allowed: Flags | None) -> Rows:
        # The store filters by session and time only. The other filters are applied to its result, which may leave
        # too few messages.
        near = self._find_nearest(vector, allowed)
        if allowed is None:
            return near
        allowed_near = near[allowed[near]]
        if len(allowed_near) == len(near) or len(allowed_near) >= self._request.limit:
            return allowed_near
        # Too few: compare all allowed messages, which is slower but complete.
        rows = np.flatnonzero(allowed)
        return rows[np.argsort(-self._fetch_cosines(rows)[rows], kind="stable")[: self._nearest_limit]]

    @property
    def _nearest_limit(self) -> int:
        return max(_MIN_NEAREST, CANDIDATES_PER_RESULT * self._request.limit)

    def _find_nearest(self, vector: Floats, allowed: Flags | None) -> Rows:
        embedding, tenant = self._retriever.embedding, self._index.tenant
        assert embedding is not None  # noqa: S101 - there is a vector
        assert tenant is not None  # noqa: S101 - refreshed before
        filters = self._request.filters
        within = VectorSearchFilter(
            self._count_allowed_rows(allowed),
            sessions=self._session_keys,
            since=None if filters is None else filters.since,
            until=None if filters is None else filters.until,
        )
        near = embedding.store.find_nearest(
            tenant.key, embedding.get_model_key(), vector, self._nearest_limit, within
        )
        rows = self._positions.find_rows(near[0]) if near is not None else np.zeros(0, np.int64)
        return rows[rows >= 0]

    def _fetch_cosines(self, requested: Rows) -> Floats:
        embedding, positions, vectors = self._retriever.embedding, self._positions, self._index.vectors
        assert embedding is not None  # noqa: S101 - there is a vector
        assert vectors is not None  # noqa: S101 - there is a vector
        assert self._vector is not None  # noqa: S101 - checked by the callers
        keys, found = embedding.store.compute_cosines(
            embedding.get_model_key(), self._vector, positions["keys"][requested]
        )
        rows = positions.find_rows(keys)
        # Messages without vectors are expected while they are being embedded. mark_lost() counts only those whose
        # vectors existed before: somebody has deleted them from the database.
        if len(rows) < len(requested) and (lost := vectors.mark_lost(np.setdiff1d(requested, rows))):
            self.problems.append(
                f"the vectors of {lost} messages are missing from the database: they are created again"
            )
        # As in VectorIndex.compute_cosines(), a message without a vector gets the mean of the others.
        cosines = np.full(positions.count, found.mean() if len(found) else 0.0, np.float32)
        cosines[rows] = found
        return cosines

    def _rank_by_words(self, allowed: Flags | None, limit: int) -> RankedRows:
        postings = self._find_postings(self._request.query.terms)
        scores = score_own_words(self._positions, find_term_matches(self._positions, postings))
        rows = np.flatnonzero(scores if allowed is None else scores * allowed)
        return rank_by_score("message", rows, scores[rows], limit)

    def _rank_by_importance(self, allowed: Flags | None, limit: int) -> RankedRows:
        return rank_by_importance(self._positions, self.compute_importance(), allowed, limit)

    def _rank_by_similarity(self, allowed: Flags | None, limit: int) -> RankedRows:
        positions, vector, vectors = self._positions, self._vector, self._index.vectors
        if self._retriever.embedding is None:
            self.problems.append("no embedder: pass one to MemoryEngine to recall by similarity")
        if vector is None or vectors is None:
            return rank_by_score("similarity", np.zeros(0, np.int64), np.zeros(0), limit)
        rows = np.arange(positions.count) if allowed is None else np.flatnonzero(allowed)
        if vectors.is_in_memory:
            return rank_by_score(
                "similarity", rows, vectors.compute_cosines(positions.count, vector)[rows], limit
            )
        if len(rows) > MAX_EXHAUSTIVE_MESSAGES:
            near = self._find_nearest(vector, allowed)
            near = near if allowed is None else near[allowed[near]]
            # If the filters leave too few, or vectors are missing, compare all allowed messages instead.
            if len(near) >= min(limit, len(rows)):
                rows = near
        return rank_by_score("similarity", rows, self._fetch_cosines(rows)[rows], limit)

    def _rank_hybrid(self, allowed: Flags | None, limit: int) -> RankedRows:
        many = limit * CANDIDATES_PER_RESULT
        return rank_hybrid(
            rank_by_recency(self._positions, allowed, many),
            self._rank_by_similarity(allowed, many),
            self._rank_by_importance(allowed, many),
            limit,
            self._retriever.config.recall.hybrid,
        )

    def _rank_tf_idf(self, allowed: Flags | None, limit: int) -> RankedRows:
        postings = self._find_postings(self._request.query.terms)
        scores = score_words(self._positions, find_term_matches(self._positions, postings)).with_neighbors[0]
        if allowed is not None:
            scores = np.where(allowed, scores, -1.0)
        rows = np.flatnonzero(scores > 0)
        # Too few messages share words with the query: add the newest, which may score by recency.
        if len(rows) < limit:
            rows = np.union1d(
                rows,
                rank_by_recency(self._positions, allowed, limit * CANDIDATES_PER_RESULT).rows,
            )
        rows = rows[np.argsort(-scores[rows], kind="stable")[:MAX_SCORED_MESSAGES]]
        keys = self._positions["keys"][rows].tolist()
        terms = self._retriever.index.get_terms(keys)
        weights = self._retriever.config.recall.tf_idf
        other_scores = {
            "recency": compute_recency(self._positions, rows, to_microseconds(self._request.now)),
            "importance": self.compute_importance(rows),
            "access": np.minimum(1.0, self._positions["accesses"][rows] * 0.1),
        }
        # Terms that occur nowhere count 0 messages. They still lower the keyword signal.
        text_counts = dict.fromkeys(self._request.query.terms, 0) | dict(
            {} if postings is None else postings.count_messages()
        )
        texts = [terms.get(key, ()) for key in keys]
        return rank_tf_idf(self._positions, rows, texts, text_counts, other_scores, limit, weights)

    def _find_allowed_rows(self) -> Flags | None:
        filters, positions = self._request.filters, self._positions
        if filters is None and not self._request.excluded_keys:
            return None
        allowed = np.ones(positions.count, np.bool_)
        allowed[self._find_rows(self._request.excluded_keys)] = False
        if filters is None:
            return allowed
        if filters.kinds is not None and "message" not in filters.kinds:
            allowed[:] = False
        if filters.categories is not None or filters.tags is not None:
            # Messages have neither a category nor tags.
            allowed[:] = False
        if filters.roles is not None:
            allowed &= np.isin(positions["roles"], [_ROLE_NUMBERS[Role(role)] for role in filters.roles])
        if filters.since is not None:
            allowed &= positions["times"] >= to_microseconds(filters.since)
        if filters.until is not None:
            allowed &= positions["times"] < to_microseconds(filters.until)
        if filters.min_importance > 0:
            allowed &= self.compute_importance() >= filters.min_importance
        return self._filter_tiers(self._filter_sessions(allowed, filters), filters)

    def _find_row(self, key: int) -> int | None:
        rows: list[int] = self._find_rows([key]).tolist()
        return rows[0] if rows else None

    def _find_rows(self, keys: Sequence[int]) -> Rows:
        rows = self._positions.find_rows(np.sort(np.array(keys, np.int64)))
        return rows[rows >= 0]

    def _filter_sessions(self, allowed: Flags, filters: RecallFilters) -> Flags:
        if filters.sessions is None:
            return allowed
        found = (self._retriever.sessions.get(self._index.path, name) for name in sorted(filters.sessions))
        self._session_keys = tuple(info.key for info in found if info is not None)
        numbers = [self._positions.get_session_number(key) for key in self._session_keys]
        return allowed & np.isin(self._positions["session"], [n for n in numbers if n is not None])

    def _filter_tiers(self, allowed: Flags, filters: RecallFilters) -> Flags:
        if filters.tiers is None:
            return allowed
        assert self._index.tenant is not None  # noqa: S101 - refreshed before
        rows = self._positions.find_rows(
            self._retriever.index.list_keys_in_tier(self._index.tenant.key, Tier.LONG_TERM)
        )
        # A message is in the short-term tier unless it was promoted to the long-term tier.
        promoted = np.zeros(self._positions.count, np.bool_)
        promoted[rows[rows >= 0]] = True
        if Tier.LONG_TERM not in filters.tiers:
            allowed = allowed & ~promoted
        if Tier.SHORT_TERM not in filters.tiers:
            allowed = allowed & promoted
        return allowed
