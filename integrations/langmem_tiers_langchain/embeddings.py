"""Adapter for LangChain embedding models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.integration_kit import CheckedEmbedder

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings


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
