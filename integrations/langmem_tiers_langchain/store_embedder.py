"""The ``embed`` of a LangGraph index configuration as an embedder of the engine."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.store.base import ensure_embeddings

from langmem_tiers.errors import InvalidConfigError
from langmem_tiers_langchain.embeddings import LangChainEmbedder

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from langchain_core.embeddings import Embeddings

T = TypeVar("T")
CALLER_LOOP: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "langmem_tiers_caller_loop", default=None
)
"""The loop that waits for the store; clients of an async embedding function may be bound to it."""


def build_index_embedder(index: Mapping[str, Any]) -> tuple[Embeddings, LangChainEmbedder]:
    """The model of an index configuration, as LangChain knows it and as the engine does.

    Raises:
        InvalidConfigError: It has no such model, or dimensions that make no sense.
    """
    try:
        embeddings = ensure_embeddings(index["embed"])
    except (ImportError, ValueError) as error:
        raise InvalidConfigError(
            f"the embed of the index cannot be used ({error}): give Embeddings, a function or 'provider:model'"
        ) from error
    identity = index.get("identity") or _find_identity(embeddings)
    function = getattr(embeddings, "afunc", None)
    model: Any = embeddings if function is None else _BlockingEmbeddings(embeddings)
    return embeddings, LangChainEmbedder(model, identity=identity, dimension=index.get("dims"))


class _BlockingEmbeddings:
    """An async model for callers that wait."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return _wait_for(self._embeddings.aembed_documents(texts))

    def embed_query(self, text: str) -> list[float]:
        """One vector."""
        return _wait_for(self._embeddings.aembed_query(text))


def _wait_for(answer: Coroutine[Any, Any, T]) -> T:
    loop = CALLER_LOOP.get()
    if loop is None:
        return asyncio.run(answer)  # in a thread of the embedder's own, so no loop runs here
    return asyncio.run_coroutine_threadsafe(answer, loop).result()


def _find_identity(embeddings: Embeddings) -> str:
    function = getattr(embeddings, "func", None) or getattr(embeddings, "afunc", None)
    if function is not None:
        named = function if hasattr(function, "__qualname__") else type(function)
        return f"{named.__module__}.{named.__qualname__}"
    try:
        return LangChainEmbedder(embeddings).identity
    except InvalidConfigError:  # nothing names the model: its class is all there is
        kind = type(embeddings)
        return f"{kind.__module__}.{kind.__qualname__}"
