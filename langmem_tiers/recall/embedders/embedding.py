"""Client of an embedder: time limit, validation, retries and a cache of query vectors."""

from __future__ import annotations

import contextvars
import hashlib
import logging
import queue
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from langmem_tiers.common import fork_safety
from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.errors import EmbeddingError, LangmemTiersError
from langmem_tiers.recall.embedders.vectors import validate_vectors
from langmem_tiers.telemetry.instruments import SILENT_INSTRUMENTS, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ports import Embedder
    from langmem_tiers.config import EmbeddingConfig
    from langmem_tiers.recall.vector_repository import VectorRepository
    from langmem_tiers.telemetry.instruments import Instruments

_log = logging.getLogger("langmem_tiers")
MAX_EMBEDDED_CHARACTERS = 8000
"""Number of characters of a text that are embedded. Most models read no further, or blur longer texts."""
_METADATA, _DOCUMENTS, _QUERIES = _CALL_KINDS = ("itself", "documents", "queries")
"""Kinds of calls. After a failure, each kind is paused separately."""
_CACHE_WRITE_BATCH_SIZE = 16
"""Number of query vectors that are written to the cache in the database together."""
_USAGE_UPDATE_INTERVAL = timedelta(days=1)
"""Interval at which the use of a model is recorded."""
_DEBUG_LOG_HINT = "set the logger 'langmem_tiers' to DEBUG for details"
_PROBE_TEXT = "hello"
"""A text that every working embedder accepts."""


