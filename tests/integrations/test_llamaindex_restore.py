"""Serializing and restoring a TieredMemory."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import InvalidInputError, MemoryEngine, StorageUnavailableError
from langmem_tiers.testing import HashEmbedder
from langmem_tiers.testing.threads import run_in_threads
from tests.integrations.test_llamaindex_memory import ASK, CAT, create_memory, texts, user
from tests.waiting import LIMIT_SECONDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from workflows import Context
    from workflows.context.serializers import JsonSerializer

    from langmem_tiers_llamaindex import TieredMemory, attach

if TYPE_CHECKING:
    from collections.abc import Callable

SERIALIZERS: dict[str, Callable[[TieredMemory], TieredMemory]] = {
    "dict": lambda memory: TieredMemory.from_dict(json.loads(json.dumps(memory.to_dict()))),
    "string": lambda memory: TieredMemory.from_string(memory.to_string()),
    "json": lambda memory: TieredMemory.from_json(memory.to_json()),
    "pickle": lambda memory: pickle.loads(pickle.dumps(memory)),  # noqa: S301 - our own
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda memory: memory.model_copy(deep=True),
    "context": lambda memory: JsonSerializer().deserialize(JsonSerializer().serialize(memory)),
    "init": lambda memory: TieredMemory(**memory.to_dict()),
}


def same_settings(first: TieredMemory, second: TieredMemory) -> bool:
    return first.to_dict() == second.to_dict()


@pytest.mark.parametrize("way", SERIALIZERS)
@pytest.mark.parametrize("user_id", ["mara", None])
def test_a_restored_memory_is_the_same_conversation_on_the_same_engine(way: str, user_id: str | None) -> None:
    with MemoryEngine() as engine:  # in memory: nothing else could open it
        memory = create_memory(
            engine, "s \0 ünï", user_id, token_limit=777, insert_method="user", recall=False
        )
        memory.put(user("one"))
        again = SERIALIZERS[way](memory)
        assert (again is memory) == (way == "deepcopy")  # a copy of an agent's state has the same memory
        assert again.engine is engine
        assert same_settings(again, memory)
        again.put(user("two"))
        memory.put(user("three"))
        assert texts(again.get_all()) == texts(memory.get_all()) == ["one", "two", "three"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", SERIALIZERS)
def test_a_restored_memory_continues_the_turn(way: str) -> None:
    with MemoryEngine() as engine:
        create_memory(engine, "past").put(user(CAT))
        memory = create_memory(engine)
        memory.put(user(ASK))
        question = memory.get()[-1].blocks[-1]
        assert SERIALIZERS[way](memory).get()[-1].blocks[-1] is question


def test_a_serialized_memory_is_short_json() -> None:
    with MemoryEngine() as engine:
        memory = create_memory(engine, tokenizer_fn=list)
        memory.put_messages([user("secret " * 100)] * 10)
        dump = memory.to_dict()
    assert set(dump) == {
        *("class_name", "session_id", "user_id", "namespace", "token_limit", "insert_method", "recall"),
        "engine_reference",
    }
    assert "secret" not in json.dumps(dump)
    assert len(json.dumps(dump)) < 500
    assert "secret" not in repr(memory)


def test_fields_can_be_overridden_when_restoring(small_file: Path) -> None:
    with MemoryEngine(small_file) as engine:
        dump = create_memory(engine).to_dict()
        other = TieredMemory.from_dict(dump, token_limit=5, session_id="t", tokenizer_fn=list)
        assert (other.token_limit, other.session_id, other.tokenizer_fn) == (5, "t", list)


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


READ = """
import json, sys, warnings
warnings.simplefilter("ignore")
from langmem_tiers_llamaindex import TieredMemory
from llama_index.core.base.llms.types import ChatMessage

memory = TieredMemory.from_string(sys.stdin.read())
memory.put(ChatMessage("from the child"))
print(json.dumps([message.content for message in memory.get_all()]))
"""
CONTEXT = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms.mock import MockFunctionCallingLLM
from workflows import Context

async def main():
    agent = FunctionAgent(tools=[], llm=MockFunctionCallingLLM())
    context = Context.from_dict(agent, json.load(sys.stdin))
    await agent.run(user_msg="from the child", ctx=context)
    memory = await context.store.get("memory")
    print(json.dumps([type(memory).__name__, *(one.content for one in memory.get_all() if one.role == "user")]))

asyncio.run(main())
"""


