"""Short-term memory: the record of one session, and what of it is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.archived_session_names import build_archived_name
from langmem_tiers.common.messages import (
    COUNTED_BY_CALLER,
    SUMMARY_PREFIX,
    Message,
    MessageDraft,
    Role,
    check_time,
)
from langmem_tiers.common.namespaces import check_name
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
    from langmem_tiers.common.ports import MessageStore, SessionStore, TokenCounter, TranscriptStore
    from langmem_tiers.sessions.cache import SessionCache
    from langmem_tiers.telemetry.instruments import Instruments

_PAGE_SIZE = 1000  # messages read at a time when a whole session is walked


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDependencies:
    """What a session stands on, handed in by the engine."""

    sessions: SessionStore
    messages: MessageStore
    transcripts: TranscriptStore
    counter: TokenCounter
    clock: Clock
    ids: IdSource
    cache: SessionCache
    on_change: Callable[[NamespacePath], None]
    """Told of every namespace that was written to."""
    instruments: Instruments = SILENT_INSTRUMENTS
    """Told how long things take."""

    def now(self) -> datetime:
        """The time in UTC, whatever clock was handed in."""
        return check_time(self.clock.now())


_DISPLAYED_MESSAGES = 5  # of the newest messages, where a session shows itself


class SessionRecord(NotebookDisplayable):
    """The record of one session: what was said, and what of it is shown."""

    def __init__(self, parts: SessionDependencies, info: SessionInfo) -> None:
        self._dependencies = parts
        self.key: int = info.key
        self.namespace: NamespacePath = info.namespace
        self.name: str = info.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join(self.namespace)!r}, {self.name!r})"

    def _to_display(self) -> DisplayContent:
        info = self._dependencies.sessions.get(self.namespace, self.name)
        if info is None or info.key != self.key:
            return DisplayContent(
                repr(self), {"state": "it is gone: deleted, or set aside under another name"}
            )
        facts = {
            "messages": info.message_count,
            "behind a summary": info.compressed_count,
            "tokens": info.token_count,
            "begun": info.created_at,
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

        A message whose id the session knows is not stored again. Nor is one that is nothing but what a
        context had injected from memory: it would come back as something new.

        Args:
            messages: The messages.
            expect_new: That the session knows none of them, as far as you can tell. Spares a look-up; if
                it is not so, the result is the same.

        Raises:
            MessageConflictError: The id is taken by a message that says something else.
        """
        handed_in = check_drafts(messages)
        drafts = [draft for draft in handed_in if not is_only_fenced(draft.content)]
        echoes = tuple(
            complete_drafts(
                self._dependencies, [draft for draft in handed_in if is_only_fenced(draft.content)]
            )
        )
        new_ids = expect_new or all(draft.id is None for draft in drafts)
        return self._store(complete_drafts(self._dependencies, drafts), echoes, new_ids=new_ids)

    def add_messages(self, messages: Sequence[Message]) -> AddReport:
        """Store messages that have their ids, times and counts already, as ``add_many()`` does."""
        echoes = tuple(message for message in messages if is_only_fenced(message.content))
        said = [message for message in messages if not is_only_fenced(message.content)]
        return self._store(said, echoes, new_ids=False)

    def _store(self, batch: Sequence[Message], echoes: tuple[Message, ...], *, new_ids: bool) -> AddReport:
        if not batch:
            return AddReport(stored=(), duplicates=(), echoes=echoes)
        with self._dependencies.instruments.measure(Operation.ADD) as watch:
            done = self._dependencies.messages.append(
                self.key, batch, self._dependencies.now(), new_ids=new_ids
            )
            watch.record(messages=len(done.stored), duplicates=len(done.duplicates))
        if done.stored:
            self._dependencies.cache.extend(self.key, done)
            self._dependencies.on_change(self.namespace)
        return AddReport(stored=done.stored, duplicates=done.duplicates, echoes=echoes)

    def latest(self, count: int = 30) -> tuple[Message, ...]:
        """The newest messages of the record, oldest first, whether compressed or not."""
        check_limit(count)
        parts, cache = self._dependencies, self._dependencies.cache
        if cache.can_serve(self.key, count):
            held = cache.get(self.key, count, parts.sessions.get_revision(self.key))
            if held is not None:
                return DisplayableTuple(held)
        tail = parts.messages.list_latest(self.key, count)
        if count <= cache.window:
            cache.put(self.key, tail, whole=len(tail.messages) < count)
        return DisplayableTuple(tail.messages)

    def page(self, after: str | None = None, limit: int = 100) -> MessagePage:
        """A page of the record, oldest first.

        Args:
            after: ``next_after`` of the page before, or any message id; from the start if left out.
            limit: Messages per page.
        """
        check_limit(limit)
        after = None if after is None else check_name(after, "message id")
        found = self._dependencies.messages.list_after(self.key, after=after, limit=limit + 1)
        more = len(found) > limit
        return MessagePage(messages=found[:limit], next_after=found[limit - 1].id if more else None)

    def page_back(self, before: str | None = None, limit: int = 100) -> MessagePage:
        """A page of the record, newest first.

        Args:
            before: ``next_after`` of the page before, or any message id; from the end if left out.
            limit: Messages per page.
        """
        check_limit(limit)
        before = None if before is None else check_name(before, "message id")
        found = self._dependencies.messages.list_before(self.key, before=before, limit=limit + 1)[::-1]
        more = len(found) > limit
        return MessagePage(messages=found[:limit], next_after=found[limit - 1].id if more else None)

    def messages(self) -> Iterator[Message]:
        """The whole record, oldest first, read in pages."""
        after = None
        while True:
            page = self._dependencies.messages.list_after(self.key, after=after, limit=_PAGE_SIZE)
            yield from page
            if len(page) < _PAGE_SIZE:
                return
            after = page[-1].id

    def view(self, limit: int | None = None) -> tuple[Message, ...]:
        """What of the session is shown now: its summary, then the messages that are not behind it.

        A tool result is shown only with its call, never alone.

        Args:
            limit: At most so many messages: the summary, if there is one, and the newest.
        """
        if limit is None:
            return remove_orphans(self._read_visible())
        shown = self._dependencies.messages.list_visible(self.key, check_limit(limit))
        if len(shown) > limit:  # the summary and one message too many behind it
            shown = shown[:1] + shown[2:]
        return remove_orphans(shown)

    def get(self, message_id: str) -> Message:
        """One message of the record."""
        message = self._dependencies.messages.get(self.key, check_name(message_id, "message id"))
        if message is None:
            raise MessageNotFoundError(
                f"session {self.name!r} holds no message {message_id!r}: use an id that page() or add() gave"
            )
        return message

    def find_known_ids(self, ids: Iterable[str]) -> AbstractSet[str]:
        """Those of the message ids that the record has."""
        return self._dependencies.messages.find_known_ids(
            self.key, [check_name(one, "message id") for one in ids]
        )

    def count(self) -> int:
        """How many messages the record holds, summaries among them."""
        return self.info().message_count

    def info(self) -> SessionInfo:
        """The session as it stands."""
        info = self._dependencies.sessions.get(self.namespace, self.name)
        if info is None or info.key != self.key:
            raise SessionNotFoundError(
                f"{self!r} was deleted or set aside: open it anew with engine.session(...)"
            )
        return info

    def compress(self, older_than: str, summary: str) -> CompressReport:
        """Show a summary in place of all messages older than ``older_than``; the record keeps them.

        A cut through a tool call and its results is moved to before the call, so that both
        stay in sight together.

        Args:
            older_than: Id of the first message that stays in sight.
            summary: What stands for the older ones. The summary in force, if there is one, is
                among the messages that it replaces: take its facts over.
        """
        _check_summary(summary)
        check_name(older_than, "message id")
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
            # somebody else compressed in between: look again

    def set_aside(self) -> str:
        """End this conversation: its record stays under another name, and its own name is free for a new one.

        Recall still finds what was said in it.

        Returns:
            The name that it has now.

        Raises:
            SessionNotFoundError: Somebody else has deleted it or set it aside.
        """
        self.info()
        now = self._dependencies.now()
        for number in itertools.count(1):
            name = build_archived_name(self.name, now, number)
            if self._dependencies.sessions.rename(self.key, name):
                self.name = name
                self._dependencies.on_change(self.namespace)
                break
        return self.name

    def delete(self) -> DeleteReport:
        """Erase the session and all its messages."""
        self._dependencies.cache.invalidate(self.key)
        return self._dependencies.sessions.delete(self.key)

    def _read_visible(self) -> tuple[Message, ...]:
        shown = self._dependencies.messages.list_visible(self.key, MAX_LIMIT)
        if len(shown) >= MAX_LIMIT:
            raise InvalidInputError(
                f"{self!r} shows {MAX_LIMIT} messages or more: read it with a limit, or compress it earlier"
            )
        return shown

    def _split_at(self, older_than: str) -> tuple[tuple[Message, ...], Message]:
        shown = self._read_visible()
        place = next((index for index, message in enumerate(shown) if message.id == older_than), None)
        if place is None:
            there = self.get(older_than)  # says so if it does not exist at all
            return (), shown[0] if shown else there
        cut = find_safe_cut(shown, place)
        return shown[:cut], shown[cut]