class _RefusedError(EmbeddingError):
    """The embedder failed or returned invalid output: it may be down, or reject this text."""


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Result of embedding texts. Texts that are neither embedded nor rejected were skipped for lack of time."""

    vectors: NDArray[np.float32]
    """One row per text. Zeros for texts that were not embedded."""
    embedded_numbers: list[int]
    """Numbers of the texts that were embedded."""
    refused_numbers: list[int]
    """Numbers of the texts that the embedder rejected."""


class EmbeddingClient:
    """Calls an embedder with a time limit, validates its output, and caches query vectors. Thread-safe.

    The cache is in memory and in the database. Vectors of messages are stored with the messages, not in the cache.

    Args:
        embedder: The embedder.
        store: Store of the vectors.
        config: Limits.
        clock: Source of the time.
        instruments: Measures the duration of calls.
    """

    def __init__(
        self,
        embedder: Embedder,
        store: VectorRepository,
        config: EmbeddingConfig,
        clock: Clock,
        instruments: Instruments = SILENT_INSTRUMENTS,
    ) -> None:
        self._instruments = instruments
        self.embedder = embedder
        self.store = store
        self._config = config
        self._clock = clock
        self.is_quick = bool(getattr(embedder, "is_quick", False))
        self.share: float | None = getattr(embedder, "share", None)
        self._query_cache: SizedLruCache[NDArray[np.float32]] = SizedLruCache(
            config.cache_entries, config.cache_hours * 3600, clock.monotonic
        )
        self._unwritten: dict[bytes, NDArray[np.float32]] = {}
        self._lock = threading.Lock()
        self._abandoned_thread: threading.Thread | None = None
        self._identity: str | None = None
        self._model_key: int | None = None
        self._usage_updated_at = clock.now()
        self._retry_at: dict[str, float] = {}
        fork_safety.register_fork_aware(self)

    @property
    def identity(self) -> str:
        """Identity of the model. Before the embedder was asked, the name of its class."""
        return self._identity or type(self.embedder).__name__

    def get_model_key(self, patience_seconds: float | None = None) -> int:
        """Return the key of the model in the store. The first call asks the embedder for its identity and dimension.

        Args:
            patience_seconds: Maximum wait for other writers. Default: the time-out of any write.

        Raises:
            EmbeddingError: The embedder failed, or its identity or dimension is invalid.
        """
        now = self._clock.now()
        if self._model_key is None:
            try:
                self._identity, self._dimension = self._read_metadata()
            except EmbeddingError:
                # Pause all kinds of calls, unless they are paused already: without metadata no call can succeed.
                if self._clock.monotonic() >= self._retry_at.get(_METADATA, 0.0):
                    self._back_off(*_CALL_KINDS)
                raise
        if self._model_key is None or now >= self._usage_updated_at + _USAGE_UPDATE_INTERVAL:
            self._model_key = self.store.register_model(
                self.identity, self._dimension, now, patience_seconds=patience_seconds
            )
            self._usage_updated_at = now
        return self._model_key

    def _read_metadata(self) -> tuple[str, int]:
        metadata: Any = self._call_embedder(
            _METADATA, lambda: (self.embedder.identity, self.embedder.dimension)
        )
        identity, dimension = metadata
        if not isinstance(identity, str) or not identity:
            raise EmbeddingError(
                f"identity of the embedder must be a non-empty str, got {type(identity).__name__}: "
                "return the name of the model"
            )
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise EmbeddingError(
                f"dimension of the embedder must be a whole number from 1, got {dimension!r}: "
                "return the length of its vectors"
            )
        return identity, dimension

    @property
    def batch_size(self) -> int:
        """Maximum number of texts per call."""
        return self._config.batch_size

    @property
    def dimension(self) -> int:
        """Length of the vectors. The first access may ask the embedder."""
        self.get_model_key()
        return self._dimension

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the unit vector of a query.

        Raises:
            EmbeddingError: The embedder failed, timed out, or rejected the text.
        """
        text = text[:MAX_EMBEDDED_CHARACTERS]
        # A quick embedder is faster than the cache.
        if self.is_quick:
            return self._embed_query_text(text)
        key = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
        vector = self._query_cache.get(key)
        if vector is not None:
            return vector
        stored = self._get_cached_vector(key)
        vector = self._embed_query_text(text) if stored is None else stored
        self._query_cache.put(key, vector)
        if stored is None:
            with self._lock:
                self._unwritten[key] = vector
        return vector

    @property
    def has_full_cache_batch(self) -> bool:
        """True if there are enough new query vectors to write them to the database."""
        return len(self._unwritten) >= _CACHE_WRITE_BATCH_SIZE

    def write_cache(self, patience_seconds: float | None = None) -> None:
        """Write new query vectors to the cache in the database.

        After a failure they are not written again: they are only a cache.
        """
        with self._lock:
            fresh, self._unwritten = self._unwritten, {}
        if fresh:
            now, max_entries = self._clock.now(), self._config.cache_entries
            self.store.insert_cached_vectors(
                self.get_model_key(),
                {key: vector.astype("<f4").tobytes() for key, vector in list(fresh.items())[-max_entries:]},
                now,
                until=now + timedelta(hours=self._config.cache_hours),
                keep=max_entries,
                patience_seconds=patience_seconds,
            )

    def embed_documents(
        self, texts: Sequence[str], should_continue: Callable[[], bool] = lambda: True
    ) -> EmbeddingResult:
        """Embed texts in batches. Blank texts get zero vectors.

        A batch that fails is halved repeatedly, until the rejected texts are isolated and all others are embedded.

        Args:
            texts: Texts to embed.
            should_continue: Called after a failure, before each further batch. The rest is skipped if it returns False.

        Raises:
            EmbeddingError: The embedder timed out, or rejected a probe text as well.
        """
        import numpy as np  # noqa: PLC0415 - slow to import, only needed to embed

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        short = [text[:MAX_EMBEDDED_CHARACTERS] for text in texts]
        numbers = [number for number, text in enumerate(short) if text.strip()]
        size = self._config.batch_size
        todo = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        refused, skipped, failed = list[int](), list[int](), False
        while todo:
            batch = todo.pop(0)
            if failed and not should_continue():
                skipped += batch
                continue
            try:
                vectors[batch] = self._embed_batch(_DOCUMENTS, [short[number] for number in batch])
            except _RefusedError as error:
                # The first failure: find out with a probe text whether the embedder works at all. If not, this raises,
                # and saves halving every batch.
                if not failed:
                    self._probe(_DOCUMENTS, error)
                failed = True
                # Put both halves at the front. A single text cannot be halved: it is the one that is rejected.
                half = len(batch) // 2
                todo[:0] = [batch[:half], batch[half:]] if half else []
                refused += [] if half else batch
        without_vector = {*refused, *skipped}
        return EmbeddingResult(
            vectors, [number for number in range(len(texts)) if number not in without_vector], refused
        )

    def invalidate(self) -> None:
        """Discard the cached query vectors in memory."""
        self._query_cache.invalidate()
        with self._lock:
            self._unwritten = {}

    def before_fork(self) -> None:
        """Do nothing: waiting for a call to end could delay the fork without limit."""

    def after_fork(self) -> None:
        """Do nothing in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace the lock: it may be held by a thread that does not exist in the child."""
        self._lock = threading.Lock()
        self._abandoned_thread = None
        # The parent writes these vectors.
        self._unwritten = {}

    def _embed_query_text(self, text: str) -> NDArray[np.float32]:
        try:
            vector: NDArray[np.float32] = self._embed_batch(_QUERIES, [text])[0]
        except _RefusedError as error:
            self._probe(_QUERIES, error)
            raise
        return vector

    def _embed_batch(self, side: str, texts: list[str]) -> NDArray[np.float32]:
        from langmem_tiers.recall.vector_index import normalize_vectors  # noqa: PLC0415 - imports numpy

        dimension = self.dimension
        with self._instruments.measure(Operation.EMBED) as watch:
            watch.record(texts=len(texts))
            if side == _QUERIES:
                vectors: object = [self._call_embedder(side, lambda: self.embedder.embed_query(texts[0]))]
            else:
                vectors = self._call_embedder(side, lambda: self.embedder.embed_documents(texts))
        try:
            return normalize_vectors(
                validate_vectors(vectors, len(texts), dimension, model=f"embedder {self.identity!r}")
            )
        except LangmemTiersError as error:
            raise _RefusedError(str(error)) from None

    def _probe(self, side: str, refusal: EmbeddingError) -> None:
        # Distinguish a rejected text from a broken embedder: one that fails with the probe text too is paused.
        try:
            self._embed_batch(side, [_PROBE_TEXT])
        except EmbeddingError:
            self._back_off(side)
            raise refusal from None

    def _back_off(self, *sides: str) -> None:
        until = self._clock.monotonic() + self._config.retry_seconds
        self._retry_at.update(dict.fromkeys(sides, until))

    def _call_embedder(self, side: str, call: Callable[[], object]) -> object:
        wait = self._retry_at.get(side, 0.0) - self._clock.monotonic()
        if wait > 0:
            raise EmbeddingError(
                f"embedder {self.identity!r} failed recently: the next attempt is in {wait:.0f} s"
            )
        # A quick embedder runs in this thread: starting another one would take longer than the call.
        if self.is_quick:
            try:
                return call()
            except Exception as raised:
                raise self._build_refused_error(raised) from raised
        # A call cannot be canceled. It runs in a daemon thread, which is abandoned after the time limit. No further
        # call is started while such a thread is running, or threads would pile up behind a hanging embedder.
        results: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(1)
        if self._abandoned_thread is not None and self._abandoned_thread.is_alive():
            raise EmbeddingError(f"embedder {self.identity!r} is still busy with an earlier request")
        # Run in the caller's context, because models of frameworks read their callbacks from context variables.
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(_put_answer, call, results), name="langmem-tiers-embedder", daemon=True
        )
        thread.start()
        try:
            result, error = results.get(timeout=self._config.time_limit_seconds)
        except queue.Empty:
            self._abandoned_thread = thread
            self._back_off(*_CALL_KINDS)
            raise EmbeddingError(
                f"embedder {self.identity!r} did not respond within {self._config.time_limit_seconds:g} s"
            ) from None
        if error is not None:
            raise self._build_refused_error(error)
        return result

    def _build_refused_error(self, error: BaseException) -> _RefusedError:
        # An adapter's own error names the problem and quotes no text. The message of any other exception may contain
        # texts or keys, so only its type is reported.
        if isinstance(error, LangmemTiersError):
            return _RefusedError(str(error))
        return _RefusedError(f"embedder {self.identity!r} raised {type(error).__name__}; {_DEBUG_LOG_HINT}")

    def _get_cached_vector(self, key: bytes) -> NDArray[np.float32] | None:
        import numpy as np  # noqa: PLC0415 - slow to import, only needed to embed

        stored = self.store.get_cached_vectors(self.get_model_key(), [key], self._clock.now()).get(key)
        return None if stored is None else np.frombuffer(stored, "<f4")


def _put_answer(
    call: Callable[[], object], results: queue.Queue[tuple[object, BaseException | None]]
) -> None:
    try:
        results.put((call(), None))
    except BaseException as error:  # noqa: BLE001 - recall continues without any failing embedder
        _log.debug("the embedder failed", exc_info=True)
        results.put((None, error))
