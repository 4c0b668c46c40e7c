"""One LlamaIndex conversation in an engine: write, render, replace and reset, also while the store fails."""

from __future__ import annotations

import itertools
import json
import logging
from typing import TYPE_CHECKING, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from langmem_tiers import Role, SessionNotFoundError, StorageError
from langmem_tiers.integration_kit import Listing, get_retry_queue, is_archived_name, resolve_namespace
from langmem_tiers_llamaindex.conversation_view import ConversationRenderer
from langmem_tiers_llamaindex.convert import to_draft, to_message
from langmem_tiers_llamaindex.events import (
    MemoryFailedEvent,
    MemoryRetrievedEvent,
    MemoryStoredEvent,
    dispatcher,
)
from langmem_tiers_llamaindex.message_codec import decode_chat_message
from langmem_tiers_llamaindex.message_layout import cut_to_limit
from langmem_tiers_llamaindex.turn_state import get_turn_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers import MemoryEngine, Message, MessageDraft, MessageToolCall, Session
    from langmem_tiers.integration_kit import NamespacePath
    from langmem_tiers_llamaindex.conversation_view import RenderedConversation, ViewRequest
    from langmem_tiers_llamaindex.token_counter import TokenCountCache
    from langmem_tiers_llamaindex.turn_state import TurnState

    _AnyMessage: TypeAlias = Message | MessageDraft


def find_answered_calls(
    drafts: Sequence[MessageDraft], before: Callable[[], Sequence[_AnyMessage]]
) -> list[str | None]:
    """Return, for each draft, the id of the tool call that it answers; None if it is not a result.

    Args:
        drafts: Drafts to be stored.
        before: Function that returns the preceding messages; called only if the first draft is a result.
    """
    opened: list[MessageToolCall] = []
    if drafts and drafts[0].role is Role.TOOL:
        for message in before():
            _match_result(message, opened)
    return [_match_result(draft, opened) for draft in drafts]


def _match_result(message: _AnyMessage, opened: list[MessageToolCall]) -> str | None:
    if message.role is not Role.TOOL:
        if message.tool_calls or message.role is Role.USER:
            opened[:] = message.tool_calls
        return None
    # Some model integrations put the name of the tool instead of the call id into a result, or nothing at all.
    answered_id = message.tool_call_id
    by_id = (call for call in opened if call.id == answered_id)
    by_name = (call for call in opened if not answered_id or call.name == answered_id)
    call = next(by_id, None) or next(by_name, None)
    if call is None:
        return answered_id
    opened.remove(call)
    return call.id


_log = logging.getLogger("langmem_tiers")
_RECOVERABLE_ERRORS = (StorageError, SessionNotFoundError)
"""Errors that do not end a turn. A closed engine does, because its pending writes could never be stored."""
_PAGE_SIZE = 1000
_SYSTEM_ROLES = (MessageRole.SYSTEM, MessageRole.DEVELOPER)
_NOT_REMOVED = tuple(listing for listing in Listing if listing is not Listing.REMOVED)


