"""One conversation of LlamaIndex in an engine: written, shown, replaced, begun anew. A failing store ends no turn."""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage

from langmem_tiers.adapting.checks import namespace_of
from langmem_tiers.adapting.unsaved import FAILS, unsaved_of
from langmem_tiers.core.transcripts import Listing
from langmem_tiers.tiers.short_term import SET_ASIDE
from langmem_tiers_llamaindex.convert import to_draft, to_message
from langmem_tiers_llamaindex.events import (
    MemoryFailedEvent,
    MemoryRetrievedEvent,
    MemoryStoredEvent,
    dispatcher,
)
from langmem_tiers_llamaindex.turns import turns_of
from langmem_tiers_llamaindex.values import decode_message
from langmem_tiers_llamaindex.view import ConversationView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.messages import Message, MessageDraft
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.flows.session import Session
    from langmem_tiers_llamaindex.sizes import Sizes
    from langmem_tiers_llamaindex.turns import Turn
    from langmem_tiers_llamaindex.view import Seen, Wish

_log = logging.getLogger("langmem_tiers")
_PAGE = 1000


class Conversation:
    """A session and what is held of it in this process.

    Args:
        engine: Where it is.
        namespace: Whose it is.
        session_id: Its name.
        sizes: Counts what is shown.
    """

    def __init__(self, engine: MemoryEngine, namespace: NamespacePath, session_id: str, sizes: Sizes) -> None:
        self._engine = engine
        self._namespace = namespace
        self._session_id = session_id
        self._sizes = sizes
        self._unsaved = unsaved_of(engine)

    @property
    def unsaved(self) -> list[ChatMessage]:
        """What the store did not take yet, oldest first."""
        return [_of_draft(draft) for draft in self._unsaved.look(self._namespace, self._session_id)]

    @property
    def failures(self) -> int:
        """How many writes failed in this process."""
        return self._unsaved.failures(self._namespace, self._session_id)

    def show(self, wish: Wish) -> list[ChatMessage]:
        """What a model is shown."""
        turn = self._turn()
        with turn.lock:  # of several calls in one turn, the first recalls
            try:
                self._write([])
                seen = ConversationView(self._engine, self._session(), self._sizes, turn).seen(wish)
            except FAILS as error:
                return self._without_store(error, turn)
            turn.shown = seen.messages
            self._tell(seen, wish, turn)
        return list(seen.messages)

    def messages(self) -> list[ChatMessage]:
        """All that is in the list, as it was said."""
        try:
            found = self._session().transcript.messages()
        except FAILS as error:
            return self._without_store(error, self._turn())
        return [*map(to_message, found), *self.unsaved]

    def add(self, messages: Sequence[ChatMessage]) -> None:
        """Store messages in one transaction, with what could not be stored before."""
        self._write([self._draft(message) for message in messages])

    def replace(self, messages: Sequence[ChatMessage]) -> None:
        """Put another list in the place of this one."""
        drafts = [self._draft(message) for message in messages]
        self._write([])  # what waits was said before this
        session = self._session()
        if session.transcript.replace(drafts, behind_summaries=False) is None or not drafts:
            # A summary tells of what is gone: the new list is a conversation of its own.
            _set_aside(session)
            if drafts:
                self._session().add_many(drafts)
        self._turn().over()

    def reset(self) -> None:
        """Begin anew. What was said stays in the record."""
        self._write([])
        session = self._engine.namespace(self._namespace).find_session(self._session_id)
        if session is not None:
            if self._namespace == namespace_of(None, self._session_id):
                # It belongs to nobody who could want it recalled in another conversation.
                session.transcript.replace([], former=Listing.REMOVED)
            _set_aside(session)
        self._turn().over()

    def forget(self) -> int:
        """Erase all of it, with what was said before it was begun anew; how many messages that were."""
        self._unsaved.take(self._namespace, self._session_id)
        self._turn().over()
        tenant, names, after = self._engine.namespace(self._namespace), list[str](), None
        while True:
            page = tenant.sessions(after=after, limit=_PAGE)
            names += [info.name for info in page.sessions if self._is_ours(info.name)]
            after = page.next_after
            if after is None:
                break
        found = (tenant.find_session(name) for name in names)
        return sum(session.delete().messages for session in found if session is not None)

    def _session(self) -> Session:
        # Looked up each time: another process may have begun the conversation anew.
        return self._engine.session(self._namespace, self._session_id)

    def _turn(self) -> Turn:
        return turns_of(self._engine).of(self._namespace, self._session_id)

    def _is_ours(self, name: str) -> bool:
        return name == self._session_id or name.startswith(f"{self._session_id}{SET_ASIDE}")

    def _draft(self, message: ChatMessage) -> MessageDraft:
        # With an id from here on: a second try must not store it twice.
        return to_draft(message, self._engine.counter, id=uuid.uuid4().hex)

    def _write(self, new: Sequence[MessageDraft]) -> None:
        waiting = self._unsaved.take(self._namespace, self._session_id)
        if not waiting and not new:
            return
        try:
            report = self._session().add_many([*waiting, *new], expect_new=not waiting)
        except FAILS as error:
            self._unsaved.keep(self._namespace, self._session_id, [*waiting, *new])
            self._failed(error)
            return
        except BaseException:
            self._unsaved.keep(self._namespace, self._session_id, waiting)
            raise
        self._stored(report.stored)

    def _without_store(self, error: Exception, turn: Turn) -> list[ChatMessage]:
        self._failed(error)
        return [*turn.shown, *self.unsaved]

    def _failed(self, error: Exception) -> None:
        # Its type alone: the words of an error may name what a log should not hold.
        kind, waiting = type(error).__name__, len(self.unsaved)
        _log.warning(
            "the conversation %r goes on without its store: %s, %d messages wait",
            self._session_id,
            kind,
            waiting,
        )
        dispatcher.event(
            MemoryFailedEvent(
                namespace=list(self._namespace), session_id=self._session_id, error=kind, waiting=waiting
            )
        )

    def _stored(self, messages: Sequence[Message]) -> None:
        dispatcher.event(
            MemoryStoredEvent(
                namespace=list(self._namespace),
                session_id=self._session_id,
                messages=len(messages),
                tokens=sum(message.token_count for message in messages),
            )
        )

    def _tell(self, seen: Seen, wish: Wish, turn: Turn) -> None:
        told = turn.context if seen.is_from_turn else seen.context
        dispatcher.event(
            MemoryRetrievedEvent(
                namespace=list(self._namespace),
                session_id=self._session_id,
                query=wish.query,
                messages=len(seen.messages),
                tokens=seen.tokens,
                token_limit=wish.limit,
                recalled=[] if told is None else [hit.entry.id for hit in told.recalled],
                dropped=0 if seen.context is None else len(seen.context.dropped),
                is_from_turn=seen.is_from_turn,
            )
        )


def _set_aside(session: Session) -> None:
    if session.count():
        session.set_aside()


def _of_draft(draft: MessageDraft) -> ChatMessage:
    payload = None if draft.payload_json is None else json.loads(draft.payload_json)
    return decode_message(payload, draft.content) or ChatMessage(role=str(draft.role), content=draft.content)
