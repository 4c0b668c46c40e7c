"""Vectors for what has none yet: made outside a namespace's lock, used at once, stored as soon as that can be.

Nothing of it may keep a recall: an embedder or a database that fails is told of, and what cannot be compared
by meaning is found by its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.errors import EmbeddingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langmem_tiers.common.background_tasks import BackgroundWorker
    from langmem_tiers.common.clock import Clock
    from langmem_tiers.config import EmbeddingConfig
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient
    from langmem_tiers.recall.namespace_index import NamespaceIndex
    from langmem_tiers.recall.query import Query
    from langmem_tiers.recall.records import Floats, IndexStore, Tenant, TrialRecord, Trust
    from langmem_tiers.recall.vector_index import VectorIndex


_MAX_UNINDEXED_VECTORS = 1000  # vectors that were made since the index was last looked after
UNUSED_MODEL_RETENTION = timedelta(days=7)
"""For so long nobody must have used a model before its vectors are erased."""


class VectorMaintenance:
    """Looks after the vectors of namespaces that are in use.

    Args:
        embedding: Knows the model and the store.
        background: Does it.
        clock: Where the time comes from.
    """

    def __init__(self, embedding: EmbeddingClient, background: BackgroundWorker, clock: Clock) -> None:
        self._embedding = embedding
        self._background = background
        self._clock = clock

    def schedule(self, held: NamespaceIndex, vectors: VectorIndex) -> None:
        """Do later what there is to do."""
        today = self._clock.now().toordinal()
        # While two models are in use, as when one takes over from the other, neither erases the other's work.
        if vectors.last_cleanup_day != today and vectors.is_complete(held.positions):
            vectors.last_cleanup_day = today
            self._background.submit(("tidy", held.path), lambda: self._delete_unused_vectors(held))
        if vectors.unindexed_count >= _MAX_UNINDEXED_VECTORS:
            vectors.unindexed_count = 0
            self._background.submit(("index", held.path), lambda: self._build_index_in_background(held))

    def publish_trust(self, held: NamespaceIndex, vectors: VectorIndex, tried: TrialRecord) -> None:
        """Have other processes spared the trial that was made."""
        tenant, trust = held.tenant, vectors.trust
        if tenant is not None:
            self._background.submit(
                ("trust", held.path), lambda: self._publish_trust_in_background(tenant, tried, trust)
            )

    def build_index(self, held: NamespaceIndex, go_on: Callable[[], bool]) -> None:
        """Have the nearest of a large namespace found sooner."""
        if held.tenant is not None:
            self._embedding.store.build_index(
                held.tenant.key, self._embedding.get_model_key(), held.positions.count, go_on
            )

    def _build_index_in_background(self, held: NamespaceIndex) -> None:
        try:
            self.build_index(held, lambda: not self._background.is_stopping)
        except (EmbeddingError, StorageError):
            return  # another time; until then they are found one by one

    def _publish_trust_in_background(self, tenant: Tenant, tried: TrialRecord, trust: Trust) -> None:
        try:
            self._embedding.store.update_trust(tenant, self._embedding.get_model_key(), tried, trust)
        except (EmbeddingError, StorageError):
            return  # they find out for themselves

    def _delete_unused_vectors(self, held: NamespaceIndex) -> None:
        tenant, since = held.tenant, self._clock.now() - UNUSED_MODEL_RETENTION
        try:
            if tenant is not None:
                self._embedding.store.delete_unused_vectors(
                    tenant.key, self._embedding.get_model_key(), since
                )
        except (EmbeddingError, StorageError):
            return  # another time


INLINE_WRITE_TIMEOUT_SECONDS = 0.1
"""How long a recall waits to store vectors, before it leaves that to the background."""
_CLOSE_WRITE_TIMEOUT_SECONDS = 5.0
_MAX_DEFERRED_MESSAGES = 50  # new messages in sight, from which on they get their vectors all the same
_WHOLE_TEXT_STRATEGIES = {Strategy.SIMILARITY, Strategy.HYBRID}
_VECTOR_STRATEGIES = {Strategy.BEST, Strategy.SECOND_LOOK, *_WHOLE_TEXT_STRATEGIES}


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query, or why there is none."""

    vector: Floats | None = None
    embedder: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    tenant: Tenant
    model: int
    vectors: VectorIndex
    keys: list[int]


