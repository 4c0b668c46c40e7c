"""Adapters for models: LlamaIndex models for the engine, and the engine's offline embedder for LlamaIndex."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index_instrumentation.dispatcher import active_instrument_tags, instrument_tags
from pydantic import Field, PrivateAttr

from langmem_tiers import InvalidInputError, OfflineEmbedder
from langmem_tiers.integration_kit import CheckedEmbedder

_WORDS_PER_TOKEN = 0.75
"""Words per token, because a model cannot count tokens."""
INSTRUMENT_TAGS = {"source": "langmem_tiers"}
"""Tag on instrumentation events of memory's own model calls, in addition to the caller's tags."""


class LlamaIndexModel:
    """Any LlamaIndex ``LLM``, for chat or completion, as the ``LanguageModel`` of an engine.

    The instrumentation events of its calls have the tag ``source: langmem_tiers``, and the ``system_prompt`` of the
    model is not used. The maximum length is part of the prompt, in words, because the corresponding setting differs
    between providers.

    Args:
        llm: The model, such as ``Settings.llm``.

    Raises:
        InvalidInputError: The object is not a LlamaIndex model.
    """

    def __init__(self, llm: BaseLLM) -> None:
        self._llm = _check_model(llm)

    def __repr__(self) -> str:
        return f"LlamaIndexModel({type(self._llm).__name__})"  # the repr of a model may contain its API key

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """Return the answer of the model; empty if it has no text."""
        limit = f"Answer in at most {max(1, int(max_tokens * _WORDS_PER_TOKEN))} words."
        rules = f"{system}\n\n{limit}" if system else limit
        tags: dict[str, Any] = {**active_instrument_tags.get(), **INSTRUMENT_TAGS}
        with instrument_tags(tags):
            return self._answer(rules, prompt)

    def _answer(self, rules: str, prompt: str) -> str:
        metadata = self._llm.metadata
        if not metadata.is_chat_model:
            return self._llm.complete(f"{rules}\n\n{prompt}").text
        messages = [
            ChatMessage(content=rules, role=metadata.system_role),
            ChatMessage(content=prompt, role=MessageRole.USER),
        ]
        return self._llm.chat(messages).message.content or ""


def _check_model(llm: object) -> BaseLLM:
    if not isinstance(llm, BaseLLM):
        raise InvalidInputError(
            f"expected a LlamaIndex model, got {type(llm).__name__}: pass an LLM object, such as Settings.llm"
        )
    return llm


class LlamaIndexEmbedder(CheckedEmbedder):
    """Any LlamaIndex ``BaseEmbedding`` as an ``Embedder`` of the engine.

    Args:
        embed_model: The model. It is not called before the first use.
        identity: Name of the model, such as ``"bge-small-v1.5, normalized"``. Vectors of different identities
            are never compared. Default: derived from the class and its ``model_name``, ``azure_deployment`` and
            ``dimensions``. Set it if other settings, such as instructions, change the vectors.
        dimension: Length of the vectors. Default: measured by embedding one word on first use.

    Raises:
        InvalidInputError: The object is not an embedding model.
        InvalidConfigError: The model has no name, or the dimension is invalid.
    """

    def __init__(
        self, embed_model: BaseEmbedding, *, identity: str | None = None, dimension: int | None = None
    ) -> None:
        super().__init__(
            embed_model,
            ("get_text_embedding_batch", "get_query_embedding"),
            identity=identity,
            dimension=dimension,
        )


_NEAR_ZERO = 1e-6


class _PicklableEmbedder(OfflineEmbedder):
    """Embedder that is recreated when it is unpickled or copied, because it has a lock and bundled weights."""

    def __reduce__(self) -> tuple[type[_PicklableEmbedder], tuple[()]]:
        return type(self), ()


class OfflineEmbedding(BaseEmbedding):
    """Built-in embedder for LlamaIndex indexes: no network, no API key, no download.

    A vector has 256 dimensions, is the same on every machine, and takes microseconds. The model was trained on
    English. Texts in scripts without spaces between words all get the same vector, far from all others.

    Args:
        embed_batch_size: Number of texts per batch.
    """

    model_name: str = Field(default=OfflineEmbedder.identity, description="Name of the embedding model.")
    _embedder: _PicklableEmbedder = PrivateAttr(default_factory=_PicklableEmbedder)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in serialized data."""
        return "OfflineEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows = self._embedder.embed_documents(texts)
        # LlamaIndex divides by the length of a vector: zeros would give NaN similarities and a random order.
        rows[~rows.any(axis=1)] = _NEAR_ZERO
        vectors: list[list[float]] = rows.tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
