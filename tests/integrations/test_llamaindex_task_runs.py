"""Tasks and turns of agent runs: conversations, restarts and human input."""

from __future__ import annotations

import asyncio
import copy
import logging
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import AgentMemory, InvalidInputError, MemoryEngine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

    from langmem_tiers_llamaindex.memory import TieredMemory
    from langmem_tiers_llamaindex.tasks import watch_agent
    from langmem_tiers_llamaindex.watched_tools import WatchedTool

    from .llamaindex_agents import (
        AnswerSequence,
        CompletionLLM,
        Prompt,
        ScriptedLLM,
        create_tool_calls,
        texts,
    )

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
KEY = "langmem_tiers_task"
MOST = 7  # calls of a loop until it is blocked


CHAT_ENGINES: list[MemoryEngine] = []


@pytest.fixture(autouse=True)
def _chat_engine() -> Iterator[None]:
    with MemoryEngine(embedder=None) as opened:
        CHAT_ENGINES[:] = [opened]
        yield


def create_history() -> TieredMemory:
    # The framework's own cannot be written down with a Context.
    return TieredMemory.from_defaults(engine=CHAT_ENGINES[0], token_limit=20_000, recall=False)


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine(embedder=None) as opened:
        yield opened


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


class Weather:
    """Tool that always returns the same result."""

    def __init__(self) -> None:
        self.calls = 0

    def weather(self, city: str) -> str:
        """Tell the weather."""
        self.calls += 1
        return f"It rains in {city}."


def create_weather_call(city: str = "Rome") -> Any:
    return create_tool_calls(("call", "weather", {"city": city}))


def reply_once(prompt: Prompt) -> Any:
    """Call the tool once for each question."""
    return "It rains." if prompt[-1].role == "tool" else create_weather_call()


def reply_until_blocked(prompt: Prompt) -> Any:
    """Call the tool until it is blocked."""
    return "I give up." if "Blocked: " in (prompt[-1].content or "") else create_weather_call()


def build_agent(weather: Weather, reply: Any = reply_once, **options: Any) -> FunctionAgent:
    return FunctionAgent(tools=[weather.weather], llm=ScriptedLLM(reply=reply), **options)


async def ask(agent: Any, ctx: Context[Any] | None = None, question: str = "The weather?") -> str:
    return str(await agent.run(question, ctx=ctx, memory=create_history()))


async def load_task(ctx: Context[Any], engine: MemoryEngine, *namespace: str) -> AgentMemory:
    return AgentMemory(engine=engine, namespace=(*namespace, "agent"), task=await ctx.store.get(KEY))


def was_blocked(agent: FunctionAgent) -> bool:
    assert isinstance(agent.llm, ScriptedLLM)
    return any("Blocked: " in texts(seen) for seen in agent.llm.seen)


# Conversations


async def test_calls_of_one_conversation_do_not_block_another(engine: MemoryEngine) -> None:
    weather = Weather()
    agent = watch_agent(build_agent(weather), engine=engine, counts_across_turns=True)
    contexts: list[Context[Any]] = [Context(agent) for _ in range(10)]
    answers = await asyncio.gather(*(ask(agent, ctx) for ctx in contexts))
    assert answers == ["It rains."] * 10
    assert weather.calls == 10
    assert not was_blocked(agent)
    memories = [await load_task(ctx, engine) for ctx in contexts]
    assert len({memory.task for memory in memories}) == 10
    assert {memory.working.cycle_count for memory in memories} == {1}


async def test_a_conversation_keeps_its_task(engine: MemoryEngine) -> None:
    weather = Weather()
    agent = watch_agent(
        build_agent(weather), engine=engine, namespace=("acme", "ada"), counts_across_turns=True
    )
    ctx: Context[Any] = Context(agent)
    for _ in range(10):
        await ask(agent, ctx)
    assert weather.calls == MOST
    assert (await load_task(ctx, engine, "acme", "ada")).working.cycle_count == MOST
    other: Context[Any] = Context(agent)
    await ask(agent, other)
    assert weather.calls == MOST + 1


