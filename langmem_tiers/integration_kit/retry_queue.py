"""Messages that the store did not take, kept until it does.

Frameworks make a new history object for every turn, so these outlive the object that was given them:
they are kept for as long as the engine lives.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from langmem_tiers.errors import EngineClosedError, SessionNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

STORE_ERRORS = (StorageError, EngineClosedError, SessionNotFoundError)
"""What a store raises when it cannot do what it was asked."""


@dataclass(frozen=True, slots=True)
class PendingReplacement:
    """A list that is to take the place of all that was said in a session."""

    earlier_drafts: list[MessageDraft]
    """What waited when it came: said before it, and no part of it."""
    drafts: list[MessageDraft]


class RetryQueue:
    """What waits to be stored in the sessions of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drafts: dict[tuple[NamespacePath, str], list[MessageDraft]] = {}
        self._replacements: dict[tuple[NamespacePath, str], PendingReplacement] = {}
        self._failures: dict[tuple[NamespacePath, str], int] = {}

    def list_pending(self, namespace: NamespacePath, session: str) -> list[MessageDraft]:
        """What waits to be a part of the session, oldest first; it stays."""
        with self._lock:
            waiting = self._replacements.get((namespace, session))
            later = self._drafts.get((namespace, session), ())
            return [*(() if waiting is None else waiting.drafts), *later]

    def pop_drafts(self, namespace: NamespacePath, session: str) -> list[MessageDraft]:
        """Messages that wait, oldest first; whoever takes them stores them or keeps them again."""
        with self._lock:
            return self._drafts.pop((namespace, session), [])

    def add_failed(self, namespace: NamespacePath, session: str, drafts: Sequence[MessageDraft]) -> None:
        """Hold what a write that failed was given."""
        if not drafts:
            return
        key = (namespace, session)
        with self._lock:
            self._drafts[key] = [*drafts, *self._drafts.get(key, ())]
            self._failures[key] = self._failures.get(key, 0) + 1

    def add_failed_replacement(
        self, namespace: NamespacePath, session: str, drafts: Sequence[MessageDraft]
    ) -> None:
        """Hold a list that could not be put in the place of another; what waits by now was said before it."""
        key = (namespace, session)
        with self._lock:
            former = self._replacements.get(key)
            earlier = [] if former is None else [*former.earlier_drafts, *former.drafts]
            self._replacements[key] = PendingReplacement([*earlier, *self._drafts.pop(key, ())], list(drafts))
            self._failures[key] = self._failures.get(key, 0) + 1

    def get_replacement(self, namespace: NamespacePath, session: str) -> PendingReplacement | None:
        """The list that waits, if one does; it stays until it is dropped."""
        with self._lock:
            return self._replacements.get((namespace, session))

    def remove_replacement(self, namespace: NamespacePath, session: str) -> None:
        """Let go of the list that waited: it is stored."""
        with self._lock:
            self._replacements.pop((namespace, session), None)

    def clear(self, namespace: NamespacePath, session: str) -> None:
        """Let go of all that waits: the session is erased."""
        with self._lock:
            self._replacements.pop((namespace, session), None)
            self._drafts.pop((namespace, session), None)

    def count_pending(self, namespace: NamespacePath, session: str) -> int:
        """How many messages wait to be a part of the session."""
        with self._lock:
            waiting = self._replacements.get((namespace, session))
            later = len(self._drafts.get((namespace, session), ()))
            return later + (0 if waiting is None else len(waiting.drafts))

    def count_failures(self, namespace: NamespacePath, session: str) -> int:
        """How many writes of that session failed."""
        with self._lock:
            return self._failures.get((namespace, session), 0)


_queues_by_engine: WeakKeyDictionary[MemoryEngine, RetryQueue] = WeakKeyDictionary()
_lock = threading.Lock()


def get_retry_queue(engine: MemoryEngine) -> RetryQueue:
    """What waits to be stored by that engine."""
    with _lock:
        return _queues_by_engine.setdefault(engine, RetryQueue())
