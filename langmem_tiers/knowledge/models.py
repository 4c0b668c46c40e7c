"""Knowledge: what holds across sessions, as key and value with a confidence."""

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
    """What kind of thing is known. Any other name is a category too."""

    DOMAIN = "domain"
    EXECUTION_PATTERN = "execution_pattern"
    USER_PREFERENCE = "user_preference"
    WEBSITE_KNOWLEDGE = "website_knowledge"
    ERROR_PATTERN = "error_pattern"


NOTE_CATEGORY = "note"
"""The category of what was said in a sentence, without a key of its own: its key is not told."""
_UNSAFE_IN_CATEGORY = re.compile("[%/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge(Displayable):
    """One thing that is known. A category and a key have one value at a time."""

    category: str
    key: str
    value: str
    confidence: float
    created_at: datetime
    """When this value was first stored."""
    updated_at: datetime
    """When it was last stored."""
    fresh_at: datetime
    """From when on it counts as unused."""
    last_used_at: datetime | None = None
    use_count: int = 0
    store_count: int = 1
    source: str | None = None

    @property
    def id(self) -> str:
        """Category and key in one text; ``name_from_id`` reads it."""
        return id_from_name(self.category, self.key)

    @property
    def text(self) -> str:
        """How it is told: the key with the value, or a note as it was said."""
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
    """Category and key in one text."""
    safe = _UNSAFE_IN_CATEGORY.sub(lambda found: f"%{ord(found[0]):02X}", category)
    return f"{safe}/{key}"


def name_from_id(knowledge_id: str) -> tuple[str, str] | None:
    """The category and the key that an id of knowledge names; None if it is no such id."""
    category, _, key = knowledge_id.partition("/")
    return (unescape(category), key) if category and key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastKnowledge(Displayable):
    """A value that no longer holds, and from when until when it did."""

    category: str
    key: str
    value: str
    confidence: float
    valid_from: datetime
    valid_until: datetime
    reason: str
    """``superseded``, ``pruned`` or ``removed``."""
    source: str | None = None
    """Of the value; None too for what was replaced before schema 11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeReport(Displayable):
    """What became of something that was stored."""

    knowledge: Knowledge
    """As it stands now."""
    is_new: bool
    """Nothing was known under this key."""
    superseded: PastKnowledge | None = None
    """The value that the new one contradicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit(Displayable):
    """Something known that answers a text."""

    knowledge: Knowledge
    score: float
    """Higher is better; comparable within one search only."""

    def _to_row(self) -> dict[str, object]:
        return {"score": self.score, **to_display_row(self.knowledge)}


@dataclass(frozen=True, slots=True)
class KnowledgeUpdate:
    """What a store is to write in place of what it holds, and what goes into history."""

    knowledge: Knowledge | None
    past: PastKnowledge | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayReport(Displayable):
    """What time did to unused knowledge."""

    decayed: int
    pruned: int
