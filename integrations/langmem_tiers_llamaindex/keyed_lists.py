"""Lists of messages by key, in an engine: what both chat stores stand on."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_tiers.common.archived_session_names import is_archived_name
from langmem_tiers.common.messages import MessageDraft
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import InvalidInputError, NotFoundError
from langmem_tiers.integration_kit.argument_checks import CHAT_LABEL, resolve_namespace
from langmem_tiers.integration_kit.retry_queue import get_retry_queue
from langmem_tiers.sessions.models import IN_LIST, Listing
from langmem_tiers_llamaindex.convert import to_draft, to_message
from langmem_tiers_llamaindex.turn_state import get_turn_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.session import Session

    Status: TypeAlias = MessageStatus | str | None

_T = TypeVar("_T")
_LISTINGS = {MessageStatus.ACTIVE: Listing.ACTIVE, MessageStatus.ARCHIVED: Listing.ARCHIVED}
_PAGE_SIZE = 1000
_MAX_TRIES = 20  # far more than somebody needs who writes to a key that others erase
_lock = threading.Lock()
_locks_by_engine: WeakKeyDictionary[MemoryEngine, threading.Lock] = WeakKeyDictionary()


class KeyedMessageLists:
    """The conversations of a store.

    Args:
        engine: Where they are.
        namespace: Whose they are; if None, each has a namespace of its own and recalls from no other.
    """

    def __init__(self, engine: MemoryEngine, namespace: NamespacePath | None) -> None:
        self._engine = engine
        self._namespace = namespace

    def read(
        self, key: str, status: Status, limit: int | None = None, offset: int | None = None
    ) -> list[ChatMessage]:
        """The messages of a key, oldest first."""
        listings = _to_listings(status)

        def found(session: Session) -> Sequence[Message]:
            return session.transcript.messages(listings, limit=limit, offset=offset or 0)

        return [*map(to_message, self._use_existing(key, found) or ())]

    def count(self, key: str, status: Status) -> int:
        """How many messages a key has."""
        listings = _to_listings(status)
        return self._use_existing(key, lambda session: session.transcript.count(listings)) or 0

    def add(self, key: str, messages: Sequence[ChatMessage], status: Status) -> None:
        """Put messages at the end, in one transaction."""
        drafts, (listing,) = self._to_drafts(messages), _to_listing(status)
        if drafts:
            self._write(key, lambda session: session.transcript.add(drafts, listing))

    def insert(self, key: str, message: ChatMessage, place: int) -> None:
        """Put a message before the one that stands at a place."""
        place, new = _check_position(place), self._to_drafts([message])

        def put(session: Session) -> None:
            behind = session.transcript.messages((Listing.ACTIVE,))[place:]
            # First in, then out: what others add in between is not lost.
            session.transcript.add([*new, *map(_copy_to_draft, behind)])
            session.transcript.move([one.id for one in behind], Listing.REMOVED)

        with _get_position_lock(self._engine):
            self._write(key, put)

    def replace(self, key: str, messages: Sequence[ChatMessage], status: Status) -> None:
        """Put another list in the place of that of a key, archived messages among them."""
        drafts, (listing,) = self._to_drafts(messages), _to_listing(status)

        def put(session: Session) -> None:
            if session.transcript.replace(drafts, listing, behind_summaries=False) is None:
                # A summary tells of what is gone: the new list is a conversation of its own.
                session.set_aside()
                self._open_session(key).transcript.add(drafts, listing)

        self._write(key, put)

    def remove(self, key: str, place: int) -> ChatMessage | None:
        """Take the active message at a place out; None if there is none."""
        place = _check_position(place)

        def taken(session: Session) -> Sequence[Message]:
            count = session.transcript.count((Listing.ACTIVE,))
            if not -count <= place < count:
                return ()
            found = session.transcript.messages((Listing.ACTIVE,), limit=1, offset=place % count)
            session.transcript.move([message.id for message in found], Listing.REMOVED)
            return found

        with _get_position_lock(self._engine):
            found = self._use_existing(key, taken)
        return to_message(found[0]) if found else None

    def remove_all(self, key: str, status: Status) -> list[ChatMessage] | None:
        """Erase a key with all its messages, or take those of one status out; what it was, None for nothing."""
        listings = _to_listings(status)

        def taken(session: Session) -> Sequence[Message]:
            found = session.transcript.messages(listings)
            if status is not None:
                session.transcript.move([message.id for message in found], Listing.REMOVED)
            return found

        found = self._use_existing(key, taken)
        if status is None:
            self._delete(key)
        return None if found is None else [*map(to_message, found)]

    def move_oldest(self, key: str, count: int, listing: Listing) -> list[ChatMessage]:
        """Archive the oldest active messages, or take them out; which they were."""
        moved = self._use_existing(key, lambda session: session.transcript.move_oldest(count, listing))
        return [*map(to_message, moved or ())]

    def list_keys(self) -> list[str]:
        """All keys, in a fixed order: as they came, if the store has a namespace."""
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
        place = self._resolve_namespace(key)
        get_retry_queue(self._engine).clear(place, key)
        get_turn_registry(self._engine).get_turn(place, key).reset()
        tenant = self._engine.namespace(place)
        if self._namespace is None:
            tenant.delete()
            return
        # With what it was before it was begun anew.
        names = [name for name in self._list_sessions() if name == key or is_archived_name(name, of=key)]
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
            return None  # somebody erased it in between

    def _write(self, key: str, write: Callable[[Session], object]) -> None:
        for _ in range(_MAX_TRIES - 1):
            try:
                write(self._open_session(key))
            except NotFoundError:  # somebody erased it in between: begin it anew
                continue
            return
        write(self._open_session(key))

    def _open_session(self, key: str) -> Session:
        return self._engine.session(self._resolve_namespace(key), check_name(key, "key"))

    def _to_drafts(self, messages: Iterable[ChatMessage]) -> list[MessageDraft]:
        if isinstance(messages, str | Mapping | ChatMessage) or not isinstance(messages, Iterable):
            raise InvalidInputError(
                f"messages must be a list of ChatMessage, got a {type(messages).__name__}: put a single one "
                "into a list"
            )
        return [to_draft(message, self._engine.counter) for message in messages]


def _get_position_lock(engine: MemoryEngine) -> threading.Lock:
    # Places are counted, then something is done at one: two at a time would mean the same message.
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


def _check_position(place: object) -> int:
    if isinstance(place, bool) or not isinstance(place, int):
        raise InvalidInputError(
            f"idx must be a whole number, got {place!r:.60}: it is the place in the list, and -1 is the last"
        )
    return place


def _to_listings(status: Status) -> tuple[Listing, ...]:
    return IN_LIST if status is None else _to_listing(status)


def _to_listing(status: Status) -> tuple[Listing]:
    try:
        return (_LISTINGS[MessageStatus(status)],)
    except ValueError:
        raise InvalidInputError(
            f"unknown status {status!r:.60}: use MessageStatus.ACTIVE or MessageStatus.ARCHIVED"
        ) from None