class EmbeddingBackfill:
    """Embeds the messages of namespaces and the queries that are put to them.

    Args:
        index: Words and places.
        embedding: Makes vectors.
        background: Goes on where a recall has no time.
        config: Limits.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        index: IndexStore,
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
        self, held: NamespaceIndex, query: Query, strategy: Strategy, unneeded: Sequence[int] = ()
    ) -> QueryVector:
        """The vector of a query, after new messages got theirs. Hold no lock.

        Args:
            held: The namespace.
            query: What is asked.
            strategy: How it will be answered.
            unneeded: Keys of messages that cannot be the answer. If nothing else is new, it can wait.
        """
        if strategy not in _VECTOR_STRATEGIES:
            return QueryVector()
        embedding, problems = self._embedding, list[str]()
        try:
            embedding.get_model_key(INLINE_WRITE_TIMEOUT_SECONDS)
            problems += self._embed_inline(held, unneeded)
            with held.lock:
                is_ready = self._prepare_vectors(held)
                text = (
                    query.text
                    if strategy in _WHOLE_TEXT_STRATEGIES
                    else query.get_text_without(_find_speaker_names(held, query))
                )
            vector = embedding.embed_query(text) if is_ready else None
            if embedding.has_full_cache_batch:
                self._background.submit("cache", embedding.write_cache)
        except (EmbeddingError, StorageError) as error:
            return QueryVector(problems=tuple(dict.fromkeys([*problems, str(error)])))
        return QueryVector(vector, None if vector is None else embedding.identity, tuple(problems))

    def _load_vectors(self, held: NamespaceIndex) -> VectorIndex | None:
        return None if held.tenant is None else held.load_vectors(self._embedding)

    def _prepare_vectors(self, held: NamespaceIndex) -> bool:
        vectors = held.vectors or self._load_vectors(held)  # loaded a moment ago, unless somebody began anew
        if vectors is None or not vectors.get_vector_flags(held.positions.count).any():
            return False
        self._run_trial(held, vectors, may_wait=True)
        if vectors.is_trial_pending:
            self._background.submit(("trial", held.path), lambda: self._run_pending_trial(held))
        self._maintenance.schedule(held, vectors)
        return True

    def _run_trial(self, held: NamespaceIndex, vectors: VectorIndex, *, may_wait: bool) -> None:
        tried = held.update_trust(self._embedding, self._index, may_wait=may_wait)
        if tried is not None:
            self._maintenance.publish_trust(held, vectors, tried)

    def _run_pending_trial(self, held: NamespaceIndex) -> None:
        try:
            with held.lock:
                if held.vectors is not None and held.tenant is not None:
                    self._run_trial(held, held.vectors, may_wait=False)
        except (EmbeddingError, StorageError):
            return  # what was found before does until then

    def embed_missing(
        self,
        held: NamespaceIndex,
        go_on: Callable[[], bool],
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed and store every message that has no vector, for as long as it may go on; how many that were."""
        self._embedding.get_model_key()
        done = self._embed_batches(held, go_on, waiting_seconds=-1, progress=progress)
        self._save(held, None)
        self._run_pending_trial(held)
        self._maintenance.build_index(held, go_on)
        return done

    def save_all(self, all_held: Iterable[NamespaceIndex]) -> None:
        """Store what is not stored yet, if that can be done soon."""
        try:
            for held in all_held:
                self._save(held, _CLOSE_WRITE_TIMEOUT_SECONDS)
            self._embedding.write_cache(_CLOSE_WRITE_TIMEOUT_SECONDS)
        except (EmbeddingError, StorageError):
            return  # they are made again when they are needed

    def _embed_inline(self, held: NamespaceIndex, unneeded: Sequence[int]) -> list[str]:
        with held.lock:
            vectors = self._load_vectors(held)
            if vectors is None or (vectors.is_complete(held.positions) and not vectors.unsaved):
                return []
            if self._can_defer(held, vectors, unneeded):
                return []
        end = self._clock.monotonic() + self._config.inline_seconds
        # Somebody else may be at it: a recall waits for a batch only where that takes no time.
        waiting = self._config.inline_seconds if self._embedding.is_quick else 0
        try:
            self._embed_batches(held, lambda: self._clock.monotonic() < end, waiting, is_fresh=True)
        except (EmbeddingError, StorageError) as error:
            return [str(error), *self._report_remaining(held, goes_on=False)]
        return self._report_remaining(held, goes_on=True)

    def _can_defer(self, held: NamespaceIndex, vectors: VectorIndex, unneeded: Sequence[int]) -> bool:
        # The newest messages of a conversation are in sight: they get their vectors together, later.
        if not unneeded or vectors.unsaved:
            return False
        wanted = vectors.list_keys_to_embed(held.positions, self._clock.monotonic(), _MAX_DEFERRED_MESSAGES)
        if len(wanted) == _MAX_DEFERRED_MESSAGES or not set(unneeded).issuperset(wanted):
            return False
        if not self._embedding.is_quick:
            self._background.submit(("embed", held.path), lambda: self._continue_in_background(held))
        return True

    def _report_remaining(self, held: NamespaceIndex, *, goes_on: bool) -> list[str]:
        problems = []
        with held.lock:
            vectors = self._load_vectors(held)
            if vectors is None:
                return []
            wanted = vectors.list_keys_to_embed(held.positions, self._clock.monotonic(), 1)
            refused, is_saved = len(vectors.refused_until), not vectors.unsaved
        if refused:
            problems.append(
                f"the embedder refuses {refused} of the messages: they are found by their words, and it is "
                "asked again later"
            )
        if wanted and goes_on:
            self._background.submit(("embed", held.path), lambda: self._continue_in_background(held))
            problems.append("some messages are not embedded yet: they are found by their words")
        if not is_saved:
            self._save_later(held)
            problems.append("some vectors are not stored yet: the database is busy, or cannot be written")
        return problems

    def _continue_in_background(self, held: NamespaceIndex) -> None:
        try:
            self._embed_batches(held, lambda: not self._background.is_stopping, waiting_seconds=-1)
        except (EmbeddingError, StorageError):
            return  # the next recall tries again, and says so

    def _save_later(self, held: NamespaceIndex) -> None:
        self._background.submit(("save", held.path), lambda: self._save_now(held))

    def _save_now(self, held: NamespaceIndex) -> None:
        try:
            self._save(held, None)
        except StorageError:
            return  # as above

    def _embed_batches(
        self,
        held: NamespaceIndex,
        go_on: Callable[[], bool],
        waiting_seconds: float,
        *,
        is_fresh: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        done = 0
        while go_on():
            if not held.embedding_lock.acquire(timeout=waiting_seconds):
                return done
            try:
                batch = self._next_batch(held, is_fresh=is_fresh)
                is_fresh = False
                made = None if batch is None else self._embed_batch(held, batch, go_on)
            finally:
                held.embedding_lock.release()
            if made is None:
                return done
            done += made
            self._try_save(held)
            if progress is not None:
                progress(done, done + self._count_missing(held))
            if batch is not None and len(batch.keys) < self._embedding.batch_size:
                return done  # that was all there was a moment ago
        return done

    def _count_missing(self, held: NamespaceIndex) -> int:
        with held.lock:
            return 0 if held.vectors is None else len(held.vectors.list_missing_keys(held.positions))

    def _next_batch(self, held: NamespaceIndex, *, is_fresh: bool) -> _Batch | None:
        with held.lock:
            if not is_fresh:
                held.refresh(self._index)
            if held.tenant is None:
                return None
            vectors = held.vectors if is_fresh and held.vectors else held.load_vectors(self._embedding)
            keys = vectors.list_keys_to_embed(
                held.positions, self._clock.monotonic(), self._embedding.batch_size
            )
            return _Batch(held.tenant, self._embedding.get_model_key(), vectors, keys) if keys else None

    def _embed_batch(self, held: NamespaceIndex, batch: _Batch, go_on: Callable[[], bool]) -> int | None:
        # Without the lock: whoever recalls by words meanwhile does not wait for a model.
        texts = self._embedding.store.get_texts(batch.tenant, batch.keys)
        if len(texts) < len(batch.keys):
            return None  # something was erased: the next recall looks anew
        made = self._embedding.embed_documents([strip_fences(texts[key]) for key in batch.keys], go_on)
        retry_at = self._clock.monotonic() + self._config.retry_seconds
        with held.lock:
            batch.vectors.mark_refused([batch.keys[number] for number in made.refused_numbers], retry_at)
            if made.embedded_numbers:
                keys = [batch.keys[number] for number in made.embedded_numbers]
                batch.vectors.add_unsaved(held.positions, keys, made.vectors[made.embedded_numbers])
        return len(made.embedded_numbers)

    def _try_save(self, held: NamespaceIndex) -> None:
        try:
            self._save(held, INLINE_WRITE_TIMEOUT_SECONDS)
        except StorageError:
            self._save_later(held)

    def _save(self, held: NamespaceIndex, patience_seconds: float | None) -> None:
        while True:
            with held.lock:
                tenant, vectors = held.tenant, held.vectors
                if tenant is None or vectors is None or not vectors.unsaved:
                    return
                keys, table = vectors.unsaved[0]
            model = self._embedding.get_model_key()
            self._embedding.store.insert_vectors(
                tenant, model, keys, table, patience_seconds=patience_seconds
            )
            with held.lock:
                vectors.mark_saved(held.positions, keys)
                vectors.unindexed_count += len(keys)


def _find_speaker_names(held: NamespaceIndex, query: Query) -> set[str]:
    return {
        name for name in query.find_speaker_names(held.positions.speakers) if name in held.positions.speakers
    }
