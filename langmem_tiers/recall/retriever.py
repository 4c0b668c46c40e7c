"""Recall of messages: indexes in memory per namespace, ranking, and the hits with their messages."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.common.entries import Entry
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.common.workers import BackgroundWorker
from langmem_tiers.errors import StorageError
from langmem_tiers.recall.embedding_backfill import EmbeddingBackfill, QueryVector
from langmem_tiers.recall.models import Hit, Recall
from langmem_tiers.recall.query import Query, parse_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.models import RecallFilters
    from langmem_tiers.recall.namespace_index import NamespaceIndex
    from langmem_tiers.recall.positions import MessagePositions
    from langmem_tiers.recall.ranking import RankedRows
    from langmem_tiers.recall.records import RecalledMessage, Tenant
    from langmem_tiers.recall.repository import RecallIndexRepository
    from langmem_tiers.sessions.repository import SessionRepository

_ACCESS_WRITE_BATCH_SIZE = 200
# These signals support a hit but do not find it, so Hit.found_by names them only if no other signal contributed.
_FORM = "form"
_CIRCUMSTANCE_SIGNALS = {_FORM, "speaker", "time"}
# A recall starts again if a hit was erased between ranking and reading.
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A query with its limit, strategy and filters."""

    query: Query
    limit: int
    strategy: Strategy
    filters: RecallFilters | None
    now: datetime
    excluded_keys: Sequence[int] = ()
    """Keys of messages that are not recalled, for example those in the current context."""
    asking_key: int | None = None
    """Key of the stored message that is the query. It must not match itself."""


