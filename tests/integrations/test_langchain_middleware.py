"""The memory middleware in agents of ``create_agent``, in every way to run them."""

from __future__ import annotations

import logging
import re
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langmem_tiers import EngineConfig, InvalidNameError, MemoryEngine
from langmem_tiers_langchain.middleware import TieredMemoryMiddleware
from tests.contract.storage.base import HOSTILE_NAMES
from tests.integrations.langchain_agents import ScriptedChat, check_tool_call_order, join_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@tool
def look_up(what: str) -> str:
    """Look something up."""
    return f"{what} is at https://gate.example/{what}"


@tool
def broken(what: str) -> str:
    """Fail."""
    raise RuntimeError(what)


def create_tool_caller(name: str) -> Any:
    def reply(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("done")
        return AIMessage("", tool_calls=[{"name": name, "args": {"what": "boat"}, "id": f"c{len(messages)}"}])

    return reply


def build_agent(engine: MemoryEngine, model: ScriptedChat, tools: Sequence[Any] = (), **options: Any) -> Any:
    middleware = options.pop("memory", None) or TieredMemoryMiddleware(engine, **options)
    return create_agent(
        model, list(tools), middleware=[middleware], checkpointer=InMemorySaver(), context_schema=dict
    )


def thread(name: object) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def ask(agent: Any, text: str, name: object = "t", user: object = "alice") -> Any:
    context = {"user_id": user} if user is not None else None
    return agent.invoke({"messages": [HumanMessage(text)]}, thread(name), context=context)


def test_messages_of_one_thread_are_recalled_in_another(engine: MemoryEngine) -> None:
    model = ScriptedChat()
    agent = build_agent(engine, model)
    ask(agent, "My dog is called Rex, he is a beagle.", "t1")
    answer = ask(agent, "What is my dog called?", "t2")
    assert join_texts(model.seen[-1]).count("called Rex") == 1
    assert [message.text for message in answer["messages"]] == ["What is my dog called?", "fine"]


def test_users_do_not_see_memories_of_other_users(engine: MemoryEngine) -> None:
    model = ScriptedChat()
    users = list(dict.fromkeys(["alice", "ALICE", "alice/", "ali", *HOSTILE_NAMES]))
    for n, user in enumerate(
        users
    ):  # a new agent each time: its checkpointer would show a thread to all users
        ask(build_agent(engine, model), f"My secret word is zebra{n}.", "same name of a thread", user)
    for n, user in enumerate(users):
        ask(build_agent(engine, model), "What is my secret word?", "another thread", user)
        assert set(re.findall(r"zebra\d+", join_texts(model.seen[-1]))) == {f"zebra{n}"}


def test_without_a_user_each_thread_has_separate_memory(engine: MemoryEngine) -> None:
    model = ScriptedChat()
    agent = build_agent(engine, model)
    ask(agent, "My secret word is zebra.", "t1", None)
    ask(agent, "What is my secret word?", "t2", None)
    assert "zebra" not in join_texts(model.seen[-1])
    ask(agent, "What is my secret word?", "t1", None)
    assert "zebra" in join_texts(model.seen[-1])


def test_without_user_and_thread_the_agent_continues_and_logs_a_warning(
    engine: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    memory = TieredMemoryMiddleware(engine)
    agent = create_agent(ScriptedChat(), [], middleware=[memory])
    for _ in range(2):
        assert agent.invoke({"messages": [HumanMessage("hello")]})["messages"][-1].text == "fine"
    assert memory.stats.failures["InvalidInputError"] >= 2
    assert len(caplog.records) == 1
    assert "pass context={'user_id': ...} or a thread_id" in caplog.text
    assert engine.namespaces() == ()


def test_without_a_thread_each_run_of_a_user_is_a_separate_session(engine: MemoryEngine) -> None:
    model = ScriptedChat()
    agent = create_agent(model, [], middleware=[TieredMemoryMiddleware(engine)], context_schema=dict)
    agent.invoke({"messages": [HumanMessage("My dog is called Rex.")]}, context={"user_id": "alice"})
    agent.invoke({"messages": [HumanMessage("What is my dog called?")]}, context={"user_id": "alice"})
    assert "called Rex" in join_texts(model.seen[-1])
    assert len(engine.namespace("alice").sessions().sessions) == 2


@dataclass
class Person:
    user_id: object
    team: str = "red"


@pytest.mark.parametrize(
    ("context", "namespace"),
    [
        ({"user_id": "bob"}, ("bob",)),
        (Person("bob"), ("bob",)),
        ({"user_id": 7}, ("7",)),
        (Person(None), ("threads", "t")),
        (["a", "list"], ("threads", "t")),
        ("a text", ("threads", "t")),
        (None, ("threads", "t")),
    ],
)
def test_the_user_comes_from_a_context_of_any_shape(
    engine: MemoryEngine, context: Any, namespace: tuple[str, ...]
) -> None:
    memory = TieredMemoryMiddleware(engine)
    agent = create_agent(ScriptedChat(), [], middleware=[memory], checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("hello")]}, thread("t"), context=context)
    assert engine.namespaces() == (namespace,)
    assert not memory.stats.failures


