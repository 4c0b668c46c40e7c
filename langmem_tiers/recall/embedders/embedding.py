"""Asking an embedder that may raise, hang or answer nonsense, and remembering what it said."""

from __future__ import annotations

import contextvars
import hashlib
import logging
import queue
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from langmem_tiers.common import fork_safety
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
    from langmem_tiers.recall.records import VectorStore
    from langmem_tiers.telemetry.instruments import Instruments

_log = logging.getLogger("langmem_tiers")
MAX_EMBEDDED_CHARACTERS = 8000
"""Of a text that are embedded; models look no further, or make a mush of it."""
_METADATA, _DOCUMENTS, _QUERIES = _CALL_KINDS = ("itself", "documents", "queries")
"""What an embedder is asked about; each is left alone for itself after it failed."""
_CACHE_WRITE_BATCH_SIZE = 16
"""Queries whose vectors are written to the cache in the database together."""
_USAGE_UPDATE_INTERVAL = timedelta(days=1)
"""How often it is noted that a model is in use."""
_DEBUG_LOG_HINT = "logging of 'langmem_tiers' at level DEBUG shows all of it"
_PROBE_TEXT = "hello"
"""A word that every embedder takes."""


class _RefusedError(EmbeddingError):
    """The embedder raised or answered nonsense: it may be down, or take this text amiss."""


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """What came of some texts; those that are neither done nor refused had no time."""

    vectors: NDArray[np.float32]
    """One row per text."""
    embedded_numbers: list[int]
    """The numbers of those that have one."""
    refused_numbers: list[int]
    """The numbers of those that the embedder refuses."""


