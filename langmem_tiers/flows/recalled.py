"""What was recalled from elsewhere, fenced as data, as one message of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.knowledge import KnowledgeCategory, KnowledgeHit
from langmem_tiers.core.messages import Message, MessageDraft, Role
from langmem_tiers.retrieval.fences import MEMORY, fenced, harmless
from langmem_tiers.scoring.words import all_words, query_words
from langmem_tiers.tiers.short_term import seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.knowledge import Knowledge
    from langmem_tiers.tiers.knowledge import KnowledgeBase
    from langmem_tiers.tiers.short_term import ShortTermParts

_PREFERENCES = 20  # that are looked at; as many are told as fit
_STEM = 4  # letters by which two forms of a word are taken for the same


def answering(hits: Sequence[KnowledgeHit], question: str) -> list[KnowledgeHit]:
    """The hits that share more with a question than one word by chance.

    That is half of the words of their key, or two words in all.
    """
    asked = {word[:_STEM] for word in query_words(question)}
    return [hit for hit in hits if _answers(hit.knowledge, asked)]


def preferences(known: KnowledgeBase, found: Sequence[KnowledgeHit]) -> list[KnowledgeHit]:
    """What the user prefers, which holds whatever the question is, the surest first."""
    there = {hit.knowledge.key for hit in found}
    items = known.page(KnowledgeCategory.USER_PREFERENCE, limit=_PREFERENCES)
    by_confidence = sorted(items, key=lambda item: -item.confidence)
    return [KnowledgeHit(knowledge=item, score=0.0) for item in by_confidence if item.key not in there]


def _answers(item: Knowledge, asked: set[str]) -> bool:
    key = {word[:_STEM] for word in query_words(item.key)}
    both = key | {word[:_STEM] for word in all_words(item.value)}
    return 2 * len(key & asked) >= len(key) > 0 or len(both & asked) >= 2


def recalled_message(
    parts: ShortTermParts, hits: Sequence[KnowledgeHit], question: Message, max_tokens: int
) -> tuple[Message | None, tuple[KnowledgeHit, ...]]:
    """A system message with the hits that fit, best first, and those hits. Its id follows from the question's."""
    lines: list[str] = []
    told: list[KnowledgeHit] = []
    message: Message | None = None
    for hit in hits:
        draft = MessageDraft(
            Role.SYSTEM,
            fenced([*lines, line := _line(hit)]),
            id=f"recalled-{question.id}"[:200],
            created_at=question.created_at,
            name=MEMORY,
        )
        (sealed,) = seal(parts, [draft])
        if sealed.token_count <= max_tokens:
            message = sealed
            lines.append(line)
            told.append(hit)
    return message, tuple(told)


def _line(hit: KnowledgeHit) -> str:
    item = hit.knowledge
    text = f"- {item.category} | {item.key}: {item.value} (confidence {item.confidence:.2f})"
    return harmless(" ".join(text.split()))