@pytest.mark.parametrize("user", ["", True, ["bob"], {"id": "bob"}, 1.5, b"bob", "x" * 5000])
def test_an_invalid_user_id_disables_memory_for_the_run(
    engine: MemoryEngine, user: Any, caplog: pytest.LogCaptureFixture
) -> None:
    memory = TieredMemoryMiddleware(engine)
    agent = build_agent(engine, ScriptedChat(), memory=memory)
    assert ask(agent, "hello", "t", user)["messages"][-1].text == "fine"
    assert memory.stats.failures.total() >= 1
    assert engine.namespaces() == ()
    assert "without memory" in caplog.text


def test_a_namespace_may_be_a_template_or_a_function(engine: MemoryEngine) -> None:
    template = build_agent(engine, ScriptedChat(), namespace=("acme", "{team}", "{user_id}"))
    context = {"user_id": "bob", "team": "a/{b}"}
    template.invoke({"messages": [HumanMessage("hello")]}, thread("t"), context=context)
    function = build_agent(
        engine, ScriptedChat(), namespace=lambda runtime: ["by", runtime.context["user_id"]]
    )
    ask(function, "hello", "t", "bob")
    assert set(engine.namespaces()) == {("acme", "a/{b}", "bob"), ("by", "bob")}


def test_a_missing_template_value_disables_memory_for_the_run(
    engine: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    agent = build_agent(engine, ScriptedChat(), namespace=("acme", "{team}"))
    ask(agent, "hello")
    assert engine.namespaces() == ()
    assert "needs a value for 'team'" in caplog.text


@pytest.mark.parametrize("label", ["{", "{0}", "{}", "{a.b}", "{a[0]}", "x-{user_id}"])
def test_an_invalid_template_is_rejected_at_construction(engine: MemoryEngine, label: str) -> None:
    with pytest.raises(InvalidNameError, match="has braces"):
        TieredMemoryMiddleware(engine, namespace=("acme", label))


def test_the_user_is_read_from_the_configurable(engine: MemoryEngine) -> None:
    agent = build_agent(engine, ScriptedChat())
    config = {"configurable": {"thread_id": "t", "user_id": "carol"}}
    agent.invoke({"messages": [HumanMessage("hello")]}, config)
    assert engine.namespaces() == (("carol",),)


async def run(agent: Any, way: str, text: str, name: str) -> list[str]:
    value = {"messages": [HumanMessage(text, id=f"{name}-{text}")]}
    config, context = thread(name), {"user_id": "alice"}
    if way == "invoke":
        agent.invoke(value, config, context=context)
    elif way == "ainvoke":
        await agent.ainvoke(value, config, context=context)
    elif way == "stream":
        list(agent.stream(value, config, context=context, stream_mode=["messages", "updates"]))
    else:
        async for _ in agent.astream(value, config, context=context, stream_mode=["messages", "updates"]):
            pass
    state = agent.get_state(config).values["messages"]
    return [f"{message.type}: {message.text}" for message in state]


async def test_all_ways_to_run_an_agent_give_the_same_result() -> None:
    outcomes = []
    for way in ("invoke", "ainvoke", "stream", "astream"):
        with MemoryEngine() as engine:
            model = ScriptedChat(reply=create_tool_caller("look_up"))
            agent = build_agent(engine, model, [look_up], budget=900)
            states = [await run(agent, way, f"Where is the boat number {n}?", "t") for n in range(8)]
            seen = [[f"{m.type}: {m.text}" for m in messages] for messages in model.seen]
            stored = [m.content for m in engine.session("alice", "t").messages() if not m.is_summary]
            outcomes.append((states, seen, stored))
    assert outcomes[1:] == outcomes[:1] * 3
    assert len(outcomes[0][1]) == 16


def test_messages_of_a_failed_run_are_stored(engine: MemoryEngine) -> None:
    model = ScriptedChat(reply=create_tool_caller("broken"))
    agent = build_agent(engine, model, [broken])
    with pytest.raises(RuntimeError, match="boat"):
        ask(agent, "Use the tool.")
    session = engine.session("alice", "t")
    assert [(m.role, len(m.tool_calls)) for m in session.messages()] == [("user", 0), ("assistant", 1)]
    model.reply = lambda _: AIMessage("better now")
    ask(agent, "And now?")
    assert [m.type for m in model.seen[-1]] == ["human", "ai", "tool", "human"]
    assert "the call was interrupted" in join_texts(model.seen[-1])
    assert [m.role for m in session.messages()] == ["user", "assistant", "user", "assistant"]


def test_a_failing_model_leaves_the_question_stored(engine: MemoryEngine) -> None:
    def fails(_: Sequence[BaseMessage]) -> AIMessage:
        raise RuntimeError("no quota")

    with pytest.raises(RuntimeError, match="no quota"):
        ask(build_agent(engine, ScriptedChat(reply=fails)), "Remember that I like tea.")
    assert [m.content for m in engine.session("alice", "t").messages()] == ["Remember that I like tea."]


def test_each_message_is_written_once_over_many_turns(engine: MemoryEngine) -> None:
    model = ScriptedChat(reply=create_tool_caller("look_up"))
    agent = build_agent(engine, model, [look_up])
    again = create_agent(
        model, [look_up], middleware=[TieredMemoryMiddleware(engine)], checkpointer=agent.checkpointer
    )  # as in a process that begins now
    for n in range(30):
        ask(agent if n % 3 else again, f"question {n}")
    state = ask(agent, "the last one")["messages"]
    assert [m.id for m in engine.session("alice", "t").messages() if not m.is_summary] == [
        m.id for m in state
    ]


def test_unsaved_messages_are_written_with_the_next_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.05), embedder=None) as engine:
        memory = TieredMemoryMiddleware(engine)
        agent = build_agent(engine, ScriptedChat(), memory=memory)
        ask(agent, "the first question")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert ask(agent, "the second question")["messages"][-1].text == "fine"
        other.execute("ROLLBACK")
        other.close()
        assert memory.stats.failures["StorageBusyError"] >= 1
        assert any(recorder.levelno == logging.WARNING for recorder in caplog.records)
        ask(agent, "the third question")
        stored = [m.content for m in engine.session("alice", "t").messages()]
        assert stored == [
            "the first question",
            "fine",
            "the second question",
            "fine",
            "the third question",
            "fine",
        ]


