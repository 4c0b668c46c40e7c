"""A context to look at, of a session of any length: what it costs follows from the budget, not from the session."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias

from langmem_tiers.common.messages import Role
from langmem_tiers.context.builder import PATIENCE
from langmem_tiers.context.models import NO_ROOM
from langmem_tiers.context.session_context import SessionContext
from langmem_tiers.sessions.models import OUT_OF_LIST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.models import Context
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.models import SessionInfo, View
    from langmem_tiers.sessions.service import ShortTerm


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


_FEWEST = 1_000
"""Messages that are looked at in any case."""
_SPARE = 1.25
"""How many more are looked at than a budget holds of the session's usual messages."""
_GROWTH = 3
_LEADING = 20
"""System messages at the beginning of a session that may count."""
_TOLD = 200
"""Messages without room that are told."""


def preview(
    parts: MemoryParts, session: ShortTerm, query: str | None, budget: TokenBudget, *, recall: bool
) -> Preview:
    """What a context for a question would hold, and what it would leave out. Nothing is changed.

    Args:
        parts: The stores and workers.
        session: Whose.
        query: The question; the newest user message, if None.
        budget: What there is.
        recall: Whether what is known and what was said elsewhere comes along.
    """
    within = parts.within(budget)
    info = session.info()
    usual = max(1.0, info.token_count / max(1, info.message_count))
    limit = max(_FEWEST, int(_SPARE * budget.available / usual))
    while True:
        view, is_whole = _newest(parts, session, info, limit)
        builder = SessionContext(within, session, view, budget, query)
        alone = builder.alone()
        if is_whole or _is_settled(view, alone):
            break
        limit *= _GROWTH
    context = builder.with_memories(counts=False) if recall else alone
    without_room = set(context.dropped)
    dropped = (item.message for item in reversed(view.items) if item.message.id in without_room)
    return Preview(
        context,
        session.name,
        tuple(islice(dropped, _TOLD)),
        is_whole=is_whole,
        unseen=0 if is_whole else _unseen(parts, session, info, view, context),
    )


def _newest(parts: MemoryParts, session: ShortTerm, info: SessionInfo, limit: int) -> tuple[View, bool]:
    # What the session shows, as much of it as may be needed, and whether that is all.
    if info.message_count - info.compressed_count < _FEWEST:
        return parts.views.read(session.key), True
    view = parts.entries.view(session.key, limit)
    is_whole = len(view.items) < limit
    if is_whole or view.items[0].message.is_summary:
        return view, is_whole
    # It begins in the middle: what stands at the beginning of the session comes first, as if all were there.
    newest = tuple(dropwhile(_is_system, view.items))
    return replace(view, items=(*_leading(parts, session, newest), *newest)), is_whole


def _unseen(parts: MemoryParts, session: ShortTerm, info: SessionInfo, view: View, context: Context) -> int:
    taken_out = parts.short_term.transcripts.count(session.key, OUT_OF_LIST)
    seen = {item.message.id for item in view.items}
    told = sum(
        hit.session == session.name and hit.message is not None and hit.entry.id not in seen
        for hit in context.recalled
    )
    return max(0, info.message_count - info.compressed_count - taken_out - len(seen) - told)


def _leading(parts: MemoryParts, session: ShortTerm, newest: tuple[Shown, ...]) -> list[Shown]:
    first = session.page(limit=_LEADING).messages
    ids = [one.id for one in takewhile(lambda one: one.role is Role.SYSTEM, first)]
    found = (parts.entries.find(session.key, one) for one in ids)
    there = {item.key for item in newest}
    return [item for item in found if item is not None and item.key not in there]


def _is_system(item: Shown) -> bool:
    return item.message.role is Role.SYSTEM


def _is_settled(view: View, context: Context) -> bool:
    # So many groups in a row had no room that none of the older ones would be tried.
    shown, refused = {*context.full, *context.compressed}, 0
    for start, end in view.groups:
        ids = [item.message.id for item in view.items[start:end]]
        if any(one in shown for one in ids):
            if all(map(_is_system, view.items[start:end])) and not refused:
                continue  # how the system was told to be, which stays in sight
            break
        refused += any(context.reasons.get(one) == NO_ROOM for one in ids)
    return refused > PATIENCE
