"""What items are found by: texts, their terms and their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.core.errors import EmbeddingError
from langmem_tiers.core.items import ItemText
from langmem_tiers.scoring.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.retrieval.embedding import Embedding


def text_of(value: Mapping[str, Any]) -> str:
    """All that a value says, a line for each of its parts: ``{"user": {"name": "Ann"}}`` is "user name: Ann"."""
    return "\n".join(_lines(value, ""))


def item_texts(texts: Sequence[str], vectors: Mapping[str, bytes]) -> tuple[ItemText, ...]:
    """Texts with their terms, and the vectors that there are."""
    return tuple(
        ItemText(text=text, terms=" ".join(terms_of(text)), vector=vectors.get(text)) for text in texts
    )


def vectors_of(texts: Sequence[str], embedding: Embedding) -> dict[str, bytes]:
    """The vectors of all texts, each asked for once.

    Raises:
        EmbeddingError: The embedder failed, or refuses one of them.
    """
    each = list(dict.fromkeys(texts))
    embedded = embedding.documents(each)
    if embedded.refused:
        raise EmbeddingError(
            f"the embedder {embedding.identity!r} refuses {len(embedded.refused)} of {len(each)} texts: "
            "leave them out of the index, or shorten them; nothing was written"
        )
    return {text: vector.astype("<f4").tobytes() for text, vector in zip(each, embedded.vectors, strict=True)}


def _lines(value: object, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _lines(part, f"{name} {key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _lines(part, name)
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)
