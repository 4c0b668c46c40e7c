"""Memory entries, their tiers and states, and the overrides that change them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import check_time
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.messages import Message, MessageToolCall, Role
    from langmem_tiers.common.namespaces import NamespacePath


class Tier(StrEnum):
    """Scope of a memory."""

    WORKING = "working"
    """The current prompt."""
    SHORT_TERM = "short_term"
    """The current session."""
    LONG_TERM = "long_term"
    """Promoted entries of the namespace."""
    KNOWLEDGE = "knowledge"
    """Across sessions: keys and values with a confidence."""
    EPISODIC = "episodic"
    """Episodes of conversations."""
    PROCEDURAL = "procedural"
    """Learned patterns."""


class Change(StrEnum):
    """Changes that can be applied to an entry."""

    PROMOTE = "promote"
    DEMOTE = "demote"
    COMPRESS = "compress"
    ARCHIVE = "archive"
    FORGET = "forget"


class EntryState(StrEnum):
    """Form in which an entry is shown. The underlying message does not change."""

    FULL = "full"
    COMPRESSED = "compressed"
    """Shortened, with its facts preserved."""
    ARCHIVED = "archived"
    """No longer shown, but still in the record and found by search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOverride:
    """Tier, state and content that override those of a message. Without one, a message is a full short-term entry."""

    tier: Tier = Tier.SHORT_TERM
    state: EntryState = EntryState.FULL
    relevance: float | None = None
    """Relevance set by promotion; otherwise computed on access."""
    content: str | None = None
    """Compressed text."""
    tool_calls: tuple[MessageToolCall, ...] | None = None
    """Tool calls with compressed arguments, if compression saves tokens."""
    token_count: int | None = None
    """Tokens of the compressed form."""
    token_counter: str | None = None
    """Name of the counter of ``token_count``."""
    is_pinned: bool = False
    """True if the entry was restored or promoted manually; automatic analysis does not change it."""
    digest: dict[str, Any] | None = None
    """Source data of a summary, reused by the summary that follows it."""
    reason: str = ""
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ViewItem:
    """A message of a session's view with its override."""

    key: int
    """Storage key of the message."""
    message: Message
    override: EntryOverride | None = None
    _overridden: Message | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def tier(self) -> Tier:
        """Tier of the entry."""
        return Tier.SHORT_TERM if self.override is None else self.override.tier

    @property
    def state(self) -> EntryState:
        """State of the entry outside the window of recent messages."""
        return EntryState.FULL if self.override is None else self.override.state

    def get_visible_message(self) -> Message | None:
        """Return the message as shown outside the window of recent messages, or None if it is hidden."""
        if self.override is None or self.message.is_summary:
            return self.message
        return None if self.override.state is EntryState.ARCHIVED else self.get_overridden_message()

    def get_overridden_message(self) -> Message:
        """Return the message with its override applied: compressed, if it is."""
        override = self.override
        if override is None or override.state is not EntryState.COMPRESSED or override.content is None:
            return self.message
        if self._overridden is None:  # cached, because every context build reads it
            object.__setattr__(self, "_overridden", _apply_override(self.message, override, override.content))
        return self._overridden or self.message


def _apply_override(message: Message, override: EntryOverride, content: str) -> Message:
    return replace(
        message,
        content=content,
        tool_calls=message.tool_calls if override.tool_calls is None else override.tool_calls,
        token_count=message.token_count if override.token_count is None else override.token_count,
        token_counter=override.token_counter or message.token_counter,
        # The payload contains the uncompressed form of the message.
        payload_json=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Displayable):
    """One memory. Scores are in [0, 1]; validity is half-open, ``valid_from <= t < valid_until``."""

    id: str
    namespace: NamespacePath
    tier: Tier
    kind: str
    content: str
    created_at: datetime
    session: str | None = None
    role: Role | None = None
    importance: float = 0.5
    relevance: float = 0.5
    token_count: int = 0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    tags: frozenset[str] = frozenset()
    source: str | None = None
    category: str | None = None
    access_count: int = 0
    """Number of times the entry was recalled."""
    last_access_at: datetime | None = None
    state: EntryState = EntryState.FULL
    reason: str = ""
    """Reason for its state and tier."""

    def __post_init__(self) -> None:
        for moment in (self.created_at, self.valid_from, self.valid_until):
            if moment is not None:
                check_time(moment)
        check_score(self.importance, "importance")
        check_score(self.relevance, "relevance")
        # Equal times are allowed: an entry that is contradicted at the moment it is stored was never valid.
        if self.valid_from and self.valid_until and self.valid_until < self.valid_from:
            raise build_interval_error(self.valid_from, self.valid_until)

    def is_valid_at(self, moment: datetime) -> bool:
        """Return True if the memory is valid at that time."""
        return (self.valid_from is None or self.valid_from <= moment) and (
            self.valid_until is None or moment < self.valid_until
        )

    def _to_row(self) -> dict[str, object]:
        return {
            "tier": self.tier,
            "kind": self.kind,
            "state": self.state,
            "importance": self.importance,
            "tokens": self.token_count,
            "session": self.session,
            "time": self.created_at,
            "text": self.content,
        }

    def _to_line(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk(Displayable):
    """A run of older messages with its summary and topics."""

    id: str
    namespace: NamespacePath
    session: str
    number: int
    summary: str
    topics: tuple[str, ...]
    first_message_id: str
    last_message_id: str
    first_turn: int
    """Number of its first message in the session, starting at 1."""
    last_turn: int
    message_count: int
    merged: int = 1
    """Number of chunks that were merged into it."""
    token_count: int
    """Tokens of the summary."""
    created_at: datetime

    def _to_row(self) -> dict[str, object]:
        return {
            "number": self.number,
            "turns": f"{self.first_turn:,} to {self.last_turn:,}",
            "tokens": self.token_count,
            "topics": self.topics,
            "summary": self.summary,
        }


def build_interval_error(valid_from: datetime, valid_until: datetime) -> InvalidInputError:
    """Build the error for a validity period that ends before it begins."""
    return InvalidInputError(
        f"valid_until {valid_until.isoformat()!r} must be after valid_from {valid_from.isoformat()!r}: "
        "swap them or leave one out"
    )


def check_score(score: object, what: str) -> float:
    """Return the score, or raise InvalidInputError if it is outside [0, 1]."""
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        raise InvalidInputError(f"{what} must be a number, got {type(score).__name__}: convert it first")
    if not 0.0 <= score <= 1.0:
        raise InvalidInputError(f"{what} must be in [0, 1], got {score!r}: scale it first")
    return score