class EmbeddingClient:
    """An embedder with a time limit, checks and a cache for queries, in memory and in the database.

    Vectors of messages are stored with them, so they are not in the cache.

    Args:
        embedder: The embedder.
        store: Where vectors are kept.
        config: Limits.
        clock: Where the time comes from.
        instruments: Told how long answers take.
    """

    def __init__(
        self,
        embedder: Embedder,
        store: VectorStore,
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
        self._query_cache: TTLCache[bytes, NDArray[np.float32]] = TTLCache(
            config.cache_entries, config.cache_hours * 3600, timer=clock.monotonic
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
        """Names the model; what it is called before it has said so is its class."""
        return self._identity or type(self.embedder).__name__

    def get_model_key(self, patience_seconds: float | None = None) -> int:
        """The key of the model's vectors; the first look may ask the embedder for its dimension."""
        now = self._clock.now()
        if self._model_key is None:
            try:
                self._identity, self._dimension = self._read_metadata()
            except EmbeddingError:  # asked again at once it would say the same
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
        told: Any = self._call_embedder(_METADATA, lambda: (self.embedder.identity, self.embedder.dimension))
        identity, dimension = told
        if not isinstance(identity, str) or not identity:
            raise EmbeddingError(f"the embedder's identity must be a name, got a {type(identity).__name__}")
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise EmbeddingError(
                f"the embedder says that its vectors have {dimension!r} numbers: "
                "dimension must be a whole number from 1"
            )
        return identity, dimension

    @property
    def batch_size(self) -> int:
        """Texts in one question."""
        return self._config.batch_size

    @property
    def dimension(self) -> int:
        """The length of its vectors."""
        self.get_model_key()
        return self._dimension

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of length 1."""
        text = text[:MAX_EMBEDDED_CHARACTERS]
        if self.is_quick:
            return self._embed_query_text(text)
        key = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
        with self._lock:
            known = self._query_cache.get(key)
        if known is not None:
            return known
        kept = self._get_cached_vector(key)
        known = self._embed_query_text(text) if kept is None else kept
        with self._lock:
            self._query_cache[key] = known
            if kept is None:
                self._unwritten[key] = known
        return known

    @property
    def has_full_cache_batch(self) -> bool:
        """Whether it is time to write what was asked since."""
        return len(self._unwritten) >= _CACHE_WRITE_BATCH_SIZE

    def write_cache(self, patience_seconds: float | None = None) -> None:
        """Write the vectors of queries to the cache in the database; only a cache, so a failure loses nothing."""
        with self._lock:
            fresh, self._unwritten = self._unwritten, {}
        if fresh:
            now, most = self._clock.now(), self._config.cache_entries
            self.store.insert_cached_vectors(
                self.get_model_key(),
                {key: vector.astype("<f4").tobytes() for key, vector in list(fresh.items())[-most:]},
                now,
                until=now + timedelta(hours=self._config.cache_hours),
                keep=most,
                patience_seconds=patience_seconds,
            )

    def embed_documents(
        self, texts: Sequence[str], go_on: Callable[[], bool] = lambda: True
    ) -> EmbeddingResult:
        """One row per text, in batches; texts that say nothing get no direction.

        A batch that fails is cut in two, again and again, until what the embedder refuses stands alone.

        Args:
            texts: What to embed.
            go_on: Whether there is time for one more question after one that failed.

        Raises:
            EmbeddingError: It does not come back, or refuses a plain word as well.
        """
        import numpy as np  # noqa: PLC0415 - not before something is embedded

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        short = [text[:MAX_EMBEDDED_CHARACTERS] for text in texts]
        said = [number for number, text in enumerate(short) if text.strip()]
        size = self._config.batch_size
        todo = [said[start : start + size] for start in range(0, len(said), size)]
        refused, late, failed = list[int](), list[int](), False
        while todo:
            some = todo.pop(0)
            if failed and not go_on():
                late += some
                continue
            try:
                vectors[some] = self._embed_batch(_DOCUMENTS, [short[number] for number in some])
            except _RefusedError as error:
                if not failed:
                    self._probe(_DOCUMENTS, error)
                failed = True
                half = len(some) // 2
                todo[:0] = [some[:half], some[half:]] if half else []
                refused += [] if half else some
        left = {*refused, *late}
        return EmbeddingResult(
            vectors, [number for number in range(len(texts)) if number not in left], refused
        )

    def invalidate(self) -> None:
        """Hold no vector of a query any more."""
        with self._lock:
            self._query_cache.clear()
            self._unwritten = {}

    def before_fork(self) -> None:
        """Nothing to do: waiting for a model could keep the process from forking."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """The lock may be held by a thread that this process does not have."""
        self._lock = threading.Lock()
        self._abandoned_thread = None
        self._unwritten = {}  # the parent writes them

    def _embed_query_text(self, text: str) -> NDArray[np.float32]:
        try:
            vector: NDArray[np.float32] = self._embed_batch(_QUERIES, [text])[0]
        except _RefusedError as error:
            self._probe(_QUERIES, error)
            raise
        return vector

    def _embed_batch(self, side: str, texts: list[str]) -> NDArray[np.float32]:
        from langmem_tiers.recall.vector_index import normalize_vectors  # noqa: PLC0415 - numpy, not before it is needed

        dimension = self.dimension
        with self._instruments.measure(Operation.EMBED) as watch:
            watch.record(texts=len(texts))
            if side == _QUERIES:
                answer: object = [self._call_embedder(side, lambda: self.embedder.embed_query(texts[0]))]
            else:
                answer = self._call_embedder(side, lambda: self.embedder.embed_documents(texts))
        try:
            return normalize_vectors(
                validate_vectors(answer, len(texts), dimension, model=f"the embedder {self.identity!r}")
            )
        except LangmemTiersError as error:
            raise _RefusedError(str(error)) from None

    def _probe(self, side: str, refusal: EmbeddingError) -> None:
        # Is it the text or the embedder? One that refuses a plain word as well is left alone for a while.
        try:
            self._embed_batch(side, [_PROBE_TEXT])
        except EmbeddingError:
            self._back_off(side)
            raise refusal from None

    def _back_off(self, *sides: str) -> None:
        until = self._clock.monotonic() + self._config.retry_seconds
        self._retry_at.update(dict.fromkeys(sides, until))

    def _call_embedder(self, side: str, question: Callable[[], object]) -> object:
        wait = self._retry_at.get(side, 0.0) - self._clock.monotonic()
        if wait > 0:
            raise EmbeddingError(
                f"the embedder {self.identity!r} failed a moment ago: it is asked again in {wait:.0f} s"
            )
        if self.is_quick:
            try:
                return question()
            except Exception as raised:
                raise self._build_refused_error(raised) from raised
        box: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(1)
        if self._abandoned_thread is not None and self._abandoned_thread.is_alive():
            raise EmbeddingError(f"the embedder {self.identity!r} has not come back from an earlier question")
        # In the caller's context: models of frameworks look there for what they were asked by.
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(_put_answer, question, box), name="langmem-tiers-embedder", daemon=True
        )
        thread.start()
        try:
            answer, error = box.get(timeout=self._config.time_limit_seconds)
        except queue.Empty:
            self._abandoned_thread = thread
            self._back_off(*_CALL_KINDS)
            raise EmbeddingError(
                f"the embedder {self.identity!r} gave no answer within {self._config.time_limit_seconds:g} s"
            ) from None
        if error is not None:
            raise self._build_refused_error(error)
        return answer

    def _build_refused_error(self, error: BaseException) -> _RefusedError:
        if isinstance(error, LangmemTiersError):  # of an adapter, which says what is wrong and quotes no text
            return _RefusedError(str(error))
        return _RefusedError(
            f"the embedder {self.identity!r} raised {type(error).__name__}: check it; {_DEBUG_LOG_HINT}"
        )

    def _get_cached_vector(self, key: bytes) -> NDArray[np.float32] | None:
        import numpy as np  # noqa: PLC0415 - not before something is embedded

        kept = self.store.get_cached_vectors(self.get_model_key(), [key], self._clock.now()).get(key)
        return None if kept is None else np.frombuffer(kept, "<f4")


def _put_answer(
    question: Callable[[], object], box: queue.Queue[tuple[object, BaseException | None]]
) -> None:
    try:
        box.put((question(), None))
    except BaseException as error:  # noqa: BLE001 - whatever an embedder raises, recall goes on without it
        _log.debug("the embedder failed", exc_info=True)
        box.put((None, error))
