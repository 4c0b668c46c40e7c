"""What the stores of messages and entries give and take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langmem_tiers.core.groups import groups_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message


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
        if "groups" not in self.derived:
            self.derived["groups"] = groups_of([item.message for item in self.items])
        found: Sequence[tuple[int, int]] = self.derived["groups"]
        return found


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


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest messages of a session, oldest first, and the revision they were read at."""

    messages: tuple[Message, ...]
    revision: int
