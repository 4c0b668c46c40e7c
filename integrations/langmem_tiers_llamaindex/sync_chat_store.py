"""Chat store for LlamaIndex's buffers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.loading import RECOGNIZED_CHAT_STORES
from pydantic import PrivateAttr

from langmem_tiers.engine import MemoryEngine  # noqa: TC001 - it is in a signature that pydantic reads
from langmem_tiers.sessions.models import Listing
from langmem_tiers_llamaindex.engines import EngineBackedModel
from langmem_tiers_llamaindex.keyed_lists import KeyedMessageLists

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatMessage

_ACTIVE = MessageStatus.ACTIVE


class TieredSyncChatStore(EngineBackedModel, BaseChatStore):
    """Conversations by key, for ``chat_store=`` of ``ChatMemoryBuffer`` and ``ChatSummaryMemoryBuffer``.

    A message that is deleted is neither shown nor recalled any more, though a summary that was written before may
    still tell of it; a key that is deleted is erased.
    ``ChatSummaryMemoryBuffer`` deletes its key each time it is read, so what it summed up is gone; ``TieredMemory``
    sums up and keeps the record.

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
        return "TieredSyncChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Put another list in the place of that of a key; what both have stays as it is."""
        self._lists.replace(key, messages, _ACTIVE)

    def get_messages(
        self,
        key: str,
        status: MessageStatus | None = _ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """The messages of a key, oldest first; with the status None, archived ones as well."""
        return self._lists.read(key, status, limit, offset)

    def count_messages(self, key: str, status: MessageStatus | None = _ACTIVE) -> int:
        """How many messages a key has."""
        return self._lists.count(key, status)

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Put a message at the end, or before the one at a place."""
        if idx is None:
            self._lists.add(key, [message], _ACTIVE)
        else:
            self._lists.insert(key, message, idx)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Erase a key; its messages, None if there is no such key."""
        return self._lists.remove_all(key, None)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take the message at a place out of the list; None if there is none."""
        return self._lists.remove(key, idx)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the newest message out of the list; None if there is none."""
        return self._lists.remove(key, -1)

    def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages; which they were."""
        return self._lists.move_oldest(key, n, Listing.ARCHIVED)

    def get_keys(self) -> list[str]:
        """All keys."""
        return self._lists.list_keys()

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """See ``set_messages``."""
        await asyncio.to_thread(self.set_messages, key, messages)

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """See ``get_messages``."""
        return await asyncio.to_thread(self.get_messages, key)

    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """See ``add_message``."""
        await asyncio.to_thread(self.add_message, key, message, idx)

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """See ``delete_messages``."""
        return await asyncio.to_thread(self.delete_messages, key)

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """See ``delete_message``."""
        return await asyncio.to_thread(self.delete_message, key, idx)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """See ``delete_last_message``."""
        return await asyncio.to_thread(self.delete_last_message, key)

    async def aget_keys(self) -> list[str]:
        """See ``get_keys``."""
        return await asyncio.to_thread(self.get_keys)


# The framework's buffers read their stores by name from this table when they come back from JSON.
RECOGNIZED_CHAT_STORES[TieredSyncChatStore.class_name()] = TieredSyncChatStore  # type: ignore[assignment]  # typed as its only entry
