"""What the stores of messages and entries give and take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.core.groups import groups_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.names import NamespacePath


@dataclass(frozen=True, slots=True)
class View:
    """What of a session is shown, as of one moment."""

    items: tuple[Shown, ...]
    """Oldest first; the summary in force, if there is one, comes first."""
    hidden: int
    """How many messages stand behind summaries."""
    session: int
    """The session's key."""
    revision: int = 0
    """Grows with every mark and every summary, and not with new messages."""
    newest: int = 0
    """Where the newest message stands in the record."""
    derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out from it, for whoever asks again."""

    @property
    def groups(self) -> Sequence[tuple[int, int]]:
        """Its items as half-open ranges that must not be parted."""
        found: Sequence[tuple[int, int]] | None = self.derived.get("groups")
        if found is None:
            found = self.derived["groups"] = self._grown_groups() or groups_of(
                [i.message for i in self.items]
            )
        return found

    @property
    def earlier(self) -> View | None:
        """The view that this one has grown from by new messages, if that is at hand."""
        found: View | None = self.derived.get("earlier")
        return found

    def only(self, ids: AbstractSet[str]) -> View:
        """The view with no other messages than these, besides the summary in force."""
        others = frozenset(
            item.message.id
            for place, item in enumerate(self.items)
            if item.message.id not in ids and (place or not item.message.is_summary)
        )
        if not others:
            return self
        known: View | None = self.derived.get(("only", others))
        if known is None:
            left = tuple(item for item in self.items if item.message.id not in others)
            known = self.derived["only", others] = replace(self, items=left)
        return known

    def follow(self, earlier: View) -> None:
        """Remember what it has grown from, so that what was worked out need not be worked out again."""
        self.derived["earlier"] = earlier
        earlier.derived.pop("earlier", None)

    def _grown_groups(self) -> list[tuple[int, int]] | None:
        # Only where nothing is open at the end and nothing new belongs to a call.
        earlier = self.earlier  # read once: another thread may let go of it
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
    before: str
    """Id of the first message that stays in sight."""
    hidden: int
    """How many messages it newly stands for."""
    digest: dict[str, Any] | None = None
    """What it was made of; kept as long as it is in force."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """A long-term entry and where it comes from."""

    shown: Shown
    session: str


@dataclass(frozen=True, slots=True)
class Appended:
    """What a store did with a batch."""

    stored: tuple[Message, ...]
    duplicates: tuple[Message, ...]
    revision: int
    """Of the session, after the batch."""
    is_late: bool = field(default=False, kw_only=True)
    """Whether some of it was kept by a try whose answer was lost: others may have written since."""
    was_at: datetime | None = field(default=None, kw_only=True)
    """When the session was last written to before this; None if the store cannot tell."""


@dataclass(frozen=True, slots=True)
class SessionBatch:
    """Messages for one session, which is made if it is not there."""

    namespace: NamespacePath
    session: str
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class AppendedTo(Appended):
    """What a store did with a batch for a session that it looked up by itself."""

    key: int
    """The session's."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest messages of a session, oldest first, and the revision they were read at."""

    messages: tuple[Message, ...]
    revision: int
