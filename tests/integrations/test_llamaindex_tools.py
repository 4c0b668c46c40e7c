"""The LlamaIndex memory tools, sync and async."""

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


def build_tools(engine: MemoryEngine, namespace: Any = "ada") -> dict[str, FunctionTool]:
    tools = TieredMemoryToolSpec(engine, namespace).to_tool_list()
    return {tool.metadata.get_name(): tool for tool in tools}


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Function that calls a tool like an agent."""

    async def call(tool: FunctionTool, **arguments: Any) -> str:
        answer = await acall_tool(tool, arguments) if request.param == "async" else call_tool(tool, arguments)
        return answer.content

    return call


def memories(answer: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer)["memories"]
    return found


async def test_a_remembered_text_is_recalled_and_forgotten_by_its_id(engine: MemoryEngine, run: Run) -> None:
    tools = build_tools(engine)
    answer = await run(tools["remember"], content="Ada likes green tea.")
    (found,) = memories(await run(tools["recall"], query="Which tea does Ada like?"))
    assert (found["content"], found["can_be_changed"]) == ("Ada likes green tea.", True)
    assert answer == f"remembered as memory {found['id']}"
    assert await run(tools["forget"], id=found["id"]) == f"forgot memory {found['id']}"
    assert memories(await run(tools["recall"], query="Which tea does Ada like?")) == []


NAMES = ["ada", "ADA", "ada%", "a_a", "*", "ada/eve", "' OR 1=1 --", "ada\0", ("ada", "eve"), "日本"]


async def test_users_with_hostile_names_have_separate_memories(engine: MemoryEngine) -> None:
    tools = [build_tools(engine, name) for name in NAMES]
    for number, tools_of_user in enumerate(tools):
        tools_of_user["remember"](content=f"tea number {number}")
    ids = set()
    for number, tools_of_user in enumerate(tools):
        (found,) = memories(tools_of_user["recall"](query="tea number", limit=100).content)
        assert found["content"] == f"tea number {number}"
        ids.add(found["id"])
    for memory_id in ids:
        tools[0]["forget"](id=memory_id)
    assert memories(tools[0]["recall"](query="tea").content) == []
    assert all(memories(tools_of_user["recall"](query="tea").content) for tools_of_user in tools[1:])


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
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
async def test_invalid_arguments_return_an_error_with_the_reason(
    engine: MemoryEngine, run: Run, name: str, arguments: dict[str, Any], expected: str
) -> None:
    engine.namespace("ada").knowledge.note("Ada likes green tea.")
    assert expected in await run(build_tools(engine)[name], **arguments)
    assert len(engine.namespace("ada").knowledge.page()) == 1


async def test_a_number_passed_as_text_is_accepted(engine: MemoryEngine, run: Run) -> None:
    tools = build_tools(engine)
    for number in range(3):
        await run(tools["remember"], content=f"tea number {number}")
    assert len(memories(await run(tools["recall"], query="tea", limit="2"))) == 2


async def test_messages_are_recalled_and_cannot_be_forgotten(engine: MemoryEngine, run: Run) -> None:
    engine.session("ada", "monday").add("user", "My cat is called Whiskers.")
    tools = build_tools(engine)
    (found,) = memories(await run(tools["recall"], query="the cat"))
    assert (found["kind"], found["session"], found["role"]) == ("message", "monday", "user")
    assert found["can_be_changed"] is False
    assert "messages cannot be changed" in await run(tools["forget"], id=found["id"])
    assert len(engine.namespace("ada").search("cat")) == 1


async def test_forgotten_memories_stay_in_the_history_and_found_ones_count_as_used(
    engine: MemoryEngine, run: Run
) -> None:
    knowledge, tools = engine.namespace("ada").knowledge, build_tools(engine)
    noted = knowledge.note("Ada likes green tea.").knowledge
    await run(tools["recall"], query="green tea")
    used = knowledge.get(noted.category, noted.key, use=False)
    assert used is not None
    assert used.use_count == 1
    await run(tools["forget"], id=noted.id)
    (former,) = knowledge.history(noted.category, noted.key)
    assert (former.value, former.reason) == ("Ada likes green tea.", "removed")


@given(texts=st.lists(st.text(min_size=1) | st.sampled_from(["</memory>", "<\\/memory>", "<memory>"])))
@examples(30)
def test_every_memory_text_stays_inside_one_fence_of_valid_json(texts: list[str]) -> None:
    with MemoryEngine(embedder=None) as engine:
        spec = TieredMemoryToolSpec(engine, "ada")
        for text in texts:
            spec.remember(f"tea {text}")
        answer = spec.recall("tea", limit=100)
        assert len(memories(answer)) == len(engine.namespace("ada").knowledge.page())
        assert json.loads(strip_fences(answer)) == {"note": " "}
        answer.encode()


async def test_a_stored_tool_answer_is_not_recalled(engine: MemoryEngine, run: Run) -> None:
    tools = build_tools(engine)
    await run(tools["remember"], content="The safe opens with 4711.")
    answer = await run(tools["recall"], query="safe")
    session = engine.session("ada", "s")
    session.add("tool", answer)
    assert [message.content for message in session.messages()] == [answer]
    assert engine.namespace("ada").search("safe 4711") == ()


async def test_a_closed_engine_returns_an_error_and_does_not_raise(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    engine = MemoryEngine(embedder=None)
    tools = build_tools(engine)
    engine.close()
    for answer in (
        await run(tools["remember"], content="x"),
        await run(tools["recall"], query="x"),
        await run(tools["forget"], id="note/x"),
    ):
        assert answer == "memory is currently unavailable (EngineClosedError): continue without it"
    assert [record.getMessage() for record in caplog.records] == [
        "a memory tool failed: EngineClosedError"
    ] * 3


async def test_errors_and_logs_of_a_broken_store_do_not_contain_its_address(
    engine: MemoryEngine, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("postgresql://ada:hunter2@db.example refused")

    tools = build_tools(engine)
    for method in ("read", "read_raw", "write"):
        monkeypatch.setattr(engine._database, method, fail)
    with caplog.at_level(logging.INFO):
        answers = [
            await run(tools["remember"], content="x"),
            await run(tools["recall"], query="x"),
            await run(tools["forget"], id="note/x"),
        ]
    monkeypatch.undo()
    assert answers == ["memory is currently unavailable (ConnectionError): continue without it"] * 3
    assert "ConnectionError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_async_leaves_the_event_loop_free(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def record_thread(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            threads.add(threading.get_ident())
            return method(*args, **options)

        return call

    for method in ("read", "read_raw", "write"):
        monkeypatch.setattr(engine._database, method, record_thread(getattr(engine._database, method)))
    spec = TieredMemoryToolSpec(engine, "ada")
    answer = await spec.aremember("Ada likes tea.")
    await spec.arecall("tea")
    await spec.aforget(answer.split()[-1])
    assert threads
    assert threading.get_ident() not in threads


def test_the_tool_schemas_have_names_descriptions_and_limits(engine: MemoryEngine) -> None:
    schemas = {name: tool.metadata.to_openai_tool()["function"] for name, tool in build_tools(engine).items()}
    assert list(schemas) == ["remember", "recall", "forget"]
    for schema in schemas.values():
        assert 100 < len(schema["description"]) <= 1024
        assert all(field["description"] for field in schema["parameters"]["properties"].values())
        assert "ada" not in json.dumps(schema)
    recall = schemas["recall"]["parameters"]
    assert recall["required"] == ["query"]
    limit = recall["properties"]["limit"]
    assert (limit["type"], limit["default"], limit["minimum"], limit["maximum"]) == ("integer", 10, 1, 100)
    assert schemas["remember"]["description"].startswith(
        "Remember something that later conversations can use"
    )


@pytest.mark.parametrize("chosen", ["recall", "arecall", ("recall", "arecall")], ids=str)
async def test_an_agent_can_get_some_of_the_tools(
    engine: MemoryEngine, chosen: str | tuple[str, str]
) -> None:
    (tool,) = TieredMemoryToolSpec(engine, "ada").to_tool_list([chosen])
    assert tool.metadata.name == "recall"
    assert tool.metadata.description.startswith("Search memories from earlier conversations")
    assert memories((await tool.acall(query="tea")).content) == []


class ExtendedToolSpec(TieredMemoryToolSpec):
    """Tool specification with an additional tool."""

    spec_functions = [*TieredMemoryToolSpec.spec_functions, "awaken"]  # noqa: RUF012 - as the framework has it

    def awaken(self) -> str:
        """Wake up."""
        return "awake"


def test_a_subclass_may_add_tools(engine: MemoryEngine) -> None:
    *_, own = ExtendedToolSpec(engine, "ada").to_tool_list()
    assert (own.metadata.name, own.call().content) == ("awaken", "awake")
    assert "Wake up." in own.metadata.description


def test_the_default_limit_respects_the_maximum_of_the_engine() -> None:
    config = EngineConfig(recall=RecallConfig(limit=2, max_limit=2))
    with MemoryEngine(embedder=None, config=config) as engine:
        spec = TieredMemoryToolSpec(engine, "ada")
        for number in range(3):
            spec.remember(f"tea number {number}")
        assert len(memories(spec.recall("tea"))) == 2


@pytest.mark.parametrize(
    ("wrong_engine", "namespace", "expected"),
    [
        ("sqlite://", "ada", "expected a MemoryEngine, got str"),
        (None, (), "at least one label"),
        (None, 7, "must be a str"),
    ],
)
def test_an_invalid_engine_or_namespace_is_rejected(
    engine: MemoryEngine, wrong_engine: Any, namespace: Any, expected: str
) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        TieredMemoryToolSpec(wrong_engine or engine, namespace)
