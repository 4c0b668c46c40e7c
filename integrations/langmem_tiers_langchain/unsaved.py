"""Messages that the store did not take, kept until it does.

Frameworks make a new history object for every turn, so these outlive the object that was given them:
they are kept for as long as the engine lives.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from langmem_tiers.core.errors import (
    EngineClosedError,
    MessageConflictError,
    SessionNotFoundError,
    StorageError,
)
from langmem_tiers.core.messages import MessageDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.flows.session import Session

FAILS = (StorageError, EngineClosedError, SessionNotFoundError)
"""What a store raises when it cannot do what it was asked."""


class Unsaved:
    """What waits to be stored in the sessions of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drafts: dict[tuple[NamespacePath, str], list[MessageDraft]] = {}
        self._failures: dict[tuple[NamespacePath, str], int] = {}

    def look(self, namespace: NamespacePath, session: str) -> list[MessageDraft]:
        """What waits, oldest first; it stays."""
        with self._lock:
            return list(self._drafts.get((namespace, session), ()))

    def take(self, namespace: NamespacePath, session: str) -> list[MessageDraft]:
        """What waits, oldest first; whoever takes it stores it or keeps it again."""
        with self._lock:
            return self._drafts.pop((namespace, session), [])

    def keep(self, namespace: NamespacePath, session: str, drafts: Sequence[MessageDraft]) -> None:
        """Hold what a write that failed was given."""
        if not drafts:
            return
        key = (namespace, session)
        with self._lock:
            self._drafts[key] = [*drafts, *self._drafts.get(key, ())]
            self._failures[key] = self._failures.get(key, 0) + 1

    def failures(self, namespace: NamespacePath, session: str) -> int:
        """How many writes of that session failed."""
        with self._lock:
            return self._failures.get((namespace, session), 0)


_of_engines: WeakKeyDictionary[MemoryEngine, Unsaved] = WeakKeyDictionary()
_lock = threading.Lock()


def unsaved_of(engine: MemoryEngine) -> Unsaved:
    """What waits to be stored by that engine."""
    with _lock:
        return _of_engines.setdefault(engine, Unsaved())


def store(session: Session, drafts: Sequence[MessageDraft]) -> None:
    """Store the messages in one transaction.

    An id may come again with other words, from a model that gives each answer the same one. Both were
    said, so the later one is stored under an id of its own.
    """
    with suppress(MessageConflictError):
        session.add_many(drafts)
        return
    for draft in drafts:
        try:
            session.add(draft)
        except MessageConflictError:
            session.add(_renamed(draft))


def _renamed(draft: MessageDraft) -> MessageDraft:
    # The same one for the same message: it may be handed in again.
    said = f"{draft.content}\0{draft.payload_json}".encode("utf-8", "surrogatepass")
    return MessageDraft(
        draft.role,
        draft.content,
        id=f"{(draft.id or '')[:100]}-{hashlib.blake2b(said, digest_size=8).hexdigest()}",
        created_at=draft.created_at,
        name=draft.name,
        tool_calls=draft.tool_calls,
        tool_call_id=draft.tool_call_id,
        payload=json.loads(draft.payload_json or "null"),
        token_count=draft.token_count,
    )
