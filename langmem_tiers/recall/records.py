"""Interfaces of the stores that recall reads: terms, positions and vectors of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.entries import Tier, ViewItem
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.storage.search.postings import Postings


DEFAULT_TRUST_SHARE = 0.5
"""Trust in a model while there are too few messages to measure it."""


@dataclass(frozen=True, slots=True)
class IndexText:
    """Index data of a message."""

    terms: Sequence[str]
    """Terms in the order of the text, with repetitions."""
    length: int
    """Number of words that the terms were made from."""
    speaker: str | None
    """Terms of the speaker's name. Separate from ``terms``: a message is rarely about its own speaker."""
    is_question: bool
    """True if the message ends with a question."""
    importance: float
    """Importance by content alone, without age and use."""


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Messages of a namespace in columns, one array per column, in ascending order of keys."""

    keys: NDArray[np.int64]
    sessions: NDArray[np.int64]
    positions: NDArray[np.int64]
    times: NDArray[np.int64]
    """Creation times in microseconds since 1970."""
    roles: NDArray[np.uint8]
    """Indexes into the members of the enum ``Role``."""
    lengths: NDArray[np.float32]
    asks: NDArray[np.bool_]
    importance: NDArray[np.float64]
    accesses: NDArray[np.float32]
    speakers: Sequence[str | None]
    """Terms of the speakers' names."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace at the time it was read."""

    key: int
    erasure_epoch: int
    """Counter of erasures. If it has changed, cached keys are invalid: a key may belong to another message now."""


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """Rows that were added since the last read."""

    tenant: Tenant | None
    """The namespace, or None if it does not exist."""
    rows: IndexRows
    watermark: int
    """Start of the next read."""
    has_knowledge: bool = False
    """True if the namespace has knowledge."""
    terms: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Terms of the messages by key. Empty unless they were requested."""


@dataclass(frozen=True, slots=True)
class RecalledMessage:
    """A recalled message and the name of its session."""

    view_item: ViewItem
    session: str


@dataclass(frozen=True, slots=True)
class VectorSearchFilter:
    """Restriction of a vector search to a part of a namespace."""

    count: int
    """Maximum number of messages that match."""
    sessions: tuple[int, ...] | None = None
    """Keys of sessions. Default: all sessions."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """Sample on which a model was measured. The same sample always gives the same trust."""

    last_key: int
    """Key of the last message that the sample could be drawn from."""
    size: int
    """Number of messages that the sample could be drawn from."""
    pair_count: int
    other_count: int

    @property
    def extent(self) -> tuple[int, int, int]:
        """Size of the sample: source messages, pairs and others."""
        return self.size, self.pair_count, self.other_count


@dataclass(frozen=True, slots=True)
class Trust:
    """Weight of a model's cosines in a namespace."""

    share: float = DEFAULT_TRUST_SHARE
    """Weight of the cosines, from 0 (ignored) to 1."""
    scale: float = 1.0
    """Factor that brings the spread of the cosines to that of the model the weights were fitted with."""