@pytest.mark.soak
async def test_a_deserialized_context_keeps_its_task(tmp_path: Path) -> None:
    weather = Weather()
    dump: dict[str, Any] | None = None
    for _ in range(10):
        with MemoryEngine(tmp_path / "memory.db", embedder=None) as engine:
            agent = watch_agent(build_agent(weather), engine=engine, counts_across_turns=True)
            ctx: Context[Any] = Context(agent) if dump is None else Context.from_dict(agent, dump)
            await ask(agent, ctx)
            dump = ctx.to_dict()
    assert weather.calls == MOST


async def test_the_name_of_a_task_can_be_set(engine: MemoryEngine) -> None:
    agent = watch_agent(build_agent(Weather()), engine=engine)
    ctx: Context[Any] = Context(agent)
    await ctx.store.set(KEY, "order-17")
    await ask(agent, ctx)
    assert AgentMemory(engine=engine, namespace="agent", task="order-17").working.cycle_count == 1


@pytest.mark.soak
async def test_cycles_of_another_process_count(engine: MemoryEngine) -> None:
    first, second = Weather(), Weather()
    agents = [
        watch_agent(build_agent(weather), engine=engine, counts_across_turns=True)
        for weather in (first, second)
    ]
    contexts: list[Context[Any]] = [Context(agent) for agent in agents]
    for ctx in contexts:
        await ctx.store.set(KEY, "shared")
    for _ in range(6):
        for agent, ctx in zip(agents, contexts, strict=True):
            await ask(agent, ctx)
    assert first.calls + second.calls == MOST


async def test_a_model_answers_the_block_of_its_own_conversation(engine: MemoryEngine) -> None:
    def reply(prompt: Prompt) -> Any:
        text = prompt[-1].content or ""
        if text.startswith("Blocked: "):
            reason = {"reason": "The weather may have changed."}
            return create_tool_calls(("why", "answer_guard", reason))
        return "Enough." if weather.calls > MOST else create_weather_call()

    weather = Weather()
    agent = watch_agent(build_agent(weather, reply), engine=engine)
    assert await ask(agent) == "Enough."
    assert weather.calls == MOST + 1
    assert isinstance(agent.llm, ScriptedLLM)
    assert "The block is lifted" in texts(agent.llm.seen[-1])


async def test_the_agents_of_a_workflow_share_the_task_of_the_conversation(engine: MemoryEngine) -> None:
    weather = Weather()
    handoff = create_tool_calls(("h", "handoff", {"to_agent": "second", "reason": "It is yours."}))
    first = build_agent(
        weather, AnswerSequence(create_weather_call("Oslo"), handoff), name="first", description="Finds."
    )
    second = build_agent(
        weather, AnswerSequence(create_weather_call("Bern"), "Done."), name="second", description="Tells."
    )
    flow = watch_agent(AgentWorkflow(agents=[first, second], root_agent="first"), engine=engine)
    ctx: Context[Any] = Context(flow)
    assert await ask(flow, ctx) == "Done."
    cycles = (await load_task(ctx, engine)).short_term.get_recent(5)
    assert [cycle.action.tool_name for cycle in cycles] == ["weather", "handoff", "weather"]


async def test_a_tool_called_outside_a_run_is_not_recorded(engine: MemoryEngine) -> None:
    weather = Weather()
    agent = watch_agent(build_agent(weather), engine=engine)
    tool, answer = agent.tools or []
    assert isinstance(tool, WatchedTool)
    for _ in range(10):
        assert tool.call(city="Rome").content == "It rains in Rome."
    assert tool.failures == 0
    assert "No block was lifted" in str(answer(reason="There is nothing blocked."))  # type: ignore[call-arg]  # declared with one input


async def test_a_closed_engine_does_not_break_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    weather = Weather()
    engine = MemoryEngine(embedder=None)
    agent = watch_agent(build_agent(weather), engine=engine)
    engine.close()
    with caplog.at_level(logging.WARNING, logger="langmem_tiers"):
        assert await ask(agent) == "It rains."
    assert weather.calls == 1
    assert agent.tools is not None
    assert agent.tools[0].failures == 2  # type: ignore[union-attr]  # a watched tool
    assert "memory failed at the beginning of a run" in caplog.text


