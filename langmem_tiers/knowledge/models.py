"""Knowledge across sessions: a value under a category and a key, with a confidence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import unescape
from langmem_tiers.display.displayable import Displayable, to_display_row

if TYPE_CHECKING:
    from datetime import datetime


class KnowledgeCategory(StrEnum):
    """Category of a piece of knowledge. Any other string is a category, too."""

    DOMAIN = "domain"
    EXECUTION_PATTERN = "execution_pattern"
    USER_PREFERENCE = "user_preference"
    WEBSITE_KNOWLEDGE = "website_knowledge"
    ERROR_PATTERN = "error_pattern"


NOTE_CATEGORY = "note"
"""Category of sentences noted without a key of their own. Their generated key is never displayed."""
_UNSAFE_IN_CATEGORY = re.compile("[%/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge(Displayable):
    """A piece of knowledge. Each pair of category and key has one value at a time."""

    category: str
    key: str
    value: str
    confidence: float
    created_at: datetime
    """Time at which this value was first stored."""
    updated_at: datetime
    """Time at which this value was last stored."""
    fresh_at: datetime
    """Start of the period without use. Every 30 days since then lower the confidence."""
    last_used_at: datetime | None = None
    use_count: int = 0
    store_count: int = 1
    source: str | None = None

    @property
    def id(self) -> str:
        """Category and key as one string. ``name_from_id`` parses it."""
        return id_from_name(self.category, self.key)

    @property
    def text(self) -> str:
        """Text for display and prompts: the key and the value, or only the sentence of a note."""
        return self.value if self.category == NOTE_CATEGORY else f"{self.key}: {self.value}"

    def _to_row(self) -> dict[str, object]:
        return {
            "category": self.category,
            "key": self.key,
            "value": self.value,
            "confidence": self.confidence,
            "used": self.use_count,
            "updated": self.updated_at,
        }

    def _to_line(self) -> str:
        return self.text


def id_from_name(category: str, key: str) -> str:
    """Return the id of a category and a key. "%" and "/" in the category are escaped."""
    safe = _UNSAFE_IN_CATEGORY.sub(lambda found: f"%{ord(found[0]):02X}", category)
    return f"{safe}/{key}"


def name_from_id(knowledge_id: str) -> tuple[str, str] | None:
    """Return the category and key of an id, or None if the id is malformed."""
    # The first "/" separates them: the category contains none, the key may contain more.
    category, _, key = knowledge_id.partition("/")
    return (unescape(category), key) if category and key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastKnowledge(Displayable):
    """A former value and the period in which it was valid."""

    category: str
    key: str
    value: str
    confidence: float
    valid_from: datetime
    valid_until: datetime
    reason: str
    """Reason for its end: ``superseded``, ``pruned`` or ``removed``."""
    source: str | None = None
    """Origin of the value. None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeReport(Displayable):
    """Result of storing knowledge."""

    knowledge: Knowledge
    """The knowledge that is stored now."""
    is_new: bool
    """True if the key had no value before."""
    superseded: PastKnowledge | None = None
    """The former value that the new one replaced, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit(Displayable):
    """Knowledge that matches a search text."""

    knowledge: Knowledge
    score: float
    """Relevance; higher is better. Comparable only within one search."""

    def _to_row(self) -> dict[str, object]:
        return {"score": self.score, **to_display_row(self.knowledge)}


@dataclass(frozen=True, slots=True)
class KnowledgeUpdate:
    """New state of a key: the knowledge to store, or None to delete it, and the entry to add to the history."""

    knowledge: Knowledge | None
    past: PastKnowledge | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayReport(Displayable):
    """Result of a decay run. ``decayed`` counts all stale values, ``pruned`` those of them that were removed."""

    decayed: int
    pruned: int
