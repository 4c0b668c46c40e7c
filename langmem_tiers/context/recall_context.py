"""Context of a namespace: the memories that answer a question, within a token budget."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.context.memory_hits import MAX_MEMORY_HITS_PER_CONTEXT
from langmem_tiers.context.models import MemoryContext
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
"""Minimum number of candidates for a context."""
MIN_HIT_RELEVANCE = 0.02
"""Minimum relevance of a memory. Any text reaches less than this for any question."""
MIN_BEST_HIT_RELEVANCE = 0.05
"""Minimum relevance of the best memory. Below it, memory cannot answer the question and nothing is included."""
MIN_MEMORY_TOKENS = 12
"""Minimum size of a memory, used to estimate how many may fit."""
# Maximum number of candidates, however large the budget is.
_MAX_CANDIDATES = 2000


def build_recall_context(
    services: EngineServices,
    namespace: NamespacePath,
    query: str,
    budget: TokenBudget | None,
    filters: RecallFilters | None,
    now: datetime | None,
    seen: Iterable[str] = (),
) -> MemoryContext:
    """Build a context of the memories that answer a question, as many as fit.

    Args:
        services: Services of the engine.
        namespace: The namespace.
        query: The question.
        budget: Token budget. Default: the budget of the engine.
        filters: Restricts which memories may be recalled.
        now: Reference time for expressions such as "last week". Default: the current time.
        seen: Texts that the prompt contains anyway; they are not repeated.
    """
    with services.instruments.measure(Operation.BUILD_CONTEXT) as watch:
        context = _build_context(services, namespace, query, budget, filters, now, seen)
        watch.record(
            messages=len(context.messages), tokens=context.token_count, recalled=len(context.recalled)
        )
        return context


def _build_context(
    services: EngineServices,
    namespace: NamespacePath,
    query: str,
    budget: TokenBudget | None,
    filters: RecallFilters | None,
    now: datetime | None,
    seen: Iterable[str],
) -> MemoryContext:
    budget = services.config.budget if budget is None else check_budget(budget)
    max_tokens = budget.available
    limit = min(_MAX_CANDIDATES, max(MIN_CANDIDATES, max_tokens // MIN_MEMORY_TOKENS))
    request = check_recall_arguments(services, RawRecallRequest(query, None, None, filters, now), limit=limit)
    recall = execute_recall(
        services, namespace, request, counts=False, max_memory_hits=MAX_MEMORY_HITS_PER_CONTEXT
    )
    # A hash of the question: the same question gives its message the same id, whatever the text contains.
    name = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()
    packer = MemoryPacker(services.short_term, services.analyzer.compressor, name, request.now)
    best = max((hit.relevance for hit in recall.hits), default=0.0)
    relevant = (
        [hit for hit in recall.hits if hit.relevance >= MIN_HIT_RELEVANCE]
        if best >= MIN_BEST_HIT_RELEVANCE
        else []
    )
    packed = packer.pack(relevant, max_tokens, frozenset([query, *seen]))
    messages = () if packed.message is None else (packed.message,)
    return MemoryContext(
        messages=messages,
        token_count=count_messages(services.counter, messages) if messages else 0,
        token_budget=max_tokens,
        sections={
            "memories": sum(count_framed(services.counter, message) for message in messages),
            "frame": count_messages(services.counter, ()) if messages else 0,
        },
        recalled=packed.included,
        left_out=packed.left_out,
        summarized=packed.summarized,
        passed_over=packed.passed_over,
        reasons=explain_packing(packed),
        problems=recall.problems,
    )


def check_budget(budget: object) -> TokenBudget:
    """Return the budget if it is a ``TokenBudget``.

    Raises:
        InvalidInputError: It is something else.
    """
    if not isinstance(budget, TokenBudget):
        raise InvalidInputError(
            f"budget must be a TokenBudget, got {type(budget).__name__}: use TokenBudget.of(8000)"
        )
    return budget
