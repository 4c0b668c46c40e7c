"""Recall over all memories of a namespace: messages, long-term entries, episodes, chunks and knowledge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import check_time
from langmem_tiers.common.recall_strategy import Strategy, check_strategy
from langmem_tiers.config import check_limit
from langmem_tiers.context.knowledge_hits import find_knowledge_hits
from langmem_tiers.context.memory_hits import build_message_request, find_memory_hits
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.recall.models import Recall, RecallFilters
from langmem_tiers.recall.retriever import build_recall_request
from langmem_tiers.telemetry.instruments import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.recall.retriever import RecallRequest
    from langmem_tiers.services import EngineServices

# These rank all messages, so they need no words to search for.
_STRATEGIES_WITHOUT_QUERY = {Strategy.RECENCY, Strategy.IMPORTANCE}


@dataclass(frozen=True, slots=True)
class RawRecallRequest:
    """Recall arguments as passed by a caller, not validated."""

    query: object
    limit: object = None
    strategy: object = None
    filters: object = None
    now: object = None


def recall_from_namespace(
    services: EngineServices, namespace: NamespacePath, raw: RawRecallRequest, *, counts: bool = True
) -> Recall:
    """Validate the arguments and recall, best first.

    Args:
        services: Services of the engine.
        namespace: The namespace.
        raw: The arguments.
        counts: Count the found memories as used.
    """
    return execute_recall(services, namespace, check_recall_arguments(services, raw), counts=counts)


def execute_recall(
    services: EngineServices,
    namespace: NamespacePath,
    request: RecallRequest,
    *,
    counts: bool = True,
    max_memory_hits: int | None = None,
) -> Recall:
    """Recall messages, memories and knowledge in one list, best first.

    Args:
        services: Services of the engine.
        namespace: The namespace.
        request: The validated request.
        counts: Count the found memories as used.
        max_memory_hits: Maximum number of entries, episodes and chunks. Default: the limit of the request.
    """
    with services.instruments.measure(Operation.RECALL) as watch:
        recall = _execute_recall(services, namespace, request, counts=counts, max_memory_hits=max_memory_hits)
        watch.record(hits=len(recall.hits), candidates=recall.candidates)
        return recall


def _execute_recall(
    services: EngineServices,
    namespace: NamespacePath,
    request: RecallRequest,
    *,
    counts: bool,
    max_memory_hits: int | None,
) -> Recall:
    # Messages first: their recall reads the changes of the namespace, with the flag that may_have_knowledge() returns.
    searches_messages = request.filters is None or request.filters.messages
    if searches_messages:
        recall = services.retriever.recall(namespace, build_message_request(request), counts=counts)
    else:
        recall = Recall(query=request.query.text, hits=(), strategy=request.strategy, candidates=0)
    # The cached flag covers current knowledge only: a request for the past must look for former values. Without a
    # recall of messages, the flag may be older than the newest knowledge.
    is_historical = request.filters is not None and request.filters.valid_at is not None
    searches_knowledge = (
        not searches_messages or is_historical or services.retriever.may_have_knowledge(namespace)
    )
    knowledge_hits = (
        find_knowledge_hits(services.get_knowledge(namespace), services.counter, namespace, request)
        if searches_knowledge
        else []
    )
    memory_hits = find_memory_hits(services, namespace, request, counts=counts, max_hits=max_memory_hits)
    return merge_hits(recall, [*knowledge_hits, *memory_hits], request.limit)


def merge_hits(recall: Recall, extra_hits: Sequence[Hit], limit: int) -> Recall:
    """Merge other hits into a recall by score; return the best ``limit`` hits."""
    if not extra_hits:
        return recall
    # The sort is stable: of hits with equal scores, those of the recall come first.
    merged = sorted((*recall.hits, *extra_hits), key=lambda hit: -hit.score)[:limit]
    return replace(recall, hits=tuple(merged), candidates=recall.candidates + len(extra_hits))


def search_messages(
    services: EngineServices, namespace: NamespacePath, text: object, limit: int
) -> tuple[Hit, ...]:
    """Find messages that contain words of a text, best first."""
    check_limit(limit)
    if not isinstance(text, str):
        raise InvalidInputError(
            f"text must be a str, got {type(text).__name__}: pass the words to search for"
        )
    if not text.strip():
        return ()
    request = build_recall_request(text, now=services.now(), limit=limit, strategy=Strategy.WORDS)
    with services.instruments.measure(Operation.RECALL) as watch:
        recall = services.retriever.recall(namespace, request, counts=False)
        watch.record(hits=len(recall.hits), candidates=recall.candidates)
        return recall.hits


def check_recall_arguments(
    services: EngineServices, raw: RawRecallRequest, *, limit: int | None = None
) -> RecallRequest:
    """Validate recall arguments and fill in the defaults of the configuration.

    Args:
        services: Services of the engine.
        raw: The arguments.
        limit: Replaces the limit of the arguments, without the maximum for callers. Default: use that limit.

    Raises:
        InvalidInputError: An argument has a wrong type or value.
    """
    config = services.config.recall
    strategy = config.strategy if raw.strategy is None else check_strategy(raw.strategy)
    if limit is None:
        limit = config.limit if raw.limit is None else _check_recall_limit(raw.limit, config.max_limit)
    now: datetime = services.now() if raw.now is None else check_time(raw.now)
    if raw.filters is not None and not isinstance(raw.filters, RecallFilters):
        raise InvalidInputError(
            f"filters must be RecallFilters, got {type(raw.filters).__name__}: use RecallFilters(roles={{'user'}})"
        )
    return build_recall_request(
        _check_query(raw.query, strategy), now=now, limit=limit, strategy=strategy, filters=raw.filters
    )


def _check_query(query: object, strategy: Strategy) -> str:
    if not isinstance(query, str):
        raise InvalidInputError(f"query must be a str, got {type(query).__name__}: pass the question as text")
    if not query.strip() and strategy not in _STRATEGIES_WITHOUT_QUERY:
        raise InvalidInputError(
            f"query must not be empty for the strategy {strategy.value!r}, got {query[:20]!r}: "
            "pass a question, or use the strategy 'recency'"
        )
    return query


def _check_recall_limit(limit: object, max_limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= max_limit:
        raise InvalidInputError(
            f"limit must be an integer from 1 to {max_limit}, got {limit!r}: "
            "RecallConfig.max_limit sets the maximum"
        )
    return limit