# Turns


@pytest.mark.sample(1)
@pytest.mark.parametrize("keeps_context", [True, False])
async def test_the_same_question_in_many_runs_is_not_a_loop(memory: AgentMemory, keeps_context: bool) -> None:  # noqa: FBT001 - a parameter
    weather = Weather()
    agent = watch_agent(build_agent(weather), memory)
    ctx: Context[Any] | None = Context(agent) if keeps_context else None
    for _ in range(12):
        assert await ask(agent, ctx) == "It rains."
    assert weather.calls == 12
    assert isinstance(agent.llm, ScriptedLLM)
    assert "Warning" not in texts(agent.llm.seen[-1])
    assert memory.working.cycle_count == 12


async def test_the_same_question_to_a_workflow_in_many_runs_is_not_a_loop(memory: AgentMemory) -> None:
    weather = Weather()
    flow = watch_agent(AgentWorkflow(agents=[build_agent(weather)]), memory)
    ctx: Context[Any] = Context(flow)
    for _ in range(12):
        assert await ask(flow, ctx) == "It rains."
    assert weather.calls == 12


async def test_a_loop_within_a_run_is_stopped_in_every_run(memory: AgentMemory) -> None:
    weather = Weather()
    agent = watch_agent(build_agent(weather, reply_until_blocked), memory)
    for number in range(1, 4):
        assert await ask(agent) == "I give up."
        assert weather.calls == number * MOST


async def test_with_counts_across_turns_calls_of_all_runs_are_counted(memory: AgentMemory) -> None:
    weather = Weather()
    agent = watch_agent(build_agent(weather), memory, counts_across_turns=True)
    for _ in range(10):
        await ask(agent, question="Go on.")
    assert weather.calls == MOST


async def confirm(ctx: Context) -> str:
    """Ask a person."""
    request = InputRequiredEvent(prefix="Sure?")  # type: ignore[call-arg]  # events take any field
    answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id="sure", waiter_event=request)
    return str(answer.response)


confirm.__annotations__["ctx"] = Context  # the framework does not read annotations that are text


def create_asking_agent(weather: Weather) -> FunctionAgent:
    steps = [
        *[create_weather_call()] * 4,
        create_tool_calls(("ask", "confirm", {})),
        *[create_weather_call()] * 6,
        "Done.",
    ]
    return FunctionAgent(tools=[weather.weather, confirm], llm=ScriptedLLM(reply=AnswerSequence(*steps)))


@pytest.mark.parametrize("is_serialized", [False, True])
async def test_the_answer_of_a_person_does_not_start_a_turn(
    engine: MemoryEngine,
    is_serialized: bool,  # noqa: FBT001 - a parameter
) -> None:
    weather = Weather()
    agent = watch_agent(create_asking_agent(weather), engine=engine)
    handler = agent.run("The weather?", memory=create_history())
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    ctx = handler.ctx
    assert ctx is not None
    if is_serialized:
        dump = ctx.to_dict()
        await handler.cancel_run()
        handler = agent.run(ctx=Context.from_dict(agent, dump))
        ctx = handler.ctx
        assert ctx is not None
    ctx.send_event(HumanResponseEvent(response="yes"))  # type: ignore[call-arg]  # events take any field
    assert str(await handler) == "Done."
    assert 4 < weather.calls <= MOST + 1
    assert was_blocked(agent)
    cycles = (await load_task(ctx, engine)).short_term.get_recent(20)
    assert [cycle.action.tool_name for cycle in cycles].count("confirm") == 1


# What is watched


async def test_a_copy_of_a_watched_agent_uses_the_same_memory(memory: AgentMemory) -> None:
    agent = watch_agent(build_agent(Weather()), memory)
    for copied in (copy.copy(agent), copy.deepcopy(agent), agent.model_copy()):
        await ask(copied)
    assert memory.working.cycle_count == 3


