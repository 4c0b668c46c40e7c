"""Helpers of the index suites: sessions with access to messages by key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Self

import numpy as np

from langmem_tiers.text.tokenize import extract_terms
from tests.contract.storage.base import NOW, Stores, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.records import Tenant
    from langmem_tiers.recall.repository import RecallIndexRepository
    from langmem_tiers.recall.vector_repository import VectorRepository

THREADS = 8
SIZE = 32
MOMENTS = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 10, 1, 2, 3, 400_005, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
OPERATORS = ('"', "*", "NEAR", "OR", "-", ":", "'", "\\", "|", "&", "!", "(", ")", "<->", "^", "%", "'' OR 1")
LARGE_TEXTS = {
    "words": "narwhal " + " ".join(f"word{n}" for n in range(120_000)),
    "one word": "narwhal " + "x" * 1_000_000,
    "Chinese": "narwhal " + "".join(chr(0x4E00 + n % 20_000) for n in range(350_000)),
    # Each of these letters stands for four.
    "ligatures": "narwhal " + " ".join("".join(letters) for letters in product("\ufdf2\ufdf4", repeat=16)),
}


@dataclass(frozen=True)
class Talk:
    """A session in a namespace, and the index over it."""

    stores: Stores
    index: RecallIndexRepository
    namespace: NamespacePath
    key: int

    def say(self, *texts: str) -> list[int]:
        """Add messages; their keys."""
        before = set(self.all_keys())
        self.stores.messages.append(self.key, [message(text) for text in texts], NOW)
        return [key for key in self.all_keys() if key not in before]

    def beside(self, session: str, *labels: str) -> Self:
        """Another session, of this namespace or of one below."""
        path = (*self.namespace, *labels)
        return replace(self, namespace=path, key=self.stores.sessions.get_or_create(path, session, NOW).key)

    def erase(self, what: str = "session") -> None:
        """Delete the session, or its whole namespace."""
        if what == "namespace":
            self.stores.sessions.delete_namespace(self.namespace)
        else:
            self.stores.sessions.delete(self.key)

    def all_keys(self) -> list[int]:
        """The keys of all messages of the namespace, oldest first."""
        return [int(key) for key in self.index.load_changes(self.namespace, 0).rows.keys]

    def tenant(self) -> Tenant:
        """The namespace as it is now."""
        found = self.index.load_changes(self.namespace, 0).tenant
        assert found is not None
        return found

    def accesses(self) -> list[float]:
        """How often each message of the namespace was recalled, oldest first."""
        return [float(count) for count in self.index.load_changes(self.namespace, 0).rows.accesses]

    def places(self, text: str) -> dict[str, dict[int, int]]:
        """How often the terms of a text are in each message."""
        found = self.index.find_postings(self.tenant().key, list(dict.fromkeys(extract_terms(text))))
        where: dict[str, dict[int, int]] = {term: {} for term in found.terms}
        for number, key, times in zip(found.term_numbers, found.keys, found.counts, strict=True):
            of = where[found.terms[number]]
            assert key > max(of, default=-1), "the keys of a term must ascend"
            of[int(key)] = int(times)
        assert found.count_messages() == {term: len(keys) for term, keys in where.items()}
        return where


@dataclass(frozen=True)
class VectorHelper(Talk):
    """A session, and a model that nobody else uses, with their vectors."""

    vectors: VectorRepository
    identity: str
    model: int

    def fill(self, count: int) -> list[int]:
        """Add so many messages to the session; their keys."""
        return self.say(*(f"narwhal {n}" for n in range(count)))

    def other_model(self, size: int = SIZE) -> Self:
        """The same with another model."""
        identity = f"{self.identity} other"
        return replace(self, identity=identity, model=self.vectors.register_model(identity, size, NOW))

    def put(self, keys: Sequence[int], table: NDArray[np.float32]) -> None:
        """Keep vectors, with nothing erased since."""
        assert self.vectors.insert_vectors(self.tenant(), self.model, keys, table)

    def load_all(self, limit: int = 1000) -> dict[int, list[float]]:
        """The vectors that are there, as a reader comes by them from the beginning, page by page."""
        found, mark, namespace = dict[int, list[float]](), 0, self.tenant().key
        while True:
            keys, table, mark = self.vectors.load_vectors(namespace, self.model, mark, limit)
            if table is None:
                found |= self.read_vectors(keys.tolist())
            else:
                found |= by_key(keys.tolist(), table)
            if len(keys) < limit:
                return found

    def read_vectors(self, keys: Sequence[int]) -> dict[int, list[float]]:
        """The vectors of some messages."""
        found, table = self.vectors.get_vectors(self.model, keys)
        return by_key(found.tolist(), table)


def some_vectors(count: int, seed: int = 1) -> NDArray[np.float32]:
    """Vectors that point anywhere."""
    return np.random.default_rng(seed).normal(size=(count, SIZE)).astype(np.float32)


def by_key(keys: Sequence[int], table: NDArray[np.float32]) -> dict[int, list[float]]:
    """Which vector each message has."""
    return dict(zip(keys, table.tolist(), strict=True))


def cosines_of(table: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """Computed in double precision."""
    exact, towards = table.astype(np.float64), query.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(towards)
    cosines: NDArray[np.float64] = exact @ towards / lengths
    return cosines
