"""What each verb gives back: small frozen reports."""

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
    """What of a session is shown, as of one moment."""

    items: tuple[ViewItem, ...]
    """Oldest first; the summary in force, if there is one, comes first."""
    hidden_count: int
    """How many messages stand behind summaries."""
    session: int
    """The session's key."""
    revision: int = 0
    """Grows with every mark and every summary, and not with new messages."""
    newest_position: int = 0
    """Where the newest message stands in the record."""
    derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out from it, for whoever asks again."""

    @property
    def groups(self) -> Sequence[tuple[int, int]]:
        """Its items as half-open ranges that must not be parted."""
        found: Sequence[tuple[int, int]] | None = self.derived.get("groups")
        if found is None:
            found = self.derived["groups"] = self._extend_groups() or group_tool_calls(
                [i.message for i in self.items]
            )
        return found

    @property
    def previous(self) -> StoredView | None:
        """The view that this one has grown from by new messages, if that is at hand."""
        found: StoredView | None = self.derived.get("earlier")
        return found

    def restrict_to(self, ids: AbstractSet[str]) -> StoredView:
        """The view with no other messages than these, besides the summary in force."""
        others = frozenset(
            item.message.id
            for place, item in enumerate(self.items)
            if item.message.id not in ids and (place or not item.message.is_summary)
        )
        if not others:
            return self
        known: StoredView | None = self.derived.get(("only", others))
        if known is None:
            left = tuple(item for item in self.items if item.message.id not in others)
            known = self.derived["only", others] = replace(self, items=left)
        return known

    def set_previous(self, earlier: StoredView) -> None:
        """Remember what it has grown from, so that what was worked out need not be worked out again."""
        self.derived["earlier"] = earlier
        earlier.derived.pop("earlier", None)

    def _extend_groups(self) -> list[tuple[int, int]] | None:
        # Only where nothing is open at the end and nothing new belongs to a call.
        earlier = self.previous  # read once: another thread may let go of it
        known: list[tuple[int, int]] | None = None if earlier is None else earlier.derived.get("groups")
        if not known:
            return None
        last, done = known[-1][0], known[-1][1]
        if any(item.message.tool_calls or item.message.tool_call_id for item in self.items[last:]):
            return None
        return [*known, *((index, index + 1) for index in range(done, len(self.items)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUp:
    """A summary that takes the place of the oldest messages of a view."""

    summary: Message
    first_visible_id: str
    """Id of the first message that stays in sight."""
    hidden_count: int
    """How many messages it newly stands for."""
    digest: dict[str, Any] | None = None
    """What it was made of; kept as long as it is in force."""


@dataclass(frozen=True, slots=True)
class LocatedItem:
    """A long-term entry and where it comes from."""

    item: ViewItem
    session: str


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What a store did with a batch."""

    stored: tuple[Message, ...]
    duplicates: tuple[Message, ...]
    revision: int
    """Of the session, after the batch."""
    has_recovered_messages: bool = field(default=False, kw_only=True)
    """Whether some of it was kept by a try whose answer was lost: others may have written since."""
    previous_write_at: datetime | None = field(default=None, kw_only=True)
    """When the session was last written to before this; None if the store cannot tell."""


@dataclass(frozen=True, slots=True)
class SessionBatch:
    """Messages for one session, which is made if it is not there."""

    namespace: NamespacePath
    session: str
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class SessionAppendResult(AppendResult):
    """What a store did with a batch for a session that it looked up by itself."""

    key: int
    """The session's."""


@dataclass(frozen=True, slots=True)
class VersionedMessages:
    """The newest messages of a session, oldest first, and the revision they were read at."""

    messages: tuple[Message, ...]
    revision: int


class Listing(StrEnum):
    """How a message stands in the list of its session. The record keeps it in any case."""

    ACTIVE = "active"
    """In the list. Messages are, unless something else was said of them."""
    ARCHIVED = "archived"
    """In the list, and done with: a framework has moved it out of what it shows."""
    REPLACED = "replaced"
    """No longer in the list, because another list was put in its place; recall still finds it."""
    REMOVED = "removed"
    """Taken out of the list by name; neither contexts nor recall show it."""


IN_LIST = (Listing.ACTIVE, Listing.ARCHIVED)
"""What the list is made of."""
OUT_OF_LIST = (Listing.REPLACED, Listing.REMOVED)
"""What is no longer in it."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """A change of a list, all of it or nothing."""

    listing_by_id: dict[str, Listing]
    """What becomes of messages that are there, by their ids."""
    added: tuple[Message, ...]
    """What comes behind them."""
    added_listing: Listing = Listing.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceReport(Displayable):
    """What became of a list that was put in place of another."""

    kept: int
    """How many of its messages were there already."""
    added: tuple[Message, ...]
    replaced: int
    """How many of the former list are no longer in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo(Displayable):
    """A session as it stands: the record's size and what of it is shown in full."""

    namespace: NamespacePath
    name: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    token_count: int
    compressed_count: int
    key: int
    """The storage's own handle; means nothing outside this database."""
    revision: int
    """Grows with every change of the session, whoever made it."""

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
    """What became of the messages that were handed in, all of them in order."""

    stored: tuple[Message, ...]
    """New and durable."""
    duplicates: tuple[Message, ...]
    """Known by their id already; kept as first stored."""
    echoes: tuple[Message, ...] = ()
    """What a context had injected from memory; not stored again."""

    @property
    def tokens(self) -> int:
        """The tokens that were added."""
        return sum(message.token_count for message in self.stored)

    @property
    def message(self) -> Message:
        """The one message, where one was handed in."""
        messages = self.stored + self.duplicates + self.echoes
        if len(messages) != 1:
            raise InvalidInputError(f"the report holds {len(messages)} messages: read stored and duplicates")
        return messages[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage(Displayable):
    """A page of a session's record: oldest first from ``page()``, newest first from ``page_back()``."""

    messages: tuple[Message, ...]
    next_after: str | None
    """Pass it as ``after``, or as ``before`` going back, to get the next page; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(Displayable):
    """A page of a namespace's sessions, newest first."""

    sessions: tuple[SessionInfo, ...]
    next_after: str | None
    """Pass it as ``after`` to get the next page; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressReport(Displayable):
    """What a compression put behind a summary."""

    summary: Message | None
    """The ``[CONTEXT SUMMARY]`` message; None where there was nothing to compress."""
    compressed: int
    """How many messages it stands for that were shown before."""
    tokens_before: int
    """Tokens of those messages."""
    tokens_after: int
    """Tokens of the summary."""
    boundary: str | None
    """Id of the first message still shown: the one asked for, or the start of its tool group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport(Displayable):
    """What was erased."""

    sessions: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What was saved, and how."""

    tokens: int = 0
    compressed: int = 0
    dropped: int = 0
    promoted: int = 0
