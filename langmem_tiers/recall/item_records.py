"""Indexed items: their search texts and the interface of their index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemText:
    """One search text of an item, ready to be stored."""

    text: str
    terms: str
    """Terms from ``extract_terms()``, separated by spaces."""
    vector: bytes | None = None


class ItemNamespaceState(NamedTuple):
    """Counters of a namespace that show whether a cached part of it is outdated."""

    pk: int
    revision: int
    erasure_epoch: int


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """An item with the data that a search needs."""

    pk: int
    namespace_pk: int
    revision: int
    updated_at: datetime
    texts: tuple[tuple[str, bytes | None], ...]
    """Terms separated by spaces, and the vector of the requested model or None, for each text."""


@dataclass(frozen=True, slots=True)
class ItemTextKey:
    """Key of a text: item, revision of the item, and number of the text in the item."""

    pk: int
    revision: int
    number: int


class ItemIndex(Protocol):
    """Store of the search texts and vectors of items."""

    def list_namespace_states(self, prefix: NamespacePath) -> tuple[ItemNamespaceState, ...]:
        """Return the states of the namespaces under a prefix. Labels are compared as a whole."""
        ...

    def list_keys(self, namespaces: Sequence[int]) -> set[int]:
        """Return the keys of all items in the namespaces."""
        ...

    def load_items(self, namespaces: Sequence[int], after: int, model: int | None) -> list[IndexedItem]:
        """Return the items of the namespaces that were written after a revision, with vectors of a model."""
        ...

    def get_texts(
        self, places: Sequence[ItemTextKey], model: int
    ) -> Mapping[ItemTextKey, tuple[str, bytes | None]]:
        """Return texts that are unchanged since their revision, each with its vector of the model or None."""
        ...

    def insert_vectors(self, vectors: Mapping[ItemTextKey, bytes], model: int) -> None:
        """Store vectors of texts that are unchanged since their revision."""
        ...
