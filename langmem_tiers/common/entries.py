"""Entries: one memory in a tier, and what can happen to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import check_time
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.messages import Message, Role, ToolCall
    from langmem_tiers.common.namespaces import NamespacePath


class Tier(StrEnum):
    """How far a memory reaches."""

    WORKING = "working"
    """This prompt."""
    SHORT_TERM = "short_term"
    """This session."""
    LONG_TERM = "long_term"
    """This namespace, promoted."""
    KNOWLEDGE = "knowledge"
    """Across sessions: key and value with a confidence."""
    EPISODIC = "episodic"
    """Moments."""
    PROCEDURAL = "procedural"
    """Learned patterns."""


class Change(StrEnum):
    """The five things that can happen to an entry."""

    PROMOTE = "promote"
    DEMOTE = "demote"
    COMPRESS = "compress"
    ARCHIVE = "archive"
    FORGET = "forget"


class EntryState(StrEnum):
    """How an entry is shown. The message behind it stays as it was said."""

    FULL = "full"
    COMPRESSED = "compressed"
    """In fewer words, with its facts."""
    ARCHIVED = "archived"
    """No longer shown; still in the record and found by search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOverride:
    """What happened to a message as a memory. A message without a mark is a full short-term entry."""

    tier: Tier = Tier.SHORT_TERM
    state: EntryState = EntryState.FULL
    relevance: float | None = None
    """Set by promotion; otherwise computed when it is asked for."""
    content: str | None = None
    """The compressed text."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """The calls with compressed arguments, where that saves anything."""
    token_count: int | None = None
    """Of the compressed form."""
    token_counter: str | None = None
    """Who counted it."""
    is_pinned: bool = False
    """Restored or promoted by hand: analysis leaves it alone."""
    digest: dict[str, Any] | None = None
    """What a summary was made of, for the one that will follow it."""
    reason: str = ""
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ViewItem:
    """A message of a session's view with its mark."""

    key: int
    """The storage's own handle of the message."""
    message: Message
    override: EntryOverride | None = None
    _overridden: Message | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def tier(self) -> Tier:
        """How far it reaches."""
        return Tier.SHORT_TERM if self.override is None else self.override.tier

    @property
    def state(self) -> EntryState:
        """How it is shown, once it has left the window of recent messages."""
        return EntryState.FULL if self.override is None else self.override.state

    def get_visible_message(self) -> Message | None:
        """The message as it is shown outside the window of recent ones; None if it is not."""
        if self.override is None or self.message.is_summary:
            return self.message
        return None if self.override.state is EntryState.ARCHIVED else self.get_overridden_message()

    def get_overridden_message(self) -> Message:
        """The message as its mark shows it: compressed, if it is."""
        mark = self.override
        if mark is None or mark.state is not EntryState.COMPRESSED or mark.content is None:
            return self.message
        if self._overridden is None:  # made once: every context asks for it
            object.__setattr__(self, "_overridden", _apply_override(self.message, mark, mark.content))
        return self._overridden or self.message


def _apply_override(message: Message, mark: EntryOverride, content: str) -> Message:
    return replace(
        message,
        content=content,
        tool_calls=message.tool_calls if mark.tool_calls is None else mark.tool_calls,
        token_count=message.token_count if mark.token_count is None else mark.token_count,
        token_counter=mark.token_counter or message.token_counter,
        payload_json=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Displayable):
    """One memory. Scores lie in [0, 1]; validity is half-open, ``valid_from <= t < valid_until``."""

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
    """How often it was recalled."""
    last_access_at: datetime | None = None
    state: EntryState = EntryState.FULL
    reason: str = ""
    """Why it is in its state and tier."""

    def __post_init__(self) -> None:
        for moment in (self.created_at, self.valid_from, self.valid_until):
            if moment is not None:
                check_time(moment)
        check_score(self.importance, "importance")
        check_score(self.relevance, "relevance")
        # One that was contradicted at the moment in which it was stored held at no time: both are the same then.
        if self.valid_from and self.valid_until and self.valid_until < self.valid_from:
            raise build_interval_error(self.valid_from, self.valid_until)

    def is_valid_at(self, moment: datetime) -> bool:
        """Whether the memory holds at that time."""
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
    """The number of its first message in the session, from 1."""
    last_turn: int
    message_count: int
    merged: int = 1
    """How many chunks it was made of."""
    token_count: int
    """Of the summary."""
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
    """What to raise for a time of validity that ends before it begins."""
    return InvalidInputError(
        f"valid_until {valid_until.isoformat()!r} must lie after valid_from {valid_from.isoformat()!r}: "
        "swap them or leave one out"
    )


def check_score(score: object, what: str) -> float:
    """The score, or an error for what lies outside [0, 1]."""
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        raise InvalidInputError(f"{what} must be a number, got a {type(score).__name__}: convert it first")
    if not 0.0 <= score <= 1.0:
        raise InvalidInputError(f"{what} must lie in [0, 1], got {score!r}: scale it first")
    return score
