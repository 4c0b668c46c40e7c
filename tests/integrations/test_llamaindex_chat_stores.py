"""The chat stores: both conformance suites on every database, and additional behavior."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import threading
import uuid
import warnings
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from langmem_tiers import (
    InvalidConfigError,
    InvalidInputError,
    InvalidMessageError,
    InvalidNameError,
    MemoryEngine,
    StorageUnavailableError,
)
from langmem_tiers.testing.threads import run_in_threads
from tests.backends import WITH_REDIS
from tests.backends import open_backend_engine as opened_on
from tests.hypothesis_settings import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.llms import ChatMessage, MessageRole, MockLLM
    from llama_index.core.memory import ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory
    from llama_index.core.storage.chat_store.base_db import MessageStatus

    from langmem_tiers_llamaindex import TieredChatStore, TieredMemory, TieredSyncChatStore, message_lists
    from tests.contract.chat_stores import AsyncChatStoreConformance, ChatStoreConformance
    from tests.contract.chat_stores.base import said, text, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
UNTIL = " (until 2026-01-02T03:04:05.000006Z)"
# Python warns of how the framework's sync methods find their event loop.
ignore_sync_memory_deprecations = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("sqlite-memory", False), id="sqlite-memory, no owner"),
        pytest.param(("sqlite-file", True), id="sqlite-file, owner"),
        pytest.param(("postgresql", True), id="postgresql, owner", marks=pytest.mark.backend),
        pytest.param(("postgresql", False), id="postgresql, no owner", marks=pytest.mark.backend),
        pytest.param((WITH_REDIS, True), id="postgresql+redis, owner", marks=pytest.mark.backend),
    ],
)
def database_and_owner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MemoryEngine, bool]]:
    """Engine on each kind of database, shared by tests with separate names, and whether lists have an owner."""
    backend, is_of_a_user = request.param
    with opened_on(backend, tmp_path_factory.mktemp("stores"), request) as engine:
        yield engine, is_of_a_user


@pytest.fixture
def shared_engine(database_and_owner: tuple[MemoryEngine, bool]) -> MemoryEngine:
    return database_and_owner[0]


@pytest.fixture
def owner(database_and_owner: tuple[MemoryEngine, bool]) -> list[str] | None:
    return ["user", uuid.uuid4().hex] if database_and_owner[1] else None


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as in_memory:
        yield in_memory


@pytest.fixture
def store(engine: MemoryEngine) -> TieredSyncChatStore:
    return TieredSyncChatStore(engine, namespace=["ada"])


class TestSyncStore(ChatStoreConformance):
    @pytest.fixture
    def store(self, shared_engine: MemoryEngine, owner: list[str] | None) -> TieredSyncChatStore:
        return TieredSyncChatStore(shared_engine, namespace=owner)


class TestAsyncStore(AsyncChatStoreConformance):
    @pytest.fixture
    def store(self, shared_engine: MemoryEngine, owner: list[str] | None) -> TieredChatStore:
        return TieredChatStore(shared_engine, namespace=owner)


@contextmanager
def failing(engine: MemoryEngine) -> Iterator[None]:
    """Make every write fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._database, "write", _fail)
        yield


def _fail(*_: Any) -> Any:
    raise StorageUnavailableError("the disk is gone")


def recall(engine: MemoryEngine, query: str, *namespace: str) -> set[str]:
    hits = engine.namespace(*namespace or ("ada",)).recall(query).hits
    return {hit.entry.content for hit in hits}


