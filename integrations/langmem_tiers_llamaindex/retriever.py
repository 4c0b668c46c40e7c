"""Memory as a LlamaIndex retriever."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from langmem_tiers import InvalidConfigError, InvalidInputError, RecallFilters, Strategy
from langmem_tiers.integration_kit import build_hit_metadata, check_engine, check_namespace, check_strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.schema import QueryBundle

    from langmem_tiers import Hit, MemoryEngine


_MODEL_FIELDS = frozenset({"created_at", "role", "name"})


class MemoryNode(TextNode):
    """Node of a memory; its hash is the same for every query that found it."""

    @property
    def hash(self) -> str:
        """Hash of origin, id and text, without the score that the base class includes."""
        # Fusion retrievers merge nodes by their hash, so the result of one query must equal that of another.
        data = self.metadata
        identity = (data.get("namespace"), data.get("session"), data.get("kind"), self.node_id, self.text)
        return sha256(repr(identity).encode()).hexdigest()


def to_node(hit: Hit) -> NodeWithScore:
    """Convert a hit to a node; its metadata is plain JSON without empty fields.

    A model sees the text with its author and date; an embedder sees only the text.
    """
    metadata = {name: _replace_surrogates(value) for name, value in build_hit_metadata(hit).items()}
    node = MemoryNode(
        id_=hit.entry.id,
        text=_replace_surrogates(hit.entry.content),
        metadata=metadata,  # type: ignore[call-arg] # the framework also accepts the alias
        excluded_llm_metadata_keys=[name for name in metadata if name not in _MODEL_FIELDS],
        excluded_embed_metadata_keys=list(metadata),
    )
    return NodeWithScore(node=node, score=hit.score)


def to_nodes(hits: Iterable[Hit]) -> list[NodeWithScore]:
    """Convert hits to nodes in the same order, each with a unique id."""
    nodes, taken = [], set[str]()
    for hit in hits:
        node = to_node(hit)
        # Messages of different sessions may have the same id, and LlamaIndex drops nodes with duplicate ids.
        while node.node.node_id in taken:
            node.node.id_ = f"{hit.session}/{node.node.node_id}"
        taken.add(node.node.node_id)
        nodes.append(node)
    return nodes


def _replace_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON
    # Model providers reject lone surrogates.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


class TieredMemoryRetriever(BaseRetriever):
    """Retriever over the memory of a namespace: messages of all sessions and knowledge, best first.

    It works wherever LlamaIndex accepts a retriever: ``RetrieverQueryEngine``, ``ContextChatEngine``,
    ``CondensePlusContextChatEngine``, ``QueryFusionRetriever``. The metadata of a node has the origin and the score
    breakdown; a model sees only author and date. An empty query finds nothing. Recalled text is untrusted data: keep
    it separate from your instructions.

    Args:
        engine: Memory engine.
        namespace: Owner of the memory: one label, or several from the widest to the narrowest.
        similarity_top_k: Maximum number of nodes.
        filters: Filters that limit what may be recalled.
        strategy: Ranking strategy. Default: the engine's.
        callback_manager: Callback manager that receives each retrieval.
        verbose: Verbosity flag of LlamaIndex retrievers.

    Raises:
        InvalidInputError: A setting is invalid.
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
        """Maximum number of nodes; it can be set."""
        return self._similarity_top_k

    @similarity_top_k.setter
    def similarity_top_k(self, value: int) -> None:
        self._similarity_top_k = _check_top_k(value, self._engine.config.recall.max_limit)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        if not query.strip():
            return []  # without a question, a chat continues without memory
        hits = self._engine.namespace(self._namespace).recall(
            query, limit=self._similarity_top_k, strategy=self._strategy, filters=self._filters
        )
        return to_nodes(hits)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _check_top_k(value: object, max_value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= max_value:
        raise InvalidConfigError(
            f"similarity_top_k must be a whole number from 1 to {max_value}, got {value!r}: "
            "RecallConfig.max_limit sets the maximum"
        )
    return value


def _check_filters(filters: object) -> RecallFilters | None:
    if filters is None or isinstance(filters, RecallFilters):
        return filters
    raise InvalidInputError(
        f"filters must be RecallFilters, got {type(filters).__name__}: use RecallFilters(roles={{'user'}})"
    )
