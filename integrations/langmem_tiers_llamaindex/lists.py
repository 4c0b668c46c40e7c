"""Lists of messages by key, in an engine: what both chat stores stand on."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, TypeAlias

from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_tiers.adapting.checks import NAMESPACE, namespace_of
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.names import check_name
from langmem_tiers.core.transcripts import IN_LIST, Listing
from langmem_tiers.tiers.short_term import SET_ASIDE
from langmem_tiers_llamaindex.convert import to_draft, to_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers.core.messages import Message, MessageDraft
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.flows.session import Session

    Status: TypeAlias = MessageStatus | str | None

_LISTINGS = {MessageStatus.ACTIVE: Listing.ACTIVE, MessageStatus.ARCHIVED: Listing.ARCHIVED}
_WAS_SET_ASIDE = re.compile(rf"{re.escape(SET_ASIDE)}\d{{4}}-\d\d-\d\dT[\d:.]+Z( \d+)?\)$")
_PAGE = 1000


class KeyedLists:
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
        session, listings = self._find(key), _listings(status)
        if session is None:
            return []
        return [*map(to_message, session.transcript.messages(listings, limit=limit, offset=offset or 0))]

    def count(self, key: str, status: Status) -> int:
        """How many messages a key has."""
        session, listings = self._find(key), _listings(status)
        return 0 if session is None else session.transcript.count(listings)

    def add(self, key: str, messages: Sequence[ChatMessage], status: Status) -> None:
        """Put messages at the end, in one transaction."""
        drafts, (listing,) = self._drafts(messages), _one(status)
        if drafts:
            self._session(key).transcript.add(drafts, listing)

    def insert(self, key: str, message: ChatMessage, place: int) -> None:
        """Put a message before the one that stands at a place."""
        there = self.read(key, MessageStatus.ACTIVE)
        there.insert(place, message)
        self.replace(key, there, MessageStatus.ACTIVE)

    def replace(self, key: str, messages: Sequence[ChatMessage], status: Status) -> None:
        """Put another list in the place of that of a key, archived messages among them."""
        drafts, (listing,) = self._drafts(messages), _one(status)
        self._session(key).transcript.replace(drafts, listing)

    def remove(self, key: str, place: int) -> ChatMessage | None:
        """Take the active message at a place out; None if there is none."""
        session = self._find(key)
        if session is None:
            return None
        place = place if place >= 0 else session.transcript.count((Listing.ACTIVE,)) + place
        found = session.transcript.messages((Listing.ACTIVE,), limit=1, offset=place) if place >= 0 else ()
        session.transcript.move([message.id for message in found], Listing.REMOVED)
        return to_message(found[0]) if found else None

    def remove_all(self, key: str, status: Status) -> list[ChatMessage] | None:
        """Erase a key with all its messages, or take those of one status out; what it was, None for nothing."""
        session = self._find(key)
        if session is None:
            return None
        found = session.transcript.messages(_listings(status))
        if status is not None:
            session.transcript.move([message.id for message in found], Listing.REMOVED)
        elif self._namespace is None:
            self._engine.namespace(session.namespace).delete()
        else:
            session.delete()
        return [*map(to_message, found)]

    def move_oldest(self, key: str, count: int, listing: Listing) -> list[ChatMessage]:
        """Archive the oldest active messages, or take them out; which they were."""
        session = self._find(key)
        moved: Sequence[Message] = () if session is None else session.transcript.move_oldest(count, listing)
        return [*map(to_message, moved)]

    def keys(self) -> list[str]:
        """All keys, in a fixed order: as they came, if the store has a namespace."""
        return [*self._own_namespaces()] if self._namespace is None else [*self._sessions()][::-1]

    def _own_namespaces(self) -> Iterator[str]:
        after: NamespacePath | None = None
        while page := self._engine.namespaces(NAMESPACE, after=after, limit=_PAGE):
            yield from (path[1] for path in page if len(path) == 2)
            after = page[-1]

    def _sessions(self) -> Iterator[str]:
        tenant, after = self._engine.namespace(self._namespace or ()), None
        while True:
            page = tenant.sessions(after=after, limit=_PAGE)
            yield from (info.name for info in page.sessions if not _WAS_SET_ASIDE.search(info.name))
            after = page.next_after
            if after is None:
                return

    def _place(self, key: str) -> NamespacePath:
        return namespace_of(None, check_name(key, "key")) if self._namespace is None else self._namespace

    def _find(self, key: str) -> Session | None:
        return self._engine.namespace(self._place(key)).find_session(check_name(key, "key"))

    def _session(self, key: str) -> Session:
        return self._engine.session(self._place(key), check_name(key, "key"))

    def _drafts(self, messages: Sequence[ChatMessage]) -> list[MessageDraft]:
        return [to_draft(message, self._engine.counter, id=uuid.uuid4().hex) for message in messages]


def _listings(status: Status) -> tuple[Listing, ...]:
    return IN_LIST if status is None else _one(status)


def _one(status: Status) -> tuple[Listing]:
    try:
        return (_LISTINGS[MessageStatus(status)],)
    except ValueError:
        raise InvalidInputError(
            f"unknown status {status!r:.60}: use MessageStatus.ACTIVE or MessageStatus.ARCHIVED"
        ) from None
