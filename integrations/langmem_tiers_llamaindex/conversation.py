"""One conversation of LlamaIndex in an engine: written, shown, replaced, begun anew. A failing store ends no turn."""

from __future__ import annotations

import itertools
import json
import logging
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from langmem_tiers.common.archived_session_names import was_set_aside
from langmem_tiers.errors import SessionNotFoundError, StorageError
from langmem_tiers.integration_kit.argument_checks import namespace_of
from langmem_tiers.integration_kit.retry_queue import unsaved_of
from langmem_tiers.sessions.models import Listing
from langmem_tiers_llamaindex.convert import to_draft, to_message
from langmem_tiers_llamaindex.events import (
    MemoryFailedEvent,
    MemoryRetrievedEvent,
    MemoryStoredEvent,
    dispatcher,
)
from langmem_tiers_llamaindex.pairs import answers_of
from langmem_tiers_llamaindex.plain_cut import plain_cut
from langmem_tiers_llamaindex.turns import turns_of
from langmem_tiers_llamaindex.values import decode_message
from langmem_tiers_llamaindex.view import ConversationView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.messages import Message, MessageDraft
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.session import Session
    from langmem_tiers_llamaindex.sizes import Sizes
    from langmem_tiers_llamaindex.turns import Turn
    from langmem_tiers_llamaindex.view import Seen, Wish

