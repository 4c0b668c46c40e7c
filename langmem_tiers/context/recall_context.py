"""What memory has to say to a question, within a budget."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.context.memory_hits import MAX_MEMORY_HITS_PER_CONTEXT
from langmem_tiers.context.models import Context
from langmem_tiers.context.namespace_recall import RawRecallRequest, check_recall_arguments, execute_recall
from langmem_tiers.context.recall_message import MemoryPacker, explain_packing
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.telemetry.instruments import Operation
from langmem_tiers.text.token_counting import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.models import RecallFilters
    from langmem_tiers.services import EngineServices

MIN_CANDIDATES = 100
"""Memories that are looked at for a context, at least."""
MIN_HIT_RELEVANCE = 0.02
"""What words and meaning must give to a memory at least: less is what any question gets from any text."""
MIN_BEST_HIT_RELEVANCE = 0.05
"""What they must give to the best one for anything to be told: a question that memory cannot answer."""
MIN_MEMORY_TOKENS = 12
"""What a memory takes at least: so many more may fit."""


def build_recall_context(
    parts: EngineServices,
    namespace: NamespacePath,
    query: str,
    budget: TokenBudget | None,
    filters: RecallFilters | None,
    now: datetime | None,
    seen: Iterable[str] = (),
) -> Context:
    """The memories that answer a question, as many as fit."""
    with parts.instruments.measure(Operation.BUILD_CONTEXT) as watch:
        context = _build_context(parts, namespace, query, budget, filters, now, seen)
        watch.record(
            messages=len(context.messages), tokens=context.token_count, recalled=len(context.recalled)
        )
        return context


def _build_context(
    parts: EngineServices,
    namespace: NamespacePath,
    query: str,
    budget: TokenBudget | None,
    filters: RecallFilters | None,
    now: datetime | None,
    seen: Iterable[str],
) -> Context:
    budget = parts.config.budget if budget is None else check_budget(budget)
    room = budget.available
    limit = min(2000, max(MIN_CANDIDATES, room // MIN_MEMORY_TOKENS))
    wish = check_recall_arguments(parts, RawRecallRequest(query, None, None, filters, now), limit=limit)
    found = execute_recall(parts, namespace, wish, counts=False, lasting=MAX_MEMORY_HITS_PER_CONTEXT)
    name = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()
    packer = MemoryPacker(parts.short_term, parts.analyzer.compressor, name, wish.now)
    best = max((hit.relevance for hit in found.hits), default=0.0)
    relevant = (
        [hit for hit in found.hits if hit.relevance >= MIN_HIT_RELEVANCE]
        if best >= MIN_BEST_HIT_RELEVANCE
        else []
    )
    packed = packer.pack(relevant, room, frozenset([query, *seen]))
    messages = () if packed.message is None else (packed.message,)
    return Context(
        messages=messages,
        token_count=count_messages(parts.counter, messages) if messages else 0,
        token_budget=room,
        sections={
            "memories": sum(count_framed(parts.counter, message) for message in messages),
            "frame": count_messages(parts.counter, ()) if messages else 0,
        },
        recalled=packed.included,
        left_out=packed.left_out,
        summarized=packed.summarized,
        passed_over=packed.passed_over,
        reasons=explain_packing(packed),
        problems=found.problems,
    )


def check_budget(budget: object) -> TokenBudget:
    """The budget, or an error that says how to make one."""
    if not isinstance(budget, TokenBudget):
        raise InvalidInputError(
            f"a budget must be a TokenBudget, got a {type(budget).__name__}: use TokenBudget.of(8000)"
        )
    return budget
