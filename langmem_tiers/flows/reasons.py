"""Why each message of a conversation is in a context, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.context import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message
    from langmem_tiers.flows.standing import Standing


@dataclass(frozen=True, slots=True)
class Reasons:
    """The reasons, by the message's id."""

    standing: Standing
    window: int
    is_full: Mapping[str, bool]
    """Of each message that is there, whether it is there as it was said."""

    def in_favour(self) -> dict[str, str]:
        """Why messages are there."""
        recent = {item.message.id for item in self.standing.items[self.standing.window_start :]}
        texts = {
            (full, new): f"{'in full' if full else 'compressed'}: "
            + (f"among the newest {self.window}" if new else "older, and there is room")
            for full in (True, False)
            for new in (True, False)
        }
        return {name: texts[full, name in recent] for name, full in self.is_full.items()}

    def against(self, summary: Message | None, left_out: Iterable[str]) -> dict[str, str]:
        """Why others are not.

        Args:
            summary: Stands apart from the conversation.
            left_out: Ids of what would be pinned and has no room.
        """
        there = zip(self.standing.items, self.standing.shown, strict=True)
        apart = None if summary is None else summary.id
        against = {
            item.message.id: "archived" if shown is None else NO_ROOM
            for item, shown in there
            if item.message.id not in self.is_full and item.message.id != apart
        }
        return against | dict.fromkeys(left_out, NO_ROOM)

    @staticmethod
    def beside(summary: Iterable[Message], others: Iterable[Message]) -> dict[str, str]:
        """Why there are messages that nobody said."""
        pinned = {message.id: "pinned: it stands for what was said before" for message in summary}
        return pinned | {message.id: "recalled for the question" for message in others}


def fullness(
    items: Sequence[Shown], placed: Sequence[Message | None], messages: Sequence[Message]
) -> dict[str, bool]:
    """Of each message that is shown, whether it says all that was said.

    Args:
        items: The view.
        placed: Its messages as they have room, each in its place.
        messages: Those of them that are shown in the end.
    """
    is_full = {
        message.id: says_the_same(message, item.message)
        for item, message in zip(items, placed, strict=True)
        if message is not None
    }
    if len(messages) == len(is_full):
        return is_full
    return {message.id: is_full[message.id] for message in messages}  # without results of no call


def says_the_same(message: Message, original: Message) -> bool:
    """Whether a message is shown as it was said."""
    return message is original or (
        (message.content, message.tool_calls) == (original.content, original.tool_calls)
    )
