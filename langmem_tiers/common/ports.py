"""Interfaces that users of the engine can implement: token counters, embedders and language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class TokenCounter(Protocol):
    """Counts tokens. The same counter returns the same count for a text on every machine."""

    @property
    def name(self) -> str:
        """Short name that is stored with each count."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens in the text; 0 only for the empty text."""
        ...


class Embedder(Protocol):
    """Turns text into vectors. Queries and documents may be embedded differently."""

    @property
    def identity(self) -> str:
        """Name of the model. Vectors of different identities are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return one vector."""
        ...


class LanguageModel(Protocol):
    """Generates text. It may raise, hang or return invalid output; callers handle that."""

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """Return the model's answer."""
        ...
