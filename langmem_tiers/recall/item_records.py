"""Indexed items: the texts they are found by and the contract of their index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemText:
    """One text of an item, ready to be kept."""

    text: str
    terms: str
    """As ``scoring.terms.terms_of`` makes them, with spaces between."""
    vector: bytes | None = None


class ItemNamespaceState(NamedTuple):
    """By these numbers whoever holds a part of a namespace sees what has changed."""

    pk: int
    revision: int
    erasure_epoch: int


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """What a search by query needs of an item."""

    pk: int
    namespace_pk: int
    revision: int
    updated_at: datetime
    texts: tuple[tuple[str, bytes | None], ...]
    """Terms with spaces between, and the vector of the model that was asked for, if there is one."""


@dataclass(frozen=True, slots=True)
class ItemTextKey:
    """Where a text stands: the item as of a revision, and the text's number in it."""

    pk: int
    revision: int
    number: int


class ItemIndex(Protocol):
    """What searches by query look at."""

    def list_namespace_states(self, prefix: NamespacePath) -> tuple[ItemNamespaceState, ...]:
        """The namespaces that begin with the prefix's whole labels."""
        ...

    def list_keys(self, namespaces: Sequence[int]) -> set[int]:
        """The keys of all items in some namespaces."""
        ...

    def load_items(self, namespaces: Sequence[int], after: int, model: int | None) -> list[IndexedItem]:
        """The items of some namespaces that were written behind a revision."""
        ...

    def get_texts(
        self, places: Sequence[ItemTextKey], model: int
    ) -> Mapping[ItemTextKey, tuple[str, bytes | None]]:
        """Texts that are still as they were, each with its vector of that model, if there is one by now."""
        ...

    def insert_vectors(self, vectors: Mapping[ItemTextKey, bytes], model: int) -> None:
        """Keep vectors of texts that are still as they were."""
        ...
