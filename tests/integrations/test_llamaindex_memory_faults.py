"""A store that fails: the turn goes on, and nothing that was said is lost."""

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
    Kept,
    Seen,
    assistant,
    call,
    do,
    kept,
    memory_of,
    result,
    system,
    texts,
    tokens_of,
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

__all__ = ["kept"]  # a fixture


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def engine(path: Path) -> Iterator[MemoryEngine]:
    with MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.05), embedder=None) as opened:
        opened.session("u", "s")
        yield opened


def record(engine: MemoryEngine, session: str = "s") -> list[str]:
    return [message.content for message in engine.session("u", session).messages()]


def failing(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, error: BaseException, *, is_written: bool = False
) -> Callable[[], None]:
    """Let writes of messages fail, perhaps after they were written; call it to let them succeed again."""
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
async def test_what_cannot_be_stored_is_kept_shown_and_stored_with_the_next_message(
    engine: MemoryEngine, path: Path, way: str, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    memory = memory_of(engine)
    await do(memory, way, "put", user("one"))
    with locked(path), caplog.at_level(logging.WARNING, "langmem_tiers"):
        await do(memory, way, "put_messages", [user("two"), assistant("three")])
        assert texts(memory_of(engine).unsaved) == ["two", "three"]
        assert texts(await do(memory, way, "get")) == ["one", "two", "three"]
        assert texts(await do(memory, way, "get_all")) == ["one", "two", "three"]
        await do(memory, way, "put", user("four"))
        assert texts(await do(memory_of(engine), way, "get")) == ["one", "two", "three", "four"]
    assert (
        "the conversation 's' continues without its store: StorageBusyError, 2 messages are pending"
        in caplog.text
    )
    assert "two" not in caplog.text
    failed = kept.of(MemoryFailedEvent)
    assert {(event.error, event.session_id) for event in failed} == {("StorageBusyError", "s")}
    assert [event.waiting for event in failed] == [2, 2, 3, 3]
    assert (record(engine), memory.failures) == (["one"], 4)
    await do(memory, way, "put", user("five"))
    assert record(engine) == ["one", "two", "three", "four", "five"]
    assert texts(memory.get_all()) == texts(memory.get()) == ["one", "two", "three", "four", "five"]
    assert (memory.unsaved, memory.failures) == ([], 4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("insert", INSERTS)
def test_a_question_that_waits_is_answered_with_memory(engine: MemoryEngine, path: Path, insert: str) -> None:
    memory_of(engine, "past").put(user(CAT))
    memory = memory_of(engine, insert_method=insert)
    memory.put_messages([system("Be brief."), user("Hello."), assistant("Hi.")])
    with locked(path):
        memory.put(user(ASK))
        for asked in (None, ASK):
            shown = memory.get(asked)
            assert "Pixel" in str(shown)
            assert shown[-1].blocks[-1] == TextBlock(text=ASK)
            assert shown[0].blocks[0] == TextBlock(text="Be brief.")
        assert texts(memory.get_all()) == ["Be brief.", "Hello.", "Hi.", ASK]
    assert memory.get()[-1].blocks[-1] == TextBlock(text=ASK)
    assert record(engine) == ["Be brief.", "Hello.", "Hi.", ASK]


def test_a_chat_engine_goes_on_while_the_store_fails_and_loses_no_turn(
    engine: MemoryEngine, path: Path
) -> None:
    llm = Seen(is_chat_model=True)
    chat = SimpleChatEngine.from_defaults(llm=llm, memory=memory_of(engine), system_prompt="Be brief.")
    chat.chat("one")
    with locked(path):
        chat.chat("two")
        assert texts(llm.seen[-1]) == ["Be brief.", "one", "Well.", "two"]
        chat.chat("three")
        assert texts(llm.seen[-1]) == ["Be brief.", "one", "Well.", "two", "Well.", "three"]
    chat.chat("four")
    said = ["one", "Well.", "two", "Well.", "three", "Well.", "four", "Well."]
    assert texts(chat.chat_history) == record(engine) == said


def away(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no session be found any more."""

    def broken(*_: Any) -> Any:
        raise StorageUnavailableError("the server is away")

    monkeypatch.setattr(engine._services.short_term.sessions, "get_or_create", broken)


@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_cannot_be_read_gives_what_is_held(
    engine: MemoryEngine,
    way: str,
    kept: Kept,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory_of(engine, "past").put(user(CAT))
    memory = memory_of(engine)
    memory.put_messages([system("Be brief."), user(ASK)])
    assert "Pixel" in str(memory.get())
    memory.put_messages([call(1, of="cat"), result(1, "Pixel"), assistant("Pixel.")])
    away(engine, monkeypatch)
    with caplog.at_level(logging.WARNING, "langmem_tiers"):
        await do(memory, way, "put", user("And {query_str}?"))
        shown = await do(memory, way, "get")
    assert [one.role.value for one in shown] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert "called Pixel" in str(shown)  # as it was shown last
    assert {event.error for event in kept.of(MemoryFailedEvent)} == {"StorageUnavailableError"}
    assert texts(memory.unsaved) == ["And {query_str}?"]
    with pytest.raises(StorageUnavailableError):  # what is held is a part, which must not be taken for all
        await do(memory_of(engine), way, "get_all")
    again = memory_of(engine, "never seen")
    assert (again.get(), again.get("x")) == ([], [])
    again.put(user("heard"))
    assert texts(again.get()) == ["heard"]


def test_what_was_stored_and_never_shown_is_held_as_well(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, other = memory_of(engine), memory_of(engine, "other")
    memory.put(user("one"))
    other.set([user("one"), assistant("two")])
    away(engine, monkeypatch)
    assert memory.get() == [user("one")]
    assert other.get() == [user("one"), assistant("two")]


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_readable", [True, False])
def test_the_limit_holds_however_much_waits(
    path: Path, is_readable: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.01), embedder=None)
    memory = memory_of(engine, token_limit=600)
    memory.put_messages([system("Be brief."), user("Hello."), assistant("Hi.")])
    memory.get()
    if not is_readable:
        away(engine, monkeypatch)
    with locked(path):
        for n in range(12):
            memory.put_messages([user(f"{n}: {LONG}"), call(n, of="x"), result(n, LONG), user(f"And {n}?")])
            shown = memory.get()
            assert tokens_of(memory, shown) <= 600
            assert texts(shown)[-1] == f"And {n}?"
            assert shown[0].blocks[0] == TextBlock(text="Be brief.")
            calls = [
                block.tool_call_id
                for one in shown
                for block in one.blocks
                if isinstance(block, ToolCallBlock)
            ]
            assert calls == [
                one.additional_kwargs["tool_call_id"] for one in shown if one.role is MessageRole.TOOL
            ]
            assert shown[1].role is MessageRole.USER
        assert len(memory.unsaved) == 48
    if is_readable:
        memory.get()
        assert (len(memory.get_all()), memory.unsaved) == (51, [])
    engine.close()


def test_a_store_that_can_only_be_read_gives_a_fresh_view_within_the_limit(
    engine: MemoryEngine, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = memory_of(engine, token_limit=700, recall=False)
    memory.put_messages([user(f"{n}: {LONG}") for n in range(30)])
    with locked(path), caplog.at_level(logging.WARNING, "langmem_tiers"):
        shown = memory.get()
    assert engine.session("u", "s").info().compressed_count == 0
    assert texts(shown)[-1] == f"29: {LONG}"
    assert 1 < len(shown) < 30
    assert tokens_of(memory, shown) <= 700
    assert "could not be compressed this time: StorageBusyError" in caplog.text
    memory.get()
    assert engine.session("u", "s").info().compressed_count > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
async def test_what_cannot_be_begun_anew_or_erased_says_so_and_stays(
    engine: MemoryEngine, path: Path, way: str
) -> None:
    memory = memory_of(engine)
    memory.put_messages([user("one"), user("two")])
    with locked(path):
        wishes: list[tuple[str, list[Any]]] = [("set", [[]]), ("reset", []), ("forget", [])]
        for name, args in wishes:
            with pytest.raises(StorageBusyError):
                await do(memory, way, name, *args)
            assert texts(memory.get_all()) == texts(memory.get()) == ["one", "two"]
        memory.put(user("waits"))
        for name, args in wishes[1:]:
            with pytest.raises(StorageBusyError):
                await do(memory, way, name, *args)
            assert texts(memory.get_all()) == texts(memory.get()) == ["one", "two", "waits"]
    await do(memory, way, "set", [user("one"), user("three")])
    assert texts(memory.get_all()) == ["one", "three"]  # what waited was said before
    assert record(engine) == ["one", "two", "waits", "three"]
    assert await do(memory, way, "forget") == 4


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
async def test_a_list_that_cannot_be_put_in_place_of_another_is_the_conversation_all_the_same(
    engine: MemoryEngine, path: Path, way: str
) -> None:
    memory = memory_of(engine)
    memory.put_messages([user("one"), user("two")])
    with locked(path):
        memory.put(user("waits"))
        await do(memory, way, "set", [user("one"), user("three")])
        await do(memory, way, "put", user("four"))
        assert (
            texts(memory.get_all())
            == texts(memory.get())
            == texts(memory.unsaved)
            == ["one", "three", "four"]
        )
        await do(memory, way, "set", [user("one"), user("five")])
        await do(memory, way, "put", user("six"))
        assert texts(memory.get_all()) == texts(memory.get()) == ["one", "five", "six"]
        assert memory.failures >= 4
    await do(memory, way, "put", user("seven"))
    assert texts(memory.get_all()) == texts(memory.get()) == ["one", "five", "six", "seven"]
    assert memory.unsaved == []
    said = record(engine)  # nothing of what was said on the way is lost
    assert {"one", "two", "waits", "three", "four", "five", "six", "seven"} == set(said)
    assert said[-3:] == ["five", "six", "seven"]


def test_what_waits_is_forgotten_too(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_of(engine)
    memory.put(user("one"))
    mend = failing(engine, monkeypatch, StorageFullError("full"))
    memory.put(user("two"))
    assert memory.forget() == 1
    mend()
    assert memory.get() == memory.get_all() == memory.unsaved == []


@pytest.mark.soak
def test_a_list_that_cannot_be_written_after_its_former_was_set_aside_waits(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of(engine, recall=False)
    memory.put_messages([user(f"message {n}") for n in range(6)])
    session = engine.session("u", "s")
    session.compress(session.latest(2)[0].id, "Four messages were counted.")
    mend = failing(engine, monkeypatch, StorageFullError("full"))
    memory.set([user("other"), assistant("list")])
    assert texts(memory.unsaved) == texts(memory.get_all()) == ["other", "list"]
    assert texts(memory.get()) == ["other", "list"]
    mend()
    assert texts(memory.get()) == record(engine) == ["other", "list"]


def test_what_was_written_although_the_store_said_otherwise_is_there_once(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of(engine)
    mend = failing(engine, monkeypatch, StorageUnavailableError("the line broke"), is_written=True)
    memory.put(user("one"))
    memory.put(user("two"))
    mend()
    memory.put(user("three"))
    assert record(engine) == ["one", "two", "three"]
    assert texts(memory.get_all()) == ["one", "two", "three"]
    assert memory.unsaved == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("of our own making")])
def test_what_waits_is_not_lost_to_an_error_that_ends_the_turn(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    memory = memory_of(engine)
    mend = failing(engine, monkeypatch, StorageFullError("full"))
    memory.put(user("one"))
    mend()
    mend = failing(engine, monkeypatch, error)
    with pytest.raises(type(error)):
        memory.put(user("two"))
    mend()
    memory.put(user("three"))
    assert record(engine) == ["one", "three"]


def test_no_secret_and_no_text_is_logged(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kept: Kept
) -> None:
    secret = StorageUnavailableError("postgresql://mara:hunter2@host/db said: my code is 4711")
    memory = memory_of(engine)
    failing(engine, monkeypatch, secret)
    with caplog.at_level(logging.DEBUG):
        memory.put(user("my code is 4711"))
        memory.get()
        memory.set([user("my code is 4711")])
        memory.get()
        memory.get_all()
    ours = [one for one in caplog.records if one.name.startswith("langmem_tiers")]
    assert len(ours) >= 4
    assert not any("hunter2" in one.getMessage() or "4711" in one.getMessage() for one in ours)
    assert not any("hunter2" in str(event) or "4711" in str(event) for event in kept.of(MemoryFailedEvent))


def test_what_waits_belongs_to_one_conversation_of_one_engine(engine: MemoryEngine, path: Path) -> None:
    with locked(path):
        memory_of(engine).put(user("mine"))
    assert memory_of(engine, "other").get_all() == []
    assert memory_of(engine, "s", "v").get_all() == []
    assert memory_of(engine, "s", None).get_all() == []
    with MemoryEngine(path) as another:
        assert memory_of(another).get_all() == memory_of(another).unsaved == []
    assert texts(memory_of(engine).get()) == ["mine"]


def test_an_embedder_that_fails_leaves_recall_by_words() -> None:
    class Broken(HashEmbedder):
        def embed_query(self, text: str) -> Any:
            raise ConnectionError("the embedder is not there")

    with MemoryEngine(embedder=Broken()) as engine:
        memory_of(engine, "past").put(user(CAT))
        memory = memory_of(engine)
        memory.put(user(ASK))
        assert "Pixel" in str(memory.get())
        assert memory.failures == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_engine_says_so_because_what_waits_for_it_would_wait_for_ever(
    engine: MemoryEngine, path: Path, way: str
) -> None:
    memory = memory_of(engine)
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
            await do(memory, way, name, *args)
    assert texts(memory.unsaved) == ["one"]


def test_what_waits_is_not_stored_again_by_a_view_while_it_is_forgotten(
    engine: MemoryEngine, path: Path
) -> None:
    memory = memory_of(engine)
    memory.put(user("one"))
    with locked(path):
        memory.set([user("secret")])
        memory.put(user("secret too"))
    assert memory.forget() == 1
    assert memory.unsaved == memory.get() == memory.get_all() == []
    assert engine.namespace("u").search("secret") == ()


@pytest.mark.soak
def test_sets_and_views_at_once_never_wait_for_each_other_for_ever(engine: MemoryEngine) -> None:
    memory = memory_of(engine)
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
def test_threads_that_put_and_get_one_conversation_lose_nothing(engine: MemoryEngine) -> None:
    numbers = iter(range(THREADS))

    def talk() -> None:
        name, memory = next(numbers), memory_of(engine)
        for n in range(EACH):
            memory.put_messages([user(f"{name} asks {n}"), assistant(f"{name} answers {n}")])
            for shown in (memory.get(), memory.get_all()):
                assert f"{name} asks {n}" in str(shown)
                assert f"{name} answers {n}" in texts(shown)

    run_in_threads(THREADS, talk)  # some writes wait, for the store is given little time
    memory = memory_of(engine)
    memory.get()
    said = texts(memory.get_all())
    assert (len(said), len(set(said))) == (2 * THREADS * EACH, 2 * THREADS * EACH)
    for name in range(THREADS):
        mine = [one for one in said if str(one).startswith(f"{name} ")]
        assert mine == [f"{name} {does} {n}" for n in range(EACH) for does in ("asks", "answers")]


def test_writers_in_parallel_lose_nothing_while_the_store_comes_and_goes(
    engine: MemoryEngine, path: Path
) -> None:
    def write(name: str) -> None:
        memory = memory_of(engine)
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
    memory = memory_of(engine)
    memory.put(user("last"))
    said = texts(memory.get_all())
    assert sorted(map(str, said)) == sorted(
        ["last", *(f"w{n} {count}" for n in range(3) for count in range(EACH))]
    )
    assert len(record(engine)) == 3 * EACH + 1


def test_conversations_in_threads_never_mix(engine: MemoryEngine) -> None:
    numbers = iter(range(THREADS))

    def talk() -> None:
        name = next(numbers)
        memory: TieredMemory = memory_of(engine, f"s{name}", f"u{name}")
        for n in range(5):
            memory.put(user(f"{name} {n}"))
            assert texts(memory.get()) == [f"{name} {before}" for before in range(n + 1)]

    run_in_threads(THREADS, talk)
