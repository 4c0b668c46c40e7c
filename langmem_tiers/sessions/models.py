"""Models of a session: views, list changes and the reports that its methods return."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.tool_call_groups import group_tool_calls
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath


@dataclass(frozen=True, slots=True)
class StoredView:
    """The visible part of a session at one moment."""

    items: tuple[ViewItem, ...]
    """Visible items, oldest first; the active summary, if there is one, comes first."""
    hidden_count: int
    """Number of messages covered by summaries."""
    session: int
    """Key of the session."""
    revision: int = 0
    """Revision of the view: grows with each override and each summary, but not with new messages."""
    newest_position: int = 0
    """Position of the newest message in the record."""
    derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cache of values computed from this view."""

    @property
    def groups(self) -> Sequence[tuple[int, int]]:
        """Half-open ranges of items that belong together, such as a tool call and its results."""
        cached: Sequence[tuple[int, int]] | None = self.derived.get("groups")
        if cached is None:
            cached = self.derived["groups"] = self._extend_groups() or group_tool_calls(
                [i.message for i in self.items]
            )
        return cached

    @property
    def previous(self) -> StoredView | None:
        """View that this one extends by new messages, if it is still in memory."""
        previous: StoredView | None = self.derived.get("earlier")
        return previous

    def restrict_to(self, ids: AbstractSet[str]) -> StoredView:
        """Return the view with only these messages and the active summary."""
        # The summary is the first item. It stays; any other summary message is a message like the rest.
        excluded = frozenset(
            item.message.id
            for index, item in enumerate(self.items)
            if item.message.id not in ids and (index or not item.message.is_summary)
        )
        if not excluded:
            return self
        cached: StoredView | None = self.derived.get(("only", excluded))
        if cached is None:
            left = tuple(item for item in self.items if item.message.id not in excluded)
            cached = self.derived["only", excluded] = replace(self, items=left)
        return cached

    def set_previous(self, earlier: StoredView) -> None:
        """Remember the view that this one extends, to reuse the values computed from it."""
        self.derived["earlier"] = earlier
        # Keep one predecessor only. Otherwise a long session would keep all its former views in memory.
        earlier.derived.pop("earlier", None)

    def _extend_groups(self) -> list[tuple[int, int]] | None:
        # Extend the groups of the previous view instead of grouping all messages again. This is possible only if
        # its last group and the new messages contain neither tool calls nor results: then each new message is a
        # group of its own. Read `previous` once, since another thread may clear it.
        earlier = self.previous
        known: list[tuple[int, int]] | None = None if earlier is None else earlier.derived.get("groups")
        if not known:
            return None
        last_start, last_end = known[-1]
        if any(item.message.tool_calls or item.message.tool_call_id for item in self.items[last_start:]):
            return None
        return [*known, *((index, index + 1) for index in range(last_end, len(self.items)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUp:
    """A summary that replaces the oldest messages of a view."""

    summary: Message
    first_visible_id: str
    """Id of the first message that stays visible."""
    hidden_count: int
    """Number of visible messages that the summary replaces."""
    digest: dict[str, Any] | None = None
    """Digest from which the summary was written; stored as long as the summary is active."""


@dataclass(frozen=True, slots=True)
class LocatedItem:
    """A message with its override, and the name of its session."""

    item: ViewItem
    session: str


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Result of storing a batch of messages."""

    stored: tuple[Message, ...]
    duplicates: tuple[Message, ...]
    revision: int
    """Revision of the session after the batch."""
    has_recovered_messages: bool = field(default=False, kw_only=True)
    """True if an earlier attempt, whose reply was lost, stored some messages. Others may have written since."""
    previous_write_at: datetime | None = field(default=None, kw_only=True)
    """Time of the previous write to the session; None if the store does not know it."""


@dataclass(frozen=True, slots=True)
class SessionBatch:
    """Messages for one session, which is created if needed."""

    namespace: NamespacePath
    session: str
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class SessionAppendResult(AppendResult):
    """Result of storing a batch for a session given by name."""

    key: int
    """Key of the session."""


@dataclass(frozen=True, slots=True)
class VersionedMessages:
    """Messages of a session, oldest first, and the session revision at which they were read."""

    messages: tuple[Message, ...]
    revision: int


class Listing(StrEnum):
    """State of a message in the message list of its session. The record keeps the message in any case."""

    ACTIVE = "active"
    """In the list (default)."""
    ARCHIVED = "archived"
    """In the list, but archived: a framework moved it out of its active messages."""
    REPLACED = "replaced"
    """No longer in the list, because the list was replaced; recall still finds it."""
    REMOVED = "removed"
    """Removed from the list explicitly; neither contexts nor recall include it."""


IN_LIST = (Listing.ACTIVE, Listing.ARCHIVED)
"""States of messages in the list."""
OUT_OF_LIST = (Listing.REPLACED, Listing.REMOVED)
"""States of messages no longer in the list."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """A change of a message list, applied completely or not at all."""

    listing_by_id: dict[str, Listing]
    """New state of existing messages, by message id."""
    added: tuple[Message, ...]
    """Messages appended to the list."""
    added_listing: Listing = Listing.ACTIVE
    """State of the appended messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceReport(Displayable):
    """Result of replacing the message list of a session."""

    kept: int
    """Number of messages that both lists share."""
    added: tuple[Message, ...]
    replaced: int
    """Number of messages of the former list that are not in the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo(Displayable):
    """Current state of a session: name, times and size of its record."""

    namespace: NamespacePath
    name: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    token_count: int
    compressed_count: int
    key: int
    """Internal key, valid in this database only."""
    revision: int
    """Revision number; grows with every change of the session by any process."""

    def _to_row(self) -> dict[str, object]:
        return {
            "session": self.name,
            "messages": self.message_count,
            "compressed": self.compressed_count,
            "tokens": self.token_count,
            "updated": self.updated_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReport(Displayable):
    """Result of adding messages; each list is in the order of the arguments."""

    stored: tuple[Message, ...]
    """New messages, now durable."""
    duplicates: tuple[Message, ...]
    """Messages whose ids were stored before; the stored version is unchanged."""
    echoes: tuple[Message, ...] = ()
    """Messages that only contain text injected from memory; they are not stored."""

    @property
    def tokens(self) -> int:
        """Number of tokens added."""
        return sum(message.token_count for message in self.stored)

    @property
    def message(self) -> Message:
        """The only message of the report.

        Raises:
            InvalidInputError: Several messages were added, or none.
        """
        messages = self.stored + self.duplicates + self.echoes
        if len(messages) != 1:
            raise InvalidInputError(
                f"the report has {len(messages)} messages, expected 1: use stored, duplicates and echoes"
            )
        return messages[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage(Displayable):
    """A page of a session's record: oldest first from ``page()``, newest first from ``page_back()``."""

    messages: tuple[Message, ...]
    next_after: str | None
    """Value of ``after``, or of ``before`` for ``page_back()``, for the next page; None on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(Displayable):
    """A page of a namespace's sessions, newest first."""

    sessions: tuple[SessionInfo, ...]
    next_after: str | None
    """Value of ``after`` for the next page; None on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressReport(Displayable):
    """Result of replacing messages with a summary."""

    summary: Message | None
    """The ``[CONTEXT SUMMARY]`` message; None if there was nothing to compress."""
    compressed: int
    """Number of visible messages that the summary replaces."""
    tokens_before: int
    """Tokens of these messages."""
    tokens_after: int
    """Tokens of the summary."""
    boundary: str | None
    """Id of the first message that is still visible: the requested one, or the start of its tool call group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport(Displayable):
    """Numbers of erased sessions and messages."""

    sessions: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Tokens saved by compression, and the number of actions by kind."""

    tokens: int = 0
    compressed: int = 0
    dropped: int = 0
    promoted: int = 0
