"""The memory tools by themselves: on an engine and on any store, sync and async."""

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
def place(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Where memories are kept."""
    if request.param == "store":
        yield {"store": InMemoryStore()}
        return
    with MemoryEngine() as engine:
        yield {"engine": engine}


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Calls a tool as an agent does."""

    async def call(tool: BaseTool, config: Any = None, **arguments: Any) -> ToolMessage:
        asked = {"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"}
        found = await tool.ainvoke(asked, config) if request.param == "async" else tool.invoke(asked, config)
        assert isinstance(found, ToolMessage)
        return found

    return call


def memories(message: ToolMessage) -> list[dict[str, Any]]:
    assert message.status == "success", message.content
    found: list[dict[str, Any]] = json.loads(message.text)["memories"]
    return found


async def test_what_is_created_is_found_updated_and_deleted_by_its_id(
    place: dict[str, Any], run: Run
) -> None:
    manage, search = create_manage_memory_tool(SPACE, **place), create_search_memory_tool(SPACE, **place)
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


async def test_users_have_memories_of_their_own(place: dict[str, Any], run: Run) -> None:
    manage, search = create_manage_memory_tool(SPACE, **place), create_search_memory_tool(SPACE, **place)
    await run(manage, ADA, content="The tea of Ada is green.")
    await run(manage, EVE, content="The tea of Eve is black.")
    (ada,) = memories(await run(search, ADA, query="tea"))
    (eve,) = memories(await run(search, EVE, query="tea"))
    assert (ada["content"], eve["content"]) == ("The tea of Ada is green.", "The tea of Eve is black.")
    stolen = await run(manage, EVE, action="delete", id=ada["id"])
    assert stolen.status == "error"
    assert memories(await run(search, ADA, query="tea"))


async def test_a_missing_user_is_told_and_nothing_is_stored(place: dict[str, Any], run: Run) -> None:
    manage, search = create_manage_memory_tool(SPACE, **place), create_search_memory_tool(SPACE, **place)
    for message in (await run(manage, content="x"), await run(search, query="x")):
        assert message.status == "error"
        assert "needs a value for 'user_id'" in message.text
    engine = place.get("engine")
    assert (engine.namespaces() if engine else tuple(place["store"].list_namespaces())) == ()


@pytest.mark.parametrize("value", ["", True, ("ada", "eve"), ["ada"], {"a": 1}, 1.5])
async def test_what_makes_no_label_is_no_user(run: Run, value: object) -> None:
    with MemoryEngine(embedder=None) as engine:
        told = await run(
            create_manage_memory_tool(SPACE, engine=engine),
            {"configurable": {"user_id": value}},
            content="x",
        )
        assert (told.status, engine.namespaces()) == ("error", ())


@pytest.mark.parametrize("value", ["ada/eve", "../eve", "{user_id}", "memories/eve", "%", "ada eve", 7])
async def test_a_value_fills_exactly_one_label(run: Run, value: object) -> None:
    with MemoryEngine(embedder=None) as engine:
        configured = {"configurable": {"user_id": value}}
        await run(create_manage_memory_tool(SPACE, engine=engine), configured, content="mine")
        assert engine.namespaces() == (("memories", str(value)),)


async def test_a_store_that_refuses_a_label_says_so(run: Run) -> None:
    tool = create_manage_memory_tool(SPACE, store=InMemoryStore())
    told = await run(tool, {"configurable": {"user_id": "ada@example.com"}}, content="x")
    assert told.status == "error"
    assert "ada@example.com" in told.text


@pytest.mark.parametrize("namespace", [("memories", "user-{user_id}"), "{a}{b}", "{", "{1}", "{a.b}", ()])
def test_a_place_that_is_no_whole_label_is_refused(namespace: Any) -> None:
    with pytest.raises(InvalidNameError):
        create_search_memory_tool(namespace)


@pytest.mark.parametrize(
    ("arguments", "says"),
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
async def test_a_model_that_calls_wrongly_is_told_how(
    place: dict[str, Any], run: Run, arguments: dict[str, Any], says: str
) -> None:
    told = await run(create_manage_memory_tool(SPACE, **place), ADA, **arguments)
    assert told.status == "error"
    assert says in told.text


async def test_only_what_is_permitted_can_be_done(place: dict[str, Any], run: Run) -> None:
    tool = create_manage_memory_tool("ada", **place, actions_permitted=["create"])
    assert "delete" not in json.dumps(tool.args)
    assert (await run(tool, action="delete", id="1")).status == "error"
    assert (await run(tool, content="x")).status == "success"


class Address(BaseModel):
    street: str
    city: str


async def test_a_memory_may_have_fields(place: dict[str, Any], run: Run) -> None:
    manage = create_manage_memory_tool("ada", **place, schema=Address)
    assert (await run(manage, content="Zürich")).status == "error"
    await run(manage, content={"street": "Bahnhofstrasse 1", "city": "Zürich"})
    (found,) = memories(await run(create_search_memory_tool("ada", **place), query="Bahnhofstrasse"))
    content = found["content"]
    kept = json.loads(content) if isinstance(content, str) else content
    assert kept == {"street": "Bahnhofstrasse 1", "city": "Zürich"}


async def test_an_engine_is_searched_for_messages_too_which_stay_as_they_were_said(run: Run) -> None:
    with MemoryEngine() as engine:
        engine.session("ada", "monday").add("user", "My cat is called Whiskers.")
        (found,) = memories(await run(create_search_memory_tool("ada", engine=engine), query="the cat"))
        assert (found["kind"], found["session"], found["role"]) == ("message", "monday", "user")
        assert found["can_be_changed"] is False
        manage = create_manage_memory_tool("ada", engine=engine)
        told = await run(manage, action="delete", id=found["id"])
        assert (told.status, "messages cannot be changed" in told.text) == ("error", True)
        assert len(engine.namespace("ada").search("cat")) == 1


async def test_all_knowledge_of_an_engine_can_be_corrected_and_its_history_stays(run: Run) -> None:
    with MemoryEngine() as engine:
        known = engine.namespace("ada").knowledge
        known.store("website_knowledge", "https://shop.example/cart", "the cart is at the top")
        (found,) = memories(await run(create_search_memory_tool("ada", engine=engine), query="cart top"))
        await run(
            create_manage_memory_tool("ada", engine=engine),
            action="update",
            id=found["id"],
            content="the cart is below",
        )
        now = known.get("website_knowledge", "https://shop.example/cart", use=False)
        assert now is not None
        assert now.value == "the cart is below"
        (past,) = known.history("website_knowledge", "https://shop.example/cart")
        assert (past.value, past.reason) == ("the cart is at the top", "superseded")


async def test_what_a_search_finds_counts_as_used(run: Run) -> None:
    with MemoryEngine() as engine:
        known = engine.namespace("ada").knowledge
        noted = known.note("Ada likes green tea.").knowledge
        await run(create_search_memory_tool("ada", engine=engine), query="green tea")
        used = known.get(noted.category, noted.key, use=False)
        assert used is not None
        assert (used.use_count, used.confidence) == (1, 0.55)


async def test_pages_follow_each_other(place: dict[str, Any], run: Run) -> None:
    manage = create_manage_memory_tool("ada", **place)
    for number in range(5):
        await run(manage, content=f"tea number {number}")
    search = create_search_memory_tool("ada", **place, limit=2)
    pages = [memories(await run(search, query="tea number", offset=offset)) for offset in (0, 2, 4)]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert len({one["id"] for page in pages for one in page}) == 5


async def test_a_filter_is_for_stores_alone(run: Run) -> None:
    store = InMemoryStore()
    store.put(("ada",), "1", {"content": "tea", "kind": "drink"})
    store.put(("ada",), "2", {"content": "tea", "kind": "plant"})
    search = create_search_memory_tool("ada", store=store)
    (found,) = memories(await run(search, query="tea", filter={"kind": "plant"}))
    assert (found["id"], found["content"]) == ("2", {"content": "tea", "kind": "plant"})
    with MemoryEngine(embedder=None) as engine:
        told = await run(create_search_memory_tool("ada", engine=engine), query="tea", filter={})
        assert (told.status, "filter" in told.text) == ("error", True)


async def test_what_a_store_finds_in_a_longer_namespace_is_told_as_such_and_cannot_be_changed(
    run: Run,
) -> None:
    store = InMemoryStore()
    store.put(("ada", "work"), "1", {"content": "tea"})
    (found,) = memories(await run(create_search_memory_tool("ada", store=store), query="tea"))
    assert (found["namespace"], found["can_be_changed"]) == (["ada", "work"], False)
    told = await run(create_manage_memory_tool("ada", store=store), action="delete", id="1")
    assert told.status == "error"
    assert store.get(("ada", "work"), "1") is not None


async def test_the_artifact_holds_the_memories(place: dict[str, Any], run: Run) -> None:
    await run(create_manage_memory_tool("ada", **place), content="green tea")
    search = create_search_memory_tool("ada", **place, response_format="content_and_artifact")
    message = await run(search, query="green tea")
    assert [one["id"] for one in message.artifact] == [one["id"] for one in memories(message)]


async def test_a_closed_engine_is_told_and_does_not_raise(run: Run) -> None:
    engine = MemoryEngine()
    tools = create_manage_memory_tool("ada", engine=engine), create_search_memory_tool("ada", engine=engine)
    engine.close()
    for told in (await run(tools[0], content="x"), await run(tools[1], query="x")):
        assert told.status == "error"
        assert "memory is currently unavailable (EngineClosedError)" in told.text


class BrokenStore(InMemoryStore):
    """A store whose server is away."""

    def batch(self, ops: Any) -> list[Result]:
        raise ConnectionError("postgresql://ada:hunter2@db.example refused")

    async def abatch(self, ops: Any) -> list[Result]:
        return self.batch(ops)


async def test_a_broken_store_is_told_without_its_address(run: Run) -> None:
    store = BrokenStore()
    tools = create_manage_memory_tool("ada", store=store), create_search_memory_tool("ada", store=store)
    for told in (await run(tools[0], content="x"), await run(tools[1], query="x")):
        assert told.status == "error"
        assert "ConnectionError" in told.text
        assert "hunter2" not in told.text


async def test_without_any_store_the_next_step_is_told(run: Run) -> None:
    told = await run(create_search_memory_tool("ada"), query="x")
    assert told.status == "error"
    assert "pass engine= or store=" in told.text


@pytest.mark.parametrize(
    "wrong",
    [{"engine": "sqlite://"}, {"limit": 0}, {"limit": 101}, {"limit": True}],
    ids=str,
)
def test_a_search_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidConfigError):
        create_search_memory_tool("ada", **wrong)


@pytest.mark.parametrize("wrong", [(), "create", ("create", "burn")], ids=str)
def test_actions_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidConfigError):
        create_manage_memory_tool("ada", actions_permitted=wrong)


def test_memories_have_one_place() -> None:
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
def test_whatever_is_remembered_stays_inside_one_fence_of_valid_json(texts: list[str]) -> None:
    store = InMemoryStore()
    for number, text in enumerate(texts):
        store.put(("ada",), str(number), {"content": text, text: {"deep": [text]}})
    answer = create_search_memory_tool("ada", store=store, limit=100).invoke({"query": "x"})
    assert len(json.loads(answer)["memories"]) == len(texts)
    assert json.loads(strip_fences(answer)) == {"note": " "}
    answer.encode()


async def test_an_answer_in_the_record_is_no_new_memory(run: Run) -> None:
    with MemoryEngine(embedder=None) as engine:
        await run(create_manage_memory_tool("ada", engine=engine), content="The safe opens with 4711.")
        answer = await run(create_search_memory_tool("ada", engine=engine), query="safe")
        session = engine.session("ada", "s")
        session.add("tool", answer.text)
        assert [message.content for message in session.messages()] == [answer.content]
        assert engine.namespace("ada").search("safe 4711") == ()
