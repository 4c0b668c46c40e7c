"""What every storage must do, as pytest classes. Needs pytest.

Subclass both in a test module of yours and give them your stores::

    class TestMySessions(SessionStoreConformance):
        @pytest.fixture
        def stores(self) -> Stores:
            return Stores(sessions=MySessionStore(...), messages=MyMessageStore(...))
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.core.errors import (
    MessageConflictError,
    MessageNotFoundError,
    SessionNotFoundError,
)
from langmem_tiers.core.messages import SUMMARY_PREFIX, Message, Role, ToolCall

if TYPE_CHECKING:
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.ports import MessageStore, SessionStore

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
HOSTILE_NAMES = (
    "a%",
    "a_",
    "a*",
    "a.",
    "a'",
    "a:",
    "a/b",
    "A",
    "a",
    "a ",
    "a\0",
    "å",
    "a\u030a",
    "\ud83d",
    "%00",
    "%25",
)


@dataclass(frozen=True)
class Stores:
    """The two stores under test, on one database."""

    sessions: SessionStore
    messages: MessageStore


class _Conformance:
    @pytest.fixture
    def stores(self) -> Stores:
        """Your stores. They may hold other data: each test works in namespaces of its own."""
        raise NotImplementedError("define a fixture named 'stores' in your subclass")

    @pytest.fixture
    def namespace(self) -> NamespacePath:
        """A namespace that nobody else uses."""
        return ("conformance", uuid.uuid4().hex)

    @pytest.fixture
    def key(self, stores: Stores, namespace: NamespacePath) -> int:
        """A session with nothing in it."""
        return stores.sessions.open(namespace, "session", NOW).key


def message(content: str = "Hello", *, id: str | None = None, role: Role = Role.USER) -> Message:  # noqa: A002 - as in Message
    """A message with what the engine would have filled in."""
    return Message(
        id=id or uuid.uuid4().hex,
        role=role,
        content=content,
        created_at=NOW,
        token_count=2,
        token_counter="test",
    )


def contents(messages: tuple[Message, ...]) -> list[str]:
    """The texts, for comparing."""
    return [message.content for message in messages]


class SessionStoreConformance(_Conformance):
    """What every ``SessionStore`` must do."""

    def test_open_creates_a_session_once(self, stores: Stores, namespace: NamespacePath) -> None:
        first = stores.sessions.open(namespace, "s", NOW)
        again = stores.sessions.open(namespace, "s", NOW + timedelta(days=1))
        assert first == again
        assert (first.namespace, first.name, first.created_at) == (namespace, "s", NOW)
        assert (first.message_count, first.token_count, first.compressed_count) == (0, 0, 0)

    def test_find_does_not_create(self, stores: Stores, namespace: NamespacePath) -> None:
        assert stores.sessions.find(namespace, "s") is None
        assert stores.sessions.sessions(namespace, before=None, limit=10) == ()

    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    def test_names_match_exactly(self, stores: Stores, namespace: NamespacePath, name: str) -> None:
        found = {other: stores.sessions.open((*namespace, other), other, NOW) for other in HOSTILE_NAMES}
        assert len({info.key for info in found.values()}) == len(HOSTILE_NAMES)
        info = stores.sessions.find((*namespace, name), name)
        assert info == found[name]
        assert (info.namespace[-1], info.name) == (name, name)

    def test_labels_do_not_run_into_each_other(self, stores: Stores, namespace: NamespacePath) -> None:
        one = stores.sessions.open((*namespace, "a", "b"), "s", NOW)
        other = stores.sessions.open((*namespace, "a/b"), "s", NOW)
        assert one.key != other.key

    def test_sessions_come_newest_first_in_pages(self, stores: Stores, namespace: NamespacePath) -> None:
        opened = [stores.sessions.open(namespace, f"s{i}", NOW) for i in range(5)]
        first = stores.sessions.sessions(namespace, before=None, limit=3)
        second = stores.sessions.sessions(namespace, before=first[-1].key, limit=3)
        assert [info.name for info in first + second] == [info.name for info in reversed(opened)]

    def test_a_prefix_matches_whole_labels_only(self, stores: Stores, namespace: NamespacePath) -> None:
        ours = [(*namespace, "acme"), (*namespace, "acme", "alice"), (*namespace, "acme", "bob")]
        for path in [
            *ours,
            (*namespace, "acme-corp"),
            (*namespace, "Acme", "eve"),
            (*namespace, "acm%"),
        ]:
            stores.sessions.open(path, "s", NOW)
        assert list(stores.sessions.namespaces((*namespace, "acme"), after=None, limit=10)) == ours
        assert list(stores.sessions.namespaces((*namespace, "acme"), after=ours[0], limit=1)) == ours[1:2]

    def test_revision_grows_with_writes_and_ends_with_the_session(self, stores: Stores, key: int) -> None:
        before = stores.sessions.revision(key)
        assert before is not None
        after = stores.messages.append(key, [message()], NOW).revision
        assert after == before + 1 == stores.sessions.revision(key)
        stores.sessions.delete(key)
        assert stores.sessions.revision(key) is None

    def test_delete_takes_the_messages_with_it(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message("zanzibar one"), message("zanzibar two")], NOW)
        report = stores.sessions.delete(key)
        assert (report.sessions, report.messages) == (1, 2)
        assert stores.messages.search(namespace, ["zanzibar"], 10) == ()
        anew = stores.sessions.open(namespace, "session", NOW)
        assert anew.key != key
        assert stores.messages.latest(anew.key, 10).messages == ()

    def test_delete_of_what_is_gone_reports_nothing(self, stores: Stores, key: int) -> None:
        stores.sessions.delete(key)
        report = stores.sessions.delete(key)
        assert (report.sessions, report.messages) == (0, 0)

    def test_a_namespace_is_deleted_alone(self, stores: Stores, namespace: NamespacePath, key: int) -> None:
        child = stores.sessions.open((*namespace, "child"), "s", NOW)
        stores.messages.append(key, [message()], NOW)
        stores.messages.append(child.key, [message()], NOW)
        report = stores.sessions.delete_namespace(namespace)
        assert (report.sessions, report.messages) == (1, 1)
        assert stores.sessions.revision(key) is None
        assert len(stores.messages.latest(child.key, 10).messages) == 1


class MessageStoreConformance(_Conformance):
    """What every ``MessageStore`` must do."""

    def test_what_goes_in_comes_out_equal(self, stores: Stores, key: int) -> None:
        given = Message(
            id="any/id%",
            role=Role.ASSISTANT,
            content="null \0, lone \ud83d\ude00 \udc00, real 😀, שלום",
            created_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
            token_count=17,
            token_counter="test",
            name="Ag\0ent",
            tool_calls=(ToolCall("c1", "search", '{"q": 1'), ToolCall("c2", "\udfff")),
            tool_call_id="c0",
            payload_json='{"a":[1,2.5,null,true,"\ud83d\ude00"],"":{}}',
        )
        stores.messages.append(key, [given], NOW)
        assert stores.messages.get(key, "any/id%") == given
        assert stores.messages.latest(key, 1).messages == (given,)
        assert stores.messages.page(key, after=None, limit=1) == (given,)

    def test_messages_keep_their_order_whatever_their_times(self, stores: Stores, key: int) -> None:
        stores.messages.append(
            key, [message("1"), replace(message("2"), created_at=NOW - timedelta(days=9))], NOW
        )
        stores.messages.append(key, [message("3")], NOW)
        assert contents(stores.messages.page(key, after=None, limit=9)) == ["1", "2", "3"]

    def test_the_session_counts_what_was_added(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        later = NOW + timedelta(hours=1)
        stores.messages.append(key, [message(), message(), message()], later)
        info = stores.sessions.find(namespace, "session")
        assert info is not None
        assert (info.message_count, info.token_count, info.updated_at) == (3, 6, later)

    def test_the_same_id_is_stored_once(self, stores: Stores, key: int) -> None:
        first, second = message("1", id="a"), message("2", id="b")
        stores.messages.append(key, [first], NOW)
        done = stores.messages.append(key, [first, second, second], NOW)
        assert (done.stored, done.duplicates) == ((second,), (first, second))
        assert contents(stores.messages.latest(key, 9).messages) == ["1", "2"]

    def test_many_who_add_the_same_at_once_store_it_once(self, stores: Stores, key: int) -> None:
        batches = [[message(f"{n}", id=f"{n}"), message(f"{n + 1}", id=f"{n + 1}")] for n in range(30)]
        errors: list[BaseException] = []

        def add_all() -> None:
            try:
                for batch in batches:
                    stores.messages.append(key, batch, NOW)
            except BaseException as error:  # noqa: BLE001 - shown by the assertion
                errors.append(error)

        workers = [threading.Thread(target=add_all) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert errors == []
        assert contents(stores.messages.latest(key, 99).messages) == [f"{n}" for n in range(31)]

    def test_ids_said_to_be_new_are_looked_up_if_they_are_not(self, stores: Stores, key: int) -> None:
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
            stores.sessions.revision(key),
        )
        assert stores.messages.latest(key, 9).messages == ()

    def test_a_duplicate_may_differ_in_time_count_and_key_order(self, stores: Stores, key: int) -> None:
        first = replace(message(id="a"), payload_json='{"x":1,"y":2}')
        again = replace(first, created_at=NOW + timedelta(1), token_count=9, payload_json='{"y":2,"x":1}')
        stores.messages.append(key, [first], NOW)
        assert stores.messages.append(key, [again], NOW).duplicates == (first,)

    def test_an_id_for_another_message_is_refused_and_nothing_is_stored(
        self, stores: Stores, key: int
    ) -> None:
        stores.messages.append(key, [message("one", id="a")], NOW)
        with pytest.raises(MessageConflictError, match="'a'"):
            stores.messages.append(key, [message("new"), message("another", id="a")], NOW)
        assert contents(stores.messages.latest(key, 9).messages) == ["one"]

    def test_two_sessions_may_use_the_same_id(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        other = stores.sessions.open(namespace, "other", NOW).key
        stores.messages.append(key, [message("here", id="a")], NOW)
        stores.messages.append(other, [message("there", id="a")], NOW)
        found = stores.messages.get(other, "a")
        assert found is not None
        assert found.content == "there"

    def test_a_deleted_session_takes_no_messages(self, stores: Stores, key: int) -> None:
        stores.sessions.delete(key)
        with pytest.raises(SessionNotFoundError):
            stores.messages.append(key, [message()], NOW)
        with pytest.raises(SessionNotFoundError):
            stores.messages.latest(key, 1)
        with pytest.raises(SessionNotFoundError):
            stores.messages.page(key, after=None, limit=1)

    def test_latest_gives_the_newest_oldest_first(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i)) for i in range(7)], NOW)
        tail = stores.messages.latest(key, 3)
        assert contents(tail.messages) == ["4", "5", "6"]
        assert tail.revision == stores.sessions.revision(key)
        assert len(stores.messages.latest(key, 100).messages) == 7

    def test_pages_join_to_the_record(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i)) for i in range(7)], NOW)
        seen: list[Message] = []
        while page := stores.messages.page(key, after=seen[-1].id if seen else None, limit=3):
            seen.extend(page)
        assert [m.content for m in seen] == [str(i) for i in range(7)]

    def test_a_page_after_an_unknown_message_is_an_error(self, stores: Stores, key: int) -> None:
        with pytest.raises(MessageNotFoundError, match="'nowhere'"):
            stores.messages.page(key, after="nowhere", limit=3)
        assert stores.messages.get(key, "nowhere") is None

    def test_compress_hides_what_is_older_and_keeps_it(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(5)], NOW)
        summary = message(f"{SUMMARY_PREFIX}\nzero to two", id="s", role=Role.SYSTEM)
        assert stores.messages.compress(key, summary, before="3", hidden=3, was_hidden=0)
        record = stores.messages.page(key, after=None, limit=9)
        assert [(m.id, m.is_compressed) for m in record] == [
            ("0", True), ("1", True), ("2", True), ("s", False), ("3", False), ("4", False),
        ]  # fmt: skip
        assert [m.id for m in stores.messages.view(key, 9)] == [
            "s",
            "3",
            "4",
        ]
        info = stores.sessions.find(namespace, "session")
        assert info is not None
        assert (info.message_count, info.compressed_count) == (6, 3)

    def test_a_later_summary_replaces_the_one_before(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(4)], NOW)
        for number, (before, hidden, was_hidden) in enumerate([("1", 1, 0), ("3", 3, 1), ("3", 1, 4)]):
            text = message(f"{SUMMARY_PREFIX}\n{number}", id=f"s{number}", role=Role.SYSTEM)
            assert stores.messages.compress(key, text, before=before, hidden=hidden, was_hidden=was_hidden)
        shown = stores.messages.view(key, 9)
        assert [m.id for m in shown] == ["s2", "3"]
        assert [m.id for m in stores.messages.latest(key, 9).messages] == [
            "0",
            "s0",
            "1",
            "2",
            "s1",
            "s2",
            "3",
        ]

    def test_a_limited_view_holds_the_summary_and_the_newest(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(9)], NOW)
        assert [m.id for m in stores.messages.view(key, 2)] == ["7", "8"]
        summary = message(f"{SUMMARY_PREFIX}\nzero to two", id="s", role=Role.SYSTEM)
        stores.messages.compress(key, summary, before="3", hidden=3, was_hidden=0)
        assert [m.id for m in stores.messages.view(key, 2)] == ["s", "7", "8"]
        assert [m.id for m in stores.messages.view(key, 7)] == ["s", "3", "4", "5", "6", "7", "8"]
        assert [m.id for m in stores.messages.view(key, 99)] == ["s", "3", "4", "5", "6", "7", "8"]

    def test_compress_gives_way_to_another_compressor(self, stores: Stores, key: int) -> None:
        stores.messages.append(key, [message(str(i), id=str(i)) for i in range(4)], NOW)
        first, second = (message(f"{SUMMARY_PREFIX}\n{i}", role=Role.SYSTEM) for i in range(2))
        assert stores.messages.compress(key, first, before="2", hidden=2, was_hidden=0)
        assert not stores.messages.compress(key, second, before="3", hidden=3, was_hidden=0)
        assert stores.messages.get(key, second.id) is None

    def test_search_stays_in_its_namespace(self, stores: Stores, namespace: NamespacePath, key: int) -> None:
        other = stores.sessions.open((*namespace, "other"), "s", NOW).key
        stores.messages.append(key, [message("The anchovy decision")], NOW)
        stores.messages.append(other, [message("Another anchovy")], NOW)
        (hit,) = stores.messages.search(namespace, ["anchovy"], 10)
        assert (hit.message.content, hit.session) == ("The anchovy decision", "session")

    def test_search_knows_word_forms_and_ranks_more_words_higher(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        texts = [
            "We talked about boats",
            "We decided on the queue",
            "Queues were decided yesterday: the queue",
        ]
        stores.messages.append(key, [message(text) for text in texts], NOW)
        hits = stores.messages.search(namespace, ["decide", "queues"], 10)
        assert {hit.message.content for hit in hits} == {texts[1], texts[2]}
        both, one = texts[2], "A queue of people stood there, and they talked about boats and the weather"
        stores.messages.append(key, [message(one)], NOW)
        order = [hit.message.content for hit in stores.messages.search(namespace, ["decide", "queues"], 10)]
        assert order.index(both) < order.index(one)

    def test_search_takes_operators_as_words(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message("plain text")], NOW)
        for word in [
            '"',
            "*",
            "NEAR",
            "AND",
            "-",
            ":",
            "(",
            "content:plain",
            "'",
            "\\",
            "text*",
            "a & b",
            "|",
            "!x",
        ]:
            stores.messages.search(namespace, [word], 10)

    def test_search_finds_what_is_compressed(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message("the walrus", id="w"), message("later", id="l")], NOW)
        summary = message(f"{SUMMARY_PREFIX}\nsomething", role=Role.SYSTEM)
        stores.messages.compress(key, summary, before="l", hidden=1, was_hidden=0)
        (hit,) = stores.messages.search(namespace, ["walrus"], 10)
        assert hit.message.is_compressed

    def test_a_megabyte_is_stored_and_found(self, stores: Stores, namespace: NamespacePath, key: int) -> None:
        text = "narwhal " + " ".join(f"word{i}" for i in range(120_000))
        stores.messages.append(key, [message(text, id="big")], NOW)
        found = stores.messages.get(key, "big")
        assert found is not None
        assert found.content == text
        assert len(stores.messages.search(namespace, ["narwhal"], 10)) == 1