def complete_drafts(parts: SessionDependencies, drafts: Sequence[MessageDraft]) -> list[Message]:
    """Fill in what the drafts leave out: id, time, token count."""
    now, counter, ids = parts.now(), parts.counter, parts.ids
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
    """A message that was handed in as a draft, or as its role and its text."""
    if isinstance(message, MessageDraft):
        if content is not None:
            raise InvalidMessageError("add() got a MessageDraft and a text: put the text into the draft")
        return message
    if content is None:
        raise InvalidMessageError(
            f"add() takes a role and a text, or a MessageDraft, and got a {type(message).__name__} alone: "
            "use add('user', text) or add(MessageDraft(...))"
        )
    return MessageDraft(message, content)


def check_drafts(drafts: object) -> list[MessageDraft]:
    """The drafts as a list, or an error for what is none."""
    if isinstance(drafts, str | MessageDraft) or not isinstance(drafts, Iterable):
        raise InvalidMessageError(
            f"messages must be a list of MessageDraft, got a {type(drafts).__name__}: "
            "put a single one into a list, or use session.add()"
        )
    checked = list(drafts)
    for index, draft in enumerate(checked):
        if not isinstance(draft, MessageDraft):
            raise InvalidMessageError(
                f"message {index} is a {type(draft).__name__}: wrap it as MessageDraft(role, text, ...)"
            )
    return checked


def _check_summary(summary: object) -> None:
    if not isinstance(summary, str) or not summary.strip():
        raise InvalidInputError(
            f"a summary must say something, got {_describe_value(summary)}: pass the text that stands for the messages"
        )


def _describe_value(value: object) -> str:
    return repr(value) if value is None or value == "" else f"a {type(value).__name__} without words"
