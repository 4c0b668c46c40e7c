"""Queue of messages that could not be stored, to be retried with the next write.

Frameworks create a new history object for every turn. The queue therefore belongs to the engine and lives as long
as the engine does.
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
"""Errors that mean the messages were not stored and should be retried."""


@dataclass(frozen=True, slots=True)
class PendingReplacement:
    """Queued replacement of all messages of a session."""

    earlier_drafts: list[MessageDraft]
    """Drafts that were queued before the replacement and are not part of it."""
    drafts: list[MessageDraft]


class RetryQueue:
    """Pending writes to the sessions of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drafts: dict[tuple[NamespacePath, str], list[MessageDraft]] = {}
        self._replacements: dict[tuple[NamespacePath, str], PendingReplacement] = {}
        self._failures: dict[tuple[NamespacePath, str], int] = {}

    def list_pending(self, namespace: NamespacePath, session: str) -> list[MessageDraft]:
        """Return the pending drafts of the session, oldest first, without removing them."""
        with self._lock:
            replacement = self._replacements.get((namespace, session))
            later = self._drafts.get((namespace, session), ())
            return [*(() if replacement is None else replacement.drafts), *later]

    def pop_drafts(self, namespace: NamespacePath, session: str) -> list[MessageDraft]:
        """Remove and return the queued drafts, oldest first; the caller stores or re-queues them."""
        with self._lock:
            return self._drafts.pop((namespace, session), [])

    def add_failed(self, namespace: NamespacePath, session: str, drafts: Sequence[MessageDraft]) -> None:
        """Queue the drafts of a failed write before those already queued, and count the failure."""
        if not drafts:
            return
        key = (namespace, session)
        with self._lock:
            self._drafts[key] = [*drafts, *self._drafts.get(key, ())]
            self._failures[key] = self._failures.get(key, 0) + 1

    def add_failed_replacement(
        self, namespace: NamespacePath, session: str, drafts: Sequence[MessageDraft]
    ) -> None:
        """Queue a failed replacement; drafts already queued become its ``earlier_drafts``."""
        key = (namespace, session)
        with self._lock:
            former = self._replacements.get(key)
            earlier = [] if former is None else [*former.earlier_drafts, *former.drafts]
            self._replacements[key] = PendingReplacement([*earlier, *self._drafts.pop(key, ())], list(drafts))
            self._failures[key] = self._failures.get(key, 0) + 1

    def get_replacement(self, namespace: NamespacePath, session: str) -> PendingReplacement | None:
        """Return the queued replacement, if any, without removing it."""
        with self._lock:
            return self._replacements.get((namespace, session))

    def remove_replacement(self, namespace: NamespacePath, session: str) -> None:
        """Remove the queued replacement after it was stored."""
        with self._lock:
            self._replacements.pop((namespace, session), None)

    def clear(self, namespace: NamespacePath, session: str) -> None:
        """Remove all pending writes of a session that is erased."""
        with self._lock:
            self._replacements.pop((namespace, session), None)
            self._drafts.pop((namespace, session), None)

    def count_pending(self, namespace: NamespacePath, session: str) -> int:
        """Return the number of pending messages of the session."""
        with self._lock:
            replacement = self._replacements.get((namespace, session))
            later = len(self._drafts.get((namespace, session), ()))
            return later + (0 if replacement is None else len(replacement.drafts))

    def count_failures(self, namespace: NamespacePath, session: str) -> int:
        """Return the number of failed writes of the session."""
        with self._lock:
            return self._failures.get((namespace, session), 0)


# Weak keys: the queue is dropped together with its engine.
_queues_by_engine: WeakKeyDictionary[MemoryEngine, RetryQueue] = WeakKeyDictionary()
_lock = threading.Lock()


def get_retry_queue(engine: MemoryEngine) -> RetryQueue:
    """Return the retry queue of the engine, creating it if needed."""
    with _lock:
        return _queues_by_engine.setdefault(engine, RetryQueue())
