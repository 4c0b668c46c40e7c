"""What is known across sessions: as hits beside messages, and as a message of a context, fenced as data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.common.messages import Message, MessageDraft, Role
from langmem_tiers.common.namespaces import MAX_NAME_BYTES
from langmem_tiers.common.prompt_fences import MEMORY_NAME, neutralize_fence_tags, wrap_in_fence
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.knowledge.models import NOTE_CATEGORY, KnowledgeCategory, KnowledgeHit
from langmem_tiers.recall.models import Hit, RecallFilters
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.recall.retriever import RecallRequest
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.service import SessionDependencies

WORD_MATCH_WEIGHT, CONFIDENCE_WEIGHT = 0.6, 0.1
"""What a value scores that holds every word of a query, and what its confidence adds to that."""
KEY_MATCH_WEIGHT = 0.8
"""What a key counts of which the question says every word."""
KNOWLEDGE_KIND = "knowledge"
_MAX_PREFERENCES = 20  # that are looked at; as many are told as fit


def find_knowledge_hits(parts: EngineServices, namespace: NamespacePath, wish: RecallRequest) -> list[Hit]:
    """What is known that answers a wish, scored so that it can stand among messages. It counts as no use."""
    asked = set(wish.query.terms)
    if not asked or not _allows_knowledge(wish):
        return []
    known = parts.get_knowledge(namespace)
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
    hits = [_build_hit(parts, namespace, one, asked) for one in found]
    return [hit for hit in hits if hit.signals[KNOWLEDGE_KIND] > 0 and _passes_filters(hit, wish.filters)]


def _allows_knowledge(wish: RecallRequest) -> bool:
    filters = wish.filters
    if filters is None:
        return wish.strategy is Strategy.BEST
    if filters.roles is not None or filters.sessions is not None or filters.tags is not None:
        return False  # it has none of them
    if filters.kinds is not None and KNOWLEDGE_KIND not in filters.kinds:
        return False
    if filters.tiers is not None and Tier.KNOWLEDGE not in filters.tiers:
        return False
    named = (filters.kinds, filters.tiers, filters.categories) != (None, None, None)
    return named or wish.strategy is Strategy.BEST


def _passes_filters(hit: Hit, filters: RecallFilters | None) -> bool:
    if filters is None:
        return True
    said = hit.entry.created_at
    return (
        (filters.since is None or said >= filters.since)
        and (filters.until is None or said < filters.until)
        and hit.entry.importance >= filters.min_importance
    )


def _build_hit(parts: EngineServices, namespace: NamespacePath, item: Knowledge, asked: set[str]) -> Hit:
    told = item.text
    key = _get_key_terms(item)
    # By how much of the question it holds, or how much of its key the question says.
    share = max(
        len(asked.intersection(extract_terms(told))) / len(asked),
        KEY_MATCH_WEIGHT * len(asked & key) / max(1, len(key)),
    )
    entry = Entry(
        id=item.id,
        namespace=namespace,
        tier=Tier.KNOWLEDGE,
        kind=KNOWLEDGE_KIND,
        content=told,
        created_at=item.updated_at,
        importance=item.confidence,
        token_count=parts.counter.count(told),
        source=item.source,
    )
    # One word of many may be there by chance: a share counts by its square.
    signals = {
        KNOWLEDGE_KIND: WORD_MATCH_WEIGHT * share**2,
        "confidence": CONFIDENCE_WEIGHT * item.confidence,
    }
    return Hit(
        entry=entry, score=sum(signals.values()), signals=signals, found_by=KNOWLEDGE_KIND, knowledge=item
    )


def filter_answering_hits(hits: Sequence[KnowledgeHit], question: str) -> list[KnowledgeHit]:
    """The hits that share more with a question than one word by chance.

    That is half of the words of their key, or two words in all.
    """
    asked = set(extract_terms(question))
    return [hit for hit in hits if _is_answer(hit.knowledge, asked)]


def find_preferences(known: KnowledgeBase, found: Sequence[KnowledgeHit]) -> list[KnowledgeHit]:
    """What the user prefers, which holds whatever the question is, the surest first."""
    there = {(hit.knowledge.category, hit.knowledge.key) for hit in found}
    items = known.page(KnowledgeCategory.USER_PREFERENCE, limit=_MAX_PREFERENCES)
    by_confidence = sorted(items, key=lambda item: -item.confidence)
    untold = (item for item in by_confidence if (item.category, item.key) not in there)
    return [KnowledgeHit(knowledge=item, score=0.0) for item in untold]


def _get_key_terms(item: Knowledge) -> set[str]:
    return set() if item.category == NOTE_CATEGORY else set(extract_terms(item.key))


def _is_answer(item: Knowledge, asked: set[str]) -> bool:
    key = _get_key_terms(item)
    both = {term for term in key.union(extract_terms(item.value)) & asked if len(term) > 1}
    return 2 * len(key & asked) >= len(key) > 0 or len(both) >= 2


def build_knowledge_message(
    parts: SessionDependencies, hits: Sequence[KnowledgeHit], name: str, when: datetime, max_tokens: int
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
            wrap_in_fence([*lines, line := format_knowledge(hit.knowledge)]),
            id=to_message_id(name),
            created_at=when,
            name=MEMORY_NAME,
        )
        (sealed,) = complete_drafts(parts, [draft])
        if sealed.token_count <= max_tokens:
            message = sealed
            lines.append(line)
            told.append(hit)
    return message, tuple(told)


MEMORIES_MESSAGE_ID_PREFIX = "recalled-memories-"
"""How the id of a message begins that tells what was said before; that of what is known begins otherwise."""


def to_message_id(name: str) -> str:
    """The name as an id; a digest of it, if it is too long for one."""
    stored = name.encode("utf-8", "replace")
    if len(stored) <= MAX_NAME_BYTES:
        return name
    kind = MEMORIES_MESSAGE_ID_PREFIX if name.startswith(MEMORIES_MESSAGE_ID_PREFIX) else "recalled-"
    return f"{kind}{hashlib.blake2b(stored, digest_size=16).hexdigest()}"


def format_knowledge(item: Knowledge) -> str:
    """How something known is told."""
    text = f"- {item.category} | {item.text} (confidence {item.confidence:.2f})"
    return neutralize_fence_tags(" ".join(text.split()))
