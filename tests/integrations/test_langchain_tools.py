"""The LangChain memory tools on an engine and on a store, sync and async."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from langmem_tiers import InvalidConfigError, InvalidNameError, MemoryEngine
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers_langchain import create_manage_memory_tool, create_search_memory_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from langchain_core.tools import BaseTool
    from langgraph.store.base import Result

    Run = Callable[..., Awaitable[ToolMessage]]

ADA = {"configurable": {"user_id": "ada"}}
EVE = {"configurable": {"user_id": "eve"}}
SPACE = ("memories", "{user_id}")


@pytest.fixture(params=["engine", "store"])
def storage(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Storage of the memories: an engine or a store."""
    if request.param == "store":
        yield {"store": InMemoryStore()}
        return
    with MemoryEngine() as engine:
        yield {"engine": engine}


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Function that calls a tool like an agent."""

    async def call(tool: BaseTool, config: Any = None, **arguments: Any) -> ToolMessage:
        tool_call = {"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"}
        found = (
            await tool.ainvoke(tool_call, config)
            if request.param == "async"
            else tool.invoke(tool_call, config)
        )
        assert isinstance(found, ToolMessage)
        return found

    return call


def memories(message: ToolMessage) -> list[dict[str, Any]]:
    assert message.status == "success", message.content
    found: list[dict[str, Any]] = json.loads(message.text)["memories"]
    return found


async def test_a_created_memory_is_found_updated_and_deleted_by_its_id(
    storage: dict[str, Any], run: Run
) -> None:
    manage, search = create_manage_memory_tool(SPACE, **storage), create_search_memory_tool(SPACE, **storage)
    created = await run(manage, ADA, content="Ada likes green tea.")
    (found,) = memories(await run(search, ADA, query="Which tea does Ada like?"))
    assert found["content"] == "Ada likes green tea."
    assert created.content == f"created memory {found['id']}"

    updated = await run(manage, ADA, action="update", id=found["id"], content="Ada likes black tea.")
    assert updated.content == f"updated memory {found['id']}"
    (found,) = memories(await run(search, ADA, query="Which tea does Ada like?"))
    assert found["content"] == "Ada likes black tea."

    deleted = await run(manage, ADA, action="delete", id=found["id"])
    assert deleted.content == f"deleted memory {found['id']}"
    assert memories(await run(search, ADA, query="Which tea does Ada like?")) == []


async def test_users_have_separate_memories(storage: dict[str, Any], run: Run) -> None:
    manage, search = create_manage_memory_tool(SPACE, **storage), create_search_memory_tool(SPACE, **storage)
    await run(manage, ADA, content="The tea of Ada is green.")
    await run(manage, EVE, content="The tea of Eve is black.")
    (ada,) = memories(await run(search, ADA, query="tea"))
    (eve,) = memories(await run(search, EVE, query="tea"))
    assert (ada["content"], eve["content"]) == ("The tea of Ada is green.", "The tea of Eve is black.")
    stolen = await run(manage, EVE, action="delete", id=ada["id"])
    assert stolen.status == "error"
    assert memories(await run(search, ADA, query="tea"))


async def test_a_missing_user_is_an_error_and_nothing_is_stored(storage: dict[str, Any], run: Run) -> None:
    manage, search = create_manage_memory_tool(SPACE, **storage), create_search_memory_tool(SPACE, **storage)
    for message in (await run(manage, content="x"), await run(search, query="x")):
        assert message.status == "error"
        assert "needs a value for 'user_id'" in message.text
    engine = storage.get("engine")
    assert (engine.namespaces() if engine else tuple(storage["store"].list_namespaces())) == ()


@pytest.mark.parametrize("value", ["", True, ("ada", "eve"), ["ada"], {"a": 1}, 1.5])
async def test_an_invalid_user_id_is_an_error(run: Run, value: object) -> None:
    with MemoryEngine(embedder=None) as engine:
        result = await run(
            create_manage_memory_tool(SPACE, engine=engine),
            {"configurable": {"user_id": value}},
            content="x",
        )
        assert (result.status, engine.namespaces()) == ("error", ())


@pytest.mark.parametrize("value", ["ada/eve", "../eve", "{user_id}", "memories/eve", "%", "ada eve", 7])
async def test_a_value_fills_exactly_one_label(run: Run, value: object) -> None:
    with MemoryEngine(embedder=None) as engine:
        configured = {"configurable": {"user_id": value}}
        await run(create_manage_memory_tool(SPACE, engine=engine), configured, content="mine")
        assert engine.namespaces() == (("memories", str(value)),)


async def test_a_label_rejected_by_the_store_is_an_error(run: Run) -> None:
    tool = create_manage_memory_tool(SPACE, store=InMemoryStore())
    result = await run(tool, {"configurable": {"user_id": "ada@example.com"}}, content="x")
    assert result.status == "error"
    assert "ada@example.com" in result.text


@pytest.mark.parametrize("namespace", [("memories", "user-{user_id}"), "{a}{b}", "{", "{1}", "{a.b}", ()])
def test_an_invalid_namespace_template_is_rejected(namespace: Any) -> None:
    with pytest.raises(InvalidNameError):
        create_search_memory_tool(namespace)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"content": "x", "id": "1"}, "omit the id"),
        ({"action": "create"}, "the content is required"),
        ({"content": "  "}, "the content is required"),
        ({"action": "update", "content": "x"}, "the id is required"),
        ({"action": "delete"}, "the id is required"),
        ({"action": "update", "id": "note/0", "content": "x"}, "no memory has the id 'note/0'"),
        ({"action": "delete", "id": "0"}, "no memory has the id '0'"),
        ({"action": "forget", "id": "0"}, "action: Input should be"),
        ({"content": "x", "user_id": "eve"}, "user_id: Extra inputs are not permitted"),
    ],
)
async def test_invalid_arguments_return_an_error_with_the_reason(
    storage: dict[str, Any], run: Run, arguments: dict[str, Any], expected: str
) -> None:
    result = await run(create_manage_memory_tool(SPACE, **storage), ADA, **arguments)
    assert result.status == "error"
    assert expected in result.text


async def test_only_permitted_actions_can_be_called(storage: dict[str, Any], run: Run) -> None:
    tool = create_manage_memory_tool("ada", **storage, actions_permitted=["create"])
    assert "delete" not in json.dumps(tool.args)
    assert (await run(tool, action="delete", id="1")).status == "error"
    assert (await run(tool, content="x")).status == "success"


class Address(BaseModel):
    street: str
    city: str


async def test_a_memory_can_have_a_schema(storage: dict[str, Any], run: Run) -> None:
    manage = create_manage_memory_tool("ada", **storage, schema=Address)
    assert (await run(manage, content="Zürich")).status == "error"
    await run(manage, content={"street": "Bahnhofstrasse 1", "city": "Zürich"})
    (found,) = memories(await run(create_search_memory_tool("ada", **storage), query="Bahnhofstrasse"))
    content = found["content"]
    fields = json.loads(content) if isinstance(content, str) else content
    assert fields == {"street": "Bahnhofstrasse 1", "city": "Zürich"}


async def test_messages_of_an_engine_are_found_and_cannot_be_changed(run: Run) -> None:
    with MemoryEngine() as engine:
        engine.session("ada", "monday").add("user", "My cat is called Whiskers.")
        (found,) = memories(await run(create_search_memory_tool("ada", engine=engine), query="the cat"))
        assert (found["kind"], found["session"], found["role"]) == ("message", "monday", "user")
        assert found["can_be_changed"] is False
        manage = create_manage_memory_tool("ada", engine=engine)
        result = await run(manage, action="delete", id=found["id"])
        assert (result.status, "messages cannot be changed" in result.text) == ("error", True)
        assert len(engine.namespace("ada").search("cat")) == 1


async def test_knowledge_of_an_engine_can_be_updated_and_keeps_its_history(run: Run) -> None:
    with MemoryEngine() as engine:
        knowledge = engine.namespace("ada").knowledge
        knowledge.store("website_knowledge", "https://shop.example/cart", "the cart is at the top")
        (found,) = memories(await run(create_search_memory_tool("ada", engine=engine), query="cart top"))
        await run(
            create_manage_memory_tool("ada", engine=engine),
            action="update",
            id=found["id"],
            content="the cart is below",
        )
        current = knowledge.get("website_knowledge", "https://shop.example/cart", use=False)
        assert current is not None
        assert current.value == "the cart is below"
        (past,) = knowledge.history("website_knowledge", "https://shop.example/cart")
        assert (past.value, past.reason) == ("the cart is at the top", "superseded")


async def test_a_found_memory_counts_as_used(run: Run) -> None:
    with MemoryEngine() as engine:
        knowledge = engine.namespace("ada").knowledge
        noted = knowledge.note("Ada likes green tea.").knowledge
        await run(create_search_memory_tool("ada", engine=engine), query="green tea")
        used = knowledge.get(noted.category, noted.key, use=False)
        assert used is not None
        assert (used.use_count, used.confidence) == (1, 0.55)


async def test_offset_and_limit_page_through_the_memories(storage: dict[str, Any], run: Run) -> None:
    manage = create_manage_memory_tool("ada", **storage)
    for number in range(5):
        await run(manage, content=f"tea number {number}")
    search = create_search_memory_tool("ada", **storage, limit=2)
    pages = [memories(await run(search, query="tea number", offset=offset)) for offset in (0, 2, 4)]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert len({memory["id"] for page in pages for memory in page}) == 5


async def test_a_filter_works_on_stores_and_is_rejected_on_engines(run: Run) -> None:
    store = InMemoryStore()
    store.put(("ada",), "1", {"content": "tea", "kind": "drink"})
    store.put(("ada",), "2", {"content": "tea", "kind": "plant"})
    search = create_search_memory_tool("ada", store=store)
    (found,) = memories(await run(search, query="tea", filter={"kind": "plant"}))
    assert (found["id"], found["content"]) == ("2", {"content": "tea", "kind": "plant"})
    with MemoryEngine(embedder=None) as engine:
        result = await run(create_search_memory_tool("ada", engine=engine), query="tea", filter={})
        assert (result.status, "filter" in result.text) == ("error", True)


async def test_a_memory_of_a_child_namespace_is_marked_and_cannot_be_changed(
    run: Run,
) -> None:
    store = InMemoryStore()
    store.put(("ada", "work"), "1", {"content": "tea"})
    (found,) = memories(await run(create_search_memory_tool("ada", store=store), query="tea"))
    assert (found["namespace"], found["can_be_changed"]) == (["ada", "work"], False)
    result = await run(create_manage_memory_tool("ada", store=store), action="delete", id="1")
    assert result.status == "error"
    assert store.get(("ada", "work"), "1") is not None


async def test_the_artifact_contains_the_memories(storage: dict[str, Any], run: Run) -> None:
    await run(create_manage_memory_tool("ada", **storage), content="green tea")
    search = create_search_memory_tool("ada", **storage, response_format="content_and_artifact")
    message = await run(search, query="green tea")
    assert [memory["id"] for memory in message.artifact] == [memory["id"] for memory in memories(message)]


async def test_a_closed_engine_returns_an_error_and_does_not_raise(run: Run) -> None:
    engine = MemoryEngine()
    tools = create_manage_memory_tool("ada", engine=engine), create_search_memory_tool("ada", engine=engine)
    engine.close()
    for result in (await run(tools[0], content="x"), await run(tools[1], query="x")):
        assert result.status == "error"
        assert "memory is currently unavailable (EngineClosedError)" in result.text


class BrokenStore(InMemoryStore):
    """Store whose server is unavailable."""

    def batch(self, ops: Any) -> list[Result]:
        raise ConnectionError("postgresql://ada:hunter2@db.example refused")

    async def abatch(self, ops: Any) -> list[Result]:
        return self.batch(ops)


async def test_the_error_of_a_broken_store_does_not_contain_its_address(run: Run) -> None:
    store = BrokenStore()
    tools = create_manage_memory_tool("ada", store=store), create_search_memory_tool("ada", store=store)
    for result in (await run(tools[0], content="x"), await run(tools[1], query="x")):
        assert result.status == "error"
        assert "ConnectionError" in result.text
        assert "hunter2" not in result.text


async def test_the_error_without_a_store_names_the_next_step(run: Run) -> None:
    result = await run(create_search_memory_tool("ada"), query="x")
    assert result.status == "error"
    assert "pass engine= or store=" in result.text


@pytest.mark.parametrize(
    "options",
    [{"engine": "sqlite://"}, {"limit": 0}, {"limit": 101}, {"limit": True}],
    ids=str,
)
def test_invalid_search_options_are_rejected(options: Any) -> None:
    with pytest.raises(InvalidConfigError):
        create_search_memory_tool("ada", **options)


@pytest.mark.parametrize("actions", [(), "create", ("create", "burn")], ids=str)
def test_invalid_permitted_actions_are_rejected(actions: Any) -> None:
    with pytest.raises(InvalidConfigError):
        create_manage_memory_tool("ada", actions_permitted=actions)


def test_engine_and_store_cannot_be_combined() -> None:
    with MemoryEngine(embedder=None) as engine, pytest.raises(InvalidConfigError, match="got both"):
        create_search_memory_tool("ada", engine=engine, store=InMemoryStore())


def test_name_and_instructions_reach_the_model_and_the_namespace_does_not() -> None:
    search = create_search_memory_tool(SPACE, name="remember", instructions="Only on Sundays.")
    manage = create_manage_memory_tool(SPACE, name="note", instructions="Only on Mondays.")
    assert (search.name, manage.name) == ("remember", "note")
    assert search.description.endswith("Only on Sundays.")
    assert manage.description.endswith("Only on Mondays.")
    assert set(search.args) == {"query", "limit", "offset", "filter"}
    assert set(manage.args) == {"content", "action", "id"}


@given(texts=st.lists(st.text(min_size=1) | st.sampled_from(["</memory>", "<\\/memory>", "<memory>"])))
def test_every_memory_text_stays_inside_one_fence_of_valid_json(texts: list[str]) -> None:
    store = InMemoryStore()
    for number, text in enumerate(texts):
        store.put(("ada",), str(number), {"content": text, text: {"deep": [text]}})
    answer = create_search_memory_tool("ada", store=store, limit=100).invoke({"query": "x"})
    assert len(json.loads(answer)["memories"]) == len(texts)
    assert json.loads(strip_fences(answer)) == {"note": " "}
    answer.encode()


async def test_a_stored_tool_answer_is_not_recalled(run: Run) -> None:
    with MemoryEngine(embedder=None) as engine:
        await run(create_manage_memory_tool("ada", engine=engine), content="The safe opens with 4711.")
        answer = await run(create_search_memory_tool("ada", engine=engine), query="safe")
        session = engine.session("ada", "s")
        session.add("tool", answer.text)
        assert [message.content for message in session.messages()] == [answer.content]
        assert engine.namespace("ada").search("safe 4711") == ()
