"""Writing a thread back: each message once, whatever was written before, and again later if it could not be."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.errors import MessageConflictError, SessionNotFoundError
from langmem_tiers_langchain.convert import get_stored_id, to_draft, to_message
from langmem_tiers_langchain.message_source import is_added_by_middleware
from langmem_tiers_langchain.repair import list_unique_calls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from langchain_core.messages import BaseMessage

    from langmem_tiers import MemoryEngine, Session
    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers_langchain.run_location import RunLocation


@dataclass(frozen=True, slots=True)
class MessageStoreResult:
    """What became of some messages."""

    added: int
    echo_ids: frozenset[str]
    """Ids of those that are nothing but injected memory, and so stay out of the record."""
    edited_ids: frozenset[str] = frozenset()
    """Ids under which the record has other words: what they say now is stored under another id."""


def store_messages(session: Session, drafts: Sequence[MessageDraft]) -> MessageStoreResult:
    """Store the messages in one transaction.

    An id may come again with other words, from a model that gives each answer the same one or because a
    message was edited. Both were said, so the later one is stored under an id of its own.
    """
    if not drafts:
        return MessageStoreResult(0, frozenset())
    try:
        report = session.add_many(drafts, expect_new=True)
        return MessageStoreResult(len(report.stored), frozenset(message.id for message in report.echoes))
    except MessageConflictError:
        return _store_one_by_one(session, drafts)


def assign_content_id(draft: MessageDraft) -> MessageDraft:
    """The draft under another id, the same one for the same message: it may be handed in again."""
    said = f"{draft.content}\0{draft.payload_json}".encode("utf-8", "surrogatepass")
    return draft.with_id(f"{(draft.id or '')[:100]}-{hashlib.blake2b(said, digest_size=8).hexdigest()}")


def _store_one_by_one(session: Session, drafts: Sequence[MessageDraft]) -> MessageStoreResult:
    added, echoes, edited = 0, set[str](), set[str]()
    for draft in drafts:
        try:
            report = session.add(draft)
        except MessageConflictError:
            report = session.add(assign_content_id(draft))
            edited.add(draft.id or "")
        added += len(report.stored)
        echoes.update(draft.id or "" for _ in report.echoes)
    return MessageStoreResult(added, frozenset(echoes), frozenset(edited))


_MAX_CACHED_IDS = 200_000
"""Of messages in all threads together; of those beyond, the database is asked again."""
_EDIT_CHECK_MESSAGES = 100
"""The newest messages of a thread in which an edit is noticed."""
_MIN_LOOKUP_MESSAGES = 20
"""New messages from which on it is asked first which of them are stored."""


@dataclass(slots=True)
class ThreadRecord:
    """What is known of a thread's record in this process."""

    session: Session
    stored_ids: dict[str, str] = field(default_factory=dict)
    """Ids in the record by the ids in the thread."""
    excluded_ids: set[str] = field(default_factory=set)
    """Ids of what stays out of the record, since it is nothing but injected memory."""
    edited_ids: set[str] = field(default_factory=set)
    """Ids of what says something else now than when it was stored."""
    _fingerprints: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, messages: Sequence[BaseMessage], engine: MemoryEngine) -> int:
        """Store what the record does not have yet, in order; how many that were."""
        with self._lock:
            unknown = (
                one for one in messages if one.id not in self.stored_ids and one.id not in self.excluded_ids
            )
            new = [one for one in unknown if one.id and not is_added_by_middleware(one)]
            added = self._add(new, engine.counter)
            edited = [message for message in messages[-_EDIT_CHECK_MESSAGES:] if self._is_edited(message)]
            return added + self._add_edited(edited, engine.counter)

    def _add(self, new: Sequence[BaseMessage], counter: TokenCounter) -> int:
        if not new:
            return 0
        ids = [get_stored_id(message) for message in new]
        held = self.session.find_known_ids(ids) if len(new) >= _MIN_LOOKUP_MESSAGES else frozenset()
        recorded = self._fingerprint_recorded(held)
        fresh = [message for message, one in zip(new, ids, strict=True) if one not in held]
        done = store_messages(self.session, [to_draft(message, counter) for message in fresh])
        for message, one in zip(new, ids, strict=True):
            if one in done.echo_ids:
                self.excluded_ids.add(message.id or "")
            else:
                self.stored_ids[message.id or ""] = one
                self._fingerprints[message.id or ""] = recorded.get(one, _fingerprint_message(message))
            if one in done.edited_ids:
                self.edited_ids.add(message.id or "")
        return done.added

    def _fingerprint_recorded(self, held: AbstractSet[str]) -> dict[str, int]:
        # A message may have been edited since another process stored it.
        newest = self.session.latest(_EDIT_CHECK_MESSAGES) if held else ()
        return {
            message.id: _fingerprint_message(to_message(message)) for message in newest if message.id in held
        }

    def _is_edited(self, message: BaseMessage) -> bool:
        known = self._fingerprints.get(message.id or "")
        return known is not None and known != _fingerprint_message(message)

    def _add_edited(self, edited: Sequence[BaseMessage], counter: TokenCounter) -> int:
        # What was said stays in the record; what it became is stored beside it.
        done = store_messages(
            self.session, [assign_content_id(to_draft(message, counter)) for message in edited]
        )
        self._fingerprints.update((message.id or "", _fingerprint_message(message)) for message in edited)
        self.edited_ids.update(message.id or "" for message in edited)
        return done.added


class ThreadRecorder:
    """The records of the threads that were seen lately.

    Args:
        engine: Where they are.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._records: OrderedDict[RunLocation, ThreadRecord] = OrderedDict()

    def write(self, place: RunLocation, messages: Sequence[BaseMessage]) -> tuple[ThreadRecord, int]:
        """Store what the record of a thread does not have yet; the thread, and how many that were."""
        thread = self._open_record(place)
        try:
            added = thread.write(messages, self._engine)
        except SessionNotFoundError:  # erased by somebody: the thread goes on in a new one
            self.invalidate(place)
            thread = self._open_record(place)
            added = thread.write(messages, self._engine)
        if added:
            self._evict()
        return thread, added

    def invalidate(self, place: RunLocation) -> None:
        """Look anew at the record of a thread."""
        with self._lock:
            self._records.pop(place, None)

    def _open_record(self, place: RunLocation) -> ThreadRecord:
        with self._lock:
            known = self._records.get(place)
            if known is not None:
                self._records.move_to_end(place)
                return known
        opened = ThreadRecord(self._engine.session(place.namespace, place.session))
        with self._lock:
            return self._records.setdefault(place, opened)

    def _evict(self) -> None:
        with self._lock:
            held = sum(len(thread.stored_ids) for thread in self._records.values())
            while held > _MAX_CACHED_IDS and len(self._records) > 1:
                held -= len(self._records.popitem(last=False)[1].stored_ids)


def _fingerprint_message(message: BaseMessage) -> int:
    content = message.content
    text = content if isinstance(content, str) else (len(content), str(message.text))
    return hash((message.type, text, str(calls) if (calls := list_unique_calls(message)) else ""))
