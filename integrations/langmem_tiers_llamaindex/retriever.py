"""Memory as a LlamaIndex retriever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from llama_index.core.base.base_retriever import BaseRetriever

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.common.recall_strategy import Strategy, check_strategy
from langmem_tiers.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.integration_kit.argument_checks import check_engine
from langmem_tiers.recall.models import RecallFilters
from langmem_tiers_llamaindex.hits import to_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.schema import NodeWithScore, QueryBundle

    from langmem_tiers.engine import MemoryEngine


class TieredMemoryRetriever(BaseRetriever):
    """What a namespace remembers, as nodes, best first: messages of all sessions and knowledge.

    It fits wherever LlamaIndex takes a retriever: ``RetrieverQueryEngine``, ``ContextChatEngine``,
    ``CondensePlusContextChatEngine``, ``QueryFusionRetriever``. A node's metadata says where the memory
    comes from and why it was found; a model sees of it only who said it and when. A query without words
    finds nothing. Recalled text is data that anybody may have said: keep it apart from your instructions.

    Args:
        engine: The memory.
        namespace: Whose memory: one label, or several from the widest to the narrowest.
        similarity_top_k: How many nodes at most.
        filters: What may be recalled.
        strategy: How to rank; the engine's, if left out.
        callback_manager: Is told of each retrieval.
        verbose: As of every LlamaIndex retriever.

    Raises:
        InvalidInputError: A setting makes no sense.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        namespace: str | Iterable[str],
        *,
        similarity_top_k: int = 4,
        filters: RecallFilters | None = None,
        strategy: Strategy | str | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        self._engine = check_engine(engine)
        self._namespace = check_namespace(namespace)
        self._filters = _check_filters(filters)
        self._strategy = None if strategy is None else check_strategy(strategy)
        self.similarity_top_k = similarity_top_k
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    def __repr__(self) -> str:
        return f"TieredMemoryRetriever({self._namespace!r}, similarity_top_k={self._similarity_top_k})"

    @property
    def similarity_top_k(self) -> int:
        """How many nodes at most; it may be set."""
        return self._similarity_top_k

    @similarity_top_k.setter
    def similarity_top_k(self, most: int) -> None:
        self._similarity_top_k = _check_top_k(most, self._engine.config.recall.max_limit)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        if not query.strip():
            return []  # a chat goes on without memory where nothing was asked
        found = self._engine.namespace(self._namespace).recall(
            query, limit=self._similarity_top_k, strategy=self._strategy, filters=self._filters
        )
        return to_nodes(found)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _check_top_k(given: object, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise InvalidConfigError(
            f"similarity_top_k must be a whole number from 1 to {most}, got {given!r}: "
            "RecallConfig.max_limit sets the most"
        )
    return given


def _check_filters(filters: object) -> RecallFilters | None:
    if filters is None or isinstance(filters, RecallFilters):
        return filters
    raise InvalidInputError(
        f"filters must be RecallFilters, got a {type(filters).__name__}: use RecallFilters(roles={{'user'}})"
    )
