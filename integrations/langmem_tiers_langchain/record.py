"""Writing a thread back: each message once, whatever was written before, and again later if it could not be."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.errors import SessionNotFoundError
from langmem_tiers_langchain.convert import stored_id, to_draft, to_message
from langmem_tiers_langchain.marks import is_added
from langmem_tiers_langchain.repair import calls_of
from langmem_tiers_langchain.storing import renamed, store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from langchain_core.messages import BaseMessage

    from langmem_tiers import MemoryEngine, Session
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers_langchain.identity import Place

_IDS_HELD = 200_000
"""Of messages in all threads together; of those beyond, the database is asked again."""
_LOOKED_AT_AGAIN = 100
"""The newest messages of a thread in which an edit is noticed."""
_MANY = 20
"""New messages from which on it is asked first which of them are stored."""


@dataclass(slots=True)
class Thread:
    """What is known of a thread's record in this process."""

    session: Session
    stored: dict[str, str] = field(default_factory=dict)
    """Ids in the record by the ids in the thread."""
    unstored: set[str] = field(default_factory=set)
    """Ids of what stays out of the record, since it is nothing but injected memory."""
    edited: set[str] = field(default_factory=set)
    """Ids of what says something else now than when it was stored."""
    _texts: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, messages: Sequence[BaseMessage], engine: MemoryEngine) -> int:
        """Store what the record does not have yet, in order; how many that were."""
        with self._lock:
            unknown = (one for one in messages if one.id not in self.stored and one.id not in self.unstored)
            new = [one for one in unknown if one.id and not is_added(one)]
            added = self._add(new, engine.counter)
            edited = [message for message in messages[-_LOOKED_AT_AGAIN:] if self._is_edited(message)]
            return added + self._add_edited(edited, engine.counter)

    def _add(self, new: Sequence[BaseMessage], counter: TokenCounter) -> int:
        if not new:
            return 0
        ids = [stored_id(message) for message in new]
        held = self.session.holds(ids) if len(new) >= _MANY else frozenset()
        recorded = self._recorded(held)
        fresh = [message for message, one in zip(new, ids, strict=True) if one not in held]
        done = store(self.session, [to_draft(message, counter) for message in fresh])
        for message, one in zip(new, ids, strict=True):
            if one in done.echoes:
                self.unstored.add(message.id or "")
            else:
                self.stored[message.id or ""] = one
                self._texts[message.id or ""] = recorded.get(one, _fingerprint(message))
            if one in done.edited:
                self.edited.add(message.id or "")
        return done.added

    def _recorded(self, held: AbstractSet[str]) -> dict[str, int]:
        # A message may have been edited since another process stored it.
        newest = self.session.latest(_LOOKED_AT_AGAIN) if held else ()
        return {message.id: _fingerprint(to_message(message)) for message in newest if message.id in held}

    def _is_edited(self, message: BaseMessage) -> bool:
        known = self._texts.get(message.id or "")
        return known is not None and known != _fingerprint(message)

    def _add_edited(self, edited: Sequence[BaseMessage], counter: TokenCounter) -> int:
        # What was said stays in the record; what it became is stored beside it.
        done = store(self.session, [renamed(to_draft(message, counter)) for message in edited])
        self._texts.update((message.id or "", _fingerprint(message)) for message in edited)
        self.edited.update(message.id or "" for message in edited)
        return done.added


class Recorder:
    """The records of the threads that were seen lately.

    Args:
        engine: Where they are.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._threads: OrderedDict[Place, Thread] = OrderedDict()

    def write(self, place: Place, messages: Sequence[BaseMessage]) -> tuple[Thread, int]:
        """Store what the record of a thread does not have yet; the thread, and how many that were."""
        thread = self._thread(place)
        try:
            added = thread.write(messages, self._engine)
        except SessionNotFoundError:  # erased by somebody: the thread goes on in a new one
            self.forget(place)
            thread = self._thread(place)
            added = thread.write(messages, self._engine)
        if added:
            self._let_go_of_some()
        return thread, added

    def forget(self, place: Place) -> None:
        """Look anew at the record of a thread."""
        with self._lock:
            self._threads.pop(place, None)

    def _thread(self, place: Place) -> Thread:
        with self._lock:
            known = self._threads.get(place)
            if known is not None:
                self._threads.move_to_end(place)
                return known
        opened = Thread(self._engine.session(place.namespace, place.session))
        with self._lock:
            return self._threads.setdefault(place, opened)

    def _let_go_of_some(self) -> None:
        with self._lock:
            held = sum(len(thread.stored) for thread in self._threads.values())
            while held > _IDS_HELD and len(self._threads) > 1:
                held -= len(self._threads.popitem(last=False)[1].stored)


def _fingerprint(message: BaseMessage) -> int:
    content = message.content
    text = content if isinstance(content, str) else (len(content), str(message.text))
    return hash((message.type, text, str(calls) if (calls := calls_of(message)) else ""))
