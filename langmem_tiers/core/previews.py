"""What would become of the messages of a session in a context."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from langmem_tiers.core.context import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.core.context import Context
    from langmem_tiers.core.messages import Message

ShownAs: TypeAlias = Literal["full", "compressed", "recalled", "dropped"]
BEHIND = "compressed: it stands behind a summary"


@dataclass(frozen=True, slots=True)
class Preview:
    """A context that was built to be looked at, of a session of any length."""

    context: Context
    """Built of the newest messages; it is the one that all of them would give."""
    session: str
    dropped: tuple[Message, ...] = ()
    """The newest of those without room, newest first."""
    _states: Mapping[str, ShownAs] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        states: dict[str, ShownAs] = dict.fromkeys(self.context.dropped, "dropped")
        states |= dict.fromkeys(self.context.compressed, "compressed")
        states |= dict.fromkeys(self.context.full, "full")
        states |= {hit.entry.id: "recalled" for hit in self.context.recalled if hit.session == self.session}
        object.__setattr__(self, "_states", states)

    def state_of(self, message: Message) -> ShownAs:
        """How a message of the session would be shown."""
        known = self._states.get(message.id)
        if known is not None:
            return known
        if message.is_compressed:
            return "compressed"
        return "full" if message.is_summary else "dropped"

    def reason_of(self, message: Message) -> str:
        """Why."""
        known = self.context.reasons.get(message.id)
        return known if known is not None else BEHIND if message.is_compressed else NO_ROOM
