"""LangChain agents with memory tools, the stock summarizer and a model for the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from langmem_tiers import EngineConfig, MemoryEngine, SummaryConfig
from langmem_tiers_langchain import LangChainModel, create_manage_memory_tool, create_search_memory_tool
from tests.integrations.scripted_chat import call, create_scripted_chat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Invoke = Callable[..., Awaitable[list[BaseMessage]]]

TAKES_SUMMARIZERS = pytest.mark.skipif(
    tuple(map(int, version("langchain").split(".")[:3])) < (1, 4, 5),
    reason="before 1.4.5 the stock middleware passes over summarizer= and asks its model",
)

SPACE = ("memories", "{user_id}")


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    """Function that runs an agent on one user message and returns the messages of the thread."""

    async def run(agent: Any, text: str, **options: Any) -> list[BaseMessage]:
        state = {"messages": [HumanMessage(text)]}
        done = (
            await agent.ainvoke(state, **options)
            if request.param == "async"
            else agent.invoke(state, **options)
        )
        messages: list[BaseMessage] = done["messages"]
        return messages

    return run


def results(messages: list[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


@dataclass
class UserContext:
    user_id: str


@pytest.mark.sample(2)
@pytest.mark.parametrize("schema", [dict, UserContext])
async def test_two_users_of_one_agent_have_separate_memories(invoke: Invoke, schema: type) -> None:
    with MemoryEngine() as engine:
        model = create_scripted_chat(
            call("manage_memory", content="The user plays the cello."),
            "Noted.",
            call("manage_memory", content="The user plays the drums."),
            "Noted.",
            call("search_memory", query="What does the user play?"),
            "The cello.",
        )
        tools = [
            create_manage_memory_tool(SPACE, engine=engine),
            create_search_memory_tool(SPACE, engine=engine),
        ]
        agent = create_agent(model, tools, context_schema=schema)
        ada, eve = schema(user_id="ada"), schema(user_id="eve")
        await invoke(agent, "I play the cello.", context=ada)
        await invoke(agent, "I play the drums.", context=eve)
        (found,) = results(await invoke(agent, "What do I play?", context=ada))
        contents = [memory["content"] for memory in json.loads(found.text)["memories"]]
        assert contents == ["The user plays the cello."]
        assert engine.namespaces() == (("memories", "ada"), ("memories", "eve"))


async def test_the_user_is_read_from_the_configuration(invoke: Invoke) -> None:
    with MemoryEngine(embedder=None) as engine:
        model = create_scripted_chat(call("manage_memory", content="x"), "Noted.")
        agent = create_agent(model, [create_manage_memory_tool(SPACE, engine=engine)])
        await invoke(agent, "hi", config={"configurable": {"user_id": "ada"}})
        assert engine.namespaces() == (("memories", "ada"),)


async def test_two_users_in_one_run_are_refused(invoke: Invoke) -> None:
    with MemoryEngine(embedder=None) as engine:
        model = create_scripted_chat(call("manage_memory", content="x"), "I could not.")
        agent = create_agent(
            model, [create_manage_memory_tool(SPACE, engine=engine)], context_schema=UserContext
        )
        (result,) = results(
            await invoke(agent, "hi", config={"configurable": {"user_id": "ada"}}, context=UserContext("eve"))
        )
        assert (result.status, engine.namespaces()) == ("error", ())


async def test_without_a_user_the_agent_continues_and_nothing_is_stored(invoke: Invoke) -> None:
    with MemoryEngine(embedder=None) as engine:
        model = create_scripted_chat(call("manage_memory", content="x"), "I could not.")
        agent = create_agent(model, [create_manage_memory_tool(SPACE, engine=engine)])
        messages = await invoke(agent, "hi")
        assert messages[-1].content == "I could not."
        assert [result.status for result in results(messages)] == ["error"]
        assert engine.namespaces() == ()


async def test_without_an_engine_or_a_store_the_store_of_the_graph_is_used(invoke: Invoke) -> None:
    store = InMemoryStore()
    model = create_scripted_chat(
        call("manage_memory", content="The user plays the cello."),
        call("search_memory", 2, query="cello"),
        "The cello.",
    )
    tools = [create_manage_memory_tool(SPACE), create_search_memory_tool(SPACE)]
    agent = create_agent(model, tools, store=store, context_schema=UserContext)
    messages = await invoke(agent, "I play the cello.", context=UserContext("ada"))
    (item,) = store.search(("memories", "ada"))
    assert item.value == {"content": "The user plays the cello."}
    assert item.key in results(messages)[1].text


async def test_a_memory_failure_does_not_end_the_run(invoke: Invoke) -> None:
    engine = MemoryEngine()
    tools = [create_search_memory_tool("ada", engine=engine)]
    engine.close()
    agent = create_agent(
        create_scripted_chat(call("search_memory", query="x"), "Without memory, then."), tools
    )
    messages = await invoke(agent, "hi")
    assert messages[-1].content == "Without memory, then."


async def test_parallel_tool_calls_all_store_their_memories(invoke: Invoke) -> None:
    with MemoryEngine(embedder=None) as engine:
        calls = [
            {"name": "manage_memory", "args": {"content": f"fact {number}"}, "id": f"c{number}"}
            for number in range(8)
        ]
        model = create_scripted_chat(AIMessage("", tool_calls=calls), "Noted.")
        agent = create_agent(model, [create_manage_memory_tool("ada", engine=engine)])
        messages = await invoke(agent, "hi")
        assert {result.status for result in results(messages)} == {"success"}
        assert len(list(engine.namespace("ada").knowledge)) == 8


@TAKES_SUMMARIZERS
async def test_the_stock_summarizer_with_the_engine_keeps_the_facts(invoke: Invoke) -> None:
    with MemoryEngine(embedder=None) as engine:
        model = create_scripted_chat(*(f"Answer {number}." for number in range(9)))
        summing = SummarizationMiddleware(
            model=model, trigger=("messages", 5), keep=("messages", 2), summarizer=engine.summarize
        )
        agent = create_agent(model, [], middleware=[summing], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "t"}}
        facts = ("ada@example.com", "INV-20391", "2024-03-05")
        for fact in facts:
            messages = await invoke(agent, f"Please remember {fact} for me.", config=thread)
        for number in range(3):
            messages = await invoke(agent, f"And part {number}?", config=thread)
        assert len(messages) < 12
        assert "[Summary of" in messages[0].text
        assert [fact for fact in facts if fact not in messages[0].text] == []
        assert len(model.prompts) == 6  # none of them for a summary


@TAKES_SUMMARIZERS
async def test_a_long_conversation_is_not_truncated_before_the_engine_summarizes_it(invoke: Invoke) -> None:
    with MemoryEngine(embedder=None) as engine:
        model = create_scripted_chat(*(f"Answer {number}." for number in range(9)))
        summing = SummarizationMiddleware(
            model=model,
            trigger=("messages", 5),
            keep=("messages", 2),
            trim_tokens_to_summarize=None,
            summarizer=engine.summarize,
        )
        agent = create_agent(model, [], middleware=[summing], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "t"}}
        await invoke(agent, "My account is DE89370400440532013000.", config=thread)
        for number in range(3):
            messages = await invoke(agent, f"Part {number}. " + "And so it went on. " * 2000, config=thread)
        assert "DE89370400440532013000" in messages[0].text


SECRET_SUMMARY = "They spoke of bridges, which nobody may see."


def build_summarizing_graph(engine: MemoryEngine, model: Any) -> Any:
    def answer(state: MessagesState) -> dict[str, Any]:
        engine.summarize([HumanMessage("We built a bridge."), AIMessage("A good one.")])
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile()


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_model_calls_of_the_engine_do_not_appear_in_a_stream(mode: str) -> None:
    summing = create_scripted_chat(SECRET_SUMMARY)
    config = EngineConfig(summary=SummaryConfig(strategy="simple"))  # type: ignore[arg-type] # by its name
    with MemoryEngine(embedder=None, model=LangChainModel(summing), config=config) as engine:
        graph = build_summarizing_graph(engine, create_scripted_chat("Hello there."))
        state = {"messages": [HumanMessage("hi")]}
        if mode == "sync":
            pieces = list(graph.stream(state, stream_mode="messages"))
        else:
            pieces = [piece async for piece in graph.astream(state, stream_mode="messages")]
    assert len(summing.prompts) == 1
    assert "".join(piece.text for piece, _ in pieces) == "Hello there."


def test_model_calls_without_the_adapter_appear_in_a_stream() -> None:
    # The test above means something only if what is not tagged does come through.
    leaking = create_scripted_chat(SECRET_SUMMARY)

    class Untagged:
        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
            return str(leaking.invoke(prompt).text)

    with MemoryEngine(embedder=None, model=Untagged()) as engine:
        graph = build_summarizing_graph(engine, create_scripted_chat("Hello there."))
        pieces = list(graph.stream({"messages": [HumanMessage("hi")]}, stream_mode="messages"))
    assert "bridges" in "".join(piece.text for piece, _ in pieces)
