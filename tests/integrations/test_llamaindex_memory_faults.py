"""TieredMemory with a failing store: turns continue and no message is lost."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    EngineClosedError,
    EngineConfig,
    MemoryEngine,
    StorageBusyError,
    StorageFullError,
    StorageUnavailableError,
)
from langmem_tiers.testing import HashEmbedder
from langmem_tiers.testing.threads import run_in_threads
from tests.integrations.test_langchain_history_faults import locked
from tests.integrations.test_llamaindex_memory import (
    ASK,
    CAT,
    INSERTS,
    LONG,
    WAYS,
    EventRecorder,
    RecordingLLM,
    assistant,
    call,
    call_method,
    count_tokens,
    create_memory,
    recorder,
    result,
    system,
    texts,
    user,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.llms.types import MessageRole, TextBlock, ToolCallBlock
    from llama_index.core.chat_engine import SimpleChatEngine

    from langmem_tiers_llamaindex import MemoryFailedEvent, TieredMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["recorder"]  # a fixture


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def engine(path: Path) -> Iterator[MemoryEngine]:
    with MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.05), embedder=None) as opened:
        opened.session("u", "s")
        yield opened


def stored_texts(engine: MemoryEngine, session: str = "s") -> list[str]:
    return [message.content for message in engine.session("u", session).messages()]


def fail_writes(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, error: BaseException, *, is_written: bool = False
) -> Callable[[], None]:
    """Make writes of messages fail, before or after writing. Return a function that restores them."""
    store = engine._services.short_term.messages
    append = store.append

    def broken(*args: Any, **kwargs: Any) -> Any:
        if is_written:
            append(*args, **kwargs)
        raise error

    monkeypatch.setattr(store, "append", broken)
    return lambda: monkeypatch.setattr(store, "append", append)


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
async def test_unsaved_messages_are_shown_and_stored_with_the_next_message(
    engine: MemoryEngine, path: Path, way: str, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    memory = create_memory(engine)
    await call_method(memory, way, "put", user("one"))
    with locked(path), caplog.at_level(logging.WARNING, "langmem_tiers"):
        await call_method(memory, way, "put_messages", [user("two"), assistant("three")])
        assert texts(create_memory(engine).unsaved) == ["two", "three"]
        assert texts(await call_method(memory, way, "get")) == ["one", "two", "three"]
        assert texts(await call_method(memory, way, "get_all")) == ["one", "two", "three"]
        await call_method(memory, way, "put", user("four"))
        assert texts(await call_method(create_memory(engine), way, "get")) == ["one", "two", "three", "four"]
    assert (
        "the conversation 's' continues without its store: StorageBusyError, 2 messages are pending"
        in caplog.text
    )
    assert "two" not in caplog.text
    failed = recorder.list_events(MemoryFailedEvent)
    assert {(event.error, event.session_id) for event in failed} == {("StorageBusyError", "s")}
    assert [event.waiting for event in failed] == [2, 2, 3, 3]
    assert (stored_texts(engine), memory.failures) == (["one"], 4)
    await call_method(memory, way, "put", user("five"))
    assert stored_texts(engine) == ["one", "two", "three", "four", "five"]
    assert texts(memory.get_all()) == texts(memory.get()) == ["one", "two", "three", "four", "five"]
    assert (memory.unsaved, memory.failures) == ([], 4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("insert", INSERTS)
def test_an_unsaved_question_gets_memories(engine: MemoryEngine, path: Path, insert: str) -> None:
    create_memory(engine, "past").put(user(CAT))
    memory = create_memory(engine, insert_method=insert)
    memory.put_messages([system("Be brief."), user("Hello."), assistant("Hi.")])
    with locked(path):
        memory.put(user(ASK))
        for query in (None, ASK):
            shown = memory.get(query)
            assert "Pixel" in str(shown)
            assert shown[-1].blocks[-1] == TextBlock(text=ASK)
            assert shown[0].blocks[0] == TextBlock(text="Be brief.")
        assert texts(memory.get_all()) == ["Be brief.", "Hello.", "Hi.", ASK]
    assert memory.get()[-1].blocks[-1] == TextBlock(text=ASK)
    assert stored_texts(engine) == ["Be brief.", "Hello.", "Hi.", ASK]


def test_a_chat_engine_continues_while_the_store_fails_and_loses_no_turn(
    engine: MemoryEngine, path: Path
) -> None:
    llm = RecordingLLM(is_chat_model=True)
    chat = SimpleChatEngine.from_defaults(llm=llm, memory=create_memory(engine), system_prompt="Be brief.")
    chat.chat("one")
    with locked(path):
        chat.chat("two")
        assert texts(llm.seen[-1]) == ["Be brief.", "one", "Well.", "two"]
        chat.chat("three")
        assert texts(llm.seen[-1]) == ["Be brief.", "one", "Well.", "two", "Well.", "three"]
    chat.chat("four")
    expected = ["one", "Well.", "two", "Well.", "three", "Well.", "four", "Well."]
    assert texts(chat.chat_history) == stored_texts(engine) == expected


def fail_session_lookups(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every session lookup fail."""

    def broken(*_: Any) -> Any:
        raise StorageUnavailableError("the server is away")

    monkeypatch.setattr(engine._services.short_term.sessions, "get_or_create", broken)


