"""Embedding of new messages and queries, and maintenance of stored vectors.

Messages are embedded without holding the lock of their namespace. Their vectors are used at once and stored as soon
as possible. A failing embedder or database never fails a recall: it is reported as a problem, and messages without
vectors are found by their words.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.errors import EmbeddingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.leases import Lease
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.workers import BackgroundWorker
    from langmem_tiers.config import EmbeddingConfig
    from langmem_tiers.recall.arrays import Floats
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.namespace_index import NamespaceIndex
    from langmem_tiers.recall.query import Query
    from langmem_tiers.recall.records import Tenant, Trust, TrustSampleRecord
    from langmem_tiers.recall.repository import RecallIndexRepository
    from langmem_tiers.recall.retriever import Retriever
    from langmem_tiers.recall.vector_index import VectorIndex


# Number of new vectors after which the store is asked to index them.
_MAX_UNINDEXED_VECTORS = 1000
UNUSED_MODEL_RETENTION = timedelta(days=7)
"""Time after the last use of a model at which its vectors are deleted."""


class VectorMaintenance:
    """Cleans up and indexes vectors, and stores measured trusts, in the background.

    Failures are ignored: each task is optional and is tried again later.

    Args:
        embedding: Client of the embedder, with the store.
        background: Worker that runs the tasks.
        clock: Source of the time.
    """

    def __init__(self, embedding: EmbeddingClient, background: BackgroundWorker, clock: Clock) -> None:
        self._embedding = embedding
        self._background = background
        self._clock = clock

    def schedule(self, index: NamespaceIndex, vectors: VectorIndex) -> None:
        """Schedule the tasks that are due for a namespace."""
        today = self._clock.now().toordinal()
        # Vectors of other models are deleted once a day, after all messages have vectors of this one. While two models
        # are in use, for example during a migration, neither is out of use long enough to be deleted.
        if vectors.last_cleanup_day != today and vectors.is_complete(index.positions):
            vectors.last_cleanup_day = today
            self._background.submit(("tidy", index.path), lambda: self._delete_unused_vectors(index))
        if vectors.unindexed_count >= _MAX_UNINDEXED_VECTORS:
            vectors.unindexed_count = 0
            self._background.submit(("index", index.path), lambda: self._build_index_in_background(index))

    def publish_trust(self, index: NamespaceIndex, vectors: VectorIndex, sample: TrustSampleRecord) -> None:
        """Store a measured trust, so that other processes need not measure it."""
        tenant, trust = index.tenant, vectors.trust
        if tenant is not None:
            self._background.submit(
                ("trust", index.path), lambda: self._publish_trust_in_background(tenant, sample, trust)
            )

    def build_index(self, index: NamespaceIndex, should_continue: Callable[[], bool]) -> None:
        """Have the store index the vectors of a large namespace."""
        if index.tenant is not None:
            self._embedding.store.build_index(
                index.tenant.key, self._embedding.get_model_key(), index.positions.count, should_continue
            )

    def _build_index_in_background(self, index: NamespaceIndex) -> None:
        try:
            self.build_index(index, lambda: not self._background.is_stopping)
        except (EmbeddingError, StorageError):
            # The next run tries again. Until then the store compares these vectors one by one.
            return

    def _publish_trust_in_background(self, tenant: Tenant, sample: TrustSampleRecord, trust: Trust) -> None:
        try:
            self._embedding.store.update_trust(tenant, self._embedding.get_model_key(), sample, trust)
        except (EmbeddingError, StorageError):
            # Other processes measure the trust themselves.
            return

    def _delete_unused_vectors(self, index: NamespaceIndex) -> None:
        tenant, since = index.tenant, self._clock.now() - UNUSED_MODEL_RETENTION
        try:
            if tenant is not None:
                self._embedding.store.delete_unused_vectors(
                    tenant.key, self._embedding.get_model_key(), since
                )
        except (EmbeddingError, StorageError):
            # The next day's run tries again.
            return


INLINE_WRITE_TIMEOUT_SECONDS = 0.1
"""Maximum wait of a recall for other writers. After it, vectors are stored in the background."""
_CLOSE_WRITE_TIMEOUT_SECONDS = 5.0
# From this number of new messages on, they are embedded even if all of them are in the current context.
_MAX_DEFERRED_MESSAGES = 50
# These strategies embed the query as it is. The others remove the names of speakers.
_WHOLE_TEXT_STRATEGIES = {Strategy.SIMILARITY, Strategy.HYBRID}
_VECTOR_STRATEGIES = {Strategy.BEST, Strategy.SECOND_LOOK, *_WHOLE_TEXT_STRATEGIES}


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query, or the reasons why there is none."""

    vector: Floats | None = None
    embedder: str | None = None
    """Identity of the embedder, None without a vector."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    tenant: Tenant
    model: int
    vectors: VectorIndex
    keys: list[int]


class EmbeddingBackfill:
    """Embeds queries, and messages that have no vectors yet.

    Args:
        index: Store of terms and positions.
        embedding: Client of the embedder.
        background: Worker that continues after a recall has run out of time.
        config: Limits.
        clock: Source of the time.
    """

    def __init__(
        self,
        index: RecallIndexRepository,
        embedding: EmbeddingClient,
        background: BackgroundWorker,
        config: EmbeddingConfig,
        clock: Clock,
    ) -> None:
        self._index = index
        self._embedding = embedding
        self._background = background
        self._config = config
        self._clock = clock
        self._maintenance = VectorMaintenance(embedding, background, clock)

    def get_query_vector(
        self, index: NamespaceIndex, query: Query, strategy: Strategy, unneeded: Sequence[int] = ()
    ) -> QueryVector:
        """Embed new messages within the time limit, then the query. Call it without holding the index's lock.

        Args:
            index: Index of the namespace.
            query: The query.
            strategy: Ranking strategy. Some do not need a vector.
            unneeded: Keys of messages that are excluded from the recall. If no others are new, embedding is deferred.
        """
        if strategy not in _VECTOR_STRATEGIES:
            return QueryVector()
        embedding, problems = self._embedding, list[str]()
        try:
            embedding.get_model_key(INLINE_WRITE_TIMEOUT_SECONDS)
            problems += self._embed_inline(index, unneeded)
            with index.lock:
                is_ready = self._prepare_vectors(index)
                text = (
                    query.text
                    if strategy in _WHOLE_TEXT_STRATEGIES
                    else query.get_text_without(_find_speaker_names(index, query))
                )
            vector = embedding.embed_query(text) if is_ready else None
            if embedding.has_full_cache_batch:
                self._background.submit("cache", embedding.write_cache)
        except (EmbeddingError, StorageError) as error:
            return QueryVector(problems=tuple(dict.fromkeys([*problems, str(error)])))
        return QueryVector(vector, None if vector is None else embedding.identity, tuple(problems))

    def _load_vectors(self, index: NamespaceIndex) -> VectorIndex | None:
        return None if index.tenant is None else index.load_vectors(self._embedding)

    def _prepare_vectors(self, index: NamespaceIndex) -> bool:
        # Usually loaded by _embed_inline(), unless another thread has reset the index since.
        vectors = index.vectors or self._load_vectors(index)
        if vectors is None or not vectors.get_vector_flags(index.positions.count).any():
            return False
        self._measure_trust(index, vectors, may_wait=True)
        if vectors.is_measurement_pending:
            self._background.submit(("trust", index.path), lambda: self._measure_pending_trust(index))
        self._maintenance.schedule(index, vectors)
        return True

    def _measure_trust(self, index: NamespaceIndex, vectors: VectorIndex, *, may_wait: bool) -> None:
        sample = index.update_trust(self._embedding, self._index, may_wait=may_wait)
        if sample is not None:
            self._maintenance.publish_trust(index, vectors, sample)

    def _measure_pending_trust(self, index: NamespaceIndex) -> None:
        try:
            with index.lock:
                if index.vectors is not None and index.tenant is not None:
                    self._measure_trust(index, index.vectors, may_wait=False)
        except (EmbeddingError, StorageError):
            # The previous trust remains in use. The next recall tries again.
            return

    def embed_missing(
        self,
        index: NamespaceIndex,
        should_continue: Callable[[], bool],
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed and store every message that has no vector, and return their number.

        Args:
            index: Index of the namespace.
            should_continue: Called before each batch. Embedding stops when it returns False.
            progress: Called after each batch with the number of embedded messages and the total.
        """
        # Raises an error if the embedder is unavailable, before any work is done.
        self._embedding.get_model_key()
        done = self._embed_batches(index, should_continue, waiting_seconds=-1, progress=progress)
        self._save(index, None)
        self._measure_pending_trust(index)
        self._maintenance.build_index(index, should_continue)
        return done

    def save_all(self, indexes: Iterable[NamespaceIndex]) -> None:
        """Store pending vectors of namespaces and queries, unless the database is busy."""
        try:
            for index in indexes:
                self._save(index, _CLOSE_WRITE_TIMEOUT_SECONDS)
            self._embedding.write_cache(_CLOSE_WRITE_TIMEOUT_SECONDS)
        except (EmbeddingError, StorageError):
            # The texts are embedded again when their vectors are needed.
            return

    def _embed_inline(self, index: NamespaceIndex, unneeded: Sequence[int]) -> list[str]:
        with index.lock:
            vectors = self._load_vectors(index)
            if vectors is None or (vectors.is_complete(index.positions) and not vectors.unsaved):
                return []
            if self._can_defer(index, vectors, unneeded):
                return []
        end = self._clock.monotonic() + self._config.inline_seconds
        # Another thread may be embedding a batch. Wait for it only if the embedder is fast.
        waiting = self._config.inline_seconds if self._embedding.is_quick else 0
        try:
            self._embed_batches(index, lambda: self._clock.monotonic() < end, waiting, is_fresh=True)
        except (EmbeddingError, StorageError) as error:
            return [str(error), *self._report_remaining(index, continues=False)]
        return self._report_remaining(index, continues=True)

    def _can_defer(self, index: NamespaceIndex, vectors: VectorIndex, unneeded: Sequence[int]) -> bool:
        # During a conversation, usually only its newest messages have no vectors. They are in the context and not
        # recalled, so they can be embedded later, several at once.
        if not unneeded or vectors.unsaved:
            return False
        missing = vectors.list_keys_to_embed(index.positions, self._clock.monotonic(), _MAX_DEFERRED_MESSAGES)
        if len(missing) == _MAX_DEFERRED_MESSAGES or not set(unneeded).issuperset(missing):
            return False
        if not self._embedding.is_quick:
            self._background.submit(("embed", index.path), lambda: self._continue_in_background(index))
        return True

    def _report_remaining(self, index: NamespaceIndex, *, continues: bool) -> list[str]:
        # Returns problems for messages without vectors, and continues in the background if `continues` is True.
        problems = []
        with index.lock:
            vectors = self._load_vectors(index)
            if vectors is None:
                return []
            missing = vectors.list_keys_to_embed(index.positions, self._clock.monotonic(), 1)
            refused, is_saved = len(vectors.refused_until), not vectors.unsaved
        if refused:
            problems.append(
                f"the embedder rejects {refused} of the messages: they are found by their words and tried again later"
            )
        if missing and continues:
            self._background.submit(("embed", index.path), lambda: self._continue_in_background(index))
            problems.append("some messages are not embedded yet: they are found by their words")
        if not is_saved:
            self._save_later(index)
            problems.append("some vectors are not stored yet: the database is busy or read-only")
        return problems

    def _continue_in_background(self, index: NamespaceIndex) -> None:
        try:
            self._embed_batches(index, lambda: not self._background.is_stopping, waiting_seconds=-1)
        except (EmbeddingError, StorageError):
            # The next recall tries again and reports the error.
            return

    def _save_later(self, index: NamespaceIndex) -> None:
        self._background.submit(("save", index.path), lambda: self._save_now(index))

    def _save_now(self, index: NamespaceIndex) -> None:
        try:
            self._save(index, None)
        except StorageError:
            # The vectors remain in `unsaved`. The next recall schedules this again.
            return

    def _embed_batches(
        self,
        index: NamespaceIndex,
        should_continue: Callable[[], bool],
        waiting_seconds: float,
        *,
        is_fresh: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        # waiting_seconds is the time-out for the embedding lock, -1 waits without limit. is_fresh means that the index
        # was refreshed just now, which saves the refresh before the first batch.
        done = 0
        while should_continue():
            if not index.embedding_lock.acquire(timeout=waiting_seconds):
                return done
            try:
                batch = self._next_batch(index, is_fresh=is_fresh)
                is_fresh = False
                embedded = None if batch is None else self._embed_batch(index, batch, should_continue)
            finally:
                index.embedding_lock.release()
            if embedded is None:
                return done
            done += embedded
            # After the release, so that another thread can embed while this one waits for the database.
            self._try_save(index)
            if progress is not None:
                progress(done, done + self._count_missing(index))
            if batch is not None and len(batch.keys) < self._embedding.batch_size:
                # A batch that is not full was the last one.
                return done
        return done

    def _count_missing(self, index: NamespaceIndex) -> int:
        with index.lock:
            return 0 if index.vectors is None else len(index.vectors.list_missing_keys(index.positions))

    def _next_batch(self, index: NamespaceIndex, *, is_fresh: bool) -> _Batch | None:
        with index.lock:
            if not is_fresh:
                index.refresh(self._index)
            if index.tenant is None:
                return None
            vectors = index.vectors if is_fresh and index.vectors else index.load_vectors(self._embedding)
            keys = vectors.list_keys_to_embed(
                index.positions, self._clock.monotonic(), self._embedding.batch_size
            )
            return _Batch(index.tenant, self._embedding.get_model_key(), vectors, keys) if keys else None

    def _embed_batch(
        self, index: NamespaceIndex, batch: _Batch, should_continue: Callable[[], bool]
    ) -> int | None:
        # Without the lock of the index, so that recalls by words do not wait for the embedder. Returns the number of
        # new vectors, or None if a message was erased in the meantime.
        texts = self._embedding.store.get_texts(batch.tenant, batch.keys)
        if len(texts) < len(batch.keys):
            # Something was erased: the next recall reloads the index.
            return None
        result = self._embedding.embed_documents(
            [strip_fences(texts[key]) for key in batch.keys], should_continue
        )
        retry_at = self._clock.monotonic() + self._config.retry_seconds
        with index.lock:
            batch.vectors.mark_refused([batch.keys[number] for number in result.refused_numbers], retry_at)
            # batch.vectors, not namespace_index.vectors: the index may have been reset in the meantime. Then the keys
            # may belong to other messages, and these vectors have to be dropped with the previous object.
            if result.embedded_numbers:
                keys = [batch.keys[number] for number in result.embedded_numbers]
                batch.vectors.add_unsaved(index.positions, keys, result.vectors[result.embedded_numbers])
        return len(result.embedded_numbers)

    def _try_save(self, index: NamespaceIndex) -> None:
        try:
            self._save(index, INLINE_WRITE_TIMEOUT_SECONDS)
        except StorageError:
            self._save_later(index)

    def _save(self, index: NamespaceIndex, patience_seconds: float | None) -> None:
        # Stores one batch per turn. The lock is not held while writing. insert_vectors() writes nothing if anything was
        # erased since `tenant` was read, and the batch is dropped in both cases.
        while True:
            with index.lock:
                tenant, vectors = index.tenant, index.vectors
                if tenant is None or vectors is None or not vectors.unsaved:
                    return
                keys, table = vectors.unsaved[0]
            model = self._embedding.get_model_key()
            self._embedding.store.insert_vectors(
                tenant, model, keys, table, patience_seconds=patience_seconds
            )
            with index.lock:
                vectors.mark_saved(index.positions, keys)
                vectors.unindexed_count += len(keys)


def _find_speaker_names(index: NamespaceIndex, query: Query) -> set[str]:
    return {
        name
        for name in query.find_speaker_names(index.positions.speakers)
        if name in index.positions.speakers
    }


EMBEDDING_LEASE_SECONDS = 60.0
"""Longer than a batch takes. The lease is renewed before each batch."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 1.0


def embed_namespace(
    retriever: Retriever,
    lease: Lease,
    namespace: NamespacePath,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Embed every message that has no vector yet, and return the number embedded by this process.

    If another process is embedding the namespace, wait for it and then embed the rest, which is usually nothing.

    Args:
        retriever: Embeds the messages.
        lease: Lease of this job, of ``EMBEDDING_LEASE_SECONDS``.
        namespace: The namespace.
        progress: Called after each batch with the number of embedded messages and the total.
    """
    if retriever.embedding is None:
        return 0
    pause = _FIRST_PAUSE_SECONDS
    # This loop ends: the lease of a process that was killed expires.
    while not lease.acquire():
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    try:
        # Acquiring the lease again renews it. Embedding stops if another process has taken it.
        return retriever.embed(namespace, lease.acquire, progress)
    finally:
        lease.release()
