"""Facts on their way from a message into long-term memory."""

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
    """How far a fact has come."""

    PENDING = "pending"
    """Extracted, and not looked at yet."""
    VALIDATED = "validated"
    """Its confidence stands; it was not high enough for it to be promoted by itself."""
    PROMOTED = "promoted"
    """A long-term entry says it."""
    QUARANTINED = "quarantined"
    """Kept aside: it must not be believed, or followed, unless somebody says so."""
    REJECTED = "rejected"
    """Somebody said that it is no fact."""


UNREADABLE_ANSWER_REASON = "an answer of the model that could not be used"
"""How the reason of a fact begins that is no fact of one message, but all that a model said of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    """A fact as it was found in a message.

    Args:
        content: What it says, in the words of the message: names, dates and numbers as they were written.
        kind: What kind of entry it would be.
        confidence: What the pattern or the model gives it, from 0 to 1.
        category: What it is about, if that is known.
        tags: Words to find it by.
        mentions: The names, dates, numbers and other facts in it, word for word.
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
    """What looking closer at an extracted fact gives."""

    confidence: float
    is_safe: bool = True
    """Whether it may be promoted by itself; otherwise it is quarantined."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact(Displayable):
    """A fact that was extracted from a message, and what became of it."""

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
    """The long-term entry that says it."""
    importance: float | None = None
    """Of the entry that it becomes; by its kind, if None."""
    source: str | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    @property
    def promoted(self) -> bool:
        """Whether a long-term entry says it."""
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
    """What was found in messages."""

    facts: tuple[FactDraft, ...] = ()
    problems: tuple[str, ...] = ()
    """What a model answered that could not be used."""
    raw_answers: tuple[str, ...] = field(default=(), repr=False)
    """The text of those answers, as they came."""
    raw_problems: tuple[str, ...] = ()
    """What is wrong with each of them."""


class FactStateChangedError(InvalidInputError):
    """An extracted fact is not in the state any more in which it was to be changed."""
