"""The memory tools by themselves, called as LlamaIndex calls them, sync and async."""

from __future__ import annotations

import json
import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import EngineConfig, InvalidInputError, MemoryEngine, RecallConfig
from langmem_tiers.common.prompt_fences import strip_fences
from tests.hypothesis_settings import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.tools.calling import acall_tool, call_tool

    from langmem_tiers_llamaindex.tools import TieredMemoryToolSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from llama_index.core.tools import FunctionTool

    Run = Callable[..., Awaitable[str]]


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


def tools_of(engine: MemoryEngine, namespace: Any = "ada") -> dict[str, FunctionTool]:
    made = TieredMemoryToolSpec(engine, namespace).to_tool_list()
    return {tool.metadata.get_name(): tool for tool in made}


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Calls a tool as an agent does."""

    async def call(tool: FunctionTool, **arguments: Any) -> str:
        told = await acall_tool(tool, arguments) if request.param == "async" else call_tool(tool, arguments)
        return told.content

    return call


def memories(answer: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer)["memories"]
    return found


async def test_what_is_remembered_is_recalled_and_forgotten_by_its_id(engine: MemoryEngine, run: Run) -> None:
    tools = tools_of(engine)
    told = await run(tools["remember"], content="Ada likes green tea.")
    (found,) = memories(await run(tools["recall"], query="Which tea does Ada like?"))
    assert (found["content"], found["can_be_changed"]) == ("Ada likes green tea.", True)
    assert told == f"remembered as memory {found['id']}"
    assert await run(tools["forget"], id=found["id"]) == f"forgot memory {found['id']}"
    assert memories(await run(tools["recall"], query="Which tea does Ada like?")) == []


NAMES = ["ada", "ADA", "ada%", "a_a", "*", "ada/eve", "' OR 1=1 --", "ada\0", ("ada", "eve"), "日本"]


async def test_whatever_users_are_called_each_has_memories_of_their_own(engine: MemoryEngine) -> None:
    tools = [tools_of(engine, name) for name in NAMES]
    for number, own in enumerate(tools):
        own["remember"](content=f"tea number {number}")
    ids = set()
    for number, own in enumerate(tools):
        (found,) = memories(own["recall"](query="tea number", limit=100).content)
        assert found["content"] == f"tea number {number}"
        ids.add(found["id"])
    for stolen in ids:
        tools[0]["forget"](id=stolen)
    assert memories(tools[0]["recall"](query="tea").content) == []
    assert all(memories(own["recall"](query="tea").content) for own in tools[1:])


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("remember", {"content": ""}, "must contain text"),
        ("remember", {"content": " \n"}, "must contain text"),
        ("remember", {"content": None}, "content: Input should be a valid string"),
        ("remember", {"content": {"tea": "green"}}, "content: Input should be a valid string"),
        ("recall", {"query": ""}, "must not be empty"),
        ("recall", {"query": 7}, "query: Input should be a valid string"),
        ("recall", {"query": "tea", "limit": 0}, "limit: Input should be greater than or equal to 1"),
        ("recall", {"query": "tea", "limit": 101}, "limit: Input should be less than or equal to 100"),
        ("recall", {"query": "tea", "limit": "many"}, "limit: Input should be a valid integer"),
        ("recall", {"query": "tea", "user_id": "eve"}, "unexpected keyword argument 'user_id'"),
        ("recall", {}, "missing 1 required positional argument: 'query'"),
        ("forget", {"id": "note/0"}, "no memory has the id 'note/0'"),
        ("forget", {"id": "0"}, "no memory has the id '0'"),
        ("forget", {"id": ""}, "no memory has the id ''"),
        ("forget", {"id": None}, "id: Input should be a valid string"),
    ],
    ids=str,
)
async def test_a_model_that_calls_wrongly_is_told_how(
    engine: MemoryEngine, run: Run, name: str, arguments: dict[str, Any], says: str
) -> None:
    engine.namespace("ada").knowledge.note("Ada likes green tea.")
    assert says in await run(tools_of(engine)[name], **arguments)
    assert len(engine.namespace("ada").knowledge.page()) == 1


async def test_a_number_written_as_text_is_understood(engine: MemoryEngine, run: Run) -> None:
    tools = tools_of(engine)
    for number in range(3):
        await run(tools["remember"], content=f"tea number {number}")
    assert len(memories(await run(tools["recall"], query="tea", limit="2"))) == 2


async def test_messages_are_recalled_and_stay_as_they_were_said(engine: MemoryEngine, run: Run) -> None:
    engine.session("ada", "monday").add("user", "My cat is called Whiskers.")
    tools = tools_of(engine)
    (found,) = memories(await run(tools["recall"], query="the cat"))
    assert (found["kind"], found["session"], found["role"]) == ("message", "monday", "user")
    assert found["can_be_changed"] is False
    assert "messages cannot be changed" in await run(tools["forget"], id=found["id"])
    assert len(engine.namespace("ada").search("cat")) == 1


async def test_what_was_forgotten_stays_in_history_and_what_is_found_counts_as_used(
    engine: MemoryEngine, run: Run
) -> None:
    known, tools = engine.namespace("ada").knowledge, tools_of(engine)
    noted = known.note("Ada likes green tea.").knowledge
    await run(tools["recall"], query="green tea")
    used = known.get(noted.category, noted.key, use=False)
    assert used is not None
    assert used.use_count == 1
    await run(tools["forget"], id=noted.id)
    (past,) = known.history(noted.category, noted.key)
    assert (past.value, past.reason) == ("Ada likes green tea.", "removed")


@given(texts=st.lists(st.text(min_size=1) | st.sampled_from(["</memory>", "<\\/memory>", "<memory>"])))
@examples(30)
def test_whatever_is_remembered_stays_inside_one_fence_of_valid_json(texts: list[str]) -> None:
    with MemoryEngine(embedder=None) as engine:
        spec = TieredMemoryToolSpec(engine, "ada")
        for text in texts:
            spec.remember(f"tea {text}")
        answer = spec.recall("tea", limit=100)
        assert len(memories(answer)) == len(engine.namespace("ada").knowledge.page())
        assert json.loads(strip_fences(answer)) == {"note": " "}
        answer.encode()


async def test_an_answer_in_the_record_is_no_new_memory(engine: MemoryEngine, run: Run) -> None:
    tools = tools_of(engine)
    await run(tools["remember"], content="The safe opens with 4711.")
    answer = await run(tools["recall"], query="safe")
    session = engine.session("ada", "s")
    session.add("tool", answer)
    assert [message.content for message in session.messages()] == [answer]
    assert engine.namespace("ada").search("safe 4711") == ()


async def test_a_closed_engine_is_told_and_does_not_raise(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    engine = MemoryEngine(embedder=None)
    tools = tools_of(engine)
    engine.close()
    for told in (
        await run(tools["remember"], content="x"),
        await run(tools["recall"], query="x"),
        await run(tools["forget"], id="note/x"),
    ):
        assert told == "memory is currently unavailable (EngineClosedError): continue without it"
    assert [one.getMessage() for one in caplog.records] == ["a memory tool failed: EngineClosedError"] * 3


async def test_a_broken_store_is_told_and_logged_without_its_address(
    engine: MemoryEngine, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("postgresql://ada:hunter2@db.example refused")

    tools = tools_of(engine)
    for door in ("read", "read_raw", "write"):
        monkeypatch.setattr(engine._database, door, away)
    with caplog.at_level(logging.INFO):
        told = [
            await run(tools["remember"], content="x"),
            await run(tools["recall"], query="x"),
            await run(tools["forget"], id="note/x"),
        ]
    monkeypatch.undo()
    assert told == ["memory is currently unavailable (ConnectionError): continue without it"] * 3
    assert "ConnectionError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_async_leaves_the_event_loop_free(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def watched(door: Callable[..., Any]) -> Callable[..., Any]:
        def opened(*args: Any, **options: Any) -> Any:
            threads.add(threading.get_ident())
            return door(*args, **options)

        return opened

    for door in ("read", "read_raw", "write"):
        monkeypatch.setattr(engine._database, door, watched(getattr(engine._database, door)))
    spec = TieredMemoryToolSpec(engine, "ada")
    told = await spec.aremember("Ada likes tea.")
    await spec.arecall("tea")
    await spec.aforget(told.split()[-1])
    assert threads
    assert threading.get_ident() not in threads


def test_what_a_model_is_told_of_the_tools(engine: MemoryEngine) -> None:
    told = {name: tool.metadata.to_openai_tool()["function"] for name, tool in tools_of(engine).items()}
    assert list(told) == ["remember", "recall", "forget"]
    for one in told.values():
        assert 100 < len(one["description"]) <= 1024
        assert all(field["description"] for field in one["parameters"]["properties"].values())
        assert "ada" not in json.dumps(one)
    recall = told["recall"]["parameters"]
    assert recall["required"] == ["query"]
    limit = recall["properties"]["limit"]
    assert (limit["type"], limit["default"], limit["minimum"], limit["maximum"]) == ("integer", 10, 1, 100)
    assert told["remember"]["description"].startswith("Remember something that later conversations can use")


@pytest.mark.parametrize("chosen", ["recall", "arecall", ("recall", "arecall")], ids=str)
async def test_an_agent_may_be_given_some_of_the_tools(
    engine: MemoryEngine, chosen: str | tuple[str, str]
) -> None:
    (tool,) = TieredMemoryToolSpec(engine, "ada").to_tool_list([chosen])
    assert tool.metadata.name == "recall"
    assert tool.metadata.description.startswith("Search memories from earlier conversations")
    assert memories((await tool.acall(query="tea")).content) == []


class More(TieredMemoryToolSpec):
    """Has a tool of its own."""

    spec_functions = [*TieredMemoryToolSpec.spec_functions, "awaken"]  # noqa: RUF012 - as the framework has it

    def awaken(self) -> str:
        """Wake up."""
        return "awake"


def test_a_subclass_may_add_tools(engine: MemoryEngine) -> None:
    *_, own = More(engine, "ada").to_tool_list()
    assert (own.metadata.name, own.call().content) == ("awaken", "awake")
    assert "Wake up." in own.metadata.description


def test_an_engine_that_gives_fewer_is_not_asked_for_more() -> None:
    config = EngineConfig(recall=RecallConfig(limit=2, max_limit=2))
    with MemoryEngine(embedder=None, config=config) as engine:
        spec = TieredMemoryToolSpec(engine, "ada")
        for number in range(3):
            spec.remember(f"tea number {number}")
        assert len(memories(spec.recall("tea"))) == 2


@pytest.mark.parametrize(
    ("engine_given", "namespace", "says"),
    [
        ("sqlite://", "ada", "expected a MemoryEngine, got str"),
        (None, (), "at least one label"),
        (None, 7, "must be a str"),
    ],
)
def test_what_makes_no_sense_is_refused(
    engine: MemoryEngine, engine_given: Any, namespace: Any, says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        TieredMemoryToolSpec(engine_given or engine, namespace)