class Retriever:
    """Recalls messages. Thread-safe.

    Accesses are counted in memory and written in batches. This process uses a count once it is written, other
    processes when they next load the namespace.

    Args:
        index: Store of terms and positions.
        sessions: Store that resolves the session names of a filter.
        embedding: Client of the embedder, or None to recall by words only.
        config: Limits and weights.
        clock: Source of the time.
    """

    def __init__(
        self,
        *,
        index: RecallIndexRepository,
        sessions: SessionRepository,
        embedding: EmbeddingClient | None,
        config: EngineConfig,
        clock: Clock,
    ) -> None:
        self.index = index
        self.sessions = sessions
        self.embedding = embedding
        self.config = config
        self._clock = clock
        self._background = BackgroundWorker()
        self._backfill = (
            EmbeddingBackfill(index, embedding, self._background, config.embedding, clock)
            if embedding
            else None
        )
        self._reset()
        fork_safety.register_fork_aware(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        # No SizedLruCache: an index grows after it was inserted, and is measured again after each use.
        self._indexes: OrderedDict[NamespacePath, NamespaceIndex] = OrderedDict()
        self._index_bytes: dict[NamespacePath, int] = {}
        self._total_bytes = 0
        self._accesses: defaultdict[Tenant, Counter[int]] = defaultdict(Counter)
        self._unwritten_access_count = 0

    def recall(self, namespace: NamespacePath, request: RecallRequest, *, counts: bool = True) -> Recall:
        """Return the messages that match a request, best first.

        Args:
            namespace: The namespace to search.
            request: The request.
            counts: True to count the hits as accessed. Default: True.
        """
        for _ in range(_MAX_ATTEMPTS):
            found = self._try_recall(namespace, request, counts=counts)
            if found is not None:
                break
        else:
            found = Recall(
                query=request.query.text,
                hits=(),
                strategy=request.strategy,
                candidates=0,
                problems=("memory was erased repeatedly during the recall: try again",),
            )
        return found

    def embed(
        self,
        namespace: NamespacePath,
        should_continue: Callable[[], bool] = lambda: True,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed every message that has no vector yet, and return their number.

        Args:
            namespace: The namespace.
            should_continue: Called before each batch. Embedding stops when it returns False.
            progress: Called after each batch with the number of embedded messages and the total.
        """
        if self._backfill is None:
            return 0
        index = self._get_index(namespace)
        done = self._backfill.embed_missing(index, should_continue, progress)
        self._update_size(index)
        return done

    def may_have_knowledge(self, namespace: NamespacePath) -> bool:
        """Return False only if the namespace had no knowledge at its last recall."""
        with self._lock:
            index = self._indexes.get(namespace)
        return index is None or index.has_knowledge is None or index.has_knowledge

    def invalidate(self, namespace: NamespacePath | None = None) -> None:
        """Discard the cached index of a namespace, or of all."""
        with self._lock:
            for path in list(self._indexes) if namespace is None else [namespace]:
                self._evict(path)

    def close(self) -> None:
        """Stop background tasks, then store pending vectors and access counts."""
        # In this order: a background task could add vectors or counts after they were stored.
        self._background.stop()
        if self._backfill is not None:
            self._backfill.save_all(list(self._indexes.values()))
        self._write_accesses()

    def before_fork(self) -> None:
        """Do nothing: the child loads its indexes again."""

    def after_fork(self) -> None:
        """Do nothing in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace the locks and indexes.

        A lock may be held by a thread that does not exist in the child. Access counts are dropped, because the parent
        writes them.
        """
        self._reset()

    def _try_recall(self, namespace: NamespacePath, request: RecallRequest, *, counts: bool) -> Recall | None:
        # Returns None if anything was erased in the meantime. The caller tries again.
        from langmem_tiers.recall.execution import QueryExecution  # noqa: PLC0415 - imports numpy

        index = self._get_index(namespace)
        with index.lock:
            if not index.refresh(self.index):
                # Queries on namespaces that do not exist must not fill the cache.
                self.invalidate(namespace)
            if not index.positions.count:
                return Recall(query=request.query.text, hits=(), strategy=request.strategy, candidates=0)
        # The lock is released while the embedder works, so that other threads can recall from this namespace.
        # Therefore the index has to be checked again below.
        query_vector = self.get_query_vector(index, request)
        with index.lock:
            if index.tenant is None or not index.positions.count:
                return None
            if index.vectors is None and query_vector.vector is not None and self.embedding is not None:
                # Another thread has reset the index in the meantime.
                index.load_vectors(self.embedding)
            execution = QueryExecution(self, index, request, query_vector)
            ranked = execution.run()
            keys = index.positions["keys"][ranked.rows].tolist()
            importance = execution.compute_importance(ranked.rows).tolist()
            tenant = index.tenant
        assert tenant is not None  # noqa: S101 - refreshed above
        self._update_size(index)
        messages = self.index.get_messages(tenant, keys)
        if len(messages) < len(keys):
            # A hit was erased after the refresh: the index is outdated.
            self.invalidate(namespace)
            return None
        if counts:
            self._count_accesses(tenant, keys)
        hits = _build_hits(namespace, [messages[key] for key in keys], ranked, importance)
        return Recall(
            query=request.query.text,
            hits=hits,
            strategy=request.strategy,
            candidates=execution.candidates,
            embedder=execution.embedder,
            problems=tuple(execution.problems),
        )

    def get_query_vector(self, index: NamespaceIndex, request: RecallRequest) -> QueryVector:
        """Return the vector of a request's query.

        Call it without holding the lock of the index, because an embedder may be slow.
        """
        if self._backfill is None:
            return QueryVector()
        return self._backfill.get_query_vector(index, request.query, request.strategy, request.excluded_keys)

    def _get_index(self, namespace: NamespacePath) -> NamespaceIndex:
        from langmem_tiers.recall.namespace_index import NamespaceIndex  # noqa: PLC0415 - as above

        with self._lock:
            index = self._indexes.get(namespace)
            if index is None:
                index = self._indexes[namespace] = NamespaceIndex(namespace)
            # The order of the dictionary is that of use: the first index is evicted first.
            self._indexes.move_to_end(namespace)
            return index

    def _update_size(self, index: NamespaceIndex) -> None:
        # Only the index that was used may have grown. Measuring all of them would be slow with many namespaces.
        max_bytes = self.config.recall.index_megabytes * 2**20
        with self._lock:
            # Another thread may have invalidated or replaced this index: then its size does not count.
            if self._indexes.get(index.path) is index:
                self._total_bytes += index.size_bytes - self._index_bytes.get(index.path, 0)
                self._index_bytes[index.path] = index.size_bytes
            while self._total_bytes > max_bytes and len(self._indexes) > 1:
                self._evict(next(iter(self._indexes)))

    def _evict(self, path: NamespacePath) -> None:
        self._indexes.pop(path, None)
        self._total_bytes -= self._index_bytes.pop(path, 0)

    def _count_accesses(self, tenant: Tenant, keys: list[int]) -> None:
        # Only counted here. The counts are written when there are enough of them, or when the engine closes.
        with self._lock:
            self._accesses[tenant].update(keys)
            self._unwritten_access_count += len(keys)
        if self._unwritten_access_count >= _ACCESS_WRITE_BATCH_SIZE:
            self._background.submit("accesses", self._write_accesses)

    def _write_accesses(self) -> None:
        with self._lock:
            pending, self._accesses, self._unwritten_access_count = self._accesses, defaultdict(Counter), 0
        try:
            while pending:
                tenant, accesses = next(iter(pending.items()))
                indexes = self._find_indexes(tenant)
                self.index.add_accesses(tenant, accesses, self._clock.now())
                del pending[tenant]
                for index, positions in indexes:
                    with index.lock:
                        positions.add_accesses(accesses)
        except StorageError:
            # Keep the counts that were not written for the next attempt.
            with self._lock:
                for tenant, accesses in pending.items():
                    self._accesses[tenant].update(accesses)
                    self._unwritten_access_count += accesses.total()

    def _find_indexes(self, tenant: Tenant) -> list[tuple[NamespaceIndex, MessagePositions]]:
        # Called before the counts are written. Positions that are loaded later include the counts already, and adding
        # them again would count twice. Therefore the positions are returned too, not only their indexes.
        with self._lock:
            return [(index, index.positions) for index in self._indexes.values() if index.tenant == tenant]


def _build_hits(
    namespace: NamespacePath,
    recalled: Sequence[RecalledMessage],
    ranked: RankedRows,
    importance: Sequence[float],
) -> tuple[Hit, ...]:
    names = list(ranked.signals)
    # The signals are arrays over all hits. Transpose them to one tuple of values per hit.
    breakdowns = zip(*(part.tolist() for part in ranked.signals.values()), strict=True)
    hits = []
    for item, score, values, weight in zip(
        recalled, ranked.scores.tolist(), breakdowns, importance, strict=True
    ):
        signals = dict(zip(names, values, strict=True))
        hits.append(
            Hit(
                entry=_build_entry(namespace, item, weight),
                message=item.view_item.message,
                score=score,
                signals=signals,
                found_by=_find_main_signal(signals),
            )
        )
    return tuple(hits)


def _find_main_signal(signals: dict[str, float]) -> str:
    main = max((name for name in signals if name not in _CIRCUMSTANCE_SIGNALS), key=signals.__getitem__)
    if signals[main] > 0 or _FORM not in signals:
        return main
    # Nothing matched the query. Every message has a form, so it comes after the speaker and the time.
    main = max(("speaker", "time"), key=signals.__getitem__)
    return main if signals[main] > 0 else _FORM


def _build_entry(namespace: NamespacePath, recalled: RecalledMessage, importance: float) -> Entry:
    item, message = recalled.view_item, recalled.view_item.message
    return Entry(
        id=message.id,
        namespace=namespace,
        session=recalled.session,
        tier=item.tier,
        kind="message",
        role=message.role,
        content=message.content,
        created_at=message.created_at,
        importance=importance,
        token_count=message.token_count,
        state=item.state,
    )


def build_recall_request(
    text: str,
    *,
    now: datetime,
    limit: int,
    strategy: Strategy = Strategy.BEST,
    filters: RecallFilters | None = None,
    excluded_keys: Sequence[int] = (),
    asking_key: int | None = None,
) -> RecallRequest:
    """Parse a query and build the request.

    Args:
        text: The query.
        now: Current time, for time expressions and recency.
        limit: Maximum number of hits.
        strategy: Ranking strategy. Default: ``Strategy.BEST``.
        filters: Restrictions on the hits. Default: none.
        excluded_keys: Keys of messages that are not recalled. Default: none.
        asking_key: Key of the stored message that is the query. Default: none.
    """
    return RecallRequest(parse_query(text, now), limit, strategy, filters, now, excluded_keys, asking_key)
