"""The contracts between recall and the indexes it reads: words, places and vectors of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Tier, ViewItem
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.storage.search.postings import Postings


Floats: TypeAlias = NDArray[np.floating[Any]]
Rows: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


DEFAULT_TRUST_SHARE = 0.5
"""The trust in a model where there is too little to try it on."""


@dataclass(frozen=True, slots=True)
class IndexText:
    """What is kept of a message for recall."""

    terms: Sequence[str]
    """In their order, each as often as it is there."""
    length: int
    """How many words they stand for."""
    speaker: str | None
    """The terms of the speaker's name, apart: who speaks is not who is spoken of."""
    is_question: bool
    """Whether it ends with a question."""
    importance: float
    """By its content alone."""


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Messages of a namespace by their places, oldest key first: one array a column."""

    keys: NDArray[np.int64]
    sessions: NDArray[np.int64]
    positions: NDArray[np.int64]
    times: NDArray[np.int64]
    """Microseconds since 1970."""
    roles: NDArray[np.uint8]
    """By their place in the enum ``Role``."""
    lengths: NDArray[np.float32]
    asks: NDArray[np.bool_]
    importance: NDArray[np.float64]
    accesses: NDArray[np.float32]
    speakers: Sequence[str | None]
    """The terms of their names."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace as it was when somebody looked at it."""

    key: int
    erasure_epoch: int
    """Another number than before means that something was erased: keys may stand for other messages now."""


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """What is new since a reader last looked."""

    tenant: Tenant | None
    """None if there is no such namespace."""
    rows: IndexRows
    watermark: int
    """Where to go on next time."""
    has_knowledge: bool = False
    """Whether anything is stored as knowledge."""
    terms: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Of the messages by key, if they were asked for."""


@dataclass(frozen=True, slots=True)
class RecalledMessage:
    """A message that recall has chosen, with the session it is of."""

    view_item: ViewItem
    session: str


@dataclass(frozen=True, slots=True)
class VectorSearchFilter:
    """Which messages of a namespace are looked through."""

    count: int
    """How many those are, at most."""
    sessions: tuple[int, ...] | None = None
    """Keys of sessions; all, if left out."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """On which messages a model was tried: with the same ones the outcome is the same."""

    last_key: int
    """The key of the last message that the sample could be taken from."""
    size: int
    """How many messages that were."""
    pair_count: int
    other_count: int

    @property
    def extent(self) -> tuple[int, int, int]:
        """How much that was."""
        return self.size, self.pair_count, self.other_count


@dataclass(frozen=True, slots=True)
class Trust:
    """How much the cosines of a model count in a namespace, and by what they are stretched."""

    share: float = DEFAULT_TRUST_SHARE
    scale: float = 1.0


class IndexStore(Protocol):
    """Words and places of messages, written in the same transaction as the messages."""

    def load_changes(self, namespace: NamespacePath, mark: int, *, with_terms: bool = False) -> IndexChanges:
        """The rows that were written behind the mark; 0 is the beginning.

        Args:
            namespace: Whose.
            mark: Where the reader stands.
            with_terms: Whether to give the terms along, which spares a question where few are new.
        """
        ...

    def find_postings(self, namespace: int, terms: Sequence[str]) -> Postings:
        """Where the terms are, in this namespace."""
        ...

    def list_keys_in_tier(self, namespace: int, tier: Tier) -> NDArray[np.int64]:
        """The keys of the messages that were moved to a tier."""
        ...

    def get_terms(self, keys: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """The terms of some messages."""
        ...

    def get_messages(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, RecalledMessage]:
        """The messages with these keys; those that are gone are left out, all if anything was erased."""
        ...

    def add_accesses(self, tenant: Tenant, accesses: Mapping[int, int], now: datetime) -> None:
        """Count that messages were recalled; nothing is counted if anything was erased since."""
        ...


class VectorStore(Protocol):
    """Vectors of messages, each with the model that made it."""

    def register_model(
        self, identity: str, dimension: int, now: datetime, *, patience_seconds: float | None = None
    ) -> int:
        """The key under which this model's vectors are kept; notes, to the day, that it is in use."""
        ...

    def get_texts(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, str]:
        """The texts of some messages, to be embedded; those that are gone are left out."""
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
        """Keep vectors; messages that are gone meanwhile are left out.

        Args:
            tenant: Whose messages they are.
            model: Which made them.
            keys: Of the messages.
            vectors: One row for each.
            patience_seconds: How long to wait for others who write; as long as for any write, if left out.

        Returns:
            False, with nothing written, if anything was erased since the tenant was looked at.
        """
        ...

    def build_index(self, namespace: int, model: int, count: int, go_on: Callable[[], bool]) -> int:
        """Have the nearest of a large namespace found sooner, where the store can; how many vectors that took.

        Args:
            namespace: Whose.
            model: Which made them.
            count: How many messages it has.
            go_on: Asked from time to time.
        """
        ...

    def delete_unused_vectors(self, namespace: int, model: int, unused_since: datetime) -> int:
        """Erase the vectors of other models that nobody has used since; how many those were."""
        ...

    def load_vectors(
        self, namespace: int, model: int, after: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None, int]:
        """Keys and vectors that were written behind a mark, and the next mark.

        A store that finds the nearest itself gives the keys alone.
        """
        ...

    def get_vectors(self, model: int, keys: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The vectors of some messages, as far as there are any."""
        ...

    def find_nearest(
        self, namespace: int, model: int, query: NDArray[np.float32], limit: int, within: VectorSearchFilter
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """The nearest messages with their cosines, best first; None if the store leaves that to its reader.

        Args:
            namespace: Whose.
            model: By which model's vectors.
            query: To what.
            limit: As many as that, if there are so many that are meant.
            within: Which are meant.
        """
        ...

    def compute_cosines(
        self, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The cosines of some messages, for stores that find the nearest themselves."""
        ...

    def get_trust(self, tenant: Tenant, model: int) -> tuple[TrialRecord, Trust] | None:
        """What somebody found last, and on what; None if nobody has, or something was erased since."""
        ...

    def update_trust(self, tenant: Tenant, model: int, tried: TrialRecord, trust: Trust) -> None:
        """Tell others what was found, in place of what was found on fewer."""
        ...

    def get_cached_vectors(self, model: int, hashes: Sequence[bytes], now: datetime) -> Mapping[bytes, bytes]:
        """Vectors of texts that were embedded before, by the hash of the text."""
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
        """Remember vectors of texts until then, the newest ``keep`` of them and at most a hundredth more.

        Args:
            model: Which made them.
            vectors: By the hash of the text.
            now: What has expired by then is erased.
            until: When these expire.
            keep: How many are remembered.
            patience_seconds: How long to wait for others who write; as long as for any write, if left out.
        """
        ...
