"""Contract of ``AsyncDBChatStore``."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING

import pytest
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

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
    from collections.abc import Coroutine

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
TASKS = 12


PARTS = [(None, None), (2, None), (2, 0), (2, 1), (None, 2), (0, 0), (99, 0), (2, 3), (1, 4), (3, 99)]
"""Pairs of limit and offset."""


@pytest.mark.asyncio
class AsyncChatStoreConformance(Conformance):
    """Lists of messages by key, part of them archived."""

    @pytest.fixture
    def store(self) -> AsyncDBChatStore:
        """Your store."""
        raise NotImplementedError("define a fixture named 'store' in your subclass")

    async def test_the_class_has_its_own_name(self, store: AsyncDBChatStore) -> None:
        assert isinstance(store, AsyncDBChatStore)
        assert store.class_name() != AsyncDBChatStore.class_name()

    async def test_messages_keep_the_order_in_which_they_were_added(
        self, store: AsyncDBChatStore, key: str
    ) -> None:
        await store.add_message(key, said("0")[0])
        await store.add_messages(key, said("1", "2", "3"))
        await store.add_message(key, said("4")[0])
        await store.add_messages(key, said(*range(5, 300)))
        assert texts(await store.get_messages(key)) == [str(number) for number in range(300)]

    async def test_a_message_comes_back_equal(self, store: AsyncDBChatStore, key: str) -> None:
        for name, message in MESSAGES.items():
            session = f"{key} {name}"
            await store.add_message(session, message)
            await store.add_messages(session, [message])
            assert await store.get_messages(session) == [message, message]
            assert await store.archive_oldest_messages(session, 1) == [message]
            assert await store.delete_oldest_messages(session, 1) == [message]
            await store.set_messages(session, [message])
            assert await store.get_messages(session) == [message]

    async def test_one_list_stores_messages_of_all_kinds(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, list(MESSAGES.values()))
        assert await store.get_messages(key) == list(MESSAGES.values())

    async def test_hostile_keys_are_distinct(self, store: AsyncDBChatStore, key: str) -> None:
        for name in HOSTILE_KEYS:
            await store.add_message(key + name, said(name)[0])
        for name in HOSTILE_KEYS:
            assert texts(await store.get_messages(key + name)) == [name]
            assert await store.count_messages(key + name) == 1
        keys = [found_key for found_key in await store.get_keys() if found_key.startswith(key)]
        assert sorted(keys) == sorted(key + name for name in HOSTILE_KEYS)

    async def test_deleting_one_key_keeps_the_other_keys(self, store: AsyncDBChatStore, key: str) -> None:
        for name in HOSTILE_KEYS:
            await store.add_message(key + name, said(name)[0])
        for name in HOSTILE_KEYS[::2]:
            await store.delete_messages(key + name)
        left = [name for name in HOSTILE_KEYS if await store.count_messages(key + name)]
        assert left == list(HOSTILE_KEYS[1::2])

    async def test_reading_an_unknown_key_returns_nothing_and_does_not_create_it(
        self, store: AsyncDBChatStore, key: str
    ) -> None:
        for status in (ACTIVE, ARCHIVED, None):
            assert await store.get_messages(key, status=status) == []
            assert await store.count_messages(key, status=status) == 0
            await store.delete_messages(key, status=status)
        assert await store.delete_message(key, 0) is None
        assert await store.delete_oldest_messages(key, 1) == []
        assert await store.archive_oldest_messages(key, 1) == []
        assert key not in await store.get_keys()

    async def test_an_empty_batch_changes_nothing(self, store: AsyncDBChatStore, key: str) -> None:
        for status in MessageStatus:
            await store.add_messages(key, [], status=status)
        assert await store.get_messages(key, status=None) == []
        await store.add_messages(key, said("a"))
        await store.add_messages(key, [])
        assert texts(await store.get_messages(key)) == ["a"]

    async def test_a_message_is_added_with_a_status(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_message(key, said("a")[0], status=ARCHIVED)
        await store.add_messages(key, said("b", "c"), status=ARCHIVED)
        await store.add_message(key, said("d")[0], status=ACTIVE)
        await store.add_messages(key, said("e"))
        assert texts(await store.get_messages(key, status=ARCHIVED)) == ["a", "b", "c"]
        assert texts(await store.get_messages(key, status=ACTIVE)) == ["d", "e"]
        assert texts(await store.get_messages(key, status=None)) == ["a", "b", "c", "d", "e"]

    async def test_the_oldest_are_archived(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, said(*"abcde"))
        assert texts(await store.archive_oldest_messages(key, 2)) == ["a", "b"]
        assert texts(await store.archive_oldest_messages(key, 0)) == []
        assert texts(await store.archive_oldest_messages(key, 1)) == ["c"]
        assert texts(await store.get_messages(key)) == ["d", "e"]
        assert texts(await store.get_messages(key, status=ARCHIVED)) == ["a", "b", "c"]
        assert texts(await store.get_messages(key, status=None)) == ["a", "b", "c", "d", "e"]
        await store.add_messages(key, said("f"))
        assert texts(await store.archive_oldest_messages(key, 99)) == ["d", "e", "f"]
        assert await store.archive_oldest_messages(key, 99) == []
        assert await store.get_messages(key) == []
        assert await store.count_messages(key, status=ARCHIVED) == 6
        assert key in await store.get_keys()

    async def test_the_oldest_of_the_active_are_deleted(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, said(*"abcde"))
        await store.archive_oldest_messages(key, 2)
        assert texts(await store.delete_oldest_messages(key, 0)) == []
        assert texts(await store.delete_oldest_messages(key, 2)) == ["c", "d"]
        assert texts(await store.get_messages(key, status=None)) == ["a", "b", "e"]
        assert texts(await store.delete_oldest_messages(key, 99)) == ["e"]
        assert texts(await store.get_messages(key, status=None)) == ["a", "b"]

    async def test_a_list_is_read_in_pages(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, said(*"abcdefgh"))
        await store.archive_oldest_messages(key, 4)
        lists = ((ACTIVE, "efgh"), (ARCHIVED, "abcd"), (None, "abcdefgh"))
        for (limit, offset), (status, whole) in itertools.product(PARTS, lists):
            start = offset or 0
            part = await store.get_messages(key, status=status, limit=limit, offset=offset)
            assert texts(part) == list(whole[start:] if limit is None else whole[start : start + limit])

    async def test_messages_are_counted_by_their_status(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, said(*"abcde"))
        await store.archive_oldest_messages(key, 2)
        counts = [await store.count_messages(key, status=status) for status in (ACTIVE, ARCHIVED, None)]
        assert counts == [3, 2, 5]
        assert await store.count_messages(key) == 3

    async def test_setting_a_list_replaces_the_previous_one(self, store: AsyncDBChatStore, key: str) -> None:
        for new in ("", "a", "abc", "abcd", "bc", "xabc", "cba", "axc", "aabbcc", "xyz"):
            session = f"{key} {new}"
            await store.add_messages(session, said(*"abc"))
            await store.set_messages(session, said(*new))
            assert await store.get_messages(session) == said(*new)
            await store.add_message(session, said("z")[0])
            assert texts(await store.get_messages(session)) == [*new, "z"]

    async def test_a_list_is_set_with_a_status(self, store: AsyncDBChatStore, key: str) -> None:
        await store.set_messages(key, said(*"abc"), status=ARCHIVED)
        assert texts(await store.get_messages(key, status=ARCHIVED)) == ["a", "b", "c"]
        assert await store.get_messages(key) == []

    @pytest.mark.parametrize(
        ("place", "left"), [(0, "bcd"), (1, "acd"), (3, "abc"), (4, "abcd"), (99, "abcd")]
    )
    async def test_an_index_is_a_position_in_the_list(
        self, store: AsyncDBChatStore, key: str, place: int, left: str
    ) -> None:
        await store.add_messages(key, said(*"abcd"))
        taken = text(await store.delete_message(key, place))
        assert taken == (None if left == "abcd" else "abcd"[place])
        assert texts(await store.get_messages(key)) == list(left)

    async def test_an_index_counts_active_messages_only(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, said(*"abcde"))
        await store.archive_oldest_messages(key, 2)
        assert text(await store.delete_message(key, 1)) == "d"
        assert await store.delete_message(key, 2) is None
        assert texts(await store.get_messages(key, status=None)) == ["a", "b", "c", "e"]

    @pytest.mark.parametrize(("status", "left"), [(ACTIVE, "ab"), (ARCHIVED, "cde"), (None, "")])
    async def test_messages_are_deleted_by_their_status(
        self, store: AsyncDBChatStore, key: str, status: MessageStatus | None, left: str
    ) -> None:
        await store.add_messages(key, said(*"abcde"))
        await store.archive_oldest_messages(key, 2)
        await store.delete_messages(key, status=status)
        assert texts(await store.get_messages(key, status=None)) == list(left)
        await store.add_messages(key, said("f"))
        assert texts(await store.get_messages(key, status=None)) == [*left, "f"]

    async def test_a_deleted_key_is_empty_and_can_be_reused(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_messages(key, said(*"abc"))
        await store.archive_oldest_messages(key, 1)
        await store.delete_messages(key)
        assert key not in await store.get_keys()
        assert await store.count_messages(key, status=None) == 0
        await store.add_messages(key, said(*"ab"))
        assert texts(await store.get_messages(key)) == ["a", "b"]
        assert (await store.get_keys()).count(key) == 1

    @pytest.mark.parametrize("name", ["spaces", "thoughts", "kwargs", "tool calls"])
    async def test_changing_an_added_message_does_not_change_the_store(
        self, store: AsyncDBChatStore, key: str, name: str
    ) -> None:
        message = MESSAGES[name]
        one, two, three = (message.model_copy(deep=True) for _ in range(3))
        await store.set_messages(key, [one])
        await store.add_messages(key, [two])
        await store.add_message(key, three)
        modify_messages([one, two, three])
        assert await store.get_messages(key) == [message] * 3

    @pytest.mark.parametrize("name", ["spaces", "thoughts", "kwargs", "tool calls"])
    async def test_changing_a_returned_message_does_not_change_the_store(
        self, store: AsyncDBChatStore, key: str, name: str
    ) -> None:
        await store.add_messages(key, [MESSAGES[name].model_copy(deep=True) for _ in range(2)])
        modify_messages(await store.get_messages(key))
        modify_messages(await store.archive_oldest_messages(key, 1))
        assert await store.get_messages(key, status=None) == [MESSAGES[name]] * 2

    async def test_concurrent_adds_lose_nothing(self, store: AsyncDBChatStore, key: str) -> None:
        batches = [[f"{task} {number}" for number in range(3)] for task in range(TASKS)]
        await asyncio.gather(*(store.add_messages(key, said(*batch)) for batch in batches))
        found = texts(await store.get_messages(key))
        assert sorted(map(str, found)) == sorted(content for batch in batches for content in batch)
        for batch in batches:
            assert [content for content in found if content in batch] == batch

    async def test_concurrent_archiving_moves_each_message_once(
        self, store: AsyncDBChatStore, key: str
    ) -> None:
        await store.add_messages(key, said(*range(2 * TASKS)))
        calls = [
            store.archive_oldest_messages(key, 1) if task % 2 else store.delete_oldest_messages(key, 1)
            for task in range(TASKS)
        ]
        moved = [content for messages in await asyncio.gather(*calls) for content in texts(messages)]
        assert sorted(map(str, moved), key=int) == [str(number) for number in range(TASKS)]
        assert texts(await store.get_messages(key)) == [str(number) for number in range(TASKS, 2 * TASKS)]
        assert await store.count_messages(key, status=ARCHIVED) == TASKS // 2

    async def test_the_store_works_in_other_event_loops(self, store: AsyncDBChatStore, key: str) -> None:
        await store.add_message(key, said("here")[0])
        _elsewhere(store.add_message(key, said("there")[0]))
        _elsewhere(store.add_message(key, said("and there")[0]))
        assert texts(await store.get_messages(key)) == ["here", "there", "and there"]


def _elsewhere(call: Coroutine[object, object, None]) -> None:
    # As the sync methods of Memory do it where a loop is running.
    errors: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(call)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
