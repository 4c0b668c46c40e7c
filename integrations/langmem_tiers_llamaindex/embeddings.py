"""LlamaIndex's embedding models for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.recall.embedders.embedder_validation import CheckedEmbedder

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding


class LlamaIndexEmbedder(CheckedEmbedder):
    """Any LlamaIndex ``BaseEmbedding`` as an ``Embedder`` of the engine.

    Args:
        embed_model: The model. Nothing is asked of it before the first use.
        identity: Names the model, such as ``"bge-small-v1.5, normalized"``; vectors of two identities
            are never compared. Found in the class and its ``model_name``, ``azure_deployment`` or
            ``dimensions`` if left out. Give one if other settings, such as instructions, change
            the vectors.
        dimension: The length of its vectors; found by embedding one word on first use if left out.

    Raises:
        InvalidInputError: It is no embedding model.
        InvalidConfigError: Nothing names the model, or the dimension makes no sense.
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
