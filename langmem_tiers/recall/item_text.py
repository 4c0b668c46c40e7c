"""Texts by which items are found, with their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.errors import EmbeddingError
from langmem_tiers.recall.item_records import ItemText
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.recall.embedders.embedding import EmbeddingClient


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
