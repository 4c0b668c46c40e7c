"""Context previews for display; their cost depends on the budget and not on the length of the session."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias

from langmem_tiers.common.messages import Role
from langmem_tiers.context.builder import MAX_REJECTED_GROUPS_IN_A_ROW
from langmem_tiers.context.models import DID_NOT_FIT_REASON
from langmem_tiers.context.session_context import SessionContextBuilder
from langmem_tiers.sessions.models import OUT_OF_LIST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import SessionInfo, StoredView
    from langmem_tiers.sessions.service import SessionRecord


PreviewState: TypeAlias = Literal["full", "compressed", "recalled", "dropped"]
BEHIND_SUMMARY_REASON = "compressed: covered by a summary"
REMOVED_FROM_LIST_REASON = "removed from the conversation"


@dataclass(frozen=True, slots=True)
class MessageVerdicts:
    """State and reason of each message of a session in a context, without the text of the messages."""

    states: Mapping[str, PreviewState]
    """States by id of the messages that were read."""
    reasons: Mapping[str, str]
    is_whole: bool
    """True if all visible messages of the session were read; otherwise older ones were not."""

    def state_of(self, message: Message) -> PreviewState:
        """Return the state of a message of the session."""
        state = self.states.get(message.id)
        if state is not None:
            return state
        # The message was not read: it is covered by a summary, a summary itself, or too old to fit.
        if message.is_compressed:
            return "compressed"
        return "full" if message.is_summary else "dropped"

    def reason_of(self, message: Message) -> str:
        """Return the reason for the state of a message of the session."""
        reason = self.reasons.get(message.id)
        if reason is not None:
            return reason
        return (
            BEHIND_SUMMARY_REASON
            if message.is_compressed
            else REMOVED_FROM_LIST_REASON
            if self.is_whole
            else DID_NOT_FIT_REASON
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """A context built for display, and what it leaves out."""

    context: MemoryContext
    """Context built from the newest messages; reading all messages would give the same one."""
    session: str
    dropped: tuple[Message, ...] = ()
    """Newest of the messages that do not fit, newest first."""
    is_whole: bool = False
    """True if all visible messages of the session were read."""
    unseen: int = 0
    """Number of older messages that were not read because they would not fit either."""
    verdicts: MessageVerdicts = field(init=False, repr=False, compare=False)
    """State and reason of each message."""

    def __post_init__(self) -> None:
        context = self.context
        # Later updates win: a message may be dropped from the conversation and recalled as a memory.
        states: dict[str, PreviewState] = dict.fromkeys(context.dropped, "dropped")
        states |= dict.fromkeys((*context.compressed, *self._list_own_ids(context.summarized)), "compressed")
        states |= dict.fromkeys(context.full, "full")
        states |= dict.fromkeys(self._list_own_ids(context.recalled), "recalled")
        object.__setattr__(self, "verdicts", MessageVerdicts(states, context.reasons, self.is_whole))

    def _list_own_ids(self, hits: Iterable[Hit]) -> list[str]:
        return [hit.entry.id for hit in hits if hit.session == self.session]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about messages and memories that did not fit the budget."""
        return self.context.warnings_with(self.unseen)

    def state_of(self, message: Message) -> PreviewState:
        """Return the state of a message of the session."""
        return self.verdicts.state_of(message)

    def reason_of(self, message: Message) -> str:
        """Return the reason for the state of a message of the session."""
        return self.verdicts.reason_of(message)


# Minimum number of messages to read.
_MIN_MESSAGES = 1_000
# First read this many times the messages of average size that the budget could hold.
_OVERSAMPLING_FACTOR = 1.25
# If that is not enough, read this many times more.
_GROWTH_FACTOR = 3
# System messages at the beginning of a session that are considered.
_MAX_LEADING_SYSTEM_MESSAGES = 20
# Maximum length of ``Preview.dropped``.
_MAX_DROPPED_MESSAGES = 200


