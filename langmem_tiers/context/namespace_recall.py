"""Recall over everything that is remembered: messages and knowledge, in one list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import check_time
from langmem_tiers.common.recall_strategy import Strategy, check_strategy
from langmem_tiers.config import check_limit
from langmem_tiers.context.knowledge_hits import known_hits
from langmem_tiers.context.memory_hits import lasting_hits, messages_wish
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.recall.models import Recall, RecallFilters
from langmem_tiers.recall.retriever import wish_for
from langmem_tiers.telemetry.instruments import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.recall.retriever import Wish
    from langmem_tiers.services import MemoryParts

_NEEDS_NO_QUERY = {Strategy.RECENCY, Strategy.IMPORTANCE}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller asked for, unchecked."""

    query: object
    limit: object = None
    strategy: object = None
    filters: object = None
    now: object = None


def recall(parts: MemoryParts, namespace: NamespacePath, asked: Asked, *, counts: bool = True) -> Recall:
    """What answers a query, best first; it counts as used, unless it is told not to."""
    return recalled(parts, namespace, checked(parts, asked), counts=counts)


def recalled(
    parts: MemoryParts,
    namespace: NamespacePath,
    wish: Wish,
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
    with parts.instruments.watch(Verb.RECALL) as watch:
        found = _recalled(parts, namespace, wish, counts=counts, lasting=lasting)
        watch.note(hits=len(found.hits), candidates=found.candidates)
        return found


def _recalled(
    parts: MemoryParts, namespace: NamespacePath, wish: Wish, *, counts: bool, lasting: int | None
) -> Recall:
    if wish.filters is None or wish.filters.messages:
        found = parts.retriever.recall(namespace, messages_wish(wish), counts=counts)
    else:
        found = Recall(query=wish.query.text, hits=(), strategy=wish.strategy, candidates=0)
    looks_back = wish.filters is not None and wish.filters.valid_at is not None
    knows = looks_back or parts.retriever.knows_something(namespace)
    known = known_hits(parts, namespace, wish) if knows else []
    return with_hits(
        found, [*known, *lasting_hits(parts, namespace, wish, counts=counts, most=lasting)], wish.limit
    )


def with_hits(found: Recall, others: Sequence[Hit], limit: int) -> Recall:
    """What was recalled with other hits among it."""
    if not others:
        return found
    together = sorted((*found.hits, *others), key=lambda hit: -hit.score)[:limit]
    return replace(found, hits=tuple(together), candidates=found.candidates + len(others))


def search(parts: MemoryParts, namespace: NamespacePath, text: object, limit: int) -> tuple[Hit, ...]:
    """Messages that hold words of a text, best first."""
    check_limit(limit)
    if not isinstance(text, str):
        raise InvalidInputError(f"search() takes words as a str, got a {type(text).__name__}")
    if not text.strip():
        return ()
    wish = wish_for(text, now=parts.now(), limit=limit, strategy=Strategy.WORDS)
    with parts.instruments.watch(Verb.RECALL) as watch:
        found = parts.retriever.recall(namespace, wish, counts=False)
        watch.note(hits=len(found.hits), candidates=found.candidates)
        return found.hits


def checked(parts: MemoryParts, asked: Asked, *, limit: int | None = None) -> Wish:
    """What was asked for, or an error that names what makes no sense.

    Args:
        parts: The configuration and the clock.
        asked: What was asked for.
        limit: In place of what was asked for, where the caller knows what it needs.
    """
    config = parts.config.recall
    strategy = config.strategy if asked.strategy is None else check_strategy(asked.strategy)
    if limit is None:
        limit = config.limit if asked.limit is None else _limit(asked.limit, config.max_limit)
    now: datetime = parts.now() if asked.now is None else check_time(asked.now)
    if asked.filters is not None and not isinstance(asked.filters, RecallFilters):
        raise InvalidInputError(
            f"filters must be RecallFilters, got a {type(asked.filters).__name__}: use RecallFilters(roles={{'user'}})"
        )
    return wish_for(
        _query(asked.query, strategy), now=now, limit=limit, strategy=strategy, filters=asked.filters
    )


def _query(query: object, strategy: Strategy) -> str:
    if not isinstance(query, str):
        raise InvalidInputError(f"a query must be a str, got a {type(query).__name__}")
    if not query.strip() and strategy not in _NEEDS_NO_QUERY:
        raise InvalidInputError(
            f"a query for the strategy {strategy.value!r} must say something, got {query[:20]!r}: "
            "ask a question, or use the strategy 'recency'"
        )
    return query


def _limit(limit: object, most: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInputError(
            f"a limit must be a whole number from 1 to {most}, got {limit!r}: "
            "RecallConfig.max_limit sets the most"
        )
    return limit
