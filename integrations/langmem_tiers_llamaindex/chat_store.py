"""Chat store for LlamaIndex's ``Memory``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from pydantic import PrivateAttr

from langmem_tiers.engine import MemoryEngine  # noqa: TC001 - it is in a signature that pydantic reads
from langmem_tiers.sessions.models import Listing
from langmem_tiers_llamaindex.engines import EngineBackedModel
from langmem_tiers_llamaindex.keyed_lists import KeyedMessageLists

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatMessage

_ACTIVE = MessageStatus.ACTIVE


class TieredChatStore(EngineBackedModel, AsyncDBChatStore):
    """Conversations by key with archive status, for ``Memory.from_defaults(chat_store=...)``.

    A message that is deleted is neither shown nor recalled any more, though a summary that was written before may
    still tell of it; a key that is deleted is erased.

    Args:
        engine: Where they are; one in memory, if left out.
        namespace: Whose they are: recall reaches all keys of a namespace, so give each user one. Without it, each
            key has a namespace of its own.
    """

    _lists: KeyedMessageLists = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        super().__init__(engine, **data)
        self._lists = KeyedMessageLists(self._engine, self._namespace_path)

    @classmethod
    def class_name(cls) -> str:
        """Its name in what is written down."""
        return "TieredChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = _ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """The messages of a key, oldest first; with the status None, archived ones as well."""
        return await asyncio.to_thread(self._lists.read, key, status, limit, offset)

    async def count_messages(self, key: str, status: MessageStatus | None = _ACTIVE) -> int:
        """How many messages a key has."""
        return await asyncio.to_thread(self._lists.count, key, status)

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = _ACTIVE) -> None:
        """Put a message at the end."""
        await asyncio.to_thread(self._lists.add, key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = _ACTIVE
    ) -> None:
        """Put messages at the end, in one transaction; none is nothing to do."""
        await asyncio.to_thread(self._lists.add, key, messages, status)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = _ACTIVE
    ) -> None:
        """Put another list in the place of that of a key; what both have stays as it is."""
        await asyncio.to_thread(self._lists.replace, key, messages, status)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take the active message at a place out of the list; None if there is none."""
        return await asyncio.to_thread(self._lists.remove, key, idx)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Erase a key, or take the messages of one status out of its list."""
        await asyncio.to_thread(self._lists.remove_all, key, status)

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Take the oldest active messages out of the list; which they were."""
        return await asyncio.to_thread(self._lists.move_oldest, key, n, Listing.REMOVED)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages; which they were."""
        return await asyncio.to_thread(self._lists.move_oldest, key, n, Listing.ARCHIVED)

    async def get_keys(self) -> list[str]:
        """All keys."""
        return await asyncio.to_thread(self._lists.list_keys)
