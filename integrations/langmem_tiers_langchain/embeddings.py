"""LangChain's embedding models for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.recall.embedders.embedder_validation import CheckedEmbedder

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings


class LangChainEmbedder(CheckedEmbedder):
    """Any LangChain ``Embeddings`` as an ``Embedder`` of the engine.

    Args:
        embeddings: The model. Nothing is asked of it before the first use.
        identity: Names the model, such as ``"bge-small-v1.5, normalized"``; vectors of two identities
            are never compared. Found in the class and its ``model``, ``model_name``, ``model_id``,
            ``deployment`` or ``dimensions`` if left out. Give one if other settings, such as
            prompts, change the vectors.
        dimension: The length of its vectors; found by embedding one word on first use if left out.

    Raises:
        InvalidInputError: It is no embedding model.
        InvalidConfigError: Nothing names the model, or the dimension makes no sense.
    """

    def __init__(
        self, embeddings: Embeddings, *, identity: str | None = None, dimension: int | None = None
    ) -> None:
        super().__init__(
            embeddings, ("embed_documents", "embed_query"), identity=identity, dimension=dimension
        )