def run_in_child(code: str, dump: str, folder: Path) -> Any:
    """Run code in another process and folder with the serialized memory as input; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=dump,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.soak
@pytest.mark.parametrize("name", ["memory.db", "with space & ünï %20.db"])
def test_another_process_continues_with_the_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    with MemoryEngine(Path(name)) as engine:  # relative, and the child stands in another folder
        memory = create_memory(engine, user_id="mara")
        memory.put(user("from the parent"))
        dump = memory.to_string()
    assert run_in_child(READ, dump, folder) == ["from the parent", "from the child"]
    assert not list(folder.iterdir())
    again = TieredMemory.from_string(dump)
    assert texts(again.get_all()) == ["from the parent", "from the child"]
    again.engine.close()


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of LlamaIndex's agents
async def test_an_agent_continues_in_another_process(small_file: Path, tmp_path: Path) -> None:
    with MemoryEngine(small_file) as engine:
        agent = FunctionAgent(tools=[], llm=MockFunctionCallingLLM())
        context = Context(agent)
        await agent.run(user_msg="from the parent", memory=create_memory(engine), ctx=context)
        dump = json.dumps(context.to_dict())
    assert run_in_child(CONTEXT, dump, tmp_path) == ["TieredMemory", "from the parent", "from the child"]


@pytest.mark.soak
def test_another_process_continues_with_the_server(shared_postgres: str, tenant: str, tmp_path: Path) -> None:
    with MemoryEngine(shared_postgres) as engine:
        memory = create_memory(engine, user_id=tenant)
        memory.put(user("from the parent"))
        assert run_in_child(READ, memory.to_string(), tmp_path) == ["from the parent", "from the child"]
        assert texts(memory.get_all()) == ["from the parent", "from the child"]


def test_no_password_is_serialized_or_shown(shared_postgres: str, tenant: str) -> None:
    # The test server lets anybody in, so that a URL with a password opens as well as one without.
    url = shared_postgres.replace("://postgres:@", "://postgres:hunter2%40@", 1)
    assert "hunter2" in url
    with MemoryEngine(url) as engine:
        memory = create_memory(engine, user_id=tenant)
        memory.put(user("one"))
        dumps = [memory.to_string(), memory.to_json(), repr(memory), str(memory), repr(pickle.dumps(memory))]
        assert not any("hunter2" in text for text in dumps)
        again = TieredMemory.from_string(memory.to_string())
        assert again.engine is engine
    with TieredMemory.from_string(dumps[0]).engine as reopened:
        assert reopened is not engine
        assert texts(create_memory(reopened, user_id=tenant).get_all()) == ["one"]


def test_a_missing_file_raises_and_is_not_replaced_by_an_empty_memory(small_file: Path) -> None:
    with MemoryEngine(small_file) as engine:
        create_memory(engine).put(user("one"))
        dump = create_memory(engine).to_string()
    del engine
    gc.collect()
    for path in small_file.parent.iterdir():
        path.unlink()
    for _ in range(2):
        with pytest.raises(
            StorageUnavailableError, match=r"memory.db' of this memory does not exist: restore"
        ):
            TieredMemory.from_string(dump)
        assert not small_file.exists()
    small_file.touch()  # what is left when a disk was full
    with pytest.raises(StorageUnavailableError, match="of this memory does not exist"):
        TieredMemory.from_string(dump)
    assert small_file.stat().st_size == 0
    small_file.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageUnavailableError, match=r"cannot be opened \(StorageCorruptError"):
        TieredMemory.from_string(dump)
    small_file.unlink()
    small_file.mkdir()
    with pytest.raises(StorageUnavailableError):
        TieredMemory.from_string(dump)


def test_a_new_database_at_the_same_path_is_rejected(
    small_file: Path,
) -> None:
    with MemoryEngine(small_file) as engine:
        memory = create_memory(engine)
        memory.put(user("one"))
        dump = memory.to_string()
    for path in small_file.parent.glob(f"{small_file.name}*"):
        path.unlink()
    with MemoryEngine(small_file) as replacement:  # as an app does when it starts
        attach(replacement)
        with pytest.raises(InvalidInputError, match="is not the database of this memory"):
            TieredMemory.from_string(dump)
    with pytest.raises(InvalidInputError, match="is not the database of this memory"):
        TieredMemory.from_string(dump)


def test_a_moved_database_is_found_after_attach(small_file: Path, tmp_path: Path) -> None:
    with MemoryEngine(small_file) as engine:
        memory = create_memory(engine)
        memory.put(user("one"))
        dump = memory.to_string()
    moved = small_file.rename(tmp_path / "moved.db")
    with pytest.raises(StorageUnavailableError, match="of this memory does not exist"):
        TieredMemory.from_string(dump)
    with MemoryEngine(moved) as engine:
        attach(engine)
        again = TieredMemory.from_string(dump)
        assert again.engine is engine
        assert texts(again.get_all()) == ["one"]


def test_the_error_of_an_unreachable_server_does_not_contain_its_password(tmp_path: Path) -> None:
    reference = {"name": "x", "url": f"postgresql://mara:hunter2@/none?host={tmp_path}"}
    with pytest.raises(StorageUnavailableError, match="call langmem_tiers_llamaindex.attach") as caught:
        TieredMemory(session_id="s", engine_reference=reference)
    assert "hunter2" not in str(caught.value)
    assert "passwords are never serialized" in str(caught.value)


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_restoring_a_memory_of_a_closed_in_memory_engine_raises(way: str) -> None:
    engine = MemoryEngine()
    memory = create_memory(engine)
    memory.put(user("one"))
    dump = memory.to_string()
    engine.close()
    if way == "dropped":
        del engine, memory
        gc.collect()
    with pytest.raises(InvalidInputError, match="the engine of this memory no longer exists"):
        TieredMemory.from_string(dump)
    with MemoryEngine() as other:
        attach(other)  # another one in memory is another memory
        with pytest.raises(InvalidInputError, match="no longer exists"):
            TieredMemory.from_string(dump)


def test_a_closed_engine_on_a_file_is_opened_again_and_shared(small_file: Path) -> None:
    with MemoryEngine(small_file) as engine:
        create_memory(engine).put(user("one"))
        dump = create_memory(engine).to_string()
    first, second = TieredMemory.from_string(dump), TieredMemory.from_string(dump)
    assert first.engine is second.engine is not engine
    assert texts(second.get_all()) == ["one"]
    second.put(user("two"))
    assert texts(first.get_all()) == ["one", "two"]
    first.engine.close()


def test_an_attached_engine_is_found_by_its_database(small_file: Path) -> None:
    with MemoryEngine(small_file) as first:
        create_memory(first).put(user("one"))
        dump = create_memory(first).to_string()
    with MemoryEngine(small_file, embedder=HashEmbedder()) as attached:
        assert attach(attached) is attached
        again = TieredMemory.from_string(dump)
        assert again.engine is attached
        assert texts(again.get_all()) == ["one"]
    with pytest.raises(InvalidInputError, match="expected a MemoryEngine"):
        attach("sqlite://")  # type: ignore[arg-type]


def test_a_passed_engine_takes_precedence(small_file: Path) -> None:
    with MemoryEngine() as former:
        dump = create_memory(former).to_dict()
    with MemoryEngine(small_file) as passed:
        again = TieredMemory.from_dict(dump, engine=passed)
        assert again.engine is passed
        assert again.to_dict()["engine_reference"] != dump["engine_reference"]


def test_the_serializing_engine_takes_precedence_over_others_on_the_same_database(small_file: Path) -> None:
    with MemoryEngine(small_file) as first, MemoryEngine(small_file) as second:
        dump = create_memory(first).to_dict()
        attach(second)
        assert TieredMemory.from_dict(dump).engine is first
        first.close()
        assert TieredMemory.from_dict(dump).engine is second


@pytest.mark.soak
def test_unused_engines_are_garbage_collected() -> None:
    import weakref

    engine = MemoryEngine()
    memory = create_memory(engine)
    memory.put(user("one"))
    memory.get()
    engine.close()
    watched = weakref.ref(engine)
    del engine, memory
    gc.collect()
    assert watched() is None


def test_threads_restore_a_memory_concurrently(small_file: Path) -> None:
    with MemoryEngine(small_file) as engine:
        create_memory(engine).put(user("one"))
        dump = create_memory(engine).to_string()
    opened: list[TieredMemory] = []
    run_in_threads(6, lambda: opened.append(TieredMemory.from_string(dump)))
    assert [texts(memory.get_all()) for memory in opened] == [["one"]] * 6
    for memory in opened:
        memory.engine.close()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"engine_reference": None}, "needs an engine"),
        ({"engine_reference": {}}, "needs an engine"),
        ({"engine_reference": "sqlite://"}, "invalid engine_reference"),
        ({"engine_reference": ["name"]}, "invalid engine_reference"),
        ({"engine_reference": {"url": None}}, "invalid engine_reference"),
        ({"engine_reference": {"name": 5, "url": None}}, "invalid engine_reference"),
        ({"engine_reference": {"name": "x", "url": 5}}, "invalid engine_reference"),
        ({"engine_reference": {"name": "x", "url": None}}, "no longer exists"),
        ({"engine_reference": {"name": "x", "url": "sqlite://"}}, "invalid engine_reference"),
        ({"engine_reference": {"name": "x", "url": "sqlite:///:memory:"}}, "does not exist"),
        ({"engine_reference": {"name": "x", "url": "sqlite:///file::memory:?uri=true"}}, "does not exist"),
        (
            {"engine_reference": {"name": "x", "url": "sqlite+pysqlite:///{folder}/new.db"}},
            "invalid engine_reference",
        ),
        ({"engine_reference": {"name": "x", "url": "sqlite:///{folder}/new.db"}}, "does not exist"),
        (
            {"engine_reference": {"name": "x", "url": "sqlite:///file:{folder}/it.db?mode=memory&uri=true"}},
            "in memory",
        ),
        ({"engine_reference": {"name": "x", "url": "mysql://root@localhost/x"}}, "invalid engine_reference"),
        ({"engine_reference": {"name": "x", "url": "postgresql://"}}, "cannot be opened"),
        ({"engine_reference": {"name": "x", "url": ""}}, "invalid engine_reference"),
        ({"session_id": ""}, "must not be empty"),
        ({"session_id": None}, "session_id"),
        ({"namespace": ["other"]}, "expected user_id or namespace"),
        ({"namespace": "u"}, "namespace"),
        ({"namespace": [5]}, "namespace"),
        ({"token_limit": "30000"}, "token_limit"),
        ({"token_limit": 0}, "token_limit"),
        ({"insert_method": "assistant"}, "insert_method"),
        ({"messages": []}, "Extra inputs"),
    ],
    ids=str,
)
def test_a_tampered_dict_raises_and_creates_no_memory(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    (tmp_path / "it.db").write_bytes(b"x")
    with MemoryEngine() as engine:
        dump = json.loads(
            json.dumps({**create_memory(engine).to_dict(), **change}).replace("{folder}", str(tmp_path))
        )
        with pytest.raises((ValueError, StorageUnavailableError), match=words):
            TieredMemory.from_dict(dump)
    assert [path.name for path in tmp_path.iterdir()] == ["it.db"]


@pytest.mark.parametrize("text", ["", "[]", "null", "5", '"x"', "{}", '{"session_id": "s"}'])
def test_an_invalid_serialized_text_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        TieredMemory.from_string(text)


def test_names_with_lone_surrogates_are_restored() -> None:
    with MemoryEngine() as engine:
        memory = create_memory(engine, f"{uuid.uuid4()}\ud800", "\udfff")
        memory.put(user("one"))
        assert texts(TieredMemory.from_string(memory.to_string()).get_all()) == ["one"]