@pytest.mark.parametrize("way", WAYS)
async def test_an_unreadable_store_shows_the_messages_in_memory(
    engine: MemoryEngine,
    way: str,
    recorder: EventRecorder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_memory(engine, "past").put(user(CAT))
    memory = create_memory(engine)
    memory.put_messages([system("Be brief."), user(ASK)])
    assert "Pixel" in str(memory.get())
    memory.put_messages([call(1, of="cat"), result(1, "Pixel"), assistant("Pixel.")])
    fail_session_lookups(engine, monkeypatch)
    with caplog.at_level(logging.WARNING, "langmem_tiers"):
        await call_method(memory, way, "put", user("And {query_str}?"))
        shown = await call_method(memory, way, "get")
    assert [message.role.value for message in shown] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert "called Pixel" in str(shown)  # as it was shown last
    assert {event.error for event in recorder.list_events(MemoryFailedEvent)} == {"StorageUnavailableError"}
    assert texts(memory.unsaved) == ["And {query_str}?"]
    with pytest.raises(StorageUnavailableError):  # what is held is a part, which must not be taken for all
        await call_method(create_memory(engine), way, "get_all")
    again = create_memory(engine, "never seen")
    assert (again.get(), again.get("x")) == ([], [])
    again.put(user("heard"))
    assert texts(again.get()) == ["heard"]


def test_stored_messages_that_were_never_shown_stay_in_memory(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, other = create_memory(engine), create_memory(engine, "other")
    memory.put(user("one"))
    other.set([user("one"), assistant("two")])
    fail_session_lookups(engine, monkeypatch)
    assert memory.get() == [user("one")]
    assert other.get() == [user("one"), assistant("two")]


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_readable", [True, False])
def test_the_limit_is_met_with_many_unsaved_messages(
    path: Path, is_readable: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.01), embedder=None)
    memory = create_memory(engine, token_limit=600)
    memory.put_messages([system("Be brief."), user("Hello."), assistant("Hi.")])
    memory.get()
    if not is_readable:
        fail_session_lookups(engine, monkeypatch)
    with locked(path):
        for n in range(12):
            memory.put_messages([user(f"{n}: {LONG}"), call(n, of="x"), result(n, LONG), user(f"And {n}?")])
            shown = memory.get()
            assert count_tokens(memory, shown) <= 600
            assert texts(shown)[-1] == f"And {n}?"
            assert shown[0].blocks[0] == TextBlock(text="Be brief.")
            calls = [
                block.tool_call_id
                for message in shown
                for block in message.blocks
                if isinstance(block, ToolCallBlock)
            ]
            assert calls == [
                message.additional_kwargs["tool_call_id"]
                for message in shown
                if message.role is MessageRole.TOOL
            ]
            assert shown[1].role is MessageRole.USER
        assert len(memory.unsaved) == 48
    if is_readable:
        memory.get()
        assert (len(memory.get_all()), memory.unsaved) == (51, [])
    engine.close()


def test_a_read_only_store_gives_a_current_view_within_the_limit(
    engine: MemoryEngine, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = create_memory(engine, token_limit=700, recall=False)
    memory.put_messages([user(f"{n}: {LONG}") for n in range(30)])
    with locked(path), caplog.at_level(logging.WARNING, "langmem_tiers"):
        shown = memory.get()
    assert engine.session("u", "s").info().compressed_count == 0
    assert texts(shown)[-1] == f"29: {LONG}"
    assert 1 < len(shown) < 30
    assert count_tokens(memory, shown) <= 700
    assert "could not be compressed this time: StorageBusyError" in caplog.text
    memory.get()
    assert engine.session("u", "s").info().compressed_count > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
async def test_resetting_a_locked_store_raises_and_keeps_the_messages(
    engine: MemoryEngine, path: Path, way: str
) -> None:
    memory = create_memory(engine)
    memory.put_messages([user("one"), user("two")])
    with locked(path):
        operations: list[tuple[str, list[Any]]] = [("set", [[]]), ("reset", []), ("forget", [])]
        for name, args in operations:
            with pytest.raises(StorageBusyError):
                await call_method(memory, way, name, *args)
            assert texts(memory.get_all()) == texts(memory.get()) == ["one", "two"]
        memory.put(user("waits"))
        for name, args in operations[1:]:
            with pytest.raises(StorageBusyError):
                await call_method(memory, way, name, *args)
            assert texts(memory.get_all()) == texts(memory.get()) == ["one", "two", "waits"]
    await call_method(memory, way, "set", [user("one"), user("three")])
    assert texts(memory.get_all()) == ["one", "three"]  # what waited was said before
    assert stored_texts(engine) == ["one", "two", "waits", "three"]
    assert await call_method(memory, way, "forget") == 4


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
async def test_a_list_that_was_set_without_a_store_is_the_conversation(
    engine: MemoryEngine, path: Path, way: str
) -> None:
    memory = create_memory(engine)
    memory.put_messages([user("one"), user("two")])
    with locked(path):
        memory.put(user("waits"))
        await call_method(memory, way, "set", [user("one"), user("three")])
        await call_method(memory, way, "put", user("four"))
        assert (
            texts(memory.get_all())
            == texts(memory.get())
            == texts(memory.unsaved)
            == ["one", "three", "four"]
        )
        await call_method(memory, way, "set", [user("one"), user("five")])
        await call_method(memory, way, "put", user("six"))
        assert texts(memory.get_all()) == texts(memory.get()) == ["one", "five", "six"]
        assert memory.failures >= 4
    await call_method(memory, way, "put", user("seven"))
    assert texts(memory.get_all()) == texts(memory.get()) == ["one", "five", "six", "seven"]
    assert memory.unsaved == []
    stored = stored_texts(engine)  # nothing of what was said on the way is lost
    assert {"one", "two", "waits", "three", "four", "five", "six", "seven"} == set(stored)
    assert stored[-3:] == ["five", "six", "seven"]


def test_unsaved_messages_are_forgotten(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = create_memory(engine)
    memory.put(user("one"))
    restore = fail_writes(engine, monkeypatch, StorageFullError("full"))
    memory.put(user("two"))
    assert memory.forget() == 1
    restore()
    assert memory.get() == memory.get_all() == memory.unsaved == []


@pytest.mark.soak
def test_a_list_that_could_not_replace_its_predecessor_stays_unsaved(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = create_memory(engine, recall=False)
    memory.put_messages([user(f"message {n}") for n in range(6)])
    session = engine.session("u", "s")
    session.compress(session.latest(2)[0].id, "Four messages were counted.")
    restore = fail_writes(engine, monkeypatch, StorageFullError("full"))
    memory.set([user("other"), assistant("list")])
    assert texts(memory.unsaved) == texts(memory.get_all()) == ["other", "list"]
    assert texts(memory.get()) == ["other", "list"]
    restore()
    assert texts(memory.get()) == stored_texts(engine) == ["other", "list"]


def test_a_message_written_despite_an_error_is_stored_once(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = create_memory(engine)
    restore = fail_writes(engine, monkeypatch, StorageUnavailableError("the line broke"), is_written=True)
    memory.put(user("one"))
    memory.put(user("two"))
    restore()
    memory.put(user("three"))
    assert stored_texts(engine) == ["one", "two", "three"]
    assert texts(memory.get_all()) == ["one", "two", "three"]
    assert memory.unsaved == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("of our own making")])
def test_unsaved_messages_survive_an_error_that_ends_the_turn(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    memory = create_memory(engine)
    restore = fail_writes(engine, monkeypatch, StorageFullError("full"))
    memory.put(user("one"))
    restore()
    restore = fail_writes(engine, monkeypatch, error)
    with pytest.raises(type(error)):
        memory.put(user("two"))
    restore()
    memory.put(user("three"))
    assert stored_texts(engine) == ["one", "three"]


def test_no_secret_and_no_text_is_logged(
    engine: MemoryEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    recorder: EventRecorder,
) -> None:
    secret = StorageUnavailableError("postgresql://mara:hunter2@host/db said: my code is 4711")
    memory = create_memory(engine)
    fail_writes(engine, monkeypatch, secret)
    with caplog.at_level(logging.DEBUG):
        memory.put(user("my code is 4711"))
        memory.get()
        memory.set([user("my code is 4711")])
        memory.get()
        memory.get_all()
    own_records = [record for record in caplog.records if record.name.startswith("langmem_tiers")]
    assert len(own_records) >= 4
    assert not any(
        "hunter2" in record.getMessage() or "4711" in record.getMessage() for record in own_records
    )
    assert not any(
        "hunter2" in str(event) or "4711" in str(event) for event in recorder.list_events(MemoryFailedEvent)
    )


def test_unsaved_messages_belong_to_one_conversation_of_one_engine(engine: MemoryEngine, path: Path) -> None:
    with locked(path):
        create_memory(engine).put(user("mine"))
    assert create_memory(engine, "other").get_all() == []
    assert create_memory(engine, "s", "v").get_all() == []
    assert create_memory(engine, "s", None).get_all() == []
    with MemoryEngine(path) as another:
        assert create_memory(another).get_all() == create_memory(another).unsaved == []
    assert texts(create_memory(engine).get()) == ["mine"]


def test_with_a_failing_embedder_recall_uses_words() -> None:
    class Broken(HashEmbedder):
        def embed_query(self, text: str) -> Any:
            raise ConnectionError("the embedder is not there")

    with MemoryEngine(embedder=Broken()) as engine:
        create_memory(engine, "past").put(user(CAT))
        memory = create_memory(engine)
        memory.put(user(ASK))
        assert "Pixel" in str(memory.get())
        assert memory.failures == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_engine_raises_on_every_call(engine: MemoryEngine, path: Path, way: str) -> None:
    memory = create_memory(engine)
    with locked(path):
        memory.put(user("one"))
    engine.close()
    calls: list[tuple[str, list[Any]]] = [
        ("put", [user("two")]),
        ("put_messages", [[user("two")]]),
        ("get", []),
        ("get_all", []),
        ("set", [[user("two")]]),
        ("reset", []),
        ("forget", []),
    ]
    for name, args in calls:
        with pytest.raises(EngineClosedError, match="open a new MemoryEngine"):
            await call_method(memory, way, name, *args)
    assert texts(memory.unsaved) == ["one"]


def test_forgotten_unsaved_messages_are_not_stored_by_a_later_view(engine: MemoryEngine, path: Path) -> None:
    memory = create_memory(engine)
    memory.put(user("one"))
    with locked(path):
        memory.set([user("secret")])
        memory.put(user("secret too"))
    assert memory.forget() == 1
    assert memory.unsaved == memory.get() == memory.get_all() == []
    assert engine.namespace("u").search("secret") == ()


@pytest.mark.soak
def test_concurrent_sets_and_views_do_not_deadlock(engine: MemoryEngine) -> None:
    memory = create_memory(engine)
    numbers = iter(range(4))

    def work() -> None:
        number = next(numbers)
        for n in range(40):
            if number % 2:
                memory.set([user(f"{number} says {n}")])
            else:
                assert len(memory.get()) <= 1

    run_in_threads(4, work)
    assert len(memory.get_all()) == 1


THREADS, EACH = 6, 12


@pytest.mark.soak
def test_threads_that_share_one_conversation_lose_nothing(engine: MemoryEngine) -> None:
    numbers = iter(range(THREADS))

    def run_conversation() -> None:
        name, memory = next(numbers), create_memory(engine)
        for n in range(EACH):
            memory.put_messages([user(f"{name} asks {n}"), assistant(f"{name} answers {n}")])
            for shown in (memory.get(), memory.get_all()):
                assert f"{name} asks {n}" in str(shown)
                assert f"{name} answers {n}" in texts(shown)

    run_in_threads(THREADS, run_conversation)  # some writes wait, for the store is given little time
    memory = create_memory(engine)
    memory.get()
    stored = texts(memory.get_all())
    assert (len(stored), len(set(stored))) == (2 * THREADS * EACH, 2 * THREADS * EACH)
    for name in range(THREADS):
        own_texts = [text for text in stored if str(text).startswith(f"{name} ")]
        assert own_texts == [f"{name} {does} {n}" for n in range(EACH) for does in ("asks", "answers")]


def test_parallel_writers_lose_nothing_while_the_store_fails_intermittently(
    engine: MemoryEngine, path: Path
) -> None:
    def write(name: str) -> None:
        memory = create_memory(engine)
        for n in range(EACH):
            memory.put(user(f"{name} {n}"))
            memory.get()

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        with locked(path):
            threads[0].join(0.1)
    for thread in threads:
        thread.join()
    memory = create_memory(engine)
    memory.put(user("last"))
    stored = texts(memory.get_all())
    assert sorted(map(str, stored)) == sorted(
        ["last", *(f"w{n} {count}" for n in range(3) for count in range(EACH))]
    )
    assert len(stored_texts(engine)) == 3 * EACH + 1


def test_conversations_in_threads_do_not_mix(engine: MemoryEngine) -> None:
    numbers = iter(range(THREADS))

    def run_conversation() -> None:
        name = next(numbers)
        memory: TieredMemory = create_memory(engine, f"s{name}", f"u{name}")
        for n in range(5):
            memory.put(user(f"{name} {n}"))
            assert texts(memory.get()) == [f"{name} {before}" for before in range(n + 1)]

    run_in_threads(THREADS, run_conversation)
