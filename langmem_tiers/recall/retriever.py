"""A query on its way: words looked up, vectors compared, ranked, fetched and explained."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common import fork_safety
from langmem_tiers.common.background_tasks import BackgroundWorker
from langmem_tiers.common.entries import Entry
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.errors import StorageError
from langmem_tiers.recall.embedding_backfill import EmbeddingBackfill, QueryVector
from langmem_tiers.recall.models import Hit, Recall
from langmem_tiers.recall.query import Query, parse_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import SessionStore
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.models import RecallFilters
    from langmem_tiers.recall.namespace_index import NamespaceIndex
    from langmem_tiers.recall.positions import MessagePositions
    from langmem_tiers.recall.ranking import RankedRows
    from langmem_tiers.recall.records import IndexStore, RecalledMessage, Tenant

_ACCESS_WRITE_BATCH_SIZE = 200
_CIRCUMSTANCE_SIGNALS = {"form", "speaker", "time"}  # they support what was found, they do not find
_MAX_TRIES = 3  # what was found may be erased before it is read


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What is asked for."""

    query: Query
    limit: int
    strategy: Strategy
    filters: RecallFilters | None
    now: datetime
    excluded_keys: Sequence[int] = ()
    """Keys of messages that may not come, such as those in sight."""
    asking_key: int | None = None
    """Key of the message that asks: its words are not among those that are looked through."""


class Retriever:
    """Recalls messages.

    How often a message was recalled is counted here and written from time to time; it counts for others when they
    next load the namespace, and for this process once it is written.

    Args:
        index: Words and places.
        sessions: Finds the sessions that a filter names.
        embedding: Makes and compares vectors; without it words alone decide.
        config: Limits and weights.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        *,
        index: IndexStore,
        sessions: SessionStore,
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
        self._indexes: OrderedDict[NamespacePath, NamespaceIndex] = OrderedDict()
        self._index_bytes: dict[NamespacePath, int] = {}
        self._total_bytes = 0
        self._accesses: defaultdict[Tenant, Counter[int]] = defaultdict(Counter)
        self._unwritten_access_count = 0

    def recall(self, namespace: NamespacePath, wish: RecallRequest, *, counts: bool = True) -> Recall:
        """The memories that answer a query, best first."""
        for _ in range(_MAX_TRIES):
            found = self._try_recall(namespace, wish, counts=counts)
            if found is not None:
                break
        else:
            found = Recall(
                query=wish.query.text,
                hits=(),
                strategy=wish.strategy,
                candidates=0,
                problems=("memory was erased each time while it was read: ask again",),
            )
        return found

    def embed(
        self,
        namespace: NamespacePath,
        go_on: Callable[[], bool] = lambda: True,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed every message that has no vector yet; how many that were.

        Args:
            namespace: Whose.
            go_on: Asked before each batch.
            progress: Told how many are done, and of how many, after each batch.
        """
        if self._backfill is None:
            return 0
        held = self._get_index(namespace)
        done = self._backfill.embed_missing(held, go_on, progress)
        self._update_size(held)
        return done

    def may_have_knowledge(self, namespace: NamespacePath) -> bool:
        """Whether the namespace held any knowledge when it was last recalled from; it may, if that is unknown."""
        with self._lock:
            held = self._indexes.get(namespace)
        return held is None or held.has_knowledge is None or held.has_knowledge

    def invalidate(self, namespace: NamespacePath | None = None) -> None:
        """Let go of what is held in memory."""
        with self._lock:
            for path in list(self._indexes) if namespace is None else [namespace]:
                self._evict(path)

    def close(self) -> None:
        """Write what was counted or embedded and stop what is under way."""
        self._background.stop()
        if self._backfill is not None:
            self._backfill.save_all(list(self._indexes.values()))
        self._write_accesses()

    def before_fork(self) -> None:
        """Nothing to do: what is held is read anew in the child."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Locks may be held by threads that this process does not have; what was counted the parent writes."""
        self._reset()

    def _try_recall(self, namespace: NamespacePath, wish: RecallRequest, *, counts: bool) -> Recall | None:
        from langmem_tiers.recall.execution import QueryExecution  # noqa: PLC0415 - numpy, not before it is needed

        held = self._get_index(namespace)
        with held.lock:
            if not held.refresh(self.index):
                self.invalidate(namespace)  # whoever asks for what is not there leaves nothing behind
            if not held.positions.count:
                return Recall(query=wish.query.text, hits=(), strategy=wish.strategy, candidates=0)
        meaning = self.get_query_vector(held, wish)
        with held.lock:
            if held.tenant is None or not held.positions.count:  # erased meanwhile
                return None
            if held.vectors is None and meaning.vector is not None and self.embedding is not None:
                held.load_vectors(self.embedding)  # another thread has begun anew
            answering = QueryExecution(self, held, wish, meaning)
            ranked = answering.run()
            keys = held.positions["keys"][ranked.rows].tolist()
            importance = answering.compute_importance(ranked.rows).tolist()
            tenant = held.tenant
        assert tenant is not None  # noqa: S101 - refreshed above
        self._update_size(held)
        there = self.index.get_messages(tenant, keys)
        if len(there) < len(keys):  # something was erased meanwhile
            self.invalidate(namespace)
            return None
        if counts:
            self._count_accesses(tenant, keys)
        hits = _build_hits(namespace, [there[key] for key in keys], ranked, importance)
        return Recall(
            query=wish.query.text,
            hits=hits,
            strategy=wish.strategy,
            candidates=answering.candidates,
            embedder=answering.embedder,
            problems=tuple(answering.problems),
        )

    def get_query_vector(self, held: NamespaceIndex, wish: RecallRequest) -> QueryVector:
        """The vector of what is asked for. Hold no lock: an embedder may take its time."""
        if self._backfill is None:
            return QueryVector()
        return self._backfill.get_query_vector(held, wish.query, wish.strategy, wish.excluded_keys)

    def _get_index(self, namespace: NamespacePath) -> NamespaceIndex:
        from langmem_tiers.recall.namespace_index import NamespaceIndex  # noqa: PLC0415 - as above

        with self._lock:
            held = self._indexes.get(namespace)
            if held is None:
                held = self._indexes[namespace] = NamespaceIndex(namespace)
            self._indexes.move_to_end(namespace)
            return held

    def _update_size(self, held: NamespaceIndex) -> None:
        # Only the one that was used is weighed anew: there may be many.
        most = self.config.recall.index_megabytes * 2**20
        with self._lock:
            if self._indexes.get(held.path) is held:
                self._total_bytes += held.size_bytes - self._index_bytes.get(held.path, 0)
                self._index_bytes[held.path] = held.size_bytes
            while self._total_bytes > most and len(self._indexes) > 1:
                self._evict(next(iter(self._indexes)))

    def _evict(self, path: NamespacePath) -> None:
        self._indexes.pop(path, None)
        self._total_bytes -= self._index_bytes.pop(path, 0)

    def _count_accesses(self, tenant: Tenant, keys: list[int]) -> None:
        # Only noted here: writing waits until there is enough of it, or the engine closes.
        with self._lock:
            self._accesses[tenant].update(keys)
            self._unwritten_access_count += len(keys)
        if self._unwritten_access_count >= _ACCESS_WRITE_BATCH_SIZE:
            self._background.submit("accesses", self._write_accesses)

    def _write_accesses(self) -> None:
        with self._lock:
            left, self._accesses, self._unwritten_access_count = self._accesses, defaultdict(Counter), 0
        try:
            while left:
                tenant, accesses = next(iter(left.items()))
                holding = self._find_indexes(tenant)
                self.index.add_accesses(tenant, accesses, self._clock.now())
                del left[tenant]
                for held, places in holding:
                    with held.lock:
                        places.add_accesses(accesses)
        except StorageError:  # another time
            with self._lock:
                for tenant, accesses in left.items():
                    self._accesses[tenant].update(accesses)
                    self._unwritten_access_count += accesses.total()

    def _find_indexes(self, tenant: Tenant) -> list[tuple[NamespaceIndex, MessagePositions]]:
        # Taken before the counts are written: what is loaded after that has them.
        with self._lock:
            return [(held, held.positions) for held in self._indexes.values() if held.tenant == tenant]


