"""Messages that the store did not take, kept until it does.

Frameworks make a new history object for every turn, so these outlive the object that was given them:
they are kept for as long as the engine lives.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from langmem_tiers.core.errors import EngineClosedError, SessionNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.messages import MessageDraft
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine

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
