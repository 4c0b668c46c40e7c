"""Contract of LlamaIndex chat stores, as pytest classes. Needs pytest and pytest-asyncio.

Subclass them in a test module of yours and give them your store::

    class TestMyStore(ChatStoreConformance):
        @pytest.fixture
        def store(self) -> BaseChatStore:
            return MyChatStore(...)

    class TestMyAsyncStore(AsyncChatStoreConformance):
        @pytest.fixture
        def store(self) -> AsyncDBChatStore:
            return MyAsyncChatStore(...)

The stores may hold other data: each test works under keys of its own. Where the framework's own stores differ, the
suites want what loses nothing: an index is a place in the list, and what was handed in or out may be changed freely.
"""

import pytest

_PARTS = ("async_stores", "base", "stores")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))  # a failure shows its values

# ruff: noqa: E402 - assertions are rewritten in what is imported from here on
from tests.contract.chat_stores.async_stores import AsyncChatStoreConformance
from tests.contract.chat_stores.base import HOSTILE_KEYS, MESSAGES
from tests.contract.chat_stores.stores import ChatStoreConformance

__all__ = ["HOSTILE_KEYS", "MESSAGES", "AsyncChatStoreConformance", "ChatStoreConformance"]
