"""A chat message history for ``RunnableWithMessageHistory`` and code of your own."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import TYPE_CHECKING, Literal

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.runnables.config import var_child_runnable_config

from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import InvalidInputError, StorageError
from langmem_tiers.integration_kit.argument_checks import budget_of, check_engine, namespace_of
from langmem_tiers.integration_kit.retry_queue import FAILS, unsaved_of
from langmem_tiers_langchain.contexts import context_messages, is_told_by_memory, record_messages
from langmem_tiers_langchain.convert import to_draft
from langmem_tiers_langchain.storing import store
from langmem_tiers_langchain.values import decode_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.context.models import Context
    from langmem_tiers.engine import MemoryEngine

_log = logging.getLogger("langmem_tiers")


class TieredChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session, as LangChain's chat histories give them.

    If the store fails, a turn goes on: what could not be written is kept, shown, and written with the
    next message; see ``unsaved`` and ``failures``. One object serves one turn at a time: for turns of a
    session in parallel, let the runnable make one for each, or give it a ``history_messages_key``.

    Args:
        engine: Where the messages are.
        session_id: The conversation.
        namespace: Whose it is, such as ``("acme", user_id)``; put the user into it. Recall reaches all
            sessions of a namespace. A session without one has a namespace of its own, so that two
            users never meet in it unless they share the session id.
        view: ``"record"`` gives every message as it was said, ``"budget"`` what fits the budget: a summary,
            what was recalled, the newest messages, older ones compressed.
        budget: Tokens for the view; the engine's budget, if left out.
        query: What memory is asked for in the view; the newest stored question, if left out. The runnable
            does not tell the history what is being asked now.

    Raises:
        InvalidNameError: The session id or the namespace is empty or no text.
        InvalidInputError: It is no engine, or there is no such view.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        session_id: str,
        *,
        namespace: str | Iterable[str] | None = None,
        view: Literal["record", "budget"] = "record",
        budget: TokenBudget | int | None = None,
        query: str | None = None,
    ) -> None:
        self.engine = check_engine(engine)
        self.session_id = check_name(session_id, "session id")
        self.namespace: NamespacePath = namespace_of(namespace, session_id)
        self.view = _check_view(view)
        self.budget = budget_of(budget)
        self.query = query
        self._unsaved = unsaved_of(engine)
        self._lock = threading.Lock()
        self._seen: list[BaseMessage] = []
        self._held: list[BaseMessage] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join(self.namespace)!r}, {self.session_id!r}, view={self.view!r})"

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """What the view shows. Inside one turn of a runnable it stays the same until messages are added."""
        # The runnable tells new input from old by the length of this list at the end of the turn.
        in_turn = self._is_in_turn()
        with self._lock:
            held = self._held if in_turn else None
        if held is None:
            held = self._read() if self.view == "record" else self.context(self.query)
            with self._lock:
                self._held = held if in_turn else self._held
        return list(held)

    def context(self, query: str | None = None, *, recall: bool = True) -> list[BaseMessage]:
        """What goes to the model for a question, within the budget, whatever the view.

        Args:
            query: What memory is asked for; the newest stored question, if left out.
            recall: Whether what is known and what was said in other sessions comes along.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        try:
            found = self._build(query, recall=recall)
        except FAILS as error:
            return self._without_store(error)
        return self._with_unsaved(context_messages(found))

    @property
    def unsaved(self) -> list[BaseMessage]:
        """What the store did not take yet, oldest first."""
        return [
            message
            for draft in self._unsaved.look(self.namespace, self.session_id)
            if (message := decode_message(json.loads(draft.payload_json or "null"))) is not None
        ]

    @property
    def failures(self) -> int:
        """How many writes of this session failed in this process."""
        return self._unsaved.failures(self.namespace, self.session_id)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store the messages, with what could not be stored before, in one transaction.

        A message whose id the session knows is not stored again. If the store fails, the messages are
        kept for the next write, and a warning is logged.

        Raises:
            InvalidMessageError: One of them is no message, or a ``RemoveMessage``; nothing was stored.
        """
        new = [self._draft(message) for message in messages if not is_told_by_memory(message)]
        waiting = self._unsaved.take(self.namespace, self.session_id)
        try:
            if waiting or new:
                store(self.engine.session(self.namespace, self.session_id), [*waiting, *new])
        except FAILS as error:
            self._unsaved.keep(self.namespace, self.session_id, [*waiting, *new])
            # Its type alone: the words of an error may name what a log should not hold.
            _log.warning(
                "%r could not store %d messages, they wait: %s", self, len(new), type(error).__name__
            )
        except BaseException:
            self._unsaved.keep(self.namespace, self.session_id, waiting)
            raise
        finally:
            with self._lock:
                self._held = None

    def clear(self) -> None:
        """Erase the session with all its messages, and what waits to be stored."""
        session = self.engine.namespace(self.namespace).find_session(self.session_id)
        if session is not None:
            session.delete()
        self._unsaved.take(self.namespace, self.session_id)
        with self._lock:
            self._held, self._seen = None, []

    async def aget_messages(self) -> list[BaseMessage]:
        """What the view shows."""
        return await asyncio.to_thread(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store the messages; see ``add_messages``."""
        await asyncio.to_thread(self.add_messages, messages)

    async def aclear(self) -> None:
        """Erase the session with all its messages."""
        await asyncio.to_thread(self.clear)

    async def acontext(self, query: str | None = None, *, recall: bool = True) -> list[BaseMessage]:
        """What goes to the model for a question; see ``context``."""
        return await asyncio.to_thread(self.context, query, recall=recall)

    def _read(self) -> list[BaseMessage]:
        try:
            session = self.engine.namespace(self.namespace).find_session(self.session_id)
            found = [] if session is None else record_messages(session.messages())
        except FAILS as error:
            return self._without_store(error)
        return self._with_unsaved(found)

    def _build(self, query: str | None, *, recall: bool) -> Context:
        session = self.engine.session(self.namespace, self.session_id)
        try:
            return session.build_context(query, budget=self.budget, recall=recall)
        except StorageError:
            # The engine tidies a session under its own budget; a store that cannot be written may be read.
            return session.build_context(
                query, budget=self.budget or self.engine.config.budget, recall=recall
            )

    def _with_unsaved(self, found: list[BaseMessage]) -> list[BaseMessage]:
        self._seen = found
        return [*found, *self.unsaved]

    def _without_store(self, error: Exception) -> list[BaseMessage]:
        _log.warning("%r could not be read, what is held goes on: %s", self, type(error).__name__)
        return [*self._seen, *self.unsaved]

    def _draft(self, message: BaseMessage) -> MessageDraft:
        # One without an id gets one here: a second try must not store it twice.
        own = getattr(message, "id", None)
        return to_draft(message, self.engine.counter, id=None if own else self.engine.new_id())

    def _is_in_turn(self) -> bool:
        config = var_child_runnable_config.get() or {}
        return config.get("configurable", {}).get("message_history") is self


def _check_view(view: object) -> Literal["record", "budget"]:
    if view == "record":
        return "record"
    if view == "budget":
        return "budget"
    raise InvalidInputError(f"unknown view {view!r}: use 'record' or 'budget'")
