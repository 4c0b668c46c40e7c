"""Why each message of a conversation is in a context, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from langmem_tiers.core.context import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.core.messages import Message
    from langmem_tiers.flows.standing import Standing


@dataclass(frozen=True, slots=True)
class Reasons:
    """What became of the messages of a view, by their ids.

    All of it goes over long lists, so it is done by whole lists and not message by message.
    """

    standing: Standing
    window: int
    ids: Sequence[str]
    """Of all items."""
    there: Sequence[bool]
    """Whether each is there."""
    as_said: Sequence[bool]
    """Whether each is there as it was said."""

    def full(self) -> tuple[str, ...]:
        """Those that are there as they were said."""
        return tuple(compress(self.ids, self.as_said))

    def compressed(self) -> tuple[str, ...]:
        """Those that are there in fewer words."""
        both = zip(self.there, self.as_said, strict=True)
        return tuple(compress(self.ids, [there and not said for there, said in both]))

    def in_favour(self) -> dict[str, str]:
        """Why messages are there."""
        start, compressed = self.standing.window_start, self.compressed()
        recent, older = f"among the newest {self.window}", "older, and there is room"
        newest = set(self.ids[start:])
        reasons = dict.fromkeys(compress(self.ids[:start], self.as_said[:start]), f"in full: {older}")
        reasons |= dict.fromkeys(compress(self.ids[start:], self.as_said[start:]), f"in full: {recent}")
        return reasons | {name: f"compressed: {recent if name in newest else older}" for name in compressed}

    def against(self, summary: Message | None, left_out: Iterable[str]) -> dict[str, str]:
        """Why others are not.

        Args:
            summary: Stands apart from the conversation.
            left_out: Ids of what would be pinned and has no room.
        """
        missing = [index for index, there in enumerate(self.there) if not there]
        against = {
            self.ids[index]: "archived" if self.standing.shown[index] is None else NO_ROOM
            for index in missing
        }
        if summary is not None:
            against.pop(summary.id, None)
        return against | dict.fromkeys(left_out, NO_ROOM)

    @staticmethod
    def beside(summary: Iterable[Message], others: Iterable[Message]) -> dict[str, str]:
        """Why there are messages that nobody said."""
        pinned = {message.id: "pinned: it stands for what was said before" for message in summary}
        return pinned | {message.id: "recalled for the question" for message in others}
