"""Store the messages of a thread: each message once; failed writes are repeated with the next call."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers import MessageConflictError, SessionNotFoundError
from langmem_tiers_langchain.convert import get_stored_id, is_added_by_middleware, to_draft, to_message
from langmem_tiers_langchain.tool_call_repair import list_unique_calls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from langchain_core.messages import BaseMessage

    from langmem_tiers import MemoryEngine, MessageDraft, Session, TokenCounter
    from langmem_tiers_langchain.namespaces import RunLocation


@dataclass(frozen=True, slots=True)
class MessageStoreResult:
    """Result of storing messages."""

    added: int
    echo_ids: frozenset[str]
    """Ids of messages that consist only of injected memory and are not stored."""
    edited_ids: frozenset[str] = frozenset()
    """Ids that the session already has with different content; the new content is stored under another id."""


def store_messages(session: Session, drafts: Sequence[MessageDraft]) -> MessageStoreResult:
    """Store the messages in one transaction.

    An id may reappear with different content: some models reuse one id for every answer, and messages may be
    edited. Both versions are kept; the later one is stored under a new id.
    """
    if not drafts:
        return MessageStoreResult(0, frozenset())
    try:
        report = session.add_many(drafts, expect_new=True)
        return MessageStoreResult(len(report.stored), frozenset(message.id for message in report.echoes))
    except MessageConflictError:
        # The transaction was rolled back. Repeat it message by message to find the conflicting ones.
        return _store_one_by_one(session, drafts)


def assign_content_id(draft: MessageDraft) -> MessageDraft:
    """Return the draft with an id derived from its content, so that storing it again has no effect."""
    content = f"{draft.content}\0{draft.payload_json}".encode("utf-8", "surrogatepass")
    return draft.with_id(f"{(draft.id or '')[:100]}-{hashlib.blake2b(content, digest_size=8).hexdigest()}")


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
"""Maximum number of cached message ids over all threads. Evicted ids are looked up in the database."""
_EDIT_CHECK_MESSAGES = 100
"""Number of newest messages of a thread that are checked for edits."""
_MIN_LOOKUP_MESSAGES = 20
"""Minimum number of new messages for which a lookup of stored ids precedes the write."""


@dataclass(slots=True)
class ThreadRecord:
    """Cached state of a thread's session: which messages are stored."""

    session: Session
    stored_ids: dict[str, str] = field(default_factory=dict)
    """Ids in the session by ids in the thread."""
    excluded_ids: set[str] = field(default_factory=set)
    """Ids of messages that consist only of injected memory and are not stored."""
    edited_ids: set[str] = field(default_factory=set)
    """Ids of messages whose content has changed since they were stored."""
    _fingerprints: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, messages: Sequence[BaseMessage], engine: MemoryEngine) -> int:
        """Store messages that the session does not have yet, in order, and return their number."""
        with self._lock:
            unknown = (
                message
                for message in messages
                if message.id not in self.stored_ids and message.id not in self.excluded_ids
            )
            new = [message for message in unknown if message.id and not is_added_by_middleware(message)]
            added = self._add(new, engine.counter)
            edited = [message for message in messages[-_EDIT_CHECK_MESSAGES:] if self._is_edited(message)]
            return added + self._add_edited(edited, engine.counter)

    def _add(self, new: Sequence[BaseMessage], counter: TokenCounter) -> int:
        if not new:
            return 0
        ids = [get_stored_id(message) for message in new]
        # Many new messages usually mean a restarted process with an old thread. One lookup is then cheaper than
        # converting and sending all of them.
        known_ids = self.session.find_known_ids(ids) if len(new) >= _MIN_LOOKUP_MESSAGES else frozenset()
        stored_fingerprints = self._fingerprint_recorded(known_ids)
        missing = [message for message, stored_id in zip(new, ids, strict=True) if stored_id not in known_ids]
        result = store_messages(self.session, [to_draft(message, counter) for message in missing])
        for message, stored_id in zip(new, ids, strict=True):
            if stored_id in result.echo_ids:
                self.excluded_ids.add(message.id or "")
            else:
                self.stored_ids[message.id or ""] = stored_id
                self._fingerprints[message.id or ""] = stored_fingerprints.get(
                    stored_id, _fingerprint_message(message)
                )
            if stored_id in result.edited_ids:
                self.edited_ids.add(message.id or "")
        return result.added

    def _fingerprint_recorded(self, known_ids: AbstractSet[str]) -> dict[str, int]:
        # Fingerprints of the stored content: a message may have been edited since another process stored it.
        newest = self.session.latest(_EDIT_CHECK_MESSAGES) if known_ids else ()
        return {
            message.id: _fingerprint_message(to_message(message))
            for message in newest
            if message.id in known_ids
        }

    def _is_edited(self, message: BaseMessage) -> bool:
        stored = self._fingerprints.get(message.id or "")
        return stored is not None and stored != _fingerprint_message(message)

    def _add_edited(self, edited: Sequence[BaseMessage], counter: TokenCounter) -> int:
        # The original stays in the session; the edited version is stored in addition, under another id.
        result = store_messages(
            self.session, [assign_content_id(to_draft(message, counter)) for message in edited]
        )
        self._fingerprints.update((message.id or "", _fingerprint_message(message)) for message in edited)
        self.edited_ids.update(message.id or "" for message in edited)
        return result.added


class ThreadRecorder:
    """Stores threads and caches the records of recently used ones.

    Args:
        engine: Engine that stores the messages.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        # No cache of fixed sizes: a record grows with its thread, so sizes are computed on eviction.
        self._records: OrderedDict[RunLocation, ThreadRecord] = OrderedDict()

    def write(self, location: RunLocation, messages: Sequence[BaseMessage]) -> tuple[ThreadRecord, int]:
        """Store new messages of a thread; return its record and the number of stored messages."""
        thread = self._open_record(location)
        try:
            added = thread.write(messages, self._engine)
        except SessionNotFoundError:  # the session was erased: continue the thread in a new one
            self.invalidate(location)
            thread = self._open_record(location)
            added = thread.write(messages, self._engine)
        if added:
            self._evict()
        return thread, added

    def invalidate(self, location: RunLocation) -> None:
        """Discard the cached record of a thread."""
        with self._lock:
            self._records.pop(location, None)

    def _open_record(self, location: RunLocation) -> ThreadRecord:
        with self._lock:
            record = self._records.get(location)
            if record is not None:
                self._records.move_to_end(location)
                return record
        # Opened outside the lock, because it reads the database. If two threads open the same record, the first
        # one is used by both.
        opened = ThreadRecord(self._engine.session(location.namespace, location.session))
        with self._lock:
            return self._records.setdefault(location, opened)

    def _evict(self) -> None:
        with self._lock:
            cached = sum(len(thread.stored_ids) for thread in self._records.values())
            while cached > _MAX_CACHED_IDS and len(self._records) > 1:
                cached -= len(self._records.popitem(last=False)[1].stored_ids)


def _fingerprint_message(message: BaseMessage) -> int:
    content = message.content
    # Blocks are summarized by their number and text: hashing base64 images on every call would be slow.
    text = content if isinstance(content, str) else (len(content), str(message.text))
    return hash((message.type, text, str(calls) if (calls := list_unique_calls(message)) else ""))
