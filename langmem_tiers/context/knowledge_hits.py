"""Knowledge as recall hits among messages, and as a fenced message of a context."""

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
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.recall.retriever import RecallRequest
    from langmem_tiers.sessions.service import SessionDependencies

WORD_MATCH_WEIGHT, CONFIDENCE_WEIGHT = 0.6, 0.1
"""Score of a value that contains every word of the query, and the maximum that its confidence adds."""
KEY_MATCH_WEIGHT = 0.8
"""Match share of a value whose key is contained in the question completely."""
KNOWLEDGE_KIND = "knowledge"
# Preferences considered for a context; as many are included as fit.
_MAX_PREFERENCES = 20


def find_knowledge_hits(
    knowledge: KnowledgeBase, counter: TokenCounter, namespace: NamespacePath, request: RecallRequest
) -> list[Hit]:
    """Find knowledge that answers a request, scored for comparison with messages.

    The hits do not count as used.
    """
    query_terms = set(request.query.terms)
    if not query_terms or not _allows_knowledge(request):
        return []
    named = None if request.filters is None else request.filters.categories
    categories: Sequence[str | None] = [None] if named is None else sorted(named)
    values = [
        hit.knowledge
        for category in categories
        for hit in knowledge.recall(request.query.text, category=category, limit=request.limit, use=False)
    ]
    if request.filters is not None and request.filters.valid_at is not None:
        # At a time in the past: current values that existed then, and former values that were valid then.
        valid_at = request.filters.valid_at
        past = (value for value in knowledge.past_at(valid_at) if named is None or value.category in named)
        values = [*(value for value in values if value.created_at <= valid_at), *past]
    hits = [_build_hit(counter, namespace, value, query_terms) for value in values]
    return [hit for hit in hits if hit.signals[KNOWLEDGE_KIND] > 0 and _passes_filters(hit, request.filters)]


def _allows_knowledge(request: RecallRequest) -> bool:
    filters = request.filters
    if filters is None:
        return request.strategy is Strategy.BEST
    # Knowledge has neither roles, sessions nor tags, so it never passes such a filter.
    if filters.roles is not None or filters.sessions is not None or filters.tags is not None:
        return False
    if filters.kinds is not None and KNOWLEDGE_KIND not in filters.kinds:
        return False
    if filters.tiers is not None and Tier.KNOWLEDGE not in filters.tiers:
        return False
    # Other strategies rank messages only, unless a filter names knowledge.
    is_named = (filters.kinds, filters.tiers, filters.categories) != (None, None, None)
    return is_named or request.strategy is Strategy.BEST


def _passes_filters(hit: Hit, filters: RecallFilters | None) -> bool:
    if filters is None:
        return True
    created_at = hit.entry.created_at
    return (
        (filters.since is None or created_at >= filters.since)
        and (filters.until is None or created_at < filters.until)
        and hit.entry.importance >= filters.min_importance
    )


def _build_hit(
    counter: TokenCounter, namespace: NamespacePath, item: Knowledge, query_terms: set[str]
) -> Hit:
    text = item.text
    key_terms = _get_key_terms(item)
    # The share of the question that the value contains, or of its key that the question contains.
    share = max(
        len(query_terms.intersection(extract_terms(text))) / len(query_terms),
        KEY_MATCH_WEIGHT * len(query_terms & key_terms) / max(1, len(key_terms)),
    )
    entry = Entry(
        id=item.id,
        namespace=namespace,
        tier=Tier.KNOWLEDGE,
        kind=KNOWLEDGE_KIND,
        content=text,
        created_at=item.updated_at,
        importance=item.confidence,
        token_count=counter.count(text),
        source=item.source,
    )
    # One matching word of many may be a coincidence. Squaring the share keeps such matches low.
    signals = {
        KNOWLEDGE_KIND: WORD_MATCH_WEIGHT * share**2,
        "confidence": CONFIDENCE_WEIGHT * item.confidence,
    }
    return Hit(
        entry=entry, score=sum(signals.values()), signals=signals, found_by=KNOWLEDGE_KIND, knowledge=item
    )


