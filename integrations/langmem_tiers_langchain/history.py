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
from langmem_tiers.integration_kit.argument_checks import check_engine, resolve_namespace, to_token_budget
from langmem_tiers.integration_kit.retry_queue import STORE_ERRORS, get_retry_queue
from langmem_tiers_langchain.context_messages import is_from_memory, to_context_messages, to_record_messages
from langmem_tiers_langchain.convert import to_draft
from langmem_tiers_langchain.message_codec import decode_base_message
from langmem_tiers_langchain.recorder import store_messages

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
        self.namespace: NamespacePath = resolve_namespace(namespace, session_id)
        self.view = _check_view(view)
        self.budget = to_token_budget(budget)
        self.query = query
        self._retry_queue = get_retry_queue(engine)
        self._lock = threading.Lock()
        self._last_read: list[BaseMessage] = []
        self._turn_messages: list[BaseMessage] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join(self.namespace)!r}, {self.session_id!r}, view={self.view!r})"

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """What the view shows. Inside one turn of a runnable it stays the same until messages are added."""
        # The runnable tells new input from old by the length of this list at the end of the turn.
        in_turn = self._is_in_turn()
        with self._lock:
            held = self._turn_messages if in_turn else None
        if held is None:
            held = self._read_record() if self.view == "record" else self.context(self.query)
            with self._lock:
                self._turn_messages = held if in_turn else self._turn_messages
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
            found = self._build_context(query, recall=recall)
        except STORE_ERRORS as error:
            return self._fall_back_to_cached(error)
        return self._append_unsaved(to_context_messages(found))

    @property
    def unsaved(self) -> list[BaseMessage]:
        """What the store did not take yet, oldest first."""
        return [
            message
            for draft in self._retry_queue.list_pending(self.namespace, self.session_id)
            if (message := decode_base_message(json.loads(draft.payload_json or "null"))) is not None
        ]

    @property
    def failures(self) -> int:
        """How many writes of this session failed in this process."""
        return self._retry_queue.count_failures(self.namespace, self.session_id)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store the messages, with what could not be stored before, in one transaction.

        A message whose id the session knows is not stored again. If the store fails, the messages are
        kept for the next write, and a warning is logged.

        Raises:
            InvalidMessageError: One of them is no message, or a ``RemoveMessage``; nothing was stored.
        """
        new = [self._to_draft(message) for message in messages if not is_from_memory(message)]
        waiting = self._retry_queue.pop_drafts(self.namespace, self.session_id)
        try:
            if waiting or new:
                store_messages(self.engine.session(self.namespace, self.session_id), [*waiting, *new])
        except STORE_ERRORS as error:
            self._retry_queue.add_failed(self.namespace, self.session_id, [*waiting, *new])
            # Its type alone: the words of an error may name what a log should not hold.
            _log.warning(
                "%r could not store %d messages, they wait: %s", self, len(new), type(error).__name__
            )
        except BaseException:
            self._retry_queue.add_failed(self.namespace, self.session_id, waiting)
            raise
        finally:
            with self._lock:
                self._turn_messages = None

    def clear(self) -> None:
        """Erase the session with all its messages, and what waits to be stored."""
        session = self.engine.namespace(self.namespace).find_session(self.session_id)
        if session is not None:
            session.delete()
        self._retry_queue.pop_drafts(self.namespace, self.session_id)
        with self._lock:
            self._turn_messages, self._last_read = None, []

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

    def _read_record(self) -> list[BaseMessage]:
        try:
            session = self.engine.namespace(self.namespace).find_session(self.session_id)
            found = [] if session is None else to_record_messages(session.messages())
        except STORE_ERRORS as error:
            return self._fall_back_to_cached(error)
        return self._append_unsaved(found)

    def _build_context(self, query: str | None, *, recall: bool) -> Context:
        session = self.engine.session(self.namespace, self.session_id)
        try:
            return session.build_context(query, budget=self.budget, recall=recall)
        except StorageError:
            # The engine tidies a session under its own budget; a store that cannot be written may be read.
            return session.build_context(
                query, budget=self.budget or self.engine.config.budget, recall=recall
            )

    def _append_unsaved(self, found: list[BaseMessage]) -> list[BaseMessage]:
        self._last_read = found
        return [*found, *self.unsaved]

    def _fall_back_to_cached(self, error: Exception) -> list[BaseMessage]:
        _log.warning("%r could not be read, what is held goes on: %s", self, type(error).__name__)
        return [*self._last_read, *self.unsaved]

    def _to_draft(self, message: BaseMessage) -> MessageDraft:
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
