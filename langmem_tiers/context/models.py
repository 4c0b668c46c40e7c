"""What goes to the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.display.displayable import Displayable, build_table, to_display_row
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent, StackedBar
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.common.messages import Message
    from langmem_tiers.knowledge.models import KnowledgeHit
    from langmem_tiers.recall.models import Hit


NO_ROOM_REASON = "no room"
"""The reason why a message is not there although it should be."""
RECALLED_REASON, SUMMARIZED_REASON = "recalled", "in few words"
"""How the reason of a memory begins that is told in full, or in few words."""
KNOWLEDGE_NO_ROOM_REASON = f"known, and {NO_ROOM_REASON}"
"""The same for something known."""
_FIRST_ROWS = 3  # messages that are shown from the beginning of a context; the others from its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Displayable):
    """The messages of a prompt, within their budget."""

    messages: tuple[Message, ...]
    token_count: int
    token_budget: int
    full: tuple[str, ...] = ()
    """Ids of the messages that are there as they were said."""
    compressed: tuple[str, ...] = ()
    """Ids of those that are there in fewer words."""
    dropped: tuple[str, ...] = ()
    """Ids of those that had no room, or were archived."""
    knowledge: tuple[KnowledgeHit, ...] = ()
    """What was recalled from other sessions."""
    recalled: tuple[Hit, ...] = ()
    """What was recalled from elsewhere and is there in full, best first."""
    left_out: tuple[Hit, ...] = ()
    """What was recalled and had no room in full."""
    summarized: tuple[Hit, ...] = ()
    """Those of them that are told in a few words."""
    passed_over: tuple[Hit, ...] = ()
    """What was recalled and says what is told already, or has too little to do with the question."""
    knowledge_left_out: tuple[KnowledgeHit, ...] = ()
    """What is known that answers, and had no room."""
    sections: Mapping[str, int] = field(default_factory=dict)
    """Tokens of the ``summary``, the ``conversation``, what is ``known``, the ``memories`` and the ``frame``."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each message is there, or is not, by its id; those of other sessions as ``session/id``."""
    missing: tuple[str, ...] = ()
    """Facts that have no room in the summary in force, the newest of them; the record keeps them."""
    problems: tuple[str, ...] = ()
    """What went wrong this time: a model that failed, or a newest message that had to be compressed."""

    def __post_init__(self) -> None:
        if not 0 <= self.token_count <= self.token_budget:
            raise InvalidInputError(
                f"a context of {self.token_count!r} tokens does not fit a budget of {self.token_budget!r}: "
                "leave something out or raise the budget"
            )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the budget was too small for."""
        return self.warnings_with(0)

    def warnings_with(self, unseen: int) -> tuple[str, ...]:
        """The same where older messages had no room either, and were not looked at.

        Args:
            unseen: How many.
        """
        messages = unseen + sum(reason == NO_ROOM_REASON for reason in self.reasons.values())
        counts = {"of the messages": messages, "of what was recalled": len(self.left_out)}
        return tuple(
            f"{count} {what} had no room in their share of {self.token_budget} tokens"
            for what, count in counts.items()
            if count
        )

    @property
    def usage(self) -> float:
        """The share of the budget that is in use."""
        return self.token_count / self.token_budget

    @property
    def states(self) -> dict[str, str]:
        """What became of each message, by its id: in its order those that are there, then those that are not.

        ``summary``, ``full``, ``compressed``, ``recalled`` (from memory, for the question), or ``dropped``.
        """
        said = dict.fromkeys(self.full, "full") | dict.fromkeys(self.compressed, "compressed")
        there = {
            message.id: "summary" if message.is_summary else said.get(message.id, "recalled")
            for message in self.messages
        }
        return there | {name: "dropped" for name in self.dropped if name not in there}

    def _to_display(self) -> DisplayContent:
        counts = {
            "messages": len(self.messages),
            "as they were said": len(self.full),
            "compressed": len(self.compressed),
            "dropped": len(self.dropped),
            "known": len(self.knowledge),
            "recalled": len(self.recalled),
            "recalled, without room": len(self.left_out),
            "facts without room in the summary": len(self.missing),
        }
        facts: dict[str, object] = {name: count for name, count in counts.items() if count}
        if self.problems:
            facts["problems"] = self.problems
        used = f"{self.token_count:,} of {self.token_budget:,} tokens ({self.usage:.0%})"
        states = self.states
        rows = [{"state": states[message.id], **to_display_row(message)} for message in self.messages]
        tables = (build_table(rows, first=_FIRST_ROWS, last=MAX_TABLE_ROWS - _FIRST_ROWS),) if rows else ()
        return DisplayContent(f"Context: {used}", facts, tables, StackedBar(self.sections, self.token_budget))


def get_reason_key(hit: Hit, own: str | None = None) -> str:
    """How a hit is named in ``Context.reasons``: by its id, that of another session than the own as ``session/id``."""
    return hit.entry.id if hit.session in (own, None) else f"{hit.session}/{hit.entry.id}"
