"""What memory has to say to a question, within a budget."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.context.memory_hits import IN_CONTEXTS
from langmem_tiers.context.models import Context
from langmem_tiers.context.namespace_recall import Asked, checked, recalled
from langmem_tiers.context.recall_message import Packer, reasons
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.telemetry.instruments import Verb
from langmem_tiers.text.token_counting import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.models import RecallFilters
    from langmem_tiers.services import MemoryParts

CANDIDATES = 100
"""Memories that are looked at for a context, at least."""
FLOOR = 0.02
"""What words and meaning must give to a memory at least: less is what any question gets from any text."""
ENOUGH = 0.05
"""What they must give to the best one for anything to be told: a question that memory cannot answer."""
LEAST_TOKENS = 12
"""What a memory takes at least: so many more may fit."""


def build_context(
    parts: MemoryParts,
    namespace: NamespacePath,
    query: str,
    budget: TokenBudget | None,
    filters: RecallFilters | None,
    now: datetime | None,
    seen: Iterable[str] = (),
) -> Context:
    """The memories that answer a question, as many as fit."""
    with parts.instruments.watch(Verb.BUILD_CONTEXT) as watch:
        context = _built(parts, namespace, query, budget, filters, now, seen)
        watch.note(messages=len(context.messages), tokens=context.token_count, recalled=len(context.recalled))
        return context


def _built(
    parts: MemoryParts,
    namespace: NamespacePath,
    query: str,
    budget: TokenBudget | None,
    filters: RecallFilters | None,
    now: datetime | None,
    seen: Iterable[str],
) -> Context:
    budget = parts.config.budget if budget is None else check_budget(budget)
    room = budget.available
    limit = min(2000, max(CANDIDATES, room // LEAST_TOKENS))
    wish = checked(parts, Asked(query, None, None, filters, now), limit=limit)
    found = recalled(parts, namespace, wish, counts=False, lasting=IN_CONTEXTS)
    name = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()
    packer = Packer(parts.short_term, parts.analyzer.compressor, name, wish.now)
    best = max((hit.relevance for hit in found.hits), default=0.0)
    relevant = [hit for hit in found.hits if hit.relevance >= FLOOR] if best >= ENOUGH else []
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
        recalled=packed.told,
        left_out=packed.left_out,
        summarised=packed.summarised,
        passed_over=packed.passed_over,
        reasons=reasons(packed),
        problems=found.problems,
    )


def check_budget(budget: object) -> TokenBudget:
    """The budget, or an error that says how to make one."""
    if not isinstance(budget, TokenBudget):
        raise InvalidInputError(
            f"a budget must be a TokenBudget, got a {type(budget).__name__}: use TokenBudget.of(8000)"
        )
    return budget