def _build_hits(
    namespace: NamespacePath,
    found: Sequence[RecalledMessage],
    ranked: RankedRows,
    importance: Sequence[float],
) -> tuple[Hit, ...]:
    names = list(ranked.signals)
    telling = [name for name in names if name not in _CIRCUMSTANCE_SIGNALS]
    gave = zip(*(part.tolist() for part in ranked.signals.values()), strict=True)
    hits = []
    for item, score, parts, weight in zip(found, ranked.scores.tolist(), gave, importance, strict=True):
        signals = dict(zip(names, parts, strict=True))
        hits.append(
            Hit(
                entry=_build_entry(namespace, item, weight),
                message=item.view_item.message,
                score=score,
                signals=signals,
                found_by=max(telling, key=signals.__getitem__),
            )
        )
    return tuple(hits)


def _build_entry(namespace: NamespacePath, found: RecalledMessage, importance: float) -> Entry:
    shown, message = found.view_item, found.view_item.message
    return Entry(
        id=message.id,
        namespace=namespace,
        session=found.session,
        tier=shown.tier,
        kind="message",
        role=message.role,
        content=message.content,
        created_at=message.created_at,
        importance=importance,
        token_count=message.token_count,
        state=shown.state,
    )


def build_recall_request(
    text: str,
    *,
    now: datetime,
    limit: int,
    strategy: Strategy = Strategy.BEST,
    filters: RecallFilters | None = None,
    without: Sequence[int] = (),
    asking: int | None = None,
) -> RecallRequest:
    """A query read and put together with what it is limited by."""
    return RecallRequest(parse_query(text, now), limit, strategy, filters, now, without, asking)