class IndexStore(Protocol):
    """Terms and positions of messages, written in the same transaction as the messages."""

    def load_changes(self, namespace: NamespacePath, mark: int, *, with_terms: bool = False) -> IndexChanges:
        """Return the rows that were written after a watermark.

        Args:
            namespace: The namespace to read.
            mark: Watermark of the last read. 0 reads everything.
            with_terms: True to include the terms, which saves a second query if few rows are new. Default: False.
        """
        ...

    def find_postings(self, namespace: int, terms: Sequence[str]) -> Postings:
        """Return the postings of the terms in a namespace."""
        ...

    def list_keys_in_tier(self, namespace: int, tier: Tier) -> NDArray[np.int64]:
        """Return the keys of the messages that were moved to a tier."""
        ...

    def get_terms(self, keys: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """Return the terms of messages by key."""
        ...

    def get_messages(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, RecalledMessage]:
        """Return messages by key, without deleted ones.

        Nothing is returned if anything was erased from the namespace since ``tenant`` was read.
        """
        ...

    def add_accesses(self, tenant: Tenant, accesses: Mapping[int, int], now: datetime) -> None:
        """Add to the access counts of messages.

        Nothing is counted if anything was erased from the namespace since ``tenant`` was read.
        """
        ...


class VectorStore(Protocol):
    """Vectors of messages, by model."""

    def register_model(
        self, identity: str, dimension: int, now: datetime, *, patience_seconds: float | None = None
    ) -> int:
        """Return the key of a model, and record once a day that the model is in use."""
        ...

    def get_texts(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, str]:
        """Return the texts of messages by key, without deleted ones."""
        ...

    def insert_vectors(
        self,
        tenant: Tenant,
        model: int,
        keys: Sequence[int],
        vectors: NDArray[np.float32],
        *,
        patience_seconds: float | None = None,
    ) -> bool:
        """Store vectors. Messages that were deleted in the meantime are skipped.

        Args:
            tenant: Namespace of the messages.
            model: Key of the model.
            keys: Keys of the messages.
            vectors: One row per message.
            patience_seconds: Maximum wait for other writers. Default: the time-out of any write.

        Returns:
            False, with nothing written, if anything was erased from the namespace since ``tenant`` was read.
        """
        ...

    def build_index(self, namespace: int, model: int, count: int, go_on: Callable[[], bool]) -> int:
        """Build an index for the nearest-neighbor search of a large namespace, if the store supports it.

        Args:
            namespace: Key of the namespace.
            model: Key of the model.
            count: Number of messages in the namespace.
            go_on: Called from time to time. Indexing stops when it returns False.

        Returns:
            Number of vectors that were indexed.
        """
        ...

    def delete_unused_vectors(self, namespace: int, model: int, unused_since: datetime) -> int:
        """Delete the vectors of other models that are out of use, and return their number."""
        ...

    def load_vectors(
        self, namespace: int, model: int, after: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None, int]:
        """Return keys and vectors that were written after a watermark, and the next watermark.

        A store that searches the nearest vectors itself returns None in place of the vectors.
        """
        ...

    def get_vectors(self, model: int, keys: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the keys of the messages that have vectors, and these vectors."""
        ...

    def find_nearest(
        self, namespace: int, model: int, query: NDArray[np.float32], limit: int, within: VectorSearchFilter
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Return the nearest messages and their cosines, best first. None if the store cannot search vectors.

        Args:
            namespace: Key of the namespace.
            model: Key of the model.
            query: Vector of the query.
            limit: Maximum number of messages.
            within: Messages to search.
        """
        ...

    def compute_cosines(
        self, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return keys and cosines of messages, for stores that search the nearest vectors themselves."""
        ...

    def get_trust(self, tenant: Tenant, model: int) -> tuple[TrialRecord, Trust] | None:
        """Return the last measured trust and its sample.

        None if nothing was measured, or if anything was erased from the namespace since.
        """
        ...

    def update_trust(self, tenant: Tenant, model: int, tried: TrialRecord, trust: Trust) -> None:
        """Store a measured trust for other processes, in place of the previous one."""
        ...

    def get_cached_vectors(self, model: int, hashes: Sequence[bytes], now: datetime) -> Mapping[bytes, bytes]:
        """Return cached vectors by the hash of their text."""
        ...

    def insert_cached_vectors(
        self,
        model: int,
        vectors: Mapping[bytes, bytes],
        now: datetime,
        *,
        until: datetime,
        keep: int,
        patience_seconds: float | None = None,
    ) -> None:
        """Cache vectors of texts. The newest ``keep`` are retained, and up to 1 % more until the next cleanup.

        Args:
            model: Key of the model.
            vectors: Vectors as bytes, by the hash of their text.
            now: Entries that expired by this time are deleted.
            until: Expiry of the new entries.
            keep: Maximum number of cached vectors.
            patience_seconds: Maximum wait for other writers. Default: the time-out of any write.
        """
        ...
