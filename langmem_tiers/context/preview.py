"""A context to look at, of a session of any length: what it costs follows from the budget, not from the session."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias

from langmem_tiers.common.messages import Role
from langmem_tiers.context.builder import MAX_REJECTED_GROUPS_IN_A_ROW
from langmem_tiers.context.models import NO_ROOM_REASON
from langmem_tiers.context.session_context import SessionContextBuilder
from langmem_tiers.sessions.models import OUT_OF_LIST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.models import Context
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import SessionInfo, StoredView
    from langmem_tiers.sessions.service import SessionRecord


PreviewState: TypeAlias = Literal["full", "compressed", "recalled", "dropped"]
BEHIND_SUMMARY_REASON = "compressed: it stands behind a summary"
REMOVED_FROM_LIST_REASON = "taken out of the conversation"


@dataclass(frozen=True, slots=True)
class MessageVerdicts:
    """What becomes of each message of a session, and why; nothing of what it says."""

    states: Mapping[str, PreviewState]
    """By ids, of those that were looked at."""
    reasons: Mapping[str, str]
    is_whole: bool
    """Whether all messages that the session shows were looked at; the others are older."""

    def state_of(self, message: Message) -> PreviewState:
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
        return (
            BEHIND_SUMMARY_REASON
            if message.is_compressed
            else REMOVED_FROM_LIST_REASON
            if self.is_whole
            else NO_ROOM_REASON
        )


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
    verdicts: MessageVerdicts = field(init=False, repr=False, compare=False)
    """What becomes of each message."""

    def __post_init__(self) -> None:
        context = self.context
        states: dict[str, PreviewState] = dict.fromkeys(context.dropped, "dropped")
        states |= dict.fromkeys((*context.compressed, *self._list_own_ids(context.summarized)), "compressed")
        states |= dict.fromkeys(context.full, "full")
        states |= dict.fromkeys(self._list_own_ids(context.recalled), "recalled")
        object.__setattr__(self, "verdicts", MessageVerdicts(states, context.reasons, self.is_whole))

    def _list_own_ids(self, hits: Iterable[Hit]) -> list[str]:
        return [hit.entry.id for hit in hits if hit.session == self.session]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the budget was too small for."""
        return self.context.warnings_with(self.unseen)

    def state_of(self, message: Message) -> PreviewState:
        """How a message of the session would be shown."""
        return self.verdicts.state_of(message)

    def reason_of(self, message: Message) -> str:
        """Why."""
        return self.verdicts.reason_of(message)


_MIN_MESSAGES = 1_000
"""Messages that are looked at in any case."""
_OVERSAMPLING_FACTOR = 1.25
"""How many more are looked at than a budget holds of the session's usual messages."""
_GROWTH_FACTOR = 3
_MAX_LEADING_SYSTEM_MESSAGES = 20
"""System messages at the beginning of a session that may count."""
_MAX_DROPPED_MESSAGES = 200
"""Messages without room that are told."""


def build_preview(
    parts: EngineServices, session: SessionRecord, query: str | None, budget: TokenBudget, *, recall: bool
) -> Preview:
    """What a context for a question would hold, and what it would leave out. Nothing is changed.

    Args:
        parts: The stores and workers.
        session: Whose.
        query: The question; the newest user message, if None.
        budget: What there is.
        recall: Whether what is known and what was said elsewhere comes along.
    """
    within = parts.with_budget(budget)
    info = session.info()
    usual = max(1.0, info.token_count / max(1, info.message_count))
    limit = max(_MIN_MESSAGES, int(_OVERSAMPLING_FACTOR * budget.available / usual))
    while True:
        view, is_whole = _load_newest(parts, session, info, limit)
        builder = SessionContextBuilder(within, session, view, budget, query)
        alone = builder.build_without_memories()
        if is_whole or _is_context_final(view, alone):
            break
        limit *= _GROWTH_FACTOR
    context = builder.build_with_memories(counts=False) if recall else alone
    without_room = set(context.dropped)
    dropped = (item.message for item in reversed(view.items) if item.message.id in without_room)
    return Preview(
        context,
        session.name,
        tuple(islice(dropped, _MAX_DROPPED_MESSAGES)),
        is_whole=is_whole,
        unseen=0 if is_whole else _count_unseen(parts, session, info, view, context),
    )


def _load_newest(
    parts: EngineServices, session: SessionRecord, info: SessionInfo, limit: int
) -> tuple[StoredView, bool]:
    # What the session shows, as much of it as may be needed, and whether that is all.
    if info.message_count - info.compressed_count < _MIN_MESSAGES:
        return parts.views.get(session.key), True
    view = parts.entries.get_view(session.key, limit)
    is_whole = len(view.items) < limit
    if is_whole or view.items[0].message.is_summary:
        return view, is_whole
    # It begins in the middle: what stands at the beginning of the session comes first, as if all were there.
    newest = tuple(dropwhile(_is_system, view.items))
    return replace(view, items=(*_load_leading_system_items(parts, session, newest), *newest)), is_whole


def _count_unseen(
    parts: EngineServices, session: SessionRecord, info: SessionInfo, view: StoredView, context: Context
) -> int:
    taken_out = parts.short_term.transcripts.count(session.key, OUT_OF_LIST)
    seen = {item.message.id for item in view.items}
    told = sum(
        hit.session == session.name and hit.message is not None and hit.entry.id not in seen
        for hit in context.recalled
    )
    return max(0, info.message_count - info.compressed_count - taken_out - len(seen) - told)


def _load_leading_system_items(
    parts: EngineServices, session: SessionRecord, newest: tuple[ViewItem, ...]
) -> list[ViewItem]:
    first = session.page(limit=_MAX_LEADING_SYSTEM_MESSAGES).messages
    ids = [one.id for one in takewhile(lambda one: one.role is Role.SYSTEM, first)]
    found = (parts.entries.get(session.key, one) for one in ids)
    there = {item.key for item in newest}
    return [item for item in found if item is not None and item.key not in there]


def _is_system(item: ViewItem) -> bool:
    return item.message.role is Role.SYSTEM


def _is_context_final(view: StoredView, context: Context) -> bool:
    # So many groups in a row had no room that none of the older ones would be tried.
    shown, refused = {*context.full, *context.compressed}, 0
    for start, end in view.groups:
        ids = [item.message.id for item in view.items[start:end]]
        if any(one in shown for one in ids):
            if all(map(_is_system, view.items[start:end])) and not refused:
                continue  # how the system was told to be, which stays in sight
            break
        refused += any(context.reasons.get(one) == NO_ROOM_REASON for one in ids)
    return refused > MAX_REJECTED_GROUPS_IN_A_ROW
