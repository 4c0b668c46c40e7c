"""Contexts: the result of building a prompt, with a report of what was included and why."""

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


DID_NOT_FIT_REASON = "did not fit"
"""Reason of a message or memory that is relevant but does not fit the budget."""
RECALLED_REASON, SUMMARIZED_REASON = "recalled", "summarized"
"""First words of the reason of a memory that is included in full, or summarized."""
KNOWLEDGE_DID_NOT_FIT_REASON = f"knowledge: {DID_NOT_FIT_REASON}"
"""Reason of a knowledge value that does not fit."""
# Messages displayed from the beginning of a context; the other rows are taken from its end.
_FIRST_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext(Displayable):
    """The messages of a prompt, within their budget."""

    messages: tuple[Message, ...]
    token_count: int
    token_budget: int
    full: tuple[str, ...] = ()
    """Ids of the messages included in full."""
    compressed: tuple[str, ...] = ()
    """Ids of the messages included in compressed form."""
    dropped: tuple[str, ...] = ()
    """Ids of the messages left out: they do not fit, or are archived."""
    knowledge: tuple[KnowledgeHit, ...] = ()
    """Knowledge included in the context."""
    recalled: tuple[Hit, ...] = ()
    """Recalled memories included in full, best first."""
    left_out: tuple[Hit, ...] = ()
    """Recalled memories that do not fit in full."""
    summarized: tuple[Hit, ...] = ()
    """Memories of ``left_out`` that are included in a short summary."""
    passed_over: tuple[Hit, ...] = ()
    """Recalled memories that repeat the context, or are not relevant enough to the question."""
    knowledge_left_out: tuple[KnowledgeHit, ...] = ()
    """Knowledge that answers the question but does not fit."""
    sections: Mapping[str, int] = field(default_factory=dict)
    """Tokens by section: ``summary``, ``conversation``, ``known``, ``memories`` and ``frame``."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reason why each message or memory is included or not, by id; ``session/id`` for those of other sessions."""
    missing: tuple[str, ...] = ()
    """Newest facts that did not fit into the active summary; the record still has them."""
    problems: tuple[str, ...] = ()
    """Problems of this build, such as a failed model call or a newest message that had to be compressed."""

    def __post_init__(self) -> None:
        if not 0 <= self.token_count <= self.token_budget:
            raise InvalidInputError(
                f"a context of {self.token_count!r} tokens exceeds its budget of {self.token_budget!r} tokens: "
                "include less or raise the budget"
            )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about messages and memories that did not fit the budget."""
        return self.warnings_with(0)

    def warnings_with(self, unseen: int) -> tuple[str, ...]:
        """Return the warnings, counting older messages that did not fit either and were not read.

        Args:
            unseen: Number of these older messages.
        """
        messages = unseen + sum(reason == DID_NOT_FIT_REASON for reason in self.reasons.values())
        counts = {"message": messages, "recalled memory": len(self.left_out)}
        plurals = {"message": "messages", "recalled memory": "recalled memories"}
        return tuple(
            f"{count} {noun if count == 1 else plurals[noun]} did not fit the budget of {self.token_budget} tokens"
            for noun, count in counts.items()
            if count
        )

    @property
    def usage(self) -> float:
        """Share of the budget that is used, from 0 to 1."""
        return self.token_count / self.token_budget

    @property
    def states(self) -> dict[str, str]:
        """State of each message by id: first the included messages in order, then the others.

        A state is ``summary``, ``full``, ``compressed``, ``recalled`` (from memory, for the question) or ``dropped``.
        """
        states = dict.fromkeys(self.full, "full") | dict.fromkeys(self.compressed, "compressed")
        included = {
            # The remaining messages were injected: they are neither full nor compressed.
            message.id: "summary" if message.is_summary else states.get(message.id, "recalled")
            for message in self.messages
        }
        return included | {name: "dropped" for name in self.dropped if name not in included}

    def _to_display(self) -> DisplayContent:
        counts = {
            "messages": len(self.messages),
            "in full": len(self.full),
            "compressed": len(self.compressed),
            "dropped": len(self.dropped),
            "known": len(self.knowledge),
            "recalled": len(self.recalled),
            "recalled, did not fit": len(self.left_out),
            "facts missing in the summary": len(self.missing),
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
    """Return the key of a hit in ``MemoryContext.reasons``: its id, or ``session/id`` if it is of another session."""
    return hit.entry.id if hit.session in (own, None) else f"{hit.session}/{hit.entry.id}"
