"""Memory as a LlamaIndex retriever."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.common.recall_strategy import Strategy, check_strategy
from langmem_tiers.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.integration_kit.argument_checks import check_engine
from langmem_tiers.integration_kit.hit_metadata import build_hit_metadata
from langmem_tiers.recall.models import RecallFilters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.schema import QueryBundle

    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.recall.models import Hit


_MODEL_FIELDS = frozenset({"created_at", "role", "name"})


class MemoryNode(TextNode):
    """A memory. Whichever query found it, it is the same node to what merges or compares nodes."""

    @property
    def hash(self) -> str:
        """Names where the memory comes from and what it says; the base class's counts scores as well."""
        told = self.metadata
        identity = (told.get("namespace"), told.get("session"), told.get("kind"), self.node_id, self.text)
        return sha256(repr(identity).encode()).hexdigest()


def to_node(hit: Hit) -> NodeWithScore:
    """A memory as a node; its metadata is plain JSON, without what is not known.

    A model is shown the text with who said it and when, an embedder the text alone.
    """
    metadata = {name: _replace_surrogates(value) for name, value in build_hit_metadata(hit).items()}
    node = MemoryNode(
        id_=hit.entry.id,
        text=_replace_surrogates(hit.entry.content),
        metadata=metadata,  # type: ignore[call-arg] # the framework takes it by its alias as well
        excluded_llm_metadata_keys=[name for name in metadata if name not in _MODEL_FIELDS],
        excluded_embed_metadata_keys=list(metadata),
    )
    return NodeWithScore(node=node, score=hit.score)


def to_nodes(hits: Iterable[Hit]) -> list[NodeWithScore]:
    """Memories as nodes in the same order, each with an id of its own."""
    nodes, taken = [], set[str]()
    for hit in hits:
        found = to_node(hit)
        # Two sessions may name a message alike, and LlamaIndex drops a second node with the same id.
        while found.node.node_id in taken:
            found.node.id_ = f"{hit.session}/{found.node.node_id}"
        taken.add(found.node.node_id)
        nodes.append(found)
    return nodes


def _replace_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON
    # Lone surrogates, which no provider of a model takes.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


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
