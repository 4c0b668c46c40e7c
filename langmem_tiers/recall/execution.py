"""One query on one namespace: the evidence gathered and ranked by the strategy that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.common.clock import microseconds
from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import Role
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.recall import presets
from langmem_tiers.recall.bm25 import own_scores, score_words, words_of
from langmem_tiers.recall.ranking import FEW, NEAR, Evidence, Ranked, Weights, rank, times_of
from langmem_tiers.recall.records import Within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.recall.embedding_backfill import Meaning
    from langmem_tiers.recall.models import RecallFilters
    from langmem_tiers.recall.namespace_index import NamespaceIndex
    from langmem_tiers.recall.records import Flags, Floats, Rows
    from langmem_tiers.recall.retriever import Retriever, Wish
    from langmem_tiers.storage.search.postings import Postings

_ROLE_NUMBERS = {role: number for number, role in enumerate(Role)}
_NEAREST = 200
"""The nearest messages that a store is asked for."""
LEADS, LEAD_TERMS, LEAD_SPEAKER = 3, 48, 0.3
"""Hits of a first look that are followed, words of theirs that are looked for, and what it counts if one of
those is the speaker's name."""
ALL = slice(None)
WEIGHTS = Weights()


class Answering:
    """Ranks the messages of a namespace for one wish. The namespace's lock must be held."""

    def __init__(self, retriever: Retriever, held: NamespaceIndex, wish: Wish, meaning: Meaning) -> None:
        self._retriever = retriever
        self._held = held
        self._places = held.places
        self._wish = wish
        self._asking = None if wish.asking is None else self._row_of(wish.asking)
        self._vector = meaning.vector
        self.problems = list(meaning.problems)
        self.embedder = meaning.embedder
        self.candidates = 0
        self._sessions: tuple[int, ...] | None = None

    def ranked(self) -> Ranked:
        """The best rows by the strategy."""
        allowed = self._allowed()
        if allowed is not None and not allowed.any():
            return Ranked(np.zeros(0, np.int64), np.zeros(0), {"message": np.zeros(0)})
        self.candidates = self._among(allowed)
        by = {
            Strategy.BEST: self._best,
            Strategy.SECOND_LOOK: self._look_twice,
            Strategy.WORDS: self._by_words,
            Strategy.RECENCY: lambda some, limit: presets.by_recency(self._places, some, limit),
            Strategy.IMPORTANCE: self._by_importance,
            Strategy.SIMILARITY: self._by_similarity,
            Strategy.HYBRID: self._hybrid,
            Strategy.TF_IDF: self._tf_idf,
        }
        return by[self._wish.strategy](allowed, self._wish.limit)

    def importance(self, rows: Rows | slice = ALL) -> Floats:
        """How much messages matter now: by content, by age and by use."""
        places = self._places
        hours = np.maximum(0, microseconds(self._wish.now) - places["times"][rows]) / 3.6e9
        recent = np.maximum(0.0, 0.2 - hours / 24 * 0.1)
        used = np.minimum(0.1, places["accesses"][rows].astype(np.float64) * 0.02)
        together: Floats = np.round(places["importance"][rows] + recent + used, 6)
        return np.minimum(np.maximum(together, 0.0), 1.0)

    def evidence(self, allowed: Flags | None = None) -> Evidence:
        """All that the query finds to speak for messages.

        Args:
            allowed: Which may come; the nearest are looked for among those.
        """
        query, places = self._wish.query, self._places
        speakers, spoken = places.spoken_by(query.names_among(places.speakers))
        # A speaker's name stands in what others say to them: it tells who, not what.
        terms = query.terms_without(speakers)
        postings = self._postings(terms)
        evidence = Evidence(
            words=score_words(places, words_of(places, postings, terms, self._asking)),
            speaker=spoken,
            time=times_of(places, query.times),
        )
        self._add_meaning(evidence, allowed)
        return evidence

    def _best(self, allowed: Flags | None, limit: int) -> Ranked:
        return rank(self._places, self.evidence(allowed), allowed, limit, WEIGHTS)

    def _look_twice(self, allowed: Flags | None, limit: int) -> Ranked:
        places, evidence = self._places, self.evidence(allowed)
        first = rank(places, evidence, allowed, LEADS, WEIGHTS)
        telling = first.signals["message"] + first.signals["meaning"]
        leads = first.rows[telling >= telling.max(initial=0) / 2]
        told = self._retriever.index.terms(places["keys"][leads].tolist())
        asked = {*self._wish.query.terms, *self._wish.query.names}
        terms = list(dict.fromkeys(term for text in told.values() for term in text if term not in asked))
        postings = self._postings(terms[:LEAD_TERMS])
        _, spoken = places.spoken_by(terms)
        evidence.second = score_words(places, words_of(places, postings)).with_neighbours[NEAR]
        evidence.second += LEAD_SPEAKER * spoken
        evidence.second[leads] = 0  # they led here, they are not found by it
        return rank(places, evidence, allowed, limit, WEIGHTS)

    def _postings(self, terms: Sequence[str]) -> Postings | None:
        if not terms:
            return None
        return self._held.postings(self._retriever.index, terms)

    def _add_meaning(self, evidence: Evidence, allowed: Flags | None) -> None:
        vector, vectors = self._vector, self._held.vectors
        if vector is None or vectors is None:
            return
        evidence.trust = vectors.trust
        if vectors.holds_vectors:
            evidence.cosines = vectors.cosines(self._places.count, vector)
            if self._asking is not None:
                evidence.cosines[self._asking] = 0
            return
        evidence.fetch = self._fetch
        if evidence.trust.share > 0 and self._among(allowed) > FEW:  # up to there all are candidates
            evidence.nearest = self._nearest_of(vector, allowed)

    def _among(self, allowed: Flags | None) -> int:
        return self._places.count if allowed is None else int(np.count_nonzero(allowed))

    def _nearest_of(self, vector: Floats, allowed: Flags | None) -> Rows:
        """The nearest of those that may come, also where the store knows only a part of what is asked for."""
        near = self._nearest(vector, allowed)
        if allowed is None:
            return near
        there = near[allowed[near]]
        if len(there) == len(near) or len(there) >= self._wish.limit:
            return there
        # Too few are left of them: all that may come are compared, which takes longer the more there are.
        rows = np.flatnonzero(allowed)
        return rows[np.argsort(-self._fetch(rows)[rows], kind="stable")[: self._many]]

    @property
    def _many(self) -> int:
        return max(_NEAREST, presets.CANDIDATES * self._wish.limit)

    def _nearest(self, vector: Floats, allowed: Flags | None) -> Rows:
        embedding, tenant = self._retriever.embedding, self._held.tenant
        assert embedding is not None  # noqa: S101 - there is a vector
        assert tenant is not None  # noqa: S101 - refreshed before
        filters = self._wish.filters
        within = Within(
            self._among(allowed),
            sessions=self._sessions,
            since=None if filters is None else filters.since,
            until=None if filters is None else filters.until,
        )
        near = embedding.store.nearest(tenant.key, embedding.model(), vector, self._many, within)
        rows = self._places.rows_of(near[0]) if near is not None else np.zeros(0, np.int64)
        return rows[rows >= 0]

    def _fetch(self, wanted: Rows) -> Floats:
        embedding, places, vectors = self._retriever.embedding, self._places, self._held.vectors
        assert embedding is not None  # noqa: S101 - there is a vector
        assert vectors is not None  # noqa: S101 - there is a vector
        assert self._vector is not None  # noqa: S101 - asked for with it
        keys, found = embedding.store.cosines(embedding.model(), self._vector, places["keys"][wanted])
        rows = places.rows_of(keys)
        if len(rows) < len(wanted) and (gone := vectors.lose(np.setdiff1d(wanted, rows))):
            self.problems.append(
                f"the vectors of {gone} messages are gone from the database: they are made anew"
            )
        cosines = np.full(places.count, found.mean() if len(found) else 0.0, np.float32)
        cosines[rows] = found
        return cosines

    def _by_words(self, allowed: Flags | None, limit: int) -> Ranked:
        postings = self._postings(self._wish.query.terms)
        scores = own_scores(self._places, words_of(self._places, postings))
        rows = np.flatnonzero(scores if allowed is None else scores * allowed)
        return presets.by_score("message", rows, scores[rows], limit)

    def _by_importance(self, allowed: Flags | None, limit: int) -> Ranked:
        return presets.by_importance(self._places, self.importance(), allowed, limit)

    def _by_similarity(self, allowed: Flags | None, limit: int) -> Ranked:
        places, vector, vectors = self._places, self._vector, self._held.vectors
        if self._retriever.embedding is None:
            self.problems.append("there is no embedder: pass one to MemoryEngine to recall by similarity")
        if vector is None or vectors is None:
            return presets.by_score("similarity", np.zeros(0, np.int64), np.zeros(0), limit)
        rows = np.arange(places.count) if allowed is None else np.flatnonzero(allowed)
        if vectors.holds_vectors:
            return presets.by_score("similarity", rows, vectors.cosines(places.count, vector)[rows], limit)
        if len(rows) > FEW:
            near = self._nearest(vector, allowed)
            near = near if allowed is None else near[allowed[near]]
            if len(near) >= min(limit, len(rows)):  # else they are of others, or gone: compare one by one
                rows = near
        return presets.by_score("similarity", rows, self._fetch(rows)[rows], limit)

    def _hybrid(self, allowed: Flags | None, limit: int) -> Ranked:
        many = limit * presets.CANDIDATES
        return presets.hybrid(
            presets.by_recency(self._places, allowed, many),
            self._by_similarity(allowed, many),
            self._by_importance(allowed, many),
            limit,
            self._retriever.config.recall.hybrid,
        )

    def _tf_idf(self, allowed: Flags | None, limit: int) -> Ranked:
        postings = self._postings(self._wish.query.terms)
        scores = score_words(self._places, words_of(self._places, postings)).with_neighbours[0]
        if allowed is not None:
            scores = np.where(allowed, scores, -1.0)
        rows = np.flatnonzero(scores > 0)
        if len(rows) < limit:  # nothing shares a word with it: the newest may do
            rows = np.union1d(
                rows, presets.by_recency(self._places, allowed, limit * presets.CANDIDATES).rows
            )
        rows = rows[np.argsort(-scores[rows], kind="stable")[: presets.MOST_SCORED]]
        keys = self._places["keys"][rows].tolist()
        terms = self._retriever.index.terms(keys)
        weights = self._retriever.config.recall.tf_idf
        others = {
            "recency": presets.recency_of(self._places, rows, microseconds(self._wish.now)),
            "importance": self.importance(rows),
            "access": np.minimum(1.0, self._places["accesses"][rows] * 0.1),
        }
        holding = dict.fromkeys(self._wish.query.terms, 0) | dict(
            {} if postings is None else postings.holding()
        )
        texts = [terms.get(key, ()) for key in keys]
        return presets.tf_idf(self._places, rows, texts, holding, others, limit, weights)

    def _allowed(self) -> Flags | None:
        filters, places = self._wish.filters, self._places
        if filters is None and not self._wish.without:
            return None
        allowed = np.ones(places.count, np.bool_)
        allowed[self._rows_of(self._wish.without)] = False
        if filters is None:
            return allowed
        if filters.kinds is not None and "message" not in filters.kinds:
            allowed[:] = False
        if filters.categories is not None or filters.tags is not None:
            allowed[:] = False  # messages have neither
        if filters.roles is not None:
            allowed &= np.isin(places["roles"], [_ROLE_NUMBERS[Role(role)] for role in filters.roles])
        if filters.since is not None:
            allowed &= places["times"] >= microseconds(filters.since)
        if filters.until is not None:
            allowed &= places["times"] < microseconds(filters.until)
        if filters.min_importance > 0:
            allowed &= self.importance() >= filters.min_importance
        return self._in_tiers(self._in_sessions(allowed, filters), filters)

    def _row_of(self, key: int) -> int | None:
        rows: list[int] = self._rows_of([key]).tolist()
        return rows[0] if rows else None

    def _rows_of(self, keys: Sequence[int]) -> Rows:
        rows = self._places.rows_of(np.sort(np.array(keys, np.int64)))
        return rows[rows >= 0]

    def _in_sessions(self, allowed: Flags, filters: RecallFilters) -> Flags:
        if filters.sessions is None:
            return allowed
        found = (self._retriever.sessions.find(self._held.path, name) for name in sorted(filters.sessions))
        self._sessions = tuple(info.key for info in found if info is not None)
        numbers = [self._places.session_number(key) for key in self._sessions]
        return allowed & np.isin(self._places["session"], [n for n in numbers if n is not None])

    def _in_tiers(self, allowed: Flags, filters: RecallFilters) -> Flags:
        if filters.tiers is None:
            return allowed
        assert self._held.tenant is not None  # noqa: S101 - refreshed before
        rows = self._places.rows_of(self._retriever.index.marked(self._held.tenant.key, Tier.LONG_TERM))
        promoted = np.zeros(self._places.count, np.bool_)
        promoted[rows[rows >= 0]] = True
        if Tier.LONG_TERM not in filters.tiers:
            allowed = allowed & ~promoted
        if Tier.SHORT_TERM not in filters.tiers:
            allowed = allowed & promoted
        return allowed
