"""Lists of messages by key in an engine, shared by both chat stores."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_tiers import InvalidInputError, MessageDraft, NotFoundError
from langmem_tiers.integration_kit import (
    CHAT_LABEL,
    IN_LIST,
    Listing,
    check_name,
    get_retry_queue,
    is_archived_name,
    resolve_namespace,
)
from langmem_tiers_llamaindex.convert import to_draft, to_message
from langmem_tiers_llamaindex.turn_state import get_turn_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langmem_tiers import MemoryEngine, Message, Session
    from langmem_tiers.integration_kit import NamespacePath

    Status: TypeAlias = MessageStatus | str | None

_T = TypeVar("_T")
_LISTINGS = {MessageStatus.ACTIVE: Listing.ACTIVE, MessageStatus.ARCHIVED: Listing.ARCHIVED}
_PAGE_SIZE = 1000
_MAX_ATTEMPTS = 20  # attempts to write to a key that is erased concurrently; usually two are enough
_lock = threading.Lock()
_locks_by_engine: WeakKeyDictionary[MemoryEngine, threading.Lock] = WeakKeyDictionary()


class KeyedMessageLists:
    """Conversations of a chat store by key.

    Args:
        engine: Engine that stores the conversations.
        namespace: Owner of the conversations. None for a separate namespace per key, without recall from other
            keys.
    """

    def __init__(self, engine: MemoryEngine, namespace: NamespacePath | None) -> None:
        self._engine = engine
        self._namespace = namespace

    def read(
        self, key: str, status: Status, limit: int | None = None, offset: int | None = None
    ) -> list[ChatMessage]:
        """Return the messages of a key, oldest first."""
        listings = _to_listings(status)

        def read_messages(session: Session) -> Sequence[Message]:
            return session.transcript.messages(listings, limit=limit, offset=offset or 0)

        return [*map(to_message, self._use_existing(key, read_messages) or ())]

    def count(self, key: str, status: Status) -> int:
        """Return the number of messages of a key."""
        listings = _to_listings(status)
        return self._use_existing(key, lambda session: session.transcript.count(listings)) or 0

    def add(self, key: str, messages: Sequence[ChatMessage], status: Status) -> None:
        """Append messages in one transaction."""
        drafts, (listing,) = self._to_drafts(messages), _to_listing(status)
        if drafts:
            self._write(key, lambda session: session.transcript.add(drafts, listing))

    def insert(self, key: str, message: ChatMessage, index: int) -> None:
        """Insert a message before the active message at an index."""
        index, new = _check_position(index), self._to_drafts([message])

        def insert_messages(session: Session) -> None:
            # Transcripts only grow at the end: append the new message and copies of the following ones, then remove
            # the originals. In this order, messages that are added concurrently are not lost.
            following = session.transcript.messages((Listing.ACTIVE,))[index:]
            session.transcript.add([*new, *map(_copy_to_draft, following)])
            session.transcript.move([original.id for original in following], Listing.REMOVED)

        with _get_position_lock(self._engine):
            self._write(key, insert_messages)

    def replace(self, key: str, messages: Sequence[ChatMessage], status: Status) -> None:
        """Replace the messages of a key, including archived ones."""
        drafts, (listing,) = self._to_drafts(messages), _to_listing(status)

        def replace_messages(session: Session) -> None:
            if session.transcript.replace(drafts, listing, behind_summaries=False) is None:
                # The summary of the session covers messages that the new list does not have: start a new session.
                session.set_aside()
                self._open_session(key).transcript.add(drafts, listing)

        self._write(key, replace_messages)

    def remove(self, key: str, index: int) -> ChatMessage | None:
        """Remove the active message at an index and return it; None if there is none."""
        index = _check_position(index)

        def remove_message(session: Session) -> Sequence[Message]:
            count = session.transcript.count((Listing.ACTIVE,))
            if not -count <= index < count:
                return ()
            found = session.transcript.messages((Listing.ACTIVE,), limit=1, offset=index % count)
            session.transcript.move([message.id for message in found], Listing.REMOVED)
            return found

        with _get_position_lock(self._engine):
            removed = self._use_existing(key, remove_message)
        return to_message(removed[0]) if removed else None

    def remove_all(self, key: str, status: Status) -> list[ChatMessage] | None:
        """Erase a key, or remove its messages with a status; return them, or None if the key does not exist."""
        listings = _to_listings(status)

        def remove_messages(session: Session) -> Sequence[Message]:
            found = session.transcript.messages(listings)
            if status is not None:
                session.transcript.move([message.id for message in found], Listing.REMOVED)
            return found

        removed = self._use_existing(key, remove_messages)
        if status is None:
            self._delete(key)
        return None if removed is None else [*map(to_message, removed)]

    def move_oldest(self, key: str, count: int, listing: Listing) -> list[ChatMessage]:
        """Archive or remove the oldest active messages and return them."""
        moved = self._use_existing(key, lambda session: session.transcript.move_oldest(count, listing))
        return [*map(to_message, moved or ())]

    def list_keys(self) -> list[str]:
        """Return all keys in a stable order; by creation, if the store has a namespace."""
        if self._namespace is None:
            return [*self._list_own_namespaces()]
        return [name for name in self._list_sessions() if not is_archived_name(name)][::-1]

    def _list_own_namespaces(self) -> Iterator[str]:
        after: NamespacePath | None = None
        while page := self._engine.namespaces(CHAT_LABEL, after=after, limit=_PAGE_SIZE):
            yield from (path[1] for path in page if len(path) == 2)
            after = page[-1]

    def _list_sessions(self) -> Iterator[str]:
        tenant, after = self._engine.namespace(self._namespace or ()), None
        while True:
            page = tenant.sessions(after=after, limit=_PAGE_SIZE)
            yield from (info.name for info in page.sessions)
            after = page.next_after
            if after is None:
                return

    def _delete(self, key: str) -> None:
        # Pending writes and cached turns would otherwise bring erased messages back.
        namespace = self._resolve_namespace(key)
        get_retry_queue(self._engine).clear(namespace, key)
        get_turn_registry(self._engine).get_turn(namespace, key).reset()
        tenant = self._engine.namespace(namespace)
        if self._namespace is None:
            tenant.delete()
            return
        # Include the sessions that were archived by resets of the conversation.
        names = [
            name for name in self._list_sessions() if name == key or is_archived_name(name, original=key)
        ]
        for session in map(tenant.find_session, names):
            if session is not None:
                session.delete()

    def _resolve_namespace(self, key: str) -> NamespacePath:
        return resolve_namespace(None, check_name(key, "key")) if self._namespace is None else self._namespace

    def _use_existing(self, key: str, use: Callable[[Session], _T]) -> _T | None:
        session = self._engine.namespace(self._resolve_namespace(key)).find_session(check_name(key, "key"))
        try:
            return None if session is None else use(session)
        except NotFoundError:
            return None  # erased concurrently

    def _write(self, key: str, write: Callable[[Session], object]) -> None:
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                write(self._open_session(key))
            except NotFoundError:  # erased concurrently: create it again
                continue
            return
        write(self._open_session(key))

    def _open_session(self, key: str) -> Session:
        return self._engine.session(self._resolve_namespace(key), check_name(key, "key"))

    def _to_drafts(self, messages: Iterable[ChatMessage]) -> list[MessageDraft]:
        if isinstance(messages, str | Mapping | ChatMessage) or not isinstance(messages, Iterable):
            raise InvalidInputError(
                f"messages must be a list of ChatMessage, got {type(messages).__name__}: wrap a single "
                "message in a list"
            )
        return [to_draft(message, self._engine.counter) for message in messages]


def _get_position_lock(engine: MemoryEngine) -> threading.Lock:
    # Serializes operations on indexes: reading an index and changing the list are separate steps, so two concurrent
    # calls could change the same message.
    with _lock:
        return _locks_by_engine.setdefault(engine, threading.Lock())


def _copy_to_draft(message: Message) -> MessageDraft:
    return MessageDraft(
        message.role,
        message.content,
        created_at=message.created_at,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        payload=message.payload,
        token_count=message.token_count,
    )


def _check_position(index: object) -> int:
    if isinstance(index, bool) or not isinstance(index, int):
        raise InvalidInputError(
            f"idx must be an int, got {index!r:.60}: pass the index of a message; -1 is the last one"
        )
    return index


def _to_listings(status: Status) -> tuple[Listing, ...]:
    return IN_LIST if status is None else _to_listing(status)


def _to_listing(status: Status) -> tuple[Listing]:
    try:
        return (_LISTINGS[MessageStatus(status)],)
    except ValueError:
        raise InvalidInputError(
            f"unknown status {status!r:.60}: use MessageStatus.ACTIVE or MessageStatus.ARCHIVED"
        ) from None
