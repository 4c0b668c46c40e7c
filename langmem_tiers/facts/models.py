"""Data models of fact extraction: drafts, validation results, stored facts and their states."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import check_score
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime


class FactState(StrEnum):
    """State of an extracted fact."""

    PENDING = "pending"
    """Extracted, not validated yet."""
    VALIDATED = "validated"
    """Validated; the confidence is too low for automatic promotion."""
    PROMOTED = "promoted"
    """Stored as a long-term entry."""
    QUARANTINED = "quarantined"
    """Possibly unsafe: never used unless a person promotes it."""
    REJECTED = "rejected"
    """Rejected by a person."""


UNREADABLE_ANSWER_REASON = "unusable answer of the model"
"""Prefix of the reason of a quarantined fact that contains a raw, unusable model answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    """A fact found in a message, before validation.

    Args:
        content: The statement; names, dates and numbers are spelled as in the message.
        kind: Kind of the entry that the fact would become.
        confidence: Confidence of the pattern or the model, from 0 to 1.
        category: Topic of the fact, if known.
        tags: Keywords for filters and search.
        mentions: Names, dates, numbers and other details in the content, verbatim.
    """

    content: str
    kind: str
    confidence: float
    category: str | None = None
    tags: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_score(self.confidence, "confidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Result of validating an extracted fact."""

    confidence: float
    is_safe: bool = True
    """True if the fact may be promoted automatically; otherwise it is quarantined."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact(Displayable):
    """A stored fact that was extracted from a message, with its state."""

    id: str
    content: str
    kind: str
    confidence: float
    session: str | None
    source_message_id: str | None
    extracted_at: datetime
    state: FactState = FactState.PENDING
    reason: str = ""
    category: str | None = None
    tags: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    entry_id: str | None = None
    """Id of the long-term entry of a promoted fact."""
    importance: float | None = None
    """Importance of the entry on promotion; if None, it depends on the kind."""
    source: str | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    @property
    def promoted(self) -> bool:
        """True if the fact is stored as a long-term entry."""
        return self.state is FactState.PROMOTED

    def _to_row(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "state": self.state,
            "confidence": self.confidence,
            "session": self.session,
            "text": self.content,
            "reason": self.reason,
        }

    def _to_line(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionResult:
    """Facts that a model found in messages, and problems with its answers."""

    facts: tuple[FactDraft, ...] = ()
    problems: tuple[str, ...] = ()
    """Problems with the model's answers."""
    raw_answers: tuple[str, ...] = field(default=(), repr=False)
    """Verbatim text of the answers that had problems."""
    raw_problems: tuple[str, ...] = ()
    """Problems of each raw answer, in the same order."""


class FactStateChangedError(InvalidInputError):
    """The state of an extracted fact was changed concurrently; the requested change was not made."""
