"""Recall over everything that is remembered: messages and knowledge, in one list."""

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

_STRATEGIES_WITHOUT_QUERY = {Strategy.RECENCY, Strategy.IMPORTANCE}


@dataclass(frozen=True, slots=True)
class RawRecallRequest:
    """What a caller asked for, unchecked."""

    query: object
    limit: object = None
    strategy: object = None
    filters: object = None
    now: object = None


def recall_from_namespace(
    parts: EngineServices, namespace: NamespacePath, asked: RawRecallRequest, *, counts: bool = True
) -> Recall:
    """What answers a query, best first; it counts as used, unless it is told not to."""
    return execute_recall(parts, namespace, check_recall_arguments(parts, asked), counts=counts)


def execute_recall(
    parts: EngineServices,
    namespace: NamespacePath,
    wish: RecallRequest,
    *,
    counts: bool = True,
    lasting: int | None = None,
) -> Recall:
    """Messages and what is known, in one list.

    Args:
        parts: The stores and workers.
        namespace: Whose memory.
        wish: What is asked for.
        counts: Whether what is found counts as used.
        lasting: How many entries, episodes and chunks at most, if not as many as are asked for.
    """
    with parts.instruments.measure(Operation.RECALL) as watch:
        found = _execute_recall(parts, namespace, wish, counts=counts, lasting=lasting)
        watch.record(hits=len(found.hits), candidates=found.candidates)
        return found


def _execute_recall(
    parts: EngineServices, namespace: NamespacePath, wish: RecallRequest, *, counts: bool, lasting: int | None
) -> Recall:
    if wish.filters is None or wish.filters.messages:
        found = parts.retriever.recall(namespace, build_message_request(wish), counts=counts)
    else:
        found = Recall(query=wish.query.text, hits=(), strategy=wish.strategy, candidates=0)
    looks_back = wish.filters is not None and wish.filters.valid_at is not None
    knows = looks_back or parts.retriever.may_have_knowledge(namespace)
    known = find_knowledge_hits(parts, namespace, wish) if knows else []
    return merge_hits(
        found, [*known, *find_memory_hits(parts, namespace, wish, counts=counts, most=lasting)], wish.limit
    )


def merge_hits(found: Recall, others: Sequence[Hit], limit: int) -> Recall:
    """What was recalled with other hits among it."""
    if not others:
        return found
    together = sorted((*found.hits, *others), key=lambda hit: -hit.score)[:limit]
    return replace(found, hits=tuple(together), candidates=found.candidates + len(others))


def search_messages(
    parts: EngineServices, namespace: NamespacePath, text: object, limit: int
) -> tuple[Hit, ...]:
    """Messages that hold words of a text, best first."""
    check_limit(limit)
    if not isinstance(text, str):
        raise InvalidInputError(f"search() takes words as a str, got a {type(text).__name__}")
    if not text.strip():
        return ()
    wish = build_recall_request(text, now=parts.now(), limit=limit, strategy=Strategy.WORDS)
    with parts.instruments.measure(Operation.RECALL) as watch:
        found = parts.retriever.recall(namespace, wish, counts=False)
        watch.record(hits=len(found.hits), candidates=found.candidates)
        return found.hits


def check_recall_arguments(
    parts: EngineServices, asked: RawRecallRequest, *, limit: int | None = None
) -> RecallRequest:
    """What was asked for, or an error that names what makes no sense.

    Args:
        parts: The configuration and the clock.
        asked: What was asked for.
        limit: In place of what was asked for, where the caller knows what it needs.
    """
    config = parts.config.recall
    strategy = config.strategy if asked.strategy is None else check_strategy(asked.strategy)
    if limit is None:
        limit = config.limit if asked.limit is None else _check_recall_limit(asked.limit, config.max_limit)
    now: datetime = parts.now() if asked.now is None else check_time(asked.now)
    if asked.filters is not None and not isinstance(asked.filters, RecallFilters):
        raise InvalidInputError(
            f"filters must be RecallFilters, got a {type(asked.filters).__name__}: use RecallFilters(roles={{'user'}})"
        )
    return build_recall_request(
        _check_query(asked.query, strategy), now=now, limit=limit, strategy=strategy, filters=asked.filters
    )


def _check_query(query: object, strategy: Strategy) -> str:
    if not isinstance(query, str):
        raise InvalidInputError(f"a query must be a str, got a {type(query).__name__}")
    if not query.strip() and strategy not in _STRATEGIES_WITHOUT_QUERY:
        raise InvalidInputError(
            f"a query for the strategy {strategy.value!r} must say something, got {query[:20]!r}: "
            "ask a question, or use the strategy 'recency'"
        )
    return query


def _check_recall_limit(limit: object, most: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInputError(
            f"a limit must be a whole number from 1 to {most}, got {limit!r}: "
            "RecallConfig.max_limit sets the most"
        )
    return limit