class TestNames:
    @pytest.mark.parametrize("namespace", [None, ["ada"]])
    def test_any_text_is_a_key(self, engine: MemoryEngine, namespace: list[str] | None) -> None:
        store = TieredSyncChatStore(engine, namespace=namespace)
        keys = ["a\0", "a\ud83d", "k" * 1000, f"a{UNTIL}", "%00", "chat", "a/" * 100]
        for number, key in enumerate(keys):
            store.set_messages(key, said(number))
        for number, key in enumerate(keys):
            assert texts(store.get_messages(key)) == [str(number)]
            assert texts(store.delete_messages(key)) == [str(number)]
        assert store.get_keys() == []

    def test_keys_of_a_user_are_listed_in_order_of_creation(self, store: TieredSyncChatStore) -> None:
        names = ["z", "b", "a", "Z"]
        for name in names:
            store.set_messages(name, said(name))
        store.add_message("z", said("again")[0])
        assert store.get_keys() == names

    @pytest.mark.parametrize("namespace", [None, ["ada"]])
    def test_keys_on_several_pages_are_all_listed_once(
        self, engine: MemoryEngine, namespace: list[str] | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(message_lists, "_PAGE_SIZE", 2)
        store = TieredSyncChatStore(engine, namespace=namespace)
        for name in "abcde":
            store.set_messages(name, said(name))
        assert store.get_keys() == [*"abcde"]

    def test_deleting_a_key_erases_its_archived_sessions_from_all_pages(
        self, store: TieredSyncChatStore, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(message_lists, "_PAGE_SIZE", 1)
        for name in "abc":
            store.set_messages(name, said(f"The {name} is green."))
            engine.session("ada", name).set_aside()
            store.set_messages(name, said(f"The {name} is blue."))
        store.delete_messages("b")
        assert store.get_keys() == ["a", "c"]
        left = engine.namespace("ada").sessions().sessions
        assert sorted(info.name[0] for info in left) == ["a", "a", "c", "c"]

    def test_users_do_not_see_lists_of_other_users(self, engine: MemoryEngine) -> None:
        ada, eve, nobody = (TieredSyncChatStore(engine, namespace=owner) for owner in ("ada", "eve", None))
        for store, plays in ((ada, "cello"), (eve, "drums"), (nobody, "harp")):
            store.set_messages("chat", said(f"Bob plays the {plays}."))
        assert [texts(store.get_messages("chat")) for store in (ada, eve, nobody)] == [
            ["Bob plays the cello."],
            ["Bob plays the drums."],
            ["Bob plays the harp."],
        ]
        assert ada.get_keys() == eve.get_keys() == nobody.get_keys() == ["chat"]
        assert recall(engine, "What does Bob play?", "ada") == {"Bob plays the cello."}
        assert recall(engine, "What does Bob play?", "chat", "chat") == {"Bob plays the harp."}
        ada.delete_messages("chat")
        assert (len(eve.get_messages("chat")), len(nobody.get_messages("chat"))) == (1, 1)

    def test_without_a_user_recall_is_limited_to_one_key(self, engine: MemoryEngine) -> None:
        store = TieredSyncChatStore(engine)
        store.set_messages("one", said("Bob plays the cello."))
        store.set_messages("two", said("Bob is a friend."))
        assert recall(engine, "Bob cello", "chat", "two") == {"Bob is a friend."}


class TestTheSyncStore:
    def test_the_sync_store_archives_messages(self, store: TieredSyncChatStore) -> None:
        store.set_messages("k", said(*"abcde"))
        assert texts(store.archive_oldest_messages("k", 2)) == ["a", "b"]
        assert texts(store.get_messages("k")) == ["c", "d", "e"]
        assert texts(store.get_messages("k", ARCHIVED, limit=1, offset=1)) == ["b"]
        assert texts(store.get_messages("k", None)) == list("abcde")
        assert [store.count_messages("k", status) for status in (ACTIVE, ARCHIVED, None)] == [3, 2, 5]
        assert text(store.delete_message("k", 0)) == "c"
        assert texts(store.delete_messages("k")) == ["a", "b", "d", "e"]
        assert store.archive_oldest_messages("nowhere", 3) == []

    def test_a_negative_index_counts_from_the_end(self, store: TieredSyncChatStore) -> None:
        store.set_messages("k", said(*"abcd"))
        assert [text(store.delete_message("k", index)) for index in (-1, -3, -3, 2**70)] == [
            "d", "a", None, None,
        ]  # fmt: skip
        store.add_message("k", said("x")[0], -1)
        store.add_message("k", said("y")[0], -99)
        store.add_message("k", said("z")[0], 2**70)
        assert texts(store.get_messages("k")) == ["y", "b", "x", "c", "z"]

    async def test_inserting_a_message_keeps_the_other_messages_unchanged(
        self, store: TieredSyncChatStore, engine: MemoryEngine
    ) -> None:
        store.set_messages("k", said(*(f"Bob plays piece {name}." for name in "abcd")))
        store.archive_oldest_messages("k", 2)
        before = engine.session("ada", "k").transcript.messages()
        await store.async_add_message("k", said("Bob sings.")[0], 1)
        assert texts(store.get_messages("k", ARCHIVED)) == ["Bob plays piece a.", "Bob plays piece b."]
        assert texts(store.get_messages("k")) == ["Bob plays piece c.", "Bob sings.", "Bob plays piece d."]
        after = {
            message.content: message.created_at
            for message in engine.session("ada", "k").transcript.messages()
        }
        assert all(after[message.content] == message.created_at for message in before)
        hits = engine.namespace("ada").recall("Which piece does Bob play?", limit=20).hits
        assert len(hits) == 5  # none of them twice

    def test_concurrent_inserts_at_the_front_lose_nothing(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        stores = [TieredSyncChatStore(shared_engine, namespace=[tenant]) for _ in range(4)]
        stores[0].set_messages("k", said("first"))
        numbers = iter(range(100))

        def write() -> None:
            mine = stores[next(numbers) % 4]
            for number in range(6):
                mine.add_message("k", said(f"front {number}")[0], 0)
                mine.add_message("k", said(f"end {number}")[0])

        run_in_threads(4, write)
        expected = [
            "first",
            *[f"{position} {number}" for position in ("front", "end") for number in range(6)] * 4,
        ]
        assert sorted(map(str, texts(stores[0].get_messages("k")))) == sorted(expected)


class PlainLists:
    """Reference implementation with two plain lists."""

    def __init__(self) -> None:
        self.active: list[str] = []
        self.archived: list[str] = []

    def do(self, step: str, index: int, words: str) -> object:
        active, archived = self.active, self.archived
        if step == "add":
            active.append(words)
        elif step == "insert":
            active.insert(index, words)
        elif step == "set":
            active[:], archived[:] = words, ()
        elif step == "archive":
            archived += (moved := active[: abs(index)])
            del active[: abs(index)]
            return moved
        elif step == "delete" and -len(active) <= index < len(active):
            return active.pop(index)
        elif step == "delete last" and active:
            return active.pop()
        elif step == "delete all":
            taken = [*archived, *active]
            active[:], archived[:] = (), ()
            return taken
        return None


def do(store: TieredSyncChatStore, key: str, step: str, index: int, words: str) -> object:
    if step == "archive":
        return texts(store.archive_oldest_messages(key, abs(index)))
    if step == "delete all":
        return texts(store.delete_messages(key))
    if step == "set":
        store.set_messages(key, said(*words))
    elif step == "delete":
        return text(store.delete_message(key, index))
    elif step == "delete last":
        return text(store.delete_last_message(key))
    else:
        store.add_message(key, said(words)[0], index if step == "insert" else None)
    return None


STEPS = ("add", "insert", "insert", "set", "archive", "delete", "delete last", "delete all")


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-4, 6), st.text("abc", max_size=4)), max_size=25)
)
def test_any_sequence_of_operations_matches_a_plain_list(
    store: TieredSyncChatStore, steps: list[tuple[str, int, str]]
) -> None:
    plain, key = PlainLists(), uuid.uuid4().hex
    for step in steps:
        assert do(store, key, *step) == plain.do(*step)
        assert texts(store.get_messages(key)) == plain.active
        assert texts(store.get_messages(key, None)) == [*plain.archived, *plain.active]
        assert store.count_messages(key, ARCHIVED) == len(plain.archived)