_log = logging.getLogger("langmem_tiers")
FAILS = (StorageError, SessionNotFoundError)
"""What ends no turn. A closed engine is none of it: what waits for it would wait for ever."""
_PAGE = 1000
_RULES = (MessageRole.SYSTEM, MessageRole.DEVELOPER)
_NOT_REMOVED = tuple(one for one in Listing if one is not Listing.REMOVED)


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
        self._turn = turns_of(engine).of(namespace, session_id)

    @property
    def unsaved(self) -> list[ChatMessage]:
        """What the store did not take yet, oldest first."""
        return [_of_draft(draft) for draft in self._unsaved.look(*self._at)]

    @property
    def failures(self) -> int:
        """How many writes failed in this process."""
        return self._unsaved.failures(*self._at)

    def show(self, wish: Wish) -> list[ChatMessage]:
        """What a model is shown."""
        turn = self._turn
        with turn.lock:
            self._write([])
            waiting = self.unsaved
            if self._unsaved.waiting_list(*self._at) is not None:
                return self._held(turn, wish.limit)
            try:
                view = ConversationView(self._engine, self._session(), self._sizes, turn, waiting)
                seen = view.seen(wish)
            except FAILS as error:
                self._failed(error)
                return self._held(turn, wish.limit)
            if not waiting:
                turn.shown = list(seen.messages)
            self._tell(seen, wish)
        return list(seen.messages)

    def messages(self) -> list[ChatMessage]:
        """All that is in the list, as it was said, with what waits.

        Raises:
            StorageError: The store failed: a part of the list would be taken for all of it.
        """
        with self._turn.lock:
            if self._unsaved.waiting_list(*self._at) is not None:
                return self.unsaved
            return [*map(to_message, self._session().transcript.messages()), *self.unsaved]

    def add(self, messages: Sequence[ChatMessage]) -> None:
        """Store messages in one transaction, with what could not be stored before."""
        self._write(self._drafts(messages, self._newest))

    def replace(self, messages: Sequence[ChatMessage]) -> None:
        """Put another list in the place of this one."""
        drafts = self._drafts(messages, list)
        if not drafts:
            self.reset()
            return
        turn = self._turn
        with turn.lock:
            try:
                self._write([], must=True)  # what waits was said before this
                added = self._put(drafts)
            except FAILS as error:
                self._unsaved.supersede(*self._at, drafts)
                turn.end()
                self._failed(error)
                return
            turn.end()
            turn.add([_of_draft(draft) for draft in drafts])
        if added:
            self._tell_stored(added)

    def reset(self) -> None:
        """Begin anew. What was said stays in the record."""
        with self._turn.lock:
            self._write([], must=True)
            if self._is_nobodys:  # then nobody could want it recalled in another conversation
                for record in self._records():
                    ids = [message.id for message in record.transcript.messages(_NOT_REMOVED)]
                    record.transcript.move(ids, Listing.REMOVED)
            session = self._engine.namespace(self._namespace).find_session(self._session_id)
            if session is not None:
                _set_aside(session)
            self._turn.end()

    def forget(self) -> int:
        """Erase all of it, with what was said before it was begun anew; how many messages that were."""
        tenant = self._engine.namespace(self._namespace)
        with self._turn.lock:  # or what waits is stored in between
            count = sum(session.delete().messages for session in self._records())
            if self._is_nobodys and not tenant.sessions(limit=1).sessions:
                tenant.delete()
            self._unsaved.drop(*self._at)
            self._turn.end()
        return count

    @property
    def _at(self) -> tuple[NamespacePath, str]:
        return self._namespace, self._session_id

    @property
    def _is_nobodys(self) -> bool:
        return self._namespace == namespace_of(None, self._session_id)

    def _records(self) -> list[Session]:
        # The conversation, and what it was before it was begun anew.
        tenant, names, after = self._engine.namespace(self._namespace), list[str](), None
        while True:
            page = tenant.sessions(after=after, limit=_PAGE)
            names += [info.name for info in page.sessions if self._is_ours(info.name)]
            after = page.next_after
            if after is None:
                break
        return [found for name in names if (found := tenant.find_session(name)) is not None]

    def _session(self) -> Session:
        # Looked up each time: another process may have begun the conversation anew.
        return self._engine.session(self._namespace, self._session_id)

    def _is_ours(self, name: str) -> bool:
        return name == self._session_id or was_set_aside(name, of=self._session_id)

    def _drafts(
        self, messages: Sequence[ChatMessage], before: Callable[[], Sequence[Message | MessageDraft]]
    ) -> list[MessageDraft]:
        # With an id from here on: a second try must not store it twice.
        counter = self._engine.counter
        drafts = [to_draft(message, counter, id=self._engine.new_id()) for message in messages]
        return [
            draft
            if call in (None, draft.tool_call_id)
            else to_draft(message, counter, id=draft.id, answers=call)
            for message, draft, call in zip(messages, drafts, answers_of(drafts, before), strict=True)
        ]

    def _newest(self) -> Sequence[Message | MessageDraft]:
        waiting = self._unsaved.look(*self._at)
        try:
            return [*self._session().transcript.latest(), *waiting]
        except FAILS:
            return waiting

    def _put(self, drafts: Sequence[MessageDraft]) -> Sequence[Message]:
        # A list in the place of the one that is there; what is new of it.
        session = self._session()
        done = session.transcript.replace(drafts, behind_summaries=False)
        if done is not None:
            return done.added
        _set_aside(session)  # its summary tells of what is gone: the new list is a conversation of its own
        return self._session().add_many(drafts).stored

    def _put_what_waits(self) -> None:
        waiting = self._unsaved.waiting_list(*self._at)
        if waiting is not None:
            self._session().add_many(waiting.before)
            self._put(waiting.drafts)
            self._unsaved.drop_list(*self._at)

    def _write(self, new: Sequence[MessageDraft], *, must: bool = False) -> None:
        turn = self._turn
        with turn.lock:
            waiting = self._unsaved.take(*self._at)
            try:
                self._put_what_waits()
                if not waiting and not new:
                    return
                report = self._session().add_many([*waiting, *new], expect_new=not waiting)
            except FAILS as error:
                self._unsaved.keep(*self._at, [*waiting, *new])
                if must:
                    raise
                self._failed(error)
                return
            except BaseException:
                self._unsaved.keep(*self._at, waiting)
                raise
            turn.add([to_message(message) for message in report.stored])
        self._tell_stored(report.stored)

    def _held(self, turn: Turn, limit: int) -> list[ChatMessage]:
        held = [*turn.shown, *self.unsaved]
        pinned = [*itertools.takewhile(lambda message: message.role in _RULES, held)]
        return plain_cut(pinned, held[len(pinned) :], limit, self._sizes)[0]

    def _failed(self, error: Exception) -> None:
        # Its type alone: the words of an error may name what a log should not hold.
        kind, waiting = type(error).__name__, self._unsaved.count(*self._at)
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

    def _tell_stored(self, messages: Sequence[Message]) -> None:
        dispatcher.event(
            MemoryStoredEvent(
                namespace=list(self._namespace),
                session_id=self._session_id,
                messages=len(messages),
                tokens=sum(message.token_count for message in messages),
            )
        )

    def _tell(self, seen: Seen, wish: Wish) -> None:
        dispatcher.event(
            MemoryRetrievedEvent(
                namespace=list(self._namespace),
                session_id=self._session_id,
                query=wish.query,
                messages=len(seen.messages),
                tokens=seen.tokens,
                token_limit=wish.limit,
                recalled=[hit.entry.id for hit in seen.recalled],
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
