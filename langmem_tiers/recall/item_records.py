"""Indexed items: their search texts and vectors, and the interface of their index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from langmem_tiers.errors import EmbeddingError
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.embedders.embedding import EmbeddingClient


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
        self, text_keys: Sequence[ItemTextKey], model: int
    ) -> Mapping[ItemTextKey, tuple[str, bytes | None]]:
        """Return texts that are unchanged since their revision, each with its vector of the model or None."""
        ...

    def insert_vectors(self, vectors: Mapping[ItemTextKey, bytes], model: int) -> None:
        """Store vectors of texts that are unchanged since their revision."""
        ...


def to_search_text(value: Mapping[str, Any]) -> str:
    """Return a value as text, one line per leaf: ``{"user": {"name": "Ann"}}`` gives "user name: Ann"."""
    return "\n".join(_iter_lines(value, ""))


def build_item_texts(texts: Sequence[str], vectors: Mapping[str, bytes]) -> tuple[ItemText, ...]:
    """Build texts of an item with their terms, and with their vectors where given."""
    return tuple(
        ItemText(text=text, terms=" ".join(extract_terms(text)), vector=vectors.get(text)) for text in texts
    )


def embed_texts(texts: Sequence[str], embedding: EmbeddingClient) -> dict[str, bytes]:
    """Embed the distinct texts, and return their vectors as bytes.

    Raises:
        EmbeddingError: The embedder failed or rejected a text.
    """
    distinct = list(dict.fromkeys(texts))
    embedded = embedding.embed_documents(distinct)
    if embedded.refused_numbers:
        raise EmbeddingError(
            f"embedder {embedding.identity!r} rejected {len(embedded.refused_numbers)} of {len(distinct)} texts: "
            "leave them out of the index, or shorten them; nothing was written"
        )
    return {
        text: vector.astype("<f4").tobytes() for text, vector in zip(distinct, embedded.vectors, strict=True)
    }


def _iter_lines(value: object, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _iter_lines(part, f"{name} {key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iter_lines(part, name)
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)
