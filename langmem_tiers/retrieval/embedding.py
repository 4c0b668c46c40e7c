"""Asking an embedder that may raise, hang or answer nonsense, and remembering what it said."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from langmem_tiers.core import forks
from langmem_tiers.core.errors import EmbeddingError, LangmemTiersError
from langmem_tiers.scoring.vectors import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.core.clock import Clock
    from langmem_tiers.core.config import EmbeddingConfig
    from langmem_tiers.core.indexes import VectorStore
    from langmem_tiers.core.ports import Embedder

_log = logging.getLogger("langmem_tiers")
MAX_CHARACTERS = 8000
"""Of a text that are embedded; models look no further, or make a mush of it."""


class Embedding:
    """An embedder with a time limit, checks and a cache, in memory and in the database.

    Args:
        embedder: The embedder.
        store: Where vectors are kept.
        config: Limits.
        clock: Where the time comes from.
    """

    def __init__(self, embedder: Embedder, store: VectorStore, config: EmbeddingConfig, clock: Clock) -> None:
        self.embedder = embedder
        self.store = store
        self._config = config
        self._clock = clock
        self._is_quick = bool(getattr(embedder, "is_quick", False))
        self._recent: TTLCache[bytes, NDArray[np.float32]] = TTLCache(
            config.cache_entries, config.cache_hours * 3600, timer=clock.monotonic
        )
        self._lock = threading.Lock()
        self._left_behind: threading.Thread | None = None
        self._identity: str | None = None
        self._model: int | None = None
        self._retry_at = 0.0
        forks.watch(self)

    @property
    def identity(self) -> str:
        """Names the model; what it is called before it has said so is its class."""
        return self._identity or type(self.embedder).__name__

    def model(self) -> int:
        """The key of the model's vectors; the first look may ask the embedder for its dimension."""
        if self._model is None:
            identity, dimension = self._told_of_itself()
            if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
                raise self._unusable(
                    f"the embedder says that its vectors have {dimension!r} numbers: "
                    "dimension must be a whole number from 1"
                )
            self._identity, self._dimension = identity, dimension
            self._model = self.store.model(identity, dimension)
        return self._model

    def _told_of_itself(self) -> tuple[str, object]:
        told: Any = self._asked(lambda: (self.embedder.identity, self.embedder.dimension))
        identity, dimension = told
        if not isinstance(identity, str) or not identity:
            raise self._unusable(f"the embedder's identity must be a name, got a {type(identity).__name__}")
        return identity, dimension

    @property
    def batch_size(self) -> int:
        """Texts in one question."""
        return self._config.batch_size

    @property
    def dimension(self) -> int:
        """The length of its vectors."""
        self.model()
        return self._dimension

    def query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of length 1."""
        text = text[:MAX_CHARACTERS]
        key = self._key(b"q", text)
        with self._lock:
            known = self._recent.get(key)
        if known is None:
            kept = None if self._is_quick else self._kept([key]).get(key)
            known = self._asked_query(text) if kept is None else kept
            self._keep({key: known}, new=kept is None)
        return known

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text, in batches; texts that say nothing get no direction."""
        import numpy as np  # noqa: PLC0415 - not before something is embedded

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        short = [text[:MAX_CHARACTERS] for text in texts]
        keys = [self._key(b"d", text) for text in short]
        known = {} if self._is_quick else self._kept(list(dict.fromkeys(keys)))
        todo = [number for number, text in enumerate(short) if text.strip() and keys[number] not in known]
        size = self._config.batch_size
        for start in range(0, len(todo), size):
            some = todo[start : start + size]
            batch = [short[number] for number in some]
            answer = self._asked(lambda batch=batch: self.embedder.embed_documents(batch))  # type: ignore[misc]
            found = self._checked(answer, len(batch))
            fresh = {keys[number]: vector for number, vector in zip(some, found, strict=True)}
            if not self._is_quick:
                self._keep(fresh, new=True)
            known.update(fresh)
        for number, key in enumerate(keys):
            if key in known:
                vectors[number] = known[key]
        return vectors

    def before_fork(self) -> None:
        """Nothing to do: waiting for a model could keep the process from forking."""

    def after_fork(self) -> None:
        """The lock may be held by a thread that this process does not have."""
        self._lock = threading.Lock()
        self._left_behind = None

    def _asked_query(self, text: str) -> NDArray[np.float32]:
        answer = self._asked(lambda: self.embedder.embed_query(text))
        vector: NDArray[np.float32] = self._checked([answer], 1)[0]
        return vector

    def _checked(self, answer: object, count: int) -> NDArray[np.float32]:
        from langmem_tiers.retrieval.meaning import unit  # noqa: PLC0415 - numpy, not before it is needed

        try:
            return unit(checked(answer, count, self.dimension, model=f"the embedder {self.identity!r}"))
        except LangmemTiersError as error:
            raise self._unusable(str(error)) from None

    def _unusable(self, problem: str) -> EmbeddingError:
        # Asked again at once it would say the same.
        self._retry_at = self._clock.monotonic() + self._config.retry_seconds
        return EmbeddingError(problem)

    def _asked(self, question: Callable[[], object]) -> object:
        now = self._clock.monotonic()
        if now < self._retry_at:
            raise EmbeddingError(
                f"the embedder {self.identity!r} failed a moment ago: it is asked again in "
                f"{self._retry_at - now:.0f} s"
            )
        if self._is_quick:
            return question()
        box: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(1)
        if self._left_behind is not None and self._left_behind.is_alive():
            raise EmbeddingError(f"the embedder {self.identity!r} has not come back from an earlier question")
        thread = threading.Thread(
            target=_ask, args=(question, box), name="langmem-tiers-embedder", daemon=True
        )
        thread.start()
        try:
            answer, error = box.get(timeout=self._config.time_limit_seconds)
        except queue.Empty:
            self._left_behind = thread
            self._retry_at = now + self._config.retry_seconds
            raise EmbeddingError(
                f"the embedder {self.identity!r} gave no answer within {self._config.time_limit_seconds:g} s"
            ) from None
        if error is not None:
            self._retry_at = now + self._config.retry_seconds
            raise EmbeddingError(
                f"the embedder {self.identity!r} raised {type(error).__name__}: check it; "
                "logging of 'langmem_tiers' at level DEBUG shows all of it"
            )
        return answer

    def _key(self, side: bytes, text: str) -> bytes:
        return hashlib.blake2b(side + text.encode("utf-8", "replace"), digest_size=16).digest()

    def _kept(self, keys: list[bytes]) -> dict[bytes, NDArray[np.float32]]:
        import numpy as np  # noqa: PLC0415 - not before something is embedded

        with self._lock:
            found = {key: vector for key in keys if (vector := self._recent.get(key)) is not None}
        missing = [key for key in keys if key not in found]
        if missing:
            kept = self.store.cached(self.model(), missing, self._clock.now())
            found.update((key, np.frombuffer(vector, "<f4")) for key, vector in kept.items())
        return found

    def _keep(self, vectors: dict[bytes, NDArray[np.float32]], *, new: bool) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._recent[key] = vector
        if new and not self._is_quick:
            now = self._clock.now()
            self.store.cache(
                self.model(),
                {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()},
                now,
                until=now + timedelta(hours=self._config.cache_hours),
                keep=self._config.cache_entries,
            )


def _ask(question: Callable[[], object], box: queue.Queue[tuple[object, BaseException | None]]) -> None:
    try:
        box.put((question(), None))
    except BaseException as error:  # noqa: BLE001 - whatever an embedder raises, recall goes on without it
        _log.debug("the embedder failed", exc_info=True)
        box.put((None, error))
