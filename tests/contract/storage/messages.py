"""Contract of ``MessageStore``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, MessageToolCall, Role
from langmem_tiers.errors import MessageConflictError, MessageNotFoundError, SessionNotFoundError
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import (
    NOW,
    StoreConformance,
    Stores,
    contents,
    message,
)

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath


class MessageStoreConformance(StoreConformance):
    """What ``MessageStore`` must do."""

    def test_all_fields_come_back_equal(self, stores: Stores, key: int) -> None:
        given = Message(
            id="any/id%",
            role=Role.ASSISTANT,
            content="null \0, lone \ud83d\ude00 \udc00, real 😀, שלום",
            created_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
            token_count=17,
            token_counter="test",
            name="Ag\0ent",
            tool_calls=(MessageToolCall("c1", "search", '{"q": 1'), MessageToolCall("c2", "\udfff")),
            tool_call_id="c0",
            payload_json='{"a":[1,2.5,null,true,"\ud83d\ude00"],"":{}}',
        )
        stores.messages.append(key, [given], NOW)
        assert stores.messages.get(key, "any/id%") == given
        assert stores.messages.list_latest(key, 1).messages == (given,)
        assert stores.messages.list_after(key, after=None, limit=1) == (given,)

    def test_messages_keep_their_order_regardless_of_their_times(self, stores: Stores, key: int) -> None:
        stores.messages.append(
            key, [message("1"), replace(message("2"), created_at=NOW - timedelta(days=9))], NOW
        )
        stores.messages.append(key, [message("3")], NOW)
        assert contents(stores.messages.list_after(key, after=None, limit=9)) == ["1", "2", "3"]

    def test_the_session_counts_added_messages_and_tokens(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        later = NOW + timedelta(hours=1)
        stores.messages.append(key, [message(), message(), message()], later)
        info = stores.sessions.get(namespace, "session")
        assert info is not None
        assert (info.message_count, info.token_count, info.updated_at) == (3, 6, later)

    def test_the_same_id_is_stored_once(self, stores: Stores, key: int) -> None:
        first, second = message("1", id="a"), message("2", id="b")
        stores.messages.append(key, [first], NOW)
        done = stores.messages.append(key, [first, second, second], NOW)
        assert (done.stored, done.duplicates) == ((second,), (first, second))
        assert contents(stores.messages.list_latest(key, 9).messages) == ["1", "2"]

    def test_the_record_finds_its_known_ids(self, stores: Stores, namespace: NamespacePath, key: int) -> None:
        ids = ["a", "A", "any/id%", "\ud800", "it's", *(f"n{number}" for number in range(1200))]
        stores.messages.append(key, [replace(message(), id=message_id) for message_id in ids], NOW)
        other = stores.sessions.get_or_create(namespace, "other", NOW).key
        stores.messages.append(other, [replace(message(), id="elsewhere")], NOW)
        assert stores.messages.find_known_ids(key, [*ids, "b", "any/id", "elsewhere", "a"]) == set(ids)
        assert stores.messages.find_known_ids(key, []) == set()

    def test_messages_added_concurrently_are_stored_once(self, stores: Stores, key: int) -> None:
        batches = [[message(f"{n}", id=f"{n}"), message(f"{n + 1}", id=f"{n + 1}")] for n in range(30)]
        run_in_threads(4, lambda: [stores.messages.append(key, batch, NOW) for batch in batches])
        assert contents(stores.messages.list_latest(key, 99).messages) == [f"{n}" for n in range(31)]

    def test_ids_declared_new_are_still_deduplicated(self, stores: Stores, key: int) -> None:
        known, new = message("1", id="a"), message("2", id="b")
        stores.messages.append(key, [known], NOW, new_ids=True)
        done = stores.messages.append(key, [known, new], NOW, new_ids=True)
        assert (done.stored, done.duplicates) == ((new,), (known,))

    def test_a_batch_of_known_messages_changes_nothing(self, stores: Stores, key: int) -> None:
        known = message(id="a")
        revision = stores.messages.append(key, [known], NOW).revision
        done = stores.messages.append(key, [known], NOW)
        assert (done.stored, done.duplicates, done.revision) == ((), (known,), revision)

    def test_an_empty_batch_changes_nothing(self, stores: Stores, key: int) -> None:
        done = stores.messages.append(key, [], NOW)
        assert (done.stored, done.duplicates, done.revision) == (
            (),
            (),
            stores.sessions.get_revision(key),
        )
        assert stores.messages.list_latest(key, 9).messages == ()

    def test_a_duplicate_may_differ_in_time_count_and_key_order(self, stores: Stores, key: int) -> None:
        first = replace(message(id="a"), payload_json='{"x":1,"y":2}')
        again = replace(first, created_at=NOW + timedelta(1), token_count=9, payload_json='{"y":2,"x":1}')
        stores.messages.append(key, [first], NOW)
        assert stores.messages.append(key, [again], NOW).duplicates == (first,)

    def test_reusing_an_id_for_another_message_is_refused_and_stores_nothing(
        self, stores: Stores, key: int
    ) -> None:
        stores.messages.append(key, [message("one", id="a")], NOW)
        with pytest.raises(MessageConflictError, match="'a'"):
            stores.messages.append(key, [message("new"), message("another", id="a")], NOW)
        assert contents(stores.messages.list_latest(key, 9).messages) == ["one"]

    def test_two_sessions_can_use_the_same_id(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        other = stores.sessions.get_or_create(namespace, "other", NOW).key
        stores.messages.append(key, [message("here", id="a")], NOW)
        stores.messages.append(other, [message("there", id="a")], NOW)
        found = stores.messages.get(other, "a")
        assert found is not None
        assert found.content == "there"

    def test_a_deleted_session_refuses_messages(self, stores: Stores, key: int) -> None:
        stores.sessions.delete(key)
        with pytest.raises(SessionNotFoundError):
            stores.messages.append(key, [message()], NOW)
        with pytest.raises(SessionNotFoundError):
            stores.messages.list_latest(key, 1)
        with pytest.raises(SessionNotFoundError):
            stores.messages.list_after(key, after=None, limit=1)

    def test_latest_returns_the_newest_messages_oldest_first(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i)) for i in range(7)], NOW)
        tail = stores.messages.list_latest(key, 3)
        assert contents(tail.messages) == ["4", "5", "6"]
        assert tail.revision == stores.sessions.get_revision(key)
        assert len(stores.messages.list_latest(key, 100).messages) == 7

    def test_pages_are_complete(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i)) for i in range(7)], NOW)
        seen: list[Message] = []
        while page := stores.messages.list_after(key, after=seen[-1].id if seen else None, limit=3):
            seen.extend(page)
        assert [m.content for m in seen] == [str(i) for i in range(7)]

    @pytest.mark.parametrize("limit", [1, 3, 7, 100])
    def test_pages_backwards_are_complete(self, stores: Stores, key: int, limit: int) -> None:
        stores.messages.append(key, [message(str(number)) for number in range(7)], NOW)
        pages, before = list[tuple[str, ...]](), None
        while found := stores.messages.list_before(key, before=before, limit=limit):
            pages.insert(0, tuple(message.content for message in found))
            before = found[0].id
        assert [content for page in pages for content in page] == [str(number) for number in range(7)]
        with pytest.raises(MessageNotFoundError, match="'nowhere'"):
            stores.messages.list_before(key, before="nowhere", limit=limit)

    def test_a_page_after_an_unknown_message_is_an_error(self, stores: Stores, key: int) -> None:
        with pytest.raises(MessageNotFoundError, match="'nowhere'"):
            stores.messages.list_after(key, after="nowhere", limit=3)
        assert stores.messages.get(key, "nowhere") is None

    def test_compress_hides_older_messages_and_keeps_them_in_the_record(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(5)], NOW)
        summary = message(f"{SUMMARY_PREFIX}\nzero to two", id="s", role=Role.SYSTEM)
        assert stores.messages.compress(key, summary, before="3", hidden=3, was_hidden=0)
        record = stores.messages.list_after(key, after=None, limit=9)
        assert [(m.id, m.is_compressed) for m in record] == [
            ("0", True), ("1", True), ("2", True), ("s", False), ("3", False), ("4", False),
        ]  # fmt: skip
        assert [m.id for m in stores.messages.list_visible(key, 9)] == [
            "s",
            "3",
            "4",
        ]
        info = stores.sessions.get(namespace, "session")
        assert info is not None
        assert (info.message_count, info.compressed_count) == (6, 3)

    def test_a_later_summary_replaces_the_earlier_one(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(4)], NOW)
        for number, (before, hidden, was_hidden) in enumerate([("1", 1, 0), ("3", 3, 1), ("3", 1, 4)]):
            text = message(f"{SUMMARY_PREFIX}\n{number}", id=f"s{number}", role=Role.SYSTEM)
            assert stores.messages.compress(key, text, before=before, hidden=hidden, was_hidden=was_hidden)
        shown = stores.messages.list_visible(key, 9)
        assert [m.id for m in shown] == ["s2", "3"]
        assert [m.id for m in stores.messages.list_latest(key, 9).messages] == [
            "0",
            "s0",
            "1",
            "2",
            "s1",
            "s2",
            "3",
        ]

    def test_a_limited_view_contains_the_summary_and_the_newest_messages(
        self, stores: Stores, key: int
    ) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(9)], NOW)
        assert [m.id for m in stores.messages.list_visible(key, 2)] == ["7", "8"]
        summary = message(f"{SUMMARY_PREFIX}\nzero to two", id="s", role=Role.SYSTEM)
        stores.messages.compress(key, summary, before="3", hidden=3, was_hidden=0)
        assert [m.id for m in stores.messages.list_visible(key, 2)] == ["s", "7", "8"]
        assert [m.id for m in stores.messages.list_visible(key, 7)] == ["s", "3", "4", "5", "6", "7", "8"]
        assert [m.id for m in stores.messages.list_visible(key, 99)] == ["s", "3", "4", "5", "6", "7", "8"]

    def test_compress_fails_after_a_concurrent_compression(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(4)], NOW)
        first, second = (message(f"{SUMMARY_PREFIX}\n{i}", role=Role.SYSTEM) for i in range(2))
        assert stores.messages.compress(key, first, before="2", hidden=2, was_hidden=0)
        assert not stores.messages.compress(key, second, before="3", hidden=3, was_hidden=0)
        assert stores.messages.get(key, second.id) is None

    def test_a_megabyte_is_stored(self, stores: Stores, key: int) -> None:
        text = "narwhal " + " ".join(f"word{i}" for i in range(120_000))
        stores.messages.append(key, [message(text, id="big")], NOW)
        found = stores.messages.get(key, "big")
        assert found is not None
        assert found.content == text