def test_an_erased_session_can_be_used_again(engine: MemoryEngine) -> None:
    agent = build_agent(engine, ScriptedChat())
    ask(agent, "the first question")
    engine.namespace("alice").delete()
    ask(agent, "the second question")
    assert "the second question" in [m.content for m in engine.session("alice", "t").messages()]


def test_custom_message_classes_and_large_messages_are_kept(engine: MemoryEngine) -> None:
    class Whisper(HumanMessage):
        """Custom message class."""

    picture = {"type": "image", "base64": "A" * 100_000, "mime_type": "image/png"}
    memory = TieredMemoryMiddleware(engine)
    model = ScriptedChat()
    agent = build_agent(engine, model, memory=memory)
    messages = [Whisper(content="psst"), HumanMessage([{"type": "text", "text": "look"}, picture])]
    agent.invoke({"messages": messages}, thread("t"), context={"user_id": "alice"})
    assert [m.content for m in engine.session("alice", "t").messages()] == ["psst", "look", "fine"]
    assert picture in model.seen[-1][-1].content
    assert not memory.stats.failures


def test_two_memory_middlewares_in_one_agent_need_different_names(engine: MemoryEngine) -> None:
    both = [
        TieredMemoryMiddleware(engine),
        TieredMemoryMiddleware(engine, namespace="team", name="team memory"),
    ]
    agent = create_agent(ScriptedChat(), [], middleware=both, checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("hello")]}, thread("t"))
    assert set(engine.namespaces()) == {("threads", "t"), ("team",)}


def test_the_id_cache_of_threads_is_bounded_and_nothing_is_written_twice(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langmem_tiers_langchain import recorder

    monkeypatch.setattr(recorder, "_MAX_CACHED_IDS", 10)
    memory = TieredMemoryMiddleware(engine)
    agent = build_agent(engine, ScriptedChat(), memory=memory)
    for turn in range(4):
        for n in range(6):
            ask(agent, f"question {turn} of thread {n}", f"t{n}")
    assert len(memory._recorder._records) < 4
    assert {engine.session("alice", f"t{n}").count() for n in range(6)} == {8}


@pytest.mark.parametrize("first", ["memory", "summary"])
def test_a_summary_of_another_middleware_is_shown_and_not_stored(engine: MemoryEngine, first: str) -> None:
    model = ScriptedChat(reply=create_tool_caller("look_up"))
    memory = TieredMemoryMiddleware(engine, budget=2000)
    summary = SummarizationMiddleware(model=ScriptedChat(), trigger=("messages", 6), keep=("messages", 3))
    both: list[Any] = [memory, summary] if first == "memory" else [summary, memory]
    agent = create_agent(model, [look_up], middleware=both, checkpointer=InMemorySaver(), context_schema=dict)
    for n in range(8):
        state = ask(agent, f"Question {n} about the boat, please?")
    for shown in model.seen:
        check_tool_call_order(shown)
    assert state["messages"][0].additional_kwargs["lc_source"] == "summarization"
    assert "Here is a summary" in join_texts(model.seen[-1])
    stored = [m.content for m in engine.session("alice", "t").messages() if not m.is_summary]
    assert not any("Here is a summary" in text for text in stored)
    assert [text for text in stored if text.startswith("Question")] == [
        f"Question {n} about the boat, please?" for n in range(8)
    ]
    assert not memory.stats.failures
