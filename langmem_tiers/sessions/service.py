"""Short-term memory: the message record of one session and its visible part."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import (
    COUNTED_BY_CALLER,
    SUMMARY_PREFIX,
    Message,
    MessageDraft,
    Role,
    check_time,
)
from langmem_tiers.common.namespaces import build_archived_name, check_name
from langmem_tiers.common.prompt_fences import is_only_fenced
from langmem_tiers.common.tool_call_groups import find_safe_cut, remove_orphans
from langmem_tiers.config import MAX_LIMIT, check_limit
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable, build_table
from langmem_tiers.display.tables import DisplayContent
from langmem_tiers.errors import (
    InvalidInputError,
    InvalidMessageError,
    MessageNotFoundError,
    SessionNotFoundError,
)
from langmem_tiers.sessions.models import (
    AddReport,
    CompressReport,
    DeleteReport,
    MessagePage,
    SessionInfo,
)
from langmem_tiers.telemetry.instruments import SILENT_INSTRUMENTS, SUMMARIES, TOKENS_SAVED, Operation
from langmem_tiers.text.token_counting import count_draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ids import IdSource
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.sessions.cache import SessionCache
    from langmem_tiers.sessions.repository import SessionRepository
    from langmem_tiers.sessions.stores import MessageStore, TranscriptStore
    from langmem_tiers.telemetry.instruments import Instruments

# Messages read at a time while iterating over a whole session.
_PAGE_SIZE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDependencies:
    """Repositories and helpers of sessions, built once per engine.

    Sessions are created for every access, and each needs most of these nine values. So they are passed together.
    """

    sessions: SessionRepository
    messages: MessageStore
    transcripts: TranscriptStore
    counter: TokenCounter
    clock: Clock
    ids: IdSource
    cache: SessionCache
    on_change: Callable[[NamespacePath], None]
    """Called with each namespace that was written to."""
    instruments: Instruments = SILENT_INSTRUMENTS
    """Metrics and traces."""

    def now(self) -> datetime:
        """Return the current time of the clock in UTC."""
        return check_time(self.clock.now())


# Newest messages included when a session is displayed.
_DISPLAYED_MESSAGES = 5


class SessionRecord(NotebookDisplayable):
    """The append-only message record of one session, and its visible part."""

    def __init__(self, dependencies: SessionDependencies, info: SessionInfo) -> None:
        self._dependencies = dependencies
        self.key: int = info.key
        self.namespace: NamespacePath = info.namespace
        self.name: str = info.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join(self.namespace)!r}, {self.name!r})"

    def _to_display(self) -> DisplayContent:
        info = self._dependencies.sessions.get(self.namespace, self.name)
        if info is None or info.key != self.key:
            return DisplayContent(
                repr(self), {"state": "does not exist: deleted, or archived under another name"}
            )
        facts = {
            "messages": info.message_count,
            "summarized": info.compressed_count,
            "tokens": info.token_count,
            "created": info.created_at,
            "updated": info.updated_at,
        }
        newest = self.latest(_DISPLAYED_MESSAGES) if info.message_count else ()
        return DisplayContent(
            repr(self), facts, (build_table(newest, "the newest messages"),) if newest else ()
        )

    def add(self, message: MessageDraft | Role | str, content: str | None = None) -> AddReport:
        """Store one message: ``add("user", "Hello")`` or ``add(MessageDraft(...))``.

        When it returns, the message is durable.
        """
        return self.add_many([coerce_draft(message, content)])

    def add_many(self, messages: Iterable[MessageDraft], *, expect_new: bool = False) -> AddReport:
        """Store the messages in one transaction: all of them or none.

        A message whose id is already stored is not stored again. A message that contains only text injected from
        memory is not stored either: recall would find it as a new memory.

        Args:
            messages: The messages, oldest first.
            expect_new: Pass True if the ids are most likely new. This saves a lookup and does not change
                the result.

        Raises:
            MessageConflictError: An id belongs to a stored message with other content. Nothing was stored.
        """
        checked = check_drafts(messages)
        drafts = [draft for draft in checked if not is_only_fenced(draft.content)]
        echoes = tuple(
            complete_drafts(self._dependencies, [draft for draft in checked if is_only_fenced(draft.content)])
        )
        # Generated ids are new, so they need not be looked up.
        new_ids = expect_new or all(draft.id is None for draft in drafts)
        return self._store(complete_drafts(self._dependencies, drafts), echoes, new_ids=new_ids)

    def add_messages(self, messages: Sequence[Message]) -> AddReport:
        """Store messages that already have ids, times and token counts, like ``add_many()``."""
        echoes = tuple(message for message in messages if is_only_fenced(message.content))
        batch = [message for message in messages if not is_only_fenced(message.content)]
        return self._store(batch, echoes, new_ids=False)

    def _store(self, batch: Sequence[Message], echoes: tuple[Message, ...], *, new_ids: bool) -> AddReport:
        if not batch:
            return AddReport(stored=(), duplicates=(), echoes=echoes)
        with self._dependencies.instruments.measure(Operation.ADD) as watch:
            result = self._dependencies.messages.append(
                self.key, batch, self._dependencies.now(), new_ids=new_ids
            )
            watch.record(messages=len(result.stored), duplicates=len(result.duplicates))
        if result.stored:
            self._dependencies.cache.extend(self.key, result)
            self._dependencies.on_change(self.namespace)
        return AddReport(stored=result.stored, duplicates=result.duplicates, echoes=echoes)

    def latest(self, count: int = 30) -> tuple[Message, ...]:
        """Return the newest messages of the record, oldest first, compressed or not."""
        check_limit(count)
        dependencies, cache = self._dependencies, self._dependencies.cache
        # Reading the revision is much cheaper than reading the messages, and shows writes of other processes.
        if cache.can_serve(self.key, count):
            cached = cache.get(self.key, count, dependencies.sessions.get_revision(self.key))
            if cached is not None:
                return DisplayableTuple(cached)
        tail = dependencies.messages.list_latest(self.key, count)
        if count <= cache.window:
            cache.put(self.key, tail, whole=len(tail.messages) < count)
        return DisplayableTuple(tail.messages)

    def page(self, after: str | None = None, limit: int = 100) -> MessagePage:
        """Return a page of the record, oldest first.

        Args:
            after: ``next_after`` of the previous page, or any message id. Default: start with the oldest message.
            limit: Messages per page.
        """
        check_limit(limit)
        after = None if after is None else check_name(after, "message id")
        # Read one extra row to find out whether there is a next page.
        found = self._dependencies.messages.list_after(self.key, after=after, limit=limit + 1)
        more = len(found) > limit
        return MessagePage(messages=found[:limit], next_after=found[limit - 1].id if more else None)

    def page_back(self, before: str | None = None, limit: int = 100) -> MessagePage:
        """Return a page of the record, newest first.

        Args:
            before: ``next_after`` of the previous page, or any message id. Default: start with the newest message.
            limit: Messages per page.
        """
        check_limit(limit)
        before = None if before is None else check_name(before, "message id")
        found = self._dependencies.messages.list_before(self.key, before=before, limit=limit + 1)[::-1]
        more = len(found) > limit
        return MessagePage(messages=found[:limit], next_after=found[limit - 1].id if more else None)

    def messages(self) -> Iterator[Message]:
        """Iterate over the whole record, oldest first, reading it in pages."""
        after = None
        while True:
            page = self._dependencies.messages.list_after(self.key, after=after, limit=_PAGE_SIZE)
            yield from page
            if len(page) < _PAGE_SIZE:
                return
            after = page[-1].id

    def view(self, limit: int | None = None) -> tuple[Message, ...]:
        """Return the visible messages: the active summary, then the messages that it does not cover.

        A tool result without its call is left out.

        Args:
            limit: Maximum number of messages: the summary, if there is one, and the newest ones.
                Default: all visible messages.
        """
        if limit is None:
            return remove_orphans(self._read_visible())
        visible = self._dependencies.messages.list_visible(self.key, check_limit(limit))
        # The store returns the summary in addition to the limit: drop the oldest message after it.
        if len(visible) > limit:
            visible = visible[:1] + visible[2:]
        return remove_orphans(visible)

    def get(self, message_id: str) -> Message:
        """Return one message of the record.

        Raises:
            MessageNotFoundError: The session has no message with this id.
        """
        message = self._dependencies.messages.get(self.key, check_name(message_id, "message id"))
        if message is None:
            raise MessageNotFoundError(
                f"session {self.name!r} has no message {message_id!r}: use an id returned by page() or add()"
            )
        return message

    def find_known_ids(self, ids: Iterable[str]) -> AbstractSet[str]:
        """Return the subset of these message ids that the record contains."""
        return self._dependencies.messages.find_known_ids(
            self.key, [check_name(message_id, "message id") for message_id in ids]
        )

    def count(self) -> int:
        """Return the number of messages in the record, including summaries."""
        return self.info().message_count

    def info(self) -> SessionInfo:
        """Return the current state of the session.

        Raises:
            SessionNotFoundError: The session was deleted or archived.
        """
        info = self._dependencies.sessions.get(self.namespace, self.name)
        # Another process may have created a new session with this name: compare the keys.
        if info is None or info.key != self.key:
            raise SessionNotFoundError(
                f"{self!r} was deleted or archived: open a new one with engine.session(...)"
            )
        return info

    def compress(self, older_than: str, summary: str) -> CompressReport:
        """Replace all visible messages before ``older_than`` with a summary; the record keeps them.

        If the boundary would separate a tool call from its results, it is moved before the call, so that both
        stay visible together.

        Args:
            older_than: Id of the first message that stays visible.
            summary: Text of the summary. An active summary is among the replaced messages, so include its facts.

        Raises:
            MessageNotFoundError: The session has no message with the id ``older_than``.
        """
        _check_summary(summary)
        check_name(older_than, "message id")
        # Repeat if another process compresses the session between reading and writing.
        while True:
            info = self.info()
            hidden, boundary = self._split_at(older_than)
            if not hidden:
                return CompressReport(
                    summary=None,
                    compressed=0,
                    tokens_before=0,
                    tokens_after=0,
                    boundary=boundary.id,
                )
            (message,) = complete_drafts(
                self._dependencies, [MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{summary}")]
            )
            if self._dependencies.messages.compress(
                info.key,
                message,
                before=boundary.id,
                hidden=len(hidden),
                was_hidden=info.compressed_count,
            ):
                before = sum(m.token_count for m in hidden)
                self._dependencies.instruments.count(SUMMARIES)
                self._dependencies.instruments.count(TOKENS_SAVED, before - message.token_count)
                return CompressReport(
                    summary=message,
                    compressed=len(hidden),
                    tokens_before=before,
                    tokens_after=message.token_count,
                    boundary=boundary.id,
                )

    def set_aside(self) -> str:
        """Archive this conversation under another name, so that a new session can use its name.

        Recall still finds its messages.

        Returns:
            The new name of this session.

        Raises:
            SessionNotFoundError: Another process deleted or archived the session.
        """
        self.info()
        now = self._dependencies.now()
        # Sessions archived at the same moment are numbered: take the first free name.
        for number in itertools.count(1):
            name = build_archived_name(self.name, now, number)
            if self._dependencies.sessions.rename(self.key, name):
                self.name = name
                self._dependencies.on_change(self.namespace)
                break
        return self.name

    def delete(self) -> DeleteReport:
        """Erase the session and all its messages."""
        # The cache goes first: it must not outlive the rows.
        self._dependencies.cache.invalidate(self.key)
        return self._dependencies.sessions.delete(self.key)

    def _read_visible(self) -> tuple[Message, ...]:
        visible = self._dependencies.messages.list_visible(self.key, MAX_LIMIT)
        if len(visible) >= MAX_LIMIT:
            raise InvalidInputError(
                f"{self!r} has {MAX_LIMIT} visible messages or more: pass a limit, or compress the session earlier"
            )
        return visible

    def _split_at(self, older_than: str) -> tuple[tuple[Message, ...], Message]:
        visible = self._read_visible()
        index = next((index for index, message in enumerate(visible) if message.id == older_than), None)
        if index is None:
            # The message is hidden already, so there is nothing to compress. Raises if it does not exist.
            hidden = self.get(older_than)
            return (), visible[0] if visible else hidden
        cut = find_safe_cut(visible, index)
        return visible[:cut], visible[cut]


def complete_drafts(dependencies: SessionDependencies, drafts: Sequence[MessageDraft]) -> list[Message]:
    """Complete drafts to messages: fill in missing ids, times and token counts."""
    now, counter, ids = dependencies.now(), dependencies.counter, dependencies.ids
    return [
        Message(
            id=draft.id or check_name(ids.new(now), "message id"),
            role=draft.role,
            content=draft.content,
            created_at=draft.created_at or now,
            token_count=count_draft(counter, draft) if draft.token_count is None else draft.token_count,
            token_counter=counter.name if draft.token_count is None else COUNTED_BY_CALLER,
            name=draft.name,
            tool_calls=draft.tool_calls,
            tool_call_id=draft.tool_call_id,
            payload_json=draft.payload_json,
        )
        for draft in drafts
    ]


def coerce_draft(message: MessageDraft | Role | str, content: str | None) -> MessageDraft:
    """Return a draft, given as a draft or as a role and a text.

    Raises:
        InvalidMessageError: The arguments are neither of these.
    """
    if isinstance(message, MessageDraft):
        if content is not None:
            raise InvalidMessageError("add() got a MessageDraft and a text: put the text into the draft")
        return message
    if content is None:
        raise InvalidMessageError(
            f"add() expects a role and a text, or a MessageDraft, got only {type(message).__name__}: "
            "use add('user', text) or add(MessageDraft(...))"
        )
    return MessageDraft(message, content)


def check_drafts(drafts: object) -> list[MessageDraft]:
    """Return the drafts as a list.

    Raises:
        InvalidMessageError: The argument is not an iterable of drafts.
    """
    if isinstance(drafts, str | MessageDraft) or not isinstance(drafts, Iterable):
        raise InvalidMessageError(
            f"messages must be a list of MessageDraft, got {type(drafts).__name__}: "
            "put a single message into a list, or use session.add()"
        )
    checked = list(drafts)
    for index, draft in enumerate(checked):
        if not isinstance(draft, MessageDraft):
            raise InvalidMessageError(
                f"messages[{index}] must be a MessageDraft, got {type(draft).__name__}: "
                "wrap it as MessageDraft(role, text, ...)"
            )
    return checked


def _check_summary(summary: object) -> None:
    if not isinstance(summary, str) or not summary.strip():
        raise InvalidInputError(
            f"summary must be a text that is not empty, got {_describe_value(summary)}: "
            "pass the text that replaces the messages"
        )


def _describe_value(value: object) -> str:
    return repr(value) if value is None or value == "" else f"{type(value).__name__} without words"
