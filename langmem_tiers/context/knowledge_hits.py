"""What is known across sessions: as hits beside messages, and as a message of a context, fenced as data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.common.messages import Message, MessageDraft, Role
from langmem_tiers.common.namespaces import MAX_NAME_BYTES
from langmem_tiers.common.prompt_fences import MEMORY, fenced, harmless
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.knowledge.models import NOTE, KnowledgeCategory, KnowledgeHit
from langmem_tiers.recall.models import Hit, RecallFilters
from langmem_tiers.sessions.service import seal
from langmem_tiers.text.tokenize import terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.recall.retriever import Wish
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.service import ShortTermParts

BY_WORDS, BY_CONFIDENCE = 0.6, 0.1
"""What a value scores that holds every word of a query, and what its confidence adds to that."""
BY_KEY = 0.8
"""What a key counts of which the question says every word."""
KIND = "knowledge"
_PREFERENCES = 20  # that are looked at; as many are told as fit


def known_hits(parts: MemoryParts, namespace: NamespacePath, wish: Wish) -> list[Hit]:
    """What is known that answers a wish, scored so that it can stand among messages. It counts as no use."""
    asked = set(wish.query.terms)
    if not asked or not _may_come(wish):
        return []
    known = parts.knowledge_of(namespace)
    named = None if wish.filters is None else wish.filters.categories
    categories: Sequence[str | None] = [None] if named is None else sorted(named)
    found = [
        one.knowledge
        for category in categories
        for one in known.recall(wish.query.text, category=category, limit=wish.limit, use=False)
    ]
    if wish.filters is not None and wish.filters.valid_at is not None:
        then = wish.filters.valid_at
        past = (one for one in known.past_at(then) if named is None or one.category in named)
        found = [*(one for one in found if one.created_at <= then), *past]
    hits = [_hit(parts, namespace, one, asked) for one in found]
    return [hit for hit in hits if hit.signals[KIND] > 0 and _is_allowed(hit, wish.filters)]


def _may_come(wish: Wish) -> bool:
    filters = wish.filters
    if filters is None:
        return wish.strategy is Strategy.BEST
    if filters.roles is not None or filters.sessions is not None or filters.tags is not None:
        return False  # it has none of them
    if filters.kinds is not None and KIND not in filters.kinds:
        return False
    if filters.tiers is not None and Tier.KNOWLEDGE not in filters.tiers:
        return False
    named = (filters.kinds, filters.tiers, filters.categories) != (None, None, None)
    return named or wish.strategy is Strategy.BEST


def _is_allowed(hit: Hit, filters: RecallFilters | None) -> bool:
    if filters is None:
        return True
    said = hit.entry.created_at
    return (
        (filters.since is None or said >= filters.since)
        and (filters.until is None or said < filters.until)
        and hit.entry.importance >= filters.min_importance
    )


def _hit(parts: MemoryParts, namespace: NamespacePath, item: Knowledge, asked: set[str]) -> Hit:
    told = item.told
    key = _key_terms(item)
    # By how much of the question it holds, or how much of its key the question says.
    share = max(
        len(asked.intersection(terms_of(told))) / len(asked), BY_KEY * len(asked & key) / max(1, len(key))
    )
    entry = Entry(
        id=item.id,
        namespace=namespace,
        tier=Tier.KNOWLEDGE,
        kind=KIND,
        content=told,
        created_at=item.updated_at,
        importance=item.confidence,
        token_count=parts.counter.count(told),
        source=item.source,
    )
    # One word of many may be there by chance: a share counts by its square.
    signals = {KIND: BY_WORDS * share**2, "confidence": BY_CONFIDENCE * item.confidence}
    return Hit(entry=entry, score=sum(signals.values()), signals=signals, found_by=KIND, knowledge=item)


def answering(hits: Sequence[KnowledgeHit], question: str) -> list[KnowledgeHit]:
    """The hits that share more with a question than one word by chance.

    That is half of the words of their key, or two words in all.
    """
    asked = set(terms_of(question))
    return [hit for hit in hits if _answers(hit.knowledge, asked)]


def preferences(known: KnowledgeBase, found: Sequence[KnowledgeHit]) -> list[KnowledgeHit]:
    """What the user prefers, which holds whatever the question is, the surest first."""
    there = {(hit.knowledge.category, hit.knowledge.key) for hit in found}
    items = known.page(KnowledgeCategory.USER_PREFERENCE, limit=_PREFERENCES)
    by_confidence = sorted(items, key=lambda item: -item.confidence)
    untold = (item for item in by_confidence if (item.category, item.key) not in there)
    return [KnowledgeHit(knowledge=item, score=0.0) for item in untold]


def _key_terms(item: Knowledge) -> set[str]:
    return set() if item.category == NOTE else set(terms_of(item.key))


def _answers(item: Knowledge, asked: set[str]) -> bool:
    key = _key_terms(item)
    both = {term for term in key.union(terms_of(item.value)) & asked if len(term) > 1}
    return 2 * len(key & asked) >= len(key) > 0 or len(both) >= 2


def recalled_message(
    parts: ShortTermParts, hits: Sequence[KnowledgeHit], name: str, when: datetime, max_tokens: int
) -> tuple[Message | None, tuple[KnowledgeHit, ...]]:
    """A system message with the hits that fit, best first, and those hits.

    Args:
        parts: Counts tokens and makes messages.
        hits: Best first.
        name: The message's id.
        when: The message's time.
        max_tokens: What it may take.
    """
    lines: list[str] = []
    told: list[KnowledgeHit] = []
    message: Message | None = None
    for hit in hits:
        draft = MessageDraft(
            Role.SYSTEM,
            fenced([*lines, line := known_line(hit.knowledge)]),
            id=message_id(name),
            created_at=when,
            name=MEMORY,
        )
        (sealed,) = seal(parts, [draft])
        if sealed.token_count <= max_tokens:
            message = sealed
            lines.append(line)
            told.append(hit)
    return message, tuple(told)


MEMORIES_ID = "recalled-memories-"
"""How the id of a message begins that tells what was said before; that of what is known begins otherwise."""


def message_id(name: str) -> str:
    """The name as an id; a digest of it, if it is too long for one."""
    stored = name.encode("utf-8", "replace")
    if len(stored) <= MAX_NAME_BYTES:
        return name
    kind = MEMORIES_ID if name.startswith(MEMORIES_ID) else "recalled-"
    return f"{kind}{hashlib.blake2b(stored, digest_size=16).hexdigest()}"


def known_line(item: Knowledge) -> str:
    """How something known is told."""
    text = f"- {item.category} | {item.told} (confidence {item.confidence:.2f})"
    return harmless(" ".join(text.split()))
