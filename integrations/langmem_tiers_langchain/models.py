"""Adapters for models: LangChain models for the engine, and the engine's offline embedder for LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.constants import TAG_NOSTREAM

from langmem_tiers import InvalidInputError, LangmemTiersError, OfflineEmbedder
from langmem_tiers.integration_kit import CheckedEmbedder
from langmem_tiers_langchain.convert import SOURCE_METADATA

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig


_WORDS_PER_TOKEN = 0.75
"""Words per token, because a model cannot count tokens."""


class LangChainModel:
    """LangChain chat model, or any runnable over messages, as the ``LanguageModel`` of an engine.

    Its calls are tagged, so that their tokens do not appear in the stream of the surrounding agent. The maximum
    length is part of the prompt, in words, because the corresponding setting differs between providers.

    Args:
        model: Runnable that accepts a list of messages and returns a message or a text.

    Raises:
        InvalidInputError: The object is not a chat model.
    """

    def __init__(self, model: Runnable[Any, Any]) -> None:
        self._model = model
        _check_model(model)

    def __repr__(self) -> str:
        return f"LangChainModel({type(self._model).__name__})"  # the repr of a model may contain its API key

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """Return the answer of the model."""
        limit = f"Answer in at most {max(1, int(max_tokens * _WORDS_PER_TOKEN))} words."
        rules = f"{system}\n\n{limit}" if system else limit
        config: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": dict(SOURCE_METADATA)}
        answer = self._model.invoke([SystemMessage(rules), HumanMessage(prompt)], config)
        text = answer.text if isinstance(answer, BaseMessage) else answer
        if not isinstance(text, str):
            raise LangmemTiersError(
                f"expected a message or a text from the model, got {type(answer).__name__}: pass a chat model, or "
                "a runnable that returns a message or a text"
            )
        return str(text)


def _check_model(model: object) -> None:
    if isinstance(model, type) or not callable(getattr(model, "invoke", None)):
        raise InvalidInputError(
            f"expected a chat model, got {type(model).__name__}: pass an object with invoke(messages), such as "
            "the result of init_chat_model(...)"
        )


class LangChainEmbedder(CheckedEmbedder):
    """Any LangChain ``Embeddings`` as an ``Embedder`` of the engine.

    Args:
        embeddings: The model. It is not called before the first use.
        identity: Name of the model, such as ``"bge-small-v1.5, normalized"``. Vectors of different identities
            are never compared. Default: derived from the class and its ``model``, ``model_name``, ``model_id``,
            ``deployment`` and ``dimensions``. Set it if other settings, such as prompts, change the vectors.
        dimension: Length of the vectors. Default: measured by embedding one word on first use.

    Raises:
        InvalidInputError: The object is not an embedding model.
        InvalidConfigError: The model has no name, or the dimension is invalid.
    """

    def __init__(
        self, embeddings: Embeddings, *, identity: str | None = None, dimension: int | None = None
    ) -> None:
        super().__init__(
            embeddings, ("embed_documents", "embed_query"), identity=identity, dimension=dimension
        )


class OfflineEmbeddings(Embeddings):
    """Built-in embedder for LangChain vector stores: no network, no API key, no download.

    A vector has 256 dimensions, is the same on every machine, and takes microseconds. The model was trained on
    English. Texts in scripts without spaces between words get zero vectors.
    """

    def __init__(self) -> None:
        self._embedder = OfflineEmbedder()

    def __repr__(self) -> str:
        return f"OfflineEmbeddings({self._embedder.identity!r})"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        rows: list[list[float]] = self._embedder.embed_documents(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text."""
        vector: list[float] = self._embedder.embed_query(text).tolist()
        return vector
