"""What would become of the messages of a session in a context."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from langmem_tiers.core.context import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langmem_tiers.core.context import Context
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.recall import Hit

ShownAs: TypeAlias = Literal["full", "compressed", "recalled", "dropped"]
BEHIND = "compressed: it stands behind a summary"
TAKEN_OUT = "taken out of the conversation"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What becomes of each message of a session, and why; nothing of what it says."""

    states: Mapping[str, ShownAs]
    """By ids, of those that were looked at."""
    reasons: Mapping[str, str]
    is_whole: bool
    """Whether all messages that the session shows were looked at; the others are older."""

    def state_of(self, message: Message) -> ShownAs:
        """How a message of the session would be shown."""
        known = self.states.get(message.id)
        if known is not None:
            return known
        if message.is_compressed:
            return "compressed"
        return "full" if message.is_summary else "dropped"

    def reason_of(self, message: Message) -> str:
        """Why."""
        known = self.reasons.get(message.id)
        if known is not None:
            return known
        return BEHIND if message.is_compressed else TAKEN_OUT if self.is_whole else NO_ROOM


@dataclass(frozen=True, slots=True)
class Preview:
    """A context that was built to be looked at, of a session of any length."""

    context: Context
    """Built of the newest messages; it is the one that all of them would give."""
    session: str
    dropped: tuple[Message, ...] = ()
    """The newest of those without room, newest first."""
    is_whole: bool = False
    """Whether all messages that the session shows were looked at."""
    unseen: int = 0
    """How many older ones were not, since they have no room either."""
    verdicts: Verdicts = field(init=False, repr=False, compare=False)
    """What becomes of each message."""

    def __post_init__(self) -> None:
        context = self.context
        states: dict[str, ShownAs] = dict.fromkeys(context.dropped, "dropped")
        states |= dict.fromkeys((*context.compressed, *self._own(context.summarised)), "compressed")
        states |= dict.fromkeys(context.full, "full")
        states |= dict.fromkeys(self._own(context.recalled), "recalled")
        object.__setattr__(self, "verdicts", Verdicts(states, context.reasons, self.is_whole))

    def _own(self, hits: Iterable[Hit]) -> list[str]:
        return [hit.entry.id for hit in hits if hit.session == self.session]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the budget was too small for."""
        return self.context.warnings_with(self.unseen)

    def state_of(self, message: Message) -> ShownAs:
        """How a message of the session would be shown."""
        return self.verdicts.state_of(message)

    def reason_of(self, message: Message) -> str:
        """Why."""
        return self.verdicts.reason_of(message)