class TestDeleting:
    @pytest.mark.sample(3)
    @pytest.mark.parametrize("how", ["at a place", "the last", "the oldest", "the active", "the archived"])
    async def test_deleted_messages_are_neither_shown_nor_recalled(
        self, shared_engine: MemoryEngine, tenant: str, how: str
    ) -> None:
        secret, harmless = said("Bob's password is hunter2.", "Bob plays the cello.")
        sync = TieredSyncChatStore(shared_engine, namespace=[tenant])
        store = TieredChatStore(shared_engine, namespace=[tenant])
        batch = [harmless, secret] if how == "the last" else [secret, harmless]
        await store.set_messages("k", batch)
        assert recall(shared_engine, "What is Bob's password?", tenant) == set(texts(batch))
        if how == "at a place":
            assert await store.delete_message("k", 0) == secret
        elif how == "the last":
            assert sync.delete_last_message("k") == secret
        elif how == "the oldest":
            assert await store.delete_oldest_messages("k", 1) == [secret]
        else:
            await store.archive_oldest_messages("k", 1)
            await store.delete_messages("k", ARCHIVED)
            if how == "the active":
                await store.delete_messages("k", ACTIVE)
                assert recall(shared_engine, "What is Bob's password?", tenant) == set()
                return
        assert await store.get_messages("k", None) == sync.get_messages("k", None) == [harmless]
        assert recall(shared_engine, "What is Bob's password?", tenant) == {harmless.content}
        elsewhere = TieredMemory(shared_engine, session_id="new", namespace=[tenant])
        assert "hunter2" not in str(elsewhere.get("What is Bob's password?"))
        assert "hunter2" not in str(TieredMemory(shared_engine, session_id="k", namespace=[tenant]).get())

    async def test_deleting_a_key_erases_all_its_messages(
        self, shared_engine: MemoryEngine, owner: list[str] | None
    ) -> None:
        key = uuid.uuid4().hex
        namespace = owner or ["chat", key]
        memory = TieredMemory(shared_engine, session_id=key, namespace=namespace)
        memory.put(said("Bob's password was hunter1.")[0])
        memory.reset()  # the record keeps it under another name
        store = TieredChatStore(shared_engine, namespace=owner)
        await store.add_messages(key, said("Bob's password is hunter2.", "I see."))
        await store.archive_oldest_messages(key, 1)
        await store.set_messages(f"{key} too", said("Bob plays the cello."))
        await store.delete_messages(key)
        assert key not in await store.get_keys()
        assert shared_engine.namespace(namespace).find_session(key) is None
        assert "hunter" not in str(recall(shared_engine, "What is Bob's password?", *namespace))
        assert len(await store.get_messages(f"{key} too")) == 1
        left = shared_engine.namespace(namespace).sessions().sessions
        assert [info.name for info in left] == ([f"{key} too"] if owner else [])

    def test_deleting_a_key_erases_its_unsaved_messages(self, file_url: str) -> None:
        with MemoryEngine(file_url) as engine:
            store = TieredSyncChatStore(engine, namespace=["ada"])
            memory = TieredMemory(engine, session_id="k", user_id="ada")
            with failing(engine):
                memory.put(said("Bob's password is hunter2.")[0])
            assert len(memory.unsaved) == 1
            store.delete_messages("k")
            memory.put(said("Hello.")[0])
            assert texts(store.get_messages("k")) == ["Hello."]

    def test_a_key_that_is_empty_after_a_reset_can_be_deleted(self, engine: MemoryEngine) -> None:
        store = TieredSyncChatStore(engine)
        memory = TieredMemory(engine, session_id="k")
        memory.put(said("Hello.")[0])
        memory.reset()
        assert store.get_messages("k") == []
        assert store.delete_messages("k") is None
        assert store.get_keys() == []

    def test_replaced_messages_are_still_recalled(
        self, store: TieredSyncChatStore, engine: MemoryEngine
    ) -> None:
        store.set_messages("k", said("Bob plays the cello."))
        store.set_messages("k", said("Hello."))
        assert "Bob plays the cello." in recall(engine, "What does Bob play?")

    def test_a_key_is_deleted_during_concurrent_writes(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        store = TieredSyncChatStore(shared_engine, namespace=[tenant])

        def write() -> None:
            for _ in range(8):
                store.add_message("k", said("a")[0])
                store.set_messages("k", said("b"))
                store.get_messages("k")
                store.delete_last_message("k")
                store.archive_oldest_messages("k", 1)
                store.delete_messages("k")

        run_in_threads(3, write)
        store.set_messages("k", said("c"))
        assert texts(store.get_messages("k", None)) == ["c"]


class TestWrittenDown:
    @pytest.mark.parametrize("kind", [TieredChatStore, TieredSyncChatStore])
    def test_a_restored_store_uses_the_same_engine(
        self, shared_engine: MemoryEngine, owner: list[str] | None, kind: type[Any]
    ) -> None:
        store = kind(shared_engine, namespace=owner)
        ways: list[Callable[[], Any]] = [
            lambda: kind.model_validate(json.loads(json.dumps(store.model_dump()))),
            lambda: kind.model_validate_json(store.model_dump_json()),
            lambda: pickle.loads(pickle.dumps(store)),  # noqa: S301 - made here
            lambda: copy.copy(store),
            lambda: copy.deepcopy(store),
            lambda: store.model_copy(deep=True),
            lambda: copy.deepcopy({"memory": [store]})["memory"][0],
        ]
        for way in ways:
            again = way()
            assert type(again) is kind
            assert again.engine is shared_engine
            assert (again.namespace, again.engine_reference) == (owner, store.engine_reference)
            assert again.model_dump() == store.model_dump()

    def test_a_store_is_restored_from_the_serialization_of_components(
        self, store: TieredSyncChatStore
    ) -> None:
        store.set_messages("k", said("a"))
        for again in (
            TieredSyncChatStore.from_dict(store.to_dict()),
            TieredSyncChatStore.from_json(store.to_json()),
        ):
            assert texts(again.get_messages("k")) == ["a"]

    async def test_a_restored_store_opens_its_file_again(self, file_url: str) -> None:
        engine = MemoryEngine(file_url)
        store = TieredChatStore(engine, namespace=["ada"])
        await store.add_messages("k", said("a"))
        dump = store.model_dump_json()
        engine.close()
        again = TieredChatStore.model_validate_json(dump)
        with again.engine:
            assert texts(await again.get_messages("k")) == ["a"]

    @pytest.mark.soak
    def test_restoring_a_store_of_a_closed_in_memory_engine_raises(self) -> None:
        engine = MemoryEngine()
        dump = TieredSyncChatStore(engine).model_dump()
        engine.close()
        del engine
        gc.collect()
        with pytest.raises(InvalidInputError, match="no longer exists"):
            TieredSyncChatStore.from_dict(dump)
        with pytest.raises(ValidationError, match="no longer exists"):
            TieredSyncChatStore.model_validate(dump)

    def test_no_password_is_serialized(self, shared_postgres: str, tenant: str) -> None:
        url = shared_postgres.replace("postgres:@", "postgres:hunter2@")
        assert "hunter2" in url
        with MemoryEngine(url) as engine:
            sync = TieredSyncChatStore(engine, namespace=[tenant])
            buffer = ChatMemoryBuffer.from_defaults(chat_store=sync)
            for store in (sync, TieredChatStore(engine, namespace=[tenant])):
                assert "hunter2" not in f"{store.model_dump()} {store!r} {store}"
                assert "hunter2" not in store.model_dump_json()
                assert b"hunter2" not in pickle.dumps(store)
            assert "hunter2" not in buffer.to_string()

    @pytest.mark.parametrize("kind", [ChatMemoryBuffer, ChatSummaryMemoryBuffer])
    def test_a_restored_buffer_uses_the_same_store(
        self, shared_engine: MemoryEngine, tenant: str, kind: Any
    ) -> None:
        store = TieredSyncChatStore(shared_engine, namespace=[tenant])
        buffer = kind.from_defaults(
            chat_history=said("a", "b"), chat_store=store, chat_store_key="k", token_limit=100
        )
        for again in (kind.from_dict(buffer.to_dict()), kind.from_string(buffer.to_string())):
            assert isinstance(again.chat_store, TieredSyncChatStore)
            assert again.chat_store.engine is shared_engine
            assert again.get_all() == said("a", "b")
            again.put(said("c")[0])
            assert texts(buffer.get_all()) == ["a", "b", "c"]
            again.set(said("a", "b"))

    def test_a_misspelled_setting_is_rejected(self, engine: MemoryEngine) -> None:
        for kind in (TieredChatStore, TieredSyncChatStore):
            with pytest.raises(ValidationError, match="namepsace"):
                kind(engine, namepsace=["ada"])

    def test_the_namespace_and_the_engine_of_a_store_are_frozen(self, engine: MemoryEngine) -> None:
        for kind in (TieredChatStore, TieredSyncChatStore):
            for name in ("namespace", "engine_reference"):
                with pytest.raises(ValidationError, match="frozen"):
                    setattr(kind(engine, namespace=["ada"]), name, ["eve"])


class TestOneConversation:
    """One conversation accessed through the memory and both stores."""

    async def test_memory_and_both_stores_share_one_conversation(
        self, shared_engine: MemoryEngine, owner: list[str] | None
    ) -> None:
        key = uuid.uuid4().hex
        memory = TieredMemory(shared_engine, session_id=key, namespace=owner or [])
        sync = TieredSyncChatStore(shared_engine, namespace=owner)
        store = TieredChatStore(shared_engine, namespace=owner)
        memory.put(said("a")[0])
        sync.add_message(key, said("b")[0])
        await store.add_messages(key, said("c", "d"))
        assert texts(memory.get_all()) == texts(sync.get_messages(key)) == list("abcd")
        assert texts(await store.get_messages(key)) == texts(memory.get()) == list("abcd")
        await store.archive_oldest_messages(key, 2)
        assert texts(memory.get_all()) == list("abcd")
        assert texts(sync.get_messages(key)) == ["c", "d"]
        memory.set(said("x", "y"))
        assert texts(await store.get_messages(key)) == ["x", "y"]
        sync.delete_last_message(key)
        assert texts(memory.get_all()) == ["x"]
        memory.reset()
        assert await store.get_messages(key, None) == sync.get_messages(key) == []

    def test_replacing_a_list_discards_its_summary(self, engine: MemoryEngine) -> None:
        store = TieredSyncChatStore(engine, namespace=["ada"])
        session = engine.session("ada", "k")
        for number in range(6):
            session.add("user", f"Bob plays piece {number}.")
        session.compress(session.latest(1)[0].id, "Bob plays pieces.")
        store.set_messages("k", said("Hello."))
        memory = TieredMemory(engine, session_id="k", user_id="ada", recall=False)
        assert texts(memory.get()) == texts(store.get_messages("k", None)) == ["Hello."]
        assert store.get_keys() == ["k"]
        assert "Bob plays piece 3." in recall(engine, "Which piece does Bob play?")

    def test_messages_added_to_the_session_are_shown_as_llamaindex_messages(
        self, store: TieredSyncChatStore, engine: MemoryEngine
    ) -> None:
        engine.session("ada", "k").add("user", "Hello.")
        assert store.get_messages("k") == [ChatMessage(role=MessageRole.USER, content="Hello.")]


class TestBuffers:
    async def test_a_buffer_works_on_the_store(self, shared_engine: MemoryEngine, tenant: str) -> None:
        store = TieredSyncChatStore(shared_engine, namespace=[tenant])

        def buffer() -> ChatMemoryBuffer:
            return ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="k", token_limit=40)

        for number in range(10):
            buffer().put(said(f"question {number} with some more words")[0])
            await buffer().aput(
                ChatMessage(role="assistant", content=f"answer {number} with some more words")
            )
        shown = texts(buffer().get())
        assert shown == texts(await buffer().aget())
        assert 0 < len(shown) < 20
        assert shown == texts(buffer().get_all())[-len(shown) :]
        assert len(store.get_messages("k")) == 20
        await buffer().areset()
        assert buffer().get_all() == []
        assert recall(shared_engine, "question", tenant) == set()

    def test_a_buffer_with_summaries_works_on_the_store(self, store: TieredSyncChatStore) -> None:
        buffer = ChatSummaryMemoryBuffer.from_defaults(
            llm=MockLLM(max_tokens=5), chat_store=store, chat_store_key="k", token_limit=30
        )
        buffer.put_messages(said(*(f"message {number} with more words" for number in range(12))))
        shown = buffer.get()
        assert shown[0].role is MessageRole.SYSTEM
        assert texts(shown)[-1] == "message 11 with more words"
        assert store.get_messages("k") == shown == buffer.get()
        buffer.put(said("more")[0])
        assert texts(buffer.get_all())[-1] == "more"