class ChatConversation:
    """One session with its pending writes and turn state in this process.

    Args:
        engine: Engine that stores the session.
        namespace: Namespace of the session.
        session_id: Name of the session.
        sizes: Token counts of messages.
    """

    def __init__(
        self, engine: MemoryEngine, namespace: NamespacePath, session_id: str, sizes: TokenCountCache
    ) -> None:
        self._engine = engine
        self._namespace = namespace
        self._session_id = session_id
        self._token_counts = sizes
        self._retry_queue = get_retry_queue(engine)
        self._turn = get_turn_registry(engine).get_turn(namespace, session_id)

    @property
    def unsaved(self) -> list[ChatMessage]:
        """Messages that are not stored yet, oldest first."""
        return [_draft_to_chat_message(draft) for draft in self._retry_queue.list_pending(*self._key)]

    @property
    def failures(self) -> int:
        """Number of failed writes in this process."""
        return self._retry_queue.count_failures(*self._key)

    def render(self, request: ViewRequest) -> list[ChatMessage]:
        """Return the messages for a model; without the store, the ones that are cached."""
        turn = self._turn
        with turn.lock:
            self._write([])
            waiting = self.unsaved
            # A pending replacement means that the stored messages are outdated.
            if self._retry_queue.get_replacement(*self._key) is not None:
                return self._render_without_store(turn, request.limit)
            try:
                renderer = ConversationRenderer(
                    self._engine, self._open_session(), self._token_counts, turn, waiting
                )
                view = renderer.render(request)
            except _RECOVERABLE_ERRORS as error:
                self._report_failure(error)
                return self._render_without_store(turn, request.limit)
            if not waiting:
                turn.shown_messages = list(view.messages)
            self._send_retrieved_event(view, request)
        return list(view.messages)

    def messages(self) -> list[ChatMessage]:
        """Return all messages of the conversation unchanged, including unsaved ones.

        Raises:
            StorageError: The store failed; an incomplete list could be mistaken for the whole conversation.
        """
        with self._turn.lock:
            if self._retry_queue.get_replacement(*self._key) is not None:
                return self.unsaved
            return [*map(to_message, self._open_session().transcript.messages()), *self.unsaved]

    def add(self, messages: Sequence[ChatMessage]) -> None:
        """Store messages, together with earlier unsaved messages, in one transaction."""
        self._write(self._to_drafts(messages, self._list_newest))

    def replace(self, messages: Sequence[ChatMessage]) -> None:
        """Replace the messages of the conversation; an empty list resets it."""
        drafts = self._to_drafts(messages, list)
        if not drafts:
            self.reset()
            return
        turn = self._turn
        with turn.lock:
            try:
                self._write([], must=True)  # pending messages precede the replacement
                added = self._replace_list(drafts)
            except _RECOVERABLE_ERRORS as error:
                self._retry_queue.add_failed_replacement(*self._key, drafts)
                turn.reset()
                self._report_failure(error)
                return
            turn.reset()
            turn.add_shown([_draft_to_chat_message(draft) for draft in drafts])
        if added:
            self._send_stored_event(added)

    def reset(self) -> None:
        """Start a new conversation; the earlier messages stay stored in an archived session."""
        with self._turn.lock:
            self._write([], must=True)
            if self._has_own_namespace:  # without a user, earlier messages must not be recalled
                for record in self._list_records():
                    ids = [message.id for message in record.transcript.messages(_NOT_REMOVED)]
                    record.transcript.move(ids, Listing.REMOVED)
            session = self._engine.namespace(self._namespace).find_session(self._session_id)
            if session is not None:
                _archive_session(session)
            self._turn.reset()

    def delete(self) -> int:
        """Erase the conversation and its archived sessions; return the number of messages."""
        tenant = self._engine.namespace(self._namespace)
        with self._turn.lock:  # otherwise, a concurrent call could store pending messages in between
            count = sum(session.delete().messages for session in self._list_records())
            if self._has_own_namespace and not tenant.sessions(limit=1).sessions:
                tenant.delete()
            self._retry_queue.clear(*self._key)
            self._turn.reset()
        return count

    @property
    def _key(self) -> tuple[NamespacePath, str]:
        return self._namespace, self._session_id

    @property
    def _has_own_namespace(self) -> bool:
        return self._namespace == resolve_namespace(None, self._session_id)

    def _list_records(self) -> list[Session]:
        # The session of the conversation, and the sessions that were archived by resets.
        tenant, names, after = self._engine.namespace(self._namespace), list[str](), None
        while True:
            page = tenant.sessions(after=after, limit=_PAGE_SIZE)
            names += [info.name for info in page.sessions if self._is_own_session(info.name)]
            after = page.next_after
            if after is None:
                break
        return [found for name in names if (found := tenant.find_session(name)) is not None]

    def _open_session(self) -> Session:
        # Looked up for each use: another process may have reset the conversation.
        return self._engine.session(self._namespace, self._session_id)

    def _is_own_session(self, name: str) -> bool:
        return name == self._session_id or is_archived_name(name, original=self._session_id)

    def _to_drafts(
        self, messages: Sequence[ChatMessage], before: Callable[[], Sequence[Message | MessageDraft]]
    ) -> list[MessageDraft]:
        # Ids are assigned before the first attempt, so that a retry cannot store a message twice.
        counter = self._engine.counter
        drafts = [to_draft(message, counter, id=self._engine.new_id()) for message in messages]
        return [
            draft
            if call in (None, draft.tool_call_id)
            else to_draft(message, counter, id=draft.id, answers=call)
            for message, draft, call in zip(
                messages, drafts, find_answered_calls(drafts, before), strict=True
            )
        ]

    def _list_newest(self) -> Sequence[Message | MessageDraft]:
        waiting = self._retry_queue.list_pending(*self._key)
        try:
            return [*self._open_session().transcript.latest(), *waiting]
        except _RECOVERABLE_ERRORS:
            return waiting

    def _replace_list(self, drafts: Sequence[MessageDraft]) -> Sequence[Message]:
        # Replace the messages in the store and return the added ones.
        session = self._open_session()
        result = session.transcript.replace(drafts, behind_summaries=False)
        if result is not None:
            return result.added
        # The summary of the session covers messages that the new list does not have, so start a new session.
        _archive_session(session)
        return self._open_session().add_many(drafts).stored

    def _write_pending_replacement(self) -> None:
        replacement = self._retry_queue.get_replacement(*self._key)
        if replacement is not None:
            # The earlier drafts were part of the conversation before it was replaced, so they are stored first.
            self._open_session().add_many(replacement.earlier_drafts)
            self._replace_list(replacement.drafts)
            self._retry_queue.remove_replacement(*self._key)

    def _write(self, new: Sequence[MessageDraft], *, must: bool = False) -> None:
        turn = self._turn
        with turn.lock:
            waiting = self._retry_queue.pop_drafts(*self._key)
            try:
                self._write_pending_replacement()
                if not waiting and not new:
                    return
                report = self._open_session().add_many([*waiting, *new], expect_new=not waiting)
            except _RECOVERABLE_ERRORS as error:
                self._retry_queue.add_failed(*self._key, [*waiting, *new])
                if must:
                    raise
                self._report_failure(error)
                return
            except BaseException:  # the caller still has `new`; only earlier drafts must not get lost
                self._retry_queue.add_failed(*self._key, waiting)
                raise
            turn.add_shown([to_message(message) for message in report.stored])
        self._send_stored_event(report.stored)

    def _render_without_store(self, turn: TurnState, limit: int) -> list[ChatMessage]:
        cached = [*turn.shown_messages, *self.unsaved]
        pinned = [*itertools.takewhile(lambda message: message.role in _SYSTEM_ROLES, cached)]
        return cut_to_limit(pinned, cached[len(pinned) :], limit, self._token_counts)[0]

    def _report_failure(self, error: Exception) -> None:
        # Only the error type: the message may contain data that does not belong in a log.
        kind, waiting = type(error).__name__, self._retry_queue.count_pending(*self._key)
        _log.warning(
            "the conversation %r continues without its store: %s, %d messages are pending",
            self._session_id,
            kind,
            waiting,
        )
        dispatcher.event(
            MemoryFailedEvent(
                namespace=list(self._namespace), session_id=self._session_id, error=kind, waiting=waiting
            )
        )

    def _send_stored_event(self, messages: Sequence[Message]) -> None:
        dispatcher.event(
            MemoryStoredEvent(
                namespace=list(self._namespace),
                session_id=self._session_id,
                messages=len(messages),
                tokens=sum(message.token_count for message in messages),
            )
        )

    def _send_retrieved_event(self, view: RenderedConversation, request: ViewRequest) -> None:
        dispatcher.event(
            MemoryRetrievedEvent(
                namespace=list(self._namespace),
                session_id=self._session_id,
                query=request.query,
                messages=len(view.messages),
                tokens=view.tokens,
                token_limit=request.limit,
                recalled=[hit.entry.id for hit in view.recalled],
                dropped=0 if view.context is None else len(view.context.dropped),
                is_from_turn=view.is_from_turn,
            )
        )


def _archive_session(session: Session) -> None:
    if session.count():
        session.set_aside()


def _draft_to_chat_message(draft: MessageDraft) -> ChatMessage:
    payload = None if draft.payload_json is None else json.loads(draft.payload_json)
    return decode_chat_message(payload, draft.content) or ChatMessage(
        role=str(draft.role), content=draft.content
    )
