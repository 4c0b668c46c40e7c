"""Contract of ``BaseChatStore``."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.storage.chat_store.base import BaseChatStore

from langmem_tiers.testing.threads import run_in_threads
from tests.contract.chat_stores.base import (
    HOSTILE_KEYS,
    MESSAGES,
    Conformance,
    modify_messages,
    said,
    text,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.core.base.llms.types import ChatMessage

THREADS = 4
EACH = 8


class ChatStoreConformance(Conformance):
    """Lists of messages by key."""

    @pytest.fixture
    def store(self) -> BaseChatStore:
        """Your store."""
        raise NotImplementedError("define a fixture named 'store' in your subclass")

    def test_the_class_has_its_own_name(self, store: BaseChatStore) -> None:
        assert isinstance(store, BaseChatStore)
        assert store.class_name() != BaseChatStore.class_name()

    def test_messages_keep_the_order_in_which_they_were_added(self, store: BaseChatStore, key: str) -> None:
        for message in said(*range(5)):
            store.add_message(key, message)
        assert texts(store.get_messages(key)) == ["0", "1", "2", "3", "4"]
        store.set_messages(key, said(*range(300)))
        assert texts(store.get_messages(key)) == [str(number) for number in range(300)]

    def test_a_message_comes_back_equal(self, store: BaseChatStore, key: str) -> None:
        for name, message in MESSAGES.items():
            session = f"{key} {name}"
            store.set_messages(session, [message])
            store.add_message(session, message)
            assert store.get_messages(session) == [message] * 2
            assert store.delete_last_message(session) == message
            assert store.delete_message(session, 0) == message

    def test_one_list_stores_messages_of_all_kinds(self, store: BaseChatStore, key: str) -> None:
        store.set_messages(key, list(MESSAGES.values()))
        assert store.get_messages(key) == list(MESSAGES.values())
        assert store.delete_messages(key) == list(MESSAGES.values())

    def test_hostile_keys_are_distinct(self, store: BaseChatStore, key: str) -> None:
        for name in HOSTILE_KEYS:
            store.add_message(key + name, said(name)[0])
        for name in HOSTILE_KEYS:
            assert texts(store.get_messages(key + name)) == [name]
        assert sorted(found_key for found_key in store.get_keys() if found_key.startswith(key)) == sorted(
            key + name for name in HOSTILE_KEYS
        )

    def test_deleting_one_key_keeps_the_other_keys(self, store: BaseChatStore, key: str) -> None:
        for name in HOSTILE_KEYS:
            store.add_message(key + name, said(name)[0])
        for name in HOSTILE_KEYS[::2]:
            assert texts(store.delete_messages(key + name)) == [name]
        left = [name for name in HOSTILE_KEYS if store.get_messages(key + name)]
        assert left == list(HOSTILE_KEYS[1::2])

    def test_reading_an_unknown_key_returns_nothing_and_does_not_create_it(
        self, store: BaseChatStore, key: str
    ) -> None:
        assert store.get_messages(key) == []
        assert store.delete_messages(key) is None
        assert store.delete_message(key, 0) is None
        assert store.delete_last_message(key) is None
        assert key not in store.get_keys()

    def test_setting_a_list_replaces_the_previous_one(self, store: BaseChatStore, key: str) -> None:
        for new in ("", "a", "abc", "abcd", "bc", "xabc", "cba", "axc", "aabbcc", "xyz"):
            session = f"{key} {new}"
            store.set_messages(session, said(*"abc"))
            store.set_messages(session, said(*new))
            assert store.get_messages(session) == said(*new)
            store.add_message(session, said("z")[0])
            assert texts(store.get_messages(session)) == [*new, "z"]

    def test_the_same_message_can_be_added_twice(self, store: BaseChatStore, key: str) -> None:
        (message,) = said("again")
        store.add_message(key, message)
        store.add_message(key, message)
        assert store.get_messages(key) == [message, message]
        store.delete_message(key, 0)
        assert store.get_messages(key) == [message]

    @pytest.mark.parametrize(
        ("place", "left"), [(0, "bcd"), (1, "acd"), (3, "abc"), (4, "abcd"), (99, "abcd")]
    )
    def test_an_index_is_a_position_in_the_list(
        self, store: BaseChatStore, key: str, place: int, left: str
    ) -> None:
        store.set_messages(key, said(*"abcd"))
        taken = text(store.delete_message(key, place))
        assert taken == (None if left == "abcd" else "abcd"[place])
        assert texts(store.get_messages(key)) == list(left)

    def test_later_indexes_shift_when_a_message_is_deleted(self, store: BaseChatStore, key: str) -> None:
        store.set_messages(key, said(*"abcde"))
        assert [text(store.delete_message(key, 1)) for _ in range(5)] == ["b", "c", "d", "e", None]
        store.add_message(key, said("f")[0])
        assert text(store.delete_message(key, 1)) == "f"

    def test_the_last_message_is_deleted_until_the_list_is_empty(
        self, store: BaseChatStore, key: str
    ) -> None:
        store.set_messages(key, said(*"ab"))
        assert [text(store.delete_last_message(key)) for _ in range(3)] == ["b", "a", None]
        assert store.get_messages(key) == []

    def test_a_deleted_key_is_empty_and_can_be_reused(self, store: BaseChatStore, key: str) -> None:
        store.set_messages(key, said(*"abc"))
        assert texts(store.delete_messages(key)) == ["a", "b", "c"]
        assert store.get_messages(key) == []
        assert key not in store.get_keys()
        assert store.delete_messages(key) is None
        store.add_message(key, said("d")[0])
        assert texts(store.get_messages(key)) == ["d"]
        assert store.get_keys().count(key) == 1

    @pytest.mark.parametrize(("place", "expected"), [(0, "xabc"), (1, "axbc"), (3, "abcx"), (99, "abcx")])
    def test_a_message_is_inserted_at_an_index(
        self, store: BaseChatStore, key: str, place: int, expected: str
    ) -> None:
        insert: Callable[..., None] = store.add_message
        if "idx" not in inspect.signature(insert).parameters:
            pytest.skip("add_message() takes no idx")
        store.set_messages(key, said(*"abc"))
        insert(key, said("x")[0], idx=place)
        assert texts(store.get_messages(key)) == list(expected)
        insert(key, said("y")[0])
        assert texts(store.get_messages(key)) == [*expected, "y"]

    @pytest.mark.parametrize("name", ["spaces", "thoughts", "kwargs", "tool calls"])
    def test_changing_an_added_message_does_not_change_the_store(
        self, store: BaseChatStore, key: str, name: str
    ) -> None:
        message, handed_in = MESSAGES[name], [MESSAGES[name].model_copy(deep=True) for _ in range(2)]
        store.set_messages(key, handed_in)
        added = message.model_copy(deep=True)
        store.add_message(key, added)
        modify_messages(handed_in)
        modify_messages([added])
        assert store.get_messages(key) == [message] * 3

    @pytest.mark.parametrize("name", ["spaces", "thoughts", "kwargs", "tool calls"])
    def test_changing_a_returned_message_does_not_change_the_store(
        self, store: BaseChatStore, key: str, name: str
    ) -> None:
        message = MESSAGES[name].model_copy(deep=True)
        store.set_messages(key, [message, message])
        modify_messages(store.get_messages(key))
        store.get_keys().clear()
        assert store.get_messages(key) == [MESSAGES[name]] * 2
        assert store.delete_last_message(key) == MESSAGES[name]

    def test_concurrent_adds_lose_nothing(self, store: BaseChatStore, key: str) -> None:
        threads = itertools.count()

        def add() -> None:
            mine = next(threads)
            for number in range(EACH):
                store.add_message(key, said(f"{mine} {number}")[0])

        run_in_threads(THREADS, add)
        found = [str(content).split() for content in texts(store.get_messages(key))]
        assert len(found) == THREADS * EACH
        for mine in range(THREADS):
            assert [int(number) for thread, number in found if int(thread) == mine] == list(range(EACH))

    def test_concurrent_threads_can_create_the_same_key(self, store: BaseChatStore, key: str) -> None:
        threads = itertools.count()

        def add() -> None:
            mine = next(threads)
            for number in range(EACH):
                assert len(store.get_messages(f"{key}{number}")) <= THREADS
                store.add_message(f"{key}{number}", said(mine)[0])

        run_in_threads(THREADS, add)
        for number in range(EACH):
            assert sorted(map(str, texts(store.get_messages(f"{key}{number}")))) == ["0", "1", "2", "3"]
        assert len([found_key for found_key in store.get_keys() if found_key.startswith(key)]) == EACH

    def test_concurrent_deletes_return_each_message_once(self, store: BaseChatStore, key: str) -> None:
        store.set_messages(key, said(*range(THREADS * EACH)))
        taken: list[str | None] = []

        def take() -> None:
            for number in range(EACH):
                one = store.delete_last_message(key) if number % 2 else store.delete_message(key, 0)
                taken.append(text(one))

        run_in_threads(THREADS, take)
        assert sorted(map(str, taken)) == sorted(str(number) for number in range(THREADS * EACH))
        assert store.get_messages(key) == []

    @pytest.mark.asyncio
    async def test_async_methods_match_the_sync_ones(self, store: BaseChatStore, key: str) -> None:
        message = MESSAGES["thoughts"]
        await store.aset_messages(key, said(*"abcd"))
        await store.async_add_message(key, message)
        assert await store.aget_messages(key) == store.get_messages(key) == [*said(*"abcd"), message]
        assert await store.adelete_last_message(key) == message
        assert text(await store.adelete_message(key, 1)) == "b"
        assert await store.adelete_message(key, 9) is None
        assert key in await store.aget_keys()
        assert texts(await store.adelete_messages(key)) == ["a", "c", "d"]
        assert await store.adelete_messages(key) is None
        assert key not in await store.aget_keys()

    @pytest.mark.asyncio
    async def test_concurrent_async_adds_lose_nothing(self, store: BaseChatStore, key: str) -> None:
        batch: list[ChatMessage] = said(*range(THREADS * EACH))
        calls: list[Any] = [store.async_add_message(key, message) for message in batch]
        await asyncio.gather(*calls)
        assert sorted(map(str, texts(await store.aget_messages(key)))) == sorted(map(str, texts(batch)))