def create_memory(store: TieredChatStore, session_id: str = "k", **settings: Any) -> Memory:
    """Create LlamaIndex's memory, which counts ten tokens for each message of ``create_turns``."""
    settings = {"token_limit": 100, "token_flush_size": 20, "tokenizer_fn": str.split, **settings}
    return Memory.from_defaults(session_id=session_id, chat_store=store, **settings)


def create_turns(*numbers: int) -> list[ChatMessage]:
    return [
        ChatMessage(role=role, content=f"{role} {number} one two three four five six seven eight")
        for number in numbers
        for role in ("user", "assistant")
    ]


class TestCoreMemory:
    async def test_overflowing_messages_are_archived_and_visible_to_new_memory_objects(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        store = TieredChatStore(shared_engine, namespace=[tenant])
        for message in create_turns(*range(4)):
            await create_memory(store).aput(message)  # as in a server: one object for each request
        assert await create_memory(store).aget() == create_turns(1, 2, 3)
        assert await create_memory(store).aget_all() == create_turns(0, 1, 2, 3)
        assert await create_memory(store).aget_all(status=ARCHIVED) == create_turns(0)
        await create_memory(store).aput_messages(create_turns(4, 5))
        assert await create_memory(store).aget() == create_turns(3, 4, 5)
        assert await create_memory(store).aget_all() == create_turns(*range(6))
        other = TieredChatStore.model_validate(store.model_dump())
        assert await create_memory(other).aget_all(status=ARCHIVED) == create_turns(0, 1, 2)

    async def test_archived_messages_are_recalled_in_other_sessions(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        memory = create_memory(TieredChatStore(shared_engine, namespace=[tenant]))
        await memory.aput_messages([*said("Bob plays the cello.", "I see."), *create_turns(*range(5))])
        assert "cello" not in str(await memory.aget())
        elsewhere = TieredMemory(shared_engine, session_id="new", namespace=[tenant])
        assert "cello" in str(elsewhere.get("What does Bob play?"))

    async def test_setting_and_resetting_a_memory_replaces_its_list(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        store = TieredChatStore(shared_engine, namespace=[tenant])
        memory = create_memory(store)
        await memory.aput_messages(create_turns(*range(5)))
        await memory.aput_messages([])
        await memory.aset(create_turns(7))
        assert await memory.aget_all() == create_turns(7)
        await memory.aset([])
        assert await memory.aget() == []
        await memory.aput_messages(create_turns(8))
        await memory.areset(status=ARCHIVED)
        assert await memory.aget() == create_turns(8)
        await memory.areset()
        assert await memory.aget_all() == []
        assert await store.get_keys() == []

    @ignore_sync_memory_deprecations
    def test_a_memory_works_without_a_loop_and_in_several_loops(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        store = TieredChatStore(shared_engine, namespace=[tenant])
        memory = create_memory(store, token_limit=1000)
        for number in range(3):
            asyncio.run(memory.aput_messages(create_turns(number)))
        thread = threading.Thread(target=lambda: asyncio.run(memory.aput_messages(create_turns(3))))
        thread.start()
        thread.join()
        assert asyncio.run(memory.aget_all()) == create_turns(0, 1, 2, 3)

    async def test_sync_methods_work_inside_a_running_loop(
        self, shared_engine: MemoryEngine, tenant: str
    ) -> None:
        store = TieredChatStore(shared_engine, namespace=[tenant])
        memory = create_memory(store, token_limit=1000, chat_history=create_turns(0))
        memory.put(create_turns(1)[0])
        memory.put_messages(create_turns(1)[1:])
        await memory.aput_messages(create_turns(2))
        assert memory.get() == memory.get_all() == create_turns(0, 1, 2) == await memory.aget()
        memory.set(create_turns(3))
        assert memory.get() == create_turns(3)
        memory.reset()
        assert await memory.aget_all() == []

    async def test_concurrent_memories_read_a_new_file(self, file_url: str) -> None:
        with MemoryEngine(file_url) as first, MemoryEngine(file_url) as second:
            memories = [create_memory(TieredChatStore(engine)) for engine in (first, second) * 8]
            assert await asyncio.gather(*(memory.aget() for memory in memories)) == [[]] * 16
            await asyncio.gather(*(memory.aput(create_turns(0)[0]) for memory in memories[:4]))
            assert len(await memories[-1].aget_all()) == 4

    async def test_a_copied_memory_shares_its_store(self, engine: MemoryEngine) -> None:
        memory = create_memory(TieredChatStore(engine))
        again = copy.deepcopy(memory)  # as agents copy their state
        await again.aput_messages(create_turns(0))
        assert await memory.aget() == create_turns(0)


class TestErrors:
    @pytest.mark.parametrize("key", ["", None, 5, b"k", "k" * 1025])
    async def test_an_invalid_key_is_rejected(self, engine: MemoryEngine, key: Any) -> None:
        for namespace in (None, ["ada"]):
            sync = TieredSyncChatStore(engine, namespace=namespace)
            store = TieredChatStore(engine, namespace=namespace)
            calls: list[Any] = [
                partial(sync.get_messages, key),
                partial(sync.add_message, key, said("a")[0]),
                partial(sync.add_message, key, said("a")[0], 0),
                partial(sync.set_messages, key, []),
                partial(sync.delete_messages, key),
                partial(sync.delete_last_message, key),
            ]
            for call in calls:
                with pytest.raises(InvalidNameError, match="key"):
                    call()
            with pytest.raises(InvalidNameError, match="key"):
                await store.count_messages(key)
        assert engine.namespaces() == ()

    @pytest.mark.parametrize("status", ["gone", 5, [], ...])
    async def test_an_invalid_status_is_rejected(self, engine: MemoryEngine, status: Any) -> None:
        store = TieredChatStore(engine)
        await store.add_messages("k", said("a"))
        calls = [
            store.get_messages("k", status=status),
            store.count_messages("k", status=status),
            store.add_message("k", said("b")[0], status=status),
            store.add_messages("k", said("b"), status=status),
            store.set_messages("k", said("b"), status=status),
            store.delete_messages("k", status=status),
        ]
        for call in calls:
            with pytest.raises(InvalidInputError, match="use MessageStatus.ACTIVE or"):
                await call
        for call in (store.add_messages("k", said("b"), None), store.set_messages("k", [], None)):  # type: ignore[arg-type]  # on purpose
            with pytest.raises(InvalidInputError, match="unknown status None"):
                await call
        assert texts(await store.get_messages("k", status="active")) == ["a"]  # type: ignore[arg-type]  # its value

    @pytest.mark.parametrize("value", [None, 5, "hello", {"role": "user"}, ChatMessage(content="a")])
    async def test_a_value_that_is_not_a_list_of_messages_is_rejected(
        self, engine: MemoryEngine, value: Any
    ) -> None:
        store, sync = TieredChatStore(engine), TieredSyncChatStore(engine)
        await store.add_messages("k", said("a"))
        for call in (store.add_messages("k", value), store.set_messages("k", value)):
            with pytest.raises(InvalidInputError, match=f"got {type(value).__name__}"):
                await call
        with pytest.raises(InvalidInputError):
            sync.set_messages("k", value)
        assert texts(sync.get_messages("k")) == ["a"]

    @pytest.mark.parametrize("value", [None, 5, "hello", {"role": "user"}])
    async def test_a_batch_with_an_invalid_message_stores_nothing(
        self, engine: MemoryEngine, value: Any
    ) -> None:
        store = TieredChatStore(engine)
        calls = [
            store.add_message("k", value),
            store.add_messages("k", [*said("a"), value]),
            store.set_messages("k", [*said("a"), value]),
        ]
        for call in calls:
            with pytest.raises(InvalidMessageError, match="expected a LlamaIndex message"):
                await call
        assert await store.get_keys() == []

    @pytest.mark.parametrize("idx", ["1", 1.5, True, [0]])
    def test_an_invalid_index_is_rejected(self, store: TieredSyncChatStore, idx: Any) -> None:
        store.set_messages("k", said("a", "b"))
        with pytest.raises(InvalidInputError, match="idx must be an int"):
            store.delete_message("k", idx)
        with pytest.raises(InvalidInputError, match="idx must be an int"):
            store.add_message("k", said("c")[0], idx)
        assert texts(store.get_messages("k")) == ["a", "b"]

    @pytest.mark.parametrize("number", [-1, "1", 1.5, True, 2**70])
    async def test_an_invalid_number_of_messages_is_rejected(self, engine: MemoryEngine, number: Any) -> None:
        store = TieredChatStore(engine)
        await store.add_messages("k", said("a", "b"))
        calls = [
            store.get_messages("k", limit=number),
            store.get_messages("k", offset=number),
            store.archive_oldest_messages("k", number),
            store.delete_oldest_messages("k", number),
        ]
        for call in calls:
            with pytest.raises(InvalidConfigError, match="whole number"):
                await call
        assert await store.count_messages("k") == 2

    @pytest.mark.parametrize("namespace", [[], "", [""], 5, [None]])
    def test_an_invalid_namespace_is_rejected(self, engine: MemoryEngine, namespace: Any) -> None:
        with pytest.raises(InvalidNameError, match="namespace"):
            TieredChatStore(engine, namespace=namespace)

    def test_a_value_that_is_not_an_engine_is_rejected(self) -> None:
        url: Any = "sqlite://"
        for kind in (TieredChatStore, TieredSyncChatStore):
            with pytest.raises(InvalidInputError, match="expected a MemoryEngine"):
                kind(url)
