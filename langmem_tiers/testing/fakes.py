"""Deterministic fakes that need no network."""

from __future__ import annotations

import hashlib
import random
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.common.ids import TimeSortedIds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")


class FrozenClock:
    """A clock that changes only when it is advanced.

    Args:
        start: Initial time, an aware datetime.
    """

    def __init__(self, start: datetime = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start {start!r} has no time zone: add tzinfo=datetime.UTC")
        self._now = start.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the current setting."""
        return self._now

    def monotonic(self) -> float:
        """Return the total seconds by which the clock was advanced."""
        return self._elapsed

    def advance(self, step: timedelta | None = None, **units: float) -> datetime:
        """Advance the clock, as in ``advance(days=3)`` or ``advance(timedelta(...))``, and return the new time."""
        by = (step or timedelta()) + timedelta(**units)
        self._now += by
        # Moving the clock back must not make the monotonic time decrease.
        self._elapsed += max(0.0, by.total_seconds())
        return self._now


class ScriptedLLM:
    """A language model that returns scripted answers in order.

    Args:
        answers: Texts to return or exceptions to raise.

    Attributes:
        prompts: Prompts received, in order.
    """

    def __init__(self, answers: Iterable[str | BaseException]) -> None:
        self._answers = iter(answers)
        self.prompts: list[str] = []

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:  # noqa: ARG002 - the port's signature
        """Return the next answer."""
        self.prompts.append(prompt)
        try:
            answer = next(self._answers)
        except StopIteration:
            raise AssertionError(f"the script has no answer left for {prompt[:80]!r}: add one") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


class HashEmbedder:
    """An embedder that hashes words: texts with common words get similar vectors. Needs no model.

    Args:
        dimension: Length of the vectors.
    """

    def __init__(self, dimension: int = 64) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension!r}")
        self.dimension = dimension
        self.identity = f"hash-{dimension}"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text; zero for a text without words."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.lower()):
                digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                number = int.from_bytes(digest, "big")
                # The top bit is the sign, so that collisions of different words cancel out on average.
                vectors[row, number % self.dimension] += 1.0 if number >> 63 else -1.0
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one text."""
        vector: NDArray[np.float32] = self.embed_documents([text]).reshape(-1)
        return vector


def seeded_ids(seed: int = 0) -> TimeSortedIds:
    """Return an id source that creates the same ids in every run."""
    return TimeSortedIds(random.Random(seed).getrandbits)  # noqa: S311 - repeatable on purpose
