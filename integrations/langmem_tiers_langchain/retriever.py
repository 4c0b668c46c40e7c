"""Memory as a LangChain retriever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, field_validator

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    RecallFilters,
    Strategy,
)
from langmem_tiers.integration_kit import build_hit_metadata, check_namespace, check_strategy

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun

    from langmem_tiers import Hit
    from langmem_tiers.integration_kit import NamespacePath


def to_document(hit: Hit) -> Document:
    """Convert a hit to a document; its metadata is plain JSON without empty fields."""
    return Document(page_content=hit.entry.content, id=hit.entry.id, metadata=build_hit_metadata(hit))


class TieredMemoryRetriever(BaseRetriever):
    """Retriever over the memory of a namespace: messages of all sessions and knowledge, best first.

    The document's ``page_content`` and ``id`` are those of the memory; its metadata has the origin and the score
    breakdown. An empty query finds nothing. Recalled text is untrusted data: keep it separate from your
    instructions.

    Args:
        engine: Memory engine; not part of the serialized retriever or its repr.
        namespace: Owner of the memory: one label, or several from the widest to the narrowest.
        k: Maximum number of documents. Override it for one call with ``retriever.invoke(query, k=2)``.
        filters: ``RecallFilters`` that limit what may be recalled.
        strategy: Ranking strategy. Default: the engine's.
    """

    engine: MemoryEngine = Field(exclude=True, repr=False)
    namespace: str | tuple[str, ...]
    k: int = Field(default=4, ge=1)
    filters: Any = Field(default=None, exclude=True)
    strategy: Strategy | None = None

    @field_validator("namespace", mode="before")
    @classmethod
    def _check_namespace(cls, namespace: object) -> NamespacePath:
        return check_namespace(namespace)

    @field_validator("strategy", mode="before")
    @classmethod
    def _check_strategy(cls, strategy: object) -> Strategy | None:
        return None if strategy is None else check_strategy(strategy)

    @field_validator("filters")
    @classmethod
    def _check_filters(cls, filters: object) -> RecallFilters | None:
        if filters is None or isinstance(filters, RecallFilters):
            return filters
        raise InvalidInputError(
            f"filters must be RecallFilters, got {type(filters).__name__}: use RecallFilters(roles={{'user'}})"
        )

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - the framework's signature
        k: int | None = None,
    ) -> list[Document]:
        return self._recall_documents(query, k)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002 - the framework's signature
        k: int | None = None,
    ) -> list[Document]:
        return await asyncio.to_thread(self._recall_documents, query, k)

    def _recall_documents(self, query: str, k: int | None) -> list[Document]:
        if not query.strip():
            return []  # without a question, a chain continues without memory
        hits = self.engine.namespace(self.namespace).recall(
            query, limit=self.k if k is None else k, strategy=self.strategy, filters=self.filters
        )
        return [to_document(hit) for hit in hits]
