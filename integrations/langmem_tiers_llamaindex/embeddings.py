"""Adapter for LlamaIndex embedding models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.integration_kit import CheckedEmbedder

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding


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
