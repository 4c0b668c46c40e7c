"""Chat message history for ``RunnableWithMessageHistory`` and for direct use."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import TYPE_CHECKING, Literal

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.runnables.config import var_child_runnable_config

from langmem_tiers import InvalidInputError, StorageError
from langmem_tiers.integration_kit import (
    STORE_ERRORS,
    check_engine,
    check_name,
    get_retry_queue,
    resolve_namespace,
    to_token_budget,
)
from langmem_tiers_langchain.convert import is_from_memory, to_context_messages, to_draft, to_record_messages
from langmem_tiers_langchain.message_codec import decode_base_message
from langmem_tiers_langchain.recorder import store_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from langmem_tiers import MemoryContext, MemoryEngine, MessageDraft, TokenBudget
    from langmem_tiers.integration_kit import NamespacePath

_log = logging.getLogger("langmem_tiers")


class TieredChatMessageHistory(BaseChatMessageHistory):
    """Chat history of one session.

    If the store fails, the turn continues: unsaved messages are kept in memory, included in ``messages``, and
    written with the next message. See ``unsaved`` and ``failures``. Use one object for one turn at a time. For
    parallel turns of a session, let the runnable create one object per turn, or set ``history_messages_key``.

    Args:
        engine: Engine that stores the messages.
        session_id: Name of the session.
        namespace: Owner of the session, such as ``("acme", user_id)``; include the user. Recall covers all
            sessions of the namespace. Default: a separate namespace for this session id.
        view: ``"record"`` returns all messages unchanged. ``"budget"`` returns a summary, recalled memories and
            the newest messages within the budget; older messages are compressed.
        budget: Tokens for the view. Default: the engine's budget.
        query: Recall query of the view. Default: the newest stored question, because the runnable does not
            pass the current question to the history.

    Raises:
        InvalidNameError: The session id or the namespace is empty or not a text.
        InvalidInputError: The engine is not a MemoryEngine, or the view is unknown.
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
        """Messages of the view. Within one turn of a runnable they are stable until messages are added."""
        # At the end of a turn, the runnable skips as many messages of its input as this list contains. A list of
        # another length would make it store old messages again, or lose new ones.
        in_turn = self._is_in_turn()
        with self._lock:
            messages = self._turn_messages if in_turn else None
        if messages is None:
            messages = self._read_record() if self.view == "record" else self.context(self.query)
            with self._lock:
                self._turn_messages = messages if in_turn else self._turn_messages
        return list(messages)

    def context(self, query: str | None = None, *, recall: bool = True) -> list[BaseMessage]:
        """Return the messages for a model call within the budget, independent of the view.

        Args:
            query: Recall query. Default: the newest stored question.
            recall: True to include knowledge and memories from other sessions.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        try:
            context = self._build_context(query, recall=recall)
        except STORE_ERRORS as error:
            return self._fall_back_to_cached(error)
        return self._append_unsaved(to_context_messages(context))

    @property
    def unsaved(self) -> list[BaseMessage]:
        """Messages that are not stored yet, oldest first."""
        return [
            message
            for draft in self._retry_queue.list_pending(self.namespace, self.session_id)
            if (message := decode_base_message(json.loads(draft.payload_json or "null"))) is not None
        ]

    @property
    def failures(self) -> int:
        """Number of failed writes of this session in this process."""
        return self._retry_queue.count_failures(self.namespace, self.session_id)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store the messages, together with earlier unsaved messages, in one transaction.

        Messages with ids that are already stored are skipped. If the store fails, the messages are kept for
        the next write, and a warning is logged.

        Raises:
            InvalidMessageError: One of them is not a message, or is a ``RemoveMessage``; nothing was stored.
        """
        new = [self._to_draft(message) for message in messages if not is_from_memory(message)]
        waiting = self._retry_queue.pop_drafts(self.namespace, self.session_id)
        try:
            if waiting or new:
                store_messages(self.engine.session(self.namespace, self.session_id), [*waiting, *new])
        except STORE_ERRORS as error:
            self._retry_queue.add_failed(self.namespace, self.session_id, [*waiting, *new])
            # Only the error type: the message may contain data that does not belong in a log.
            _log.warning(
                "%r could not store %d messages and will retry: %s", self, len(new), type(error).__name__
            )
        except BaseException:
            # The caller sees this error and still has `new`; only the earlier drafts must not get lost.
            self._retry_queue.add_failed(self.namespace, self.session_id, waiting)
            raise
        finally:
            with self._lock:
                self._turn_messages = None

    def clear(self) -> None:
        """Erase the session with all its messages and pending writes."""
        session = self.engine.namespace(self.namespace).find_session(self.session_id)
        if session is not None:
            session.delete()
        self._retry_queue.pop_drafts(self.namespace, self.session_id)
        with self._lock:
            self._turn_messages, self._last_read = None, []

    async def aget_messages(self) -> list[BaseMessage]:
        """Return the messages of the view without blocking the event loop."""
        return await asyncio.to_thread(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Run ``add_messages`` in a thread."""
        await asyncio.to_thread(self.add_messages, messages)

    async def aclear(self) -> None:
        """Run ``clear`` in a thread."""
        await asyncio.to_thread(self.clear)

    async def acontext(self, query: str | None = None, *, recall: bool = True) -> list[BaseMessage]:
        """Run ``context`` in a thread."""
        return await asyncio.to_thread(self.context, query, recall=recall)

    def _read_record(self) -> list[BaseMessage]:
        try:
            session = self.engine.namespace(self.namespace).find_session(self.session_id)
            found = [] if session is None else to_record_messages(session.messages())
        except STORE_ERRORS as error:
            return self._fall_back_to_cached(error)
        return self._append_unsaved(found)

    def _build_context(self, query: str | None, *, recall: bool) -> MemoryContext:
        session = self.engine.session(self.namespace, self.session_id)
        try:
            return session.build_context(query, budget=self.budget, recall=recall)
        except StorageError:
            # Without an explicit budget the engine also compresses the session, which writes. An explicit budget
            # only reads, which may still work if the store cannot be written.
            return session.build_context(
                query, budget=self.budget or self.engine.config.budget, recall=recall
            )

    def _append_unsaved(self, found: list[BaseMessage]) -> list[BaseMessage]:
        self._last_read = found
        return [*found, *self.unsaved]

    def _fall_back_to_cached(self, error: Exception) -> list[BaseMessage]:
        _log.warning("%r could not be read, using cached messages: %s", self, type(error).__name__)
        return [*self._last_read, *self.unsaved]

    def _to_draft(self, message: BaseMessage) -> MessageDraft:
        # A message without an id gets one here, before the first attempt, so that a retry cannot store it twice.
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