def build_preview(
    services: EngineServices, session: SessionRecord, query: str | None, budget: TokenBudget, *, recall: bool
) -> Preview:
    """Build the context for a question for display, and list what it leaves out. Nothing is changed.

    Args:
        services: Services of the engine.
        session: The session.
        query: The question, or None for the newest user message.
        budget: Token budget.
        recall: Include knowledge and memories of earlier messages and other sessions.
    """
    budgeted = services.with_budget(budget)
    info = session.info()
    average_tokens = max(1.0, info.token_count / max(1, info.message_count))
    limit = max(_MIN_MESSAGES, int(_OVERSAMPLING_FACTOR * budget.available / average_tokens))
    # Short messages at the end of a session may leave space for more than the average suggests: read more until
    # it is certain that older messages cannot change the context.
    while True:
        view, is_whole = _load_newest(services, session, info, limit)
        builder = SessionContextBuilder(budgeted, session, view, budget, query)
        alone = builder.build_without_memories()
        if is_whole or _is_context_final(view, alone):
            break
        limit *= _GROWTH_FACTOR
    context = builder.build_with_memories(counts=False) if recall else alone
    dropped_ids = set(context.dropped)
    dropped = (item.message for item in reversed(view.items) if item.message.id in dropped_ids)
    return Preview(
        context,
        session.name,
        tuple(islice(dropped, _MAX_DROPPED_MESSAGES)),
        is_whole=is_whole,
        unseen=0 if is_whole else _count_unseen_messages(services, session, info, view, context),
    )


def _load_newest(
    services: EngineServices, session: SessionRecord, info: SessionInfo, limit: int
) -> tuple[StoredView, bool]:
    # The newest visible messages, and whether these are all. Short sessions come from the cache.
    if info.message_count - info.compressed_count < _MIN_MESSAGES:
        return services.views.get(session.key), True
    view = services.entries.get_view(session.key, limit)
    is_whole = len(view.items) < limit
    if is_whole or view.items[0].message.is_summary:
        return view, is_whole
    # The view begins in the middle of the session. A context always includes the leading system messages, so put
    # those of the session first. System messages in the middle must not be mistaken for them.
    newest = tuple(dropwhile(_is_system, view.items))
    return replace(view, items=(*_load_leading_system_items(services, session, newest), *newest)), is_whole


def _count_unseen_messages(
    services: EngineServices,
    session: SessionRecord,
    info: SessionInfo,
    view: StoredView,
    context: MemoryContext,
) -> int:
    removed = services.short_term.transcripts.count(session.key, OUT_OF_LIST)
    read_ids = {item.message.id for item in view.items}
    # Recall may have included messages that are older than those that were read.
    recalled = sum(
        hit.session == session.name and hit.message is not None and hit.entry.id not in read_ids
        for hit in context.recalled
    )
    # A removed message may be among the compressed ones too, and would be subtracted twice: never below 0.
    return max(0, info.message_count - info.compressed_count - removed - len(read_ids) - recalled)


def _load_leading_system_items(
    services: EngineServices, session: SessionRecord, newest: tuple[ViewItem, ...]
) -> list[ViewItem]:
    first = session.page(limit=_MAX_LEADING_SYSTEM_MESSAGES).messages
    leading = takewhile(lambda message: message.role is Role.SYSTEM, first)
    items = (services.entries.get(session.key, message.id) for message in leading)
    newest_keys = {item.key for item in newest}
    return [item for item in items if item is not None and item.key not in newest_keys]


def _is_system(item: ViewItem) -> bool:
    return item.message.role is Role.SYSTEM


def _is_context_final(view: StoredView, context: MemoryContext) -> bool:
    # True if older messages cannot change the context: the oldest groups that were read are more consecutive
    # misfits than the builder tries, so it would not look at anything older.
    included, rejected = {*context.full, *context.compressed}, 0
    for start, end in view.groups:
        ids = [item.message.id for item in view.items[start:end]]
        if any(message_id in included for message_id in ids):
            # Leading system messages are always included and say nothing about the groups after them.
            if all(map(_is_system, view.items[start:end])) and not rejected:
                continue
            break
        rejected += any(context.reasons.get(message_id) == DID_NOT_FIT_REASON for message_id in ids)
    return rejected > MAX_REJECTED_GROUPS_IN_A_ROW
