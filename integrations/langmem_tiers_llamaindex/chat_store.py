"""Chat store for LlamaIndex's ``Memory``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.loading import RECOGNIZED_CHAT_STORES
from pydantic import PrivateAttr

from langmem_tiers import MemoryEngine  # noqa: TC001 - it is in a signature that pydantic reads
from langmem_tiers.integration_kit import Listing
from langmem_tiers_llamaindex.engine_references import EngineBackedModel
from langmem_tiers_llamaindex.message_lists import KeyedMessageLists

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatMessage


_ACTIVE = MessageStatus.ACTIVE


class TieredSyncChatStore(EngineBackedModel, BaseChatStore):
    """Conversations by key, for ``chat_store=`` of ``ChatMemoryBuffer`` and ``ChatSummaryMemoryBuffer``.

    A deleted message is neither shown nor recalled, but an earlier summary may still mention it. A deleted key is
    erased.

    ``ChatSummaryMemoryBuffer`` deletes its key on every read, so messages that it summarized are lost.
    ``TieredMemory`` summarizes and keeps the messages.

    Args:
        engine: Engine that stores the conversations. Default: a new one in memory.
        namespace: Owner of the conversations. Recall covers all keys of a namespace, so use one per user.
            Default: a separate namespace for each key.
    """

    _lists: KeyedMessageLists = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        super().__init__(engine, **data)
        self._lists = KeyedMessageLists(self._engine, self._namespace_path)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in serialized data."""
        return "TieredSyncChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages of a key; messages in both lists are kept."""
        self._lists.replace(key, messages, _ACTIVE)

    def get_messages(
        self,
        key: str,
        status: MessageStatus | None = _ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a key, oldest first; the status None includes archived ones."""
        return self._lists.read(key, status, limit, offset)

    def count_messages(self, key: str, status: MessageStatus | None = _ACTIVE) -> int:
        """Return the number of messages of a key."""
        return self._lists.count(key, status)

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Append a message, or insert it before an index."""
        if idx is None:
            self._lists.add(key, [message], _ACTIVE)
        else:
            self._lists.insert(key, message, idx)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Erase a key and return its messages; None if the key does not exist."""
        return self._lists.remove_all(key, None)

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at an index and return it; None if there is none."""
        return self._lists.remove(key, idx)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the newest message and return it; None if there is none."""
        return self._lists.remove(key, -1)

    def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages and return them."""
        return self._lists.move_oldest(key, n, Listing.ARCHIVED)

    def get_keys(self) -> list[str]:
        """Return all keys."""
        return self._lists.list_keys()

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Run ``set_messages`` in a thread."""
        await asyncio.to_thread(self.set_messages, key, messages)

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """Run ``get_messages`` in a thread."""
        return await asyncio.to_thread(self.get_messages, key)

    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Run ``add_message`` in a thread."""
        await asyncio.to_thread(self.add_message, key, message, idx)

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """Run ``delete_messages`` in a thread."""
        return await asyncio.to_thread(self.delete_messages, key)

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Run ``delete_message`` in a thread."""
        return await asyncio.to_thread(self.delete_message, key, idx)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """Run ``delete_last_message`` in a thread."""
        return await asyncio.to_thread(self.delete_last_message, key)

    async def aget_keys(self) -> list[str]:
        """Run ``get_keys`` in a thread."""
        return await asyncio.to_thread(self.get_keys)


# Buffers of the framework look up the class of their store in this table when they are restored from JSON.
RECOGNIZED_CHAT_STORES[TieredSyncChatStore.class_name()] = TieredSyncChatStore  # type: ignore[assignment]  # typed as its only entry


class TieredChatStore(EngineBackedModel, AsyncDBChatStore):
    """Conversations by key with archive status, for ``Memory.from_defaults(chat_store=...)``.

    A deleted message is neither shown nor recalled, but an earlier summary may still mention it. A deleted key is
    erased.

    Args:
        engine: Engine that stores the conversations. Default: a new one in memory.
        namespace: Owner of the conversations. Recall covers all keys of a namespace, so use one per user.
            Default: a separate namespace for each key.
    """

    _lists: KeyedMessageLists = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        super().__init__(engine, **data)
        self._lists = KeyedMessageLists(self._engine, self._namespace_path)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in serialized data."""
        return "TieredChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = _ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a key, oldest first; the status None includes archived ones."""
        return await asyncio.to_thread(self._lists.read, key, status, limit, offset)

    async def count_messages(self, key: str, status: MessageStatus | None = _ACTIVE) -> int:
        """Return the number of messages of a key."""
        return await asyncio.to_thread(self._lists.count, key, status)

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = _ACTIVE) -> None:
        """Append a message."""
        await asyncio.to_thread(self._lists.add, key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = _ACTIVE
    ) -> None:
        """Append messages in one transaction; an empty list has no effect."""
        await asyncio.to_thread(self._lists.add, key, messages, status)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = _ACTIVE
    ) -> None:
        """Replace the messages of a key; messages in both lists are kept."""
        await asyncio.to_thread(self._lists.replace, key, messages, status)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the active message at an index and return it; None if there is none."""
        return await asyncio.to_thread(self._lists.remove, key, idx)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Erase a key, or remove its messages with a status."""
        await asyncio.to_thread(self._lists.remove_all, key, status)

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest active messages and return them."""
        return await asyncio.to_thread(self._lists.move_oldest, key, n, Listing.REMOVED)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages and return them."""
        return await asyncio.to_thread(self._lists.move_oldest, key, n, Listing.ARCHIVED)

    async def get_keys(self) -> list[str]:
        """Return all keys."""
        return await asyncio.to_thread(self._lists.list_keys)