async def test_watching_keeps_the_class_and_the_workflow_of_an_agent(memory: AgentMemory) -> None:
    class Own(FunctionAgent):
        pass

    agent = Own(tools=[Weather().weather], llm=ScriptedLLM(reply=reply_once))
    before = (repr(type(agent)), agent.workflow_name, agent._step_configs())
    again = watch_agent(watch_agent(agent, memory), memory)
    assert again is agent
    assert isinstance(agent, Own)
    assert (repr(type(agent)), agent.workflow_name, agent._step_configs()) == before
    assert [tool.metadata.name for tool in await agent.get_tools()] == ["weather", "answer_guard"]
    assert Own.call_tool is FunctionAgent.call_tool


async def test_a_new_agent_of_the_same_class_is_not_watched(memory: AgentMemory) -> None:
    weather = Weather()
    kind = type(watch_agent(build_agent(weather), memory))
    fresh = kind(tools=[weather.weather], llm=ScriptedLLM(reply=reply_once))
    assert await ask(fresh) == "It rains."
    assert (weather.calls, memory.working.cycle_count) == (1, 0)
    await ask(watch_agent(fresh, memory))
    assert memory.working.cycle_count == 1


async def test_watching_an_agent_again_replaces_its_memory(memory: AgentMemory) -> None:
    with AgentMemory() as other:
        agent = watch_agent(watch_agent(build_agent(Weather()), other), memory)
        await ask(agent)
        assert (memory.working.cycle_count, other.working.cycle_count) == (1, 0)


async def test_tools_added_to_a_watched_agent_are_watched(memory: AgentMemory) -> None:
    weather = Weather()
    agent = watch_agent(FunctionAgent(tools=[], llm=ScriptedLLM(reply=reply_once)), memory)
    agent.tools = [*(agent.tools or []), *(build_agent(weather).tools or [])]
    await ask(agent)
    assert (weather.calls, memory.working.cycle_count) == (1, 1)


def test_a_react_agent_keeps_a_task_for_each_conversation(engine: MemoryEngine) -> None:
    def reply(prompt: Prompt) -> str:
        if "Observation: It rains" in texts(prompt):
            return "Thought: I know it.\nAnswer: It rains."
        return 'Thought: I look.\nAction: weather\nAction Input: {"city": "Rome"}'

    async def run_two_conversations() -> list[AgentMemory]:
        agent = watch_agent(
            ReActAgent(tools=[Weather().weather], llm=CompletionLLM(reply=reply)), engine=engine
        )
        contexts: list[Context[Any]] = [Context(agent), Context(agent)]
        assert [await ask(agent, ctx) for ctx in contexts] == ["It rains."] * 2
        return [await load_task(ctx, engine) for ctx in contexts]

    assert [memory.working.cycle_count for memory in asyncio.run(run_two_conversations())] == [1, 1]


async def test_unguarded_tools_are_never_blocked(engine: MemoryEngine) -> None:
    weather = Weather()
    agent = watch_agent(
        build_agent(weather, AnswerSequence(*[create_weather_call()] * 12, "Done.")),
        engine=engine,
        unguarded_tools=["weather"],
    )
    assert await ask(agent) == "Done."
    assert weather.calls == 12


def test_invalid_combinations_of_memory_and_engine_are_rejected(
    memory: AgentMemory, engine: MemoryEngine
) -> None:
    agent, invalid_value = build_agent(Weather()), object()
    tools = agent.tools
    invalid_options: list[tuple[str, dict[str, Any]]] = [
        ("expected exactly one of memory= and engine=", {}),
        ("expected exactly one of memory= and engine=", {"memory": memory, "engine": engine}),
        ("engine must be a MemoryEngine", {"engine": invalid_value}),
        ("expected an AgentMemory, got object", {"memory": invalid_value}),
        ("namespace= cannot be combined with memory=", {"memory": memory, "namespace": "ada"}),
        ("unguarded_tools= cannot be combined with memory=", {"memory": memory, "unguarded_tools": ["a"]}),
        ("stop_after", {"memory": memory, "stop_after": -1}),
        ("namespace", {"engine": engine, "namespace": ""}),
    ]
    for match, options in invalid_options:
        with pytest.raises(InvalidInputError, match=match):
            watch_agent(agent, **options)
    assert agent.tools is tools
    assert type(agent) is FunctionAgent
    assert not isinstance((agent.tools or [])[0], WatchedTool)