def filter_answering_hits(hits: Sequence[KnowledgeHit], question: str) -> list[KnowledgeHit]:
    """Return the hits that match the question by more than one coincidental word.

    They share at least half of the words of their key, or two words overall, with the question.
    """
    query_terms = set(extract_terms(question))
    return [hit for hit in hits if _is_answer(hit.knowledge, query_terms)]


def find_preferences(known: KnowledgeBase, hits: Sequence[KnowledgeHit]) -> list[KnowledgeHit]:
    """Return the user's preferences, which matter for any question, by descending confidence.

    Args:
        known: Knowledge base of the namespace.
        hits: Hits for the question; preferences among them are not repeated.
    """
    found_names = {(hit.knowledge.category, hit.knowledge.key) for hit in hits}
    items = known.page(KnowledgeCategory.USER_PREFERENCE, limit=_MAX_PREFERENCES)
    by_confidence = sorted(items, key=lambda item: -item.confidence)
    others = (item for item in by_confidence if (item.category, item.key) not in found_names)
    return [KnowledgeHit(knowledge=item, score=0.0) for item in others]


def _get_key_terms(item: Knowledge) -> set[str]:
    # Notes are free text: their keys carry no meaning.
    return set() if item.category == NOTE_CATEGORY else set(extract_terms(item.key))


def _is_answer(item: Knowledge, query_terms: set[str]) -> bool:
    key_terms = _get_key_terms(item)
    # Terms of one character match too easily to count.
    shared = {term for term in key_terms.union(extract_terms(item.value)) & query_terms if len(term) > 1}
    return 2 * len(key_terms & query_terms) >= len(key_terms) > 0 or len(shared) >= 2


def build_knowledge_message(
    dependencies: SessionDependencies,
    hits: Sequence[KnowledgeHit],
    name: str,
    when: datetime,
    max_tokens: int,
) -> tuple[Message | None, tuple[KnowledgeHit, ...]]:
    """Build a system message of the hits that fit; return it with the hits that it contains.

    Args:
        dependencies: Services that count tokens and create messages.
        hits: Hits, best first.
        name: Id of the message.
        when: Time of the message.
        max_tokens: Token limit of the message.
    """
    lines: list[str] = []
    included: list[KnowledgeHit] = []
    message: Message | None = None
    for hit in hits:
        # Build the whole message with one more line each time: only that gives its exact token count. A hit that
        # does not fit is skipped, since a later one may be shorter.
        draft = MessageDraft(
            Role.SYSTEM,
            wrap_in_fence([*lines, line := format_knowledge(hit.knowledge)]),
            id=to_message_id(name),
            created_at=when,
            name=MEMORY_NAME,
        )
        (candidate,) = complete_drafts(dependencies, [draft])
        if candidate.token_count <= max_tokens:
            message = candidate
            lines.append(line)
            included.append(hit)
    return message, tuple(included)


MEMORIES_MESSAGE_ID_PREFIX = "recalled-memories-"
"""Id prefix of messages with recalled memories; those with knowledge have another prefix."""


def to_message_id(name: str) -> str:
    """Return a message id for a name: the name itself, or a digest of it if it is too long."""
    encoded = name.encode("utf-8", "replace")
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    # Keep the prefix: it tells the two kinds of recalled messages apart.
    prefix = MEMORIES_MESSAGE_ID_PREFIX if name.startswith(MEMORIES_MESSAGE_ID_PREFIX) else "recalled-"
    return f"{prefix}{hashlib.blake2b(encoded, digest_size=16).hexdigest()}"


def format_knowledge(item: Knowledge) -> str:
    """Return a knowledge value as one line of a context."""
    text = f"- {item.category} | {item.text} (confidence {item.confidence:.2f})"
    return neutralize_fence_tags(" ".join(text.split()))
