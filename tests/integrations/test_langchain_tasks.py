"""The task middleware in agents of ``create_agent``."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langmem_tiers import AgentMemory, EngineClosedError, EngineConfig, InvalidConfigError, MemoryEngine
from langmem_tiers.common.prompt_fences import TASK_FENCE_OPENING, is_only_fenced, strip_fences, wrap_in_fence
from langmem_tiers.integration_kit.lock_registry import LockRegistry
from langmem_tiers.integration_kit.tool_messages import ANSWER_TOOL, BLOCK_NOT_LIFTED
from langmem_tiers.tasks.models import ExecutionOutcome
from langmem_tiers_langchain import TieredMemoryMiddleware, TieredTaskMiddleware
from langmem_tiers_langchain.tasks import render_task
from tests.integrations.langchain_agents import ScriptedChat, check_tool_call_order, join_texts
from tests.integrations.tool_agents import (
    MOST,
    RUNS,
    TOOLS,
    ask,
    build_looping_script,
    call,
    config,
    create_tool_agent,
    cycles,
    results,
    run,
    script,
)
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


WAYS = pytest.mark.parametrize("way", ["invoke", "ainvoke"])


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine(embedder=None) as opened:
        yield opened


@WAYS
async def test_tool_calls_become_cycles(memory: AgentMemory, way: str) -> None:
    steps = [call(content="I should look it up."), call("fetch", url="https://gate.example/boat")]
    tasks = TieredTaskMiddleware(memory)
    await run(create_tool_agent(ScriptedChat(reply=script(*steps)), tasks), way)
    first, second = cycles(memory)
    assert first.thought.content == "I should look it up."
    assert (first.action.tool_name, dict(first.action.parameters)) == ("look_up", {"what": "boat"})
    assert first.observation is not None
    assert first.observation.raw_output == "there is nothing about boat"
    assert first.outcome is ExecutionOutcome.SUCCESS
    assert first.error_message is None
    assert first.duration_ms > 0
    assert (first.url, second.url) == ("", "https://gate.example/boat")
    assert memory.working.current_goal == "Find the boat."
    assert not tasks.failures


@WAYS
@pytest.mark.parametrize(
    ("name", "kind", "outcome"),
    [
        ("broken", RuntimeError, ExecutionOutcome.FAILURE),
        ("slow", TimeoutError, ExecutionOutcome.TIMEOUT),
    ],
)
async def test_an_exception_of_a_tool_is_recorded_and_raised(
    memory: AgentMemory, way: str, name: str, kind: type[Exception], outcome: ExecutionOutcome
) -> None:
    agent = create_tool_agent(ScriptedChat(reply=script(call(name))), TieredTaskMiddleware(memory))
    with pytest.raises(kind, match="boat"):
        await run(agent, way)
    (cycle,) = cycles(memory)
    assert cycle.outcome is outcome
    assert cycle.error_message is not None
    assert cycle.error_message.startswith(f"{kind.__name__}: ")


@WAYS
async def test_an_error_handled_by_the_agent_is_recorded_and_returned(memory: AgentMemory, way: str) -> None:
    steps = [call("look_up", wrong="x"), call("no_such_tool")]
    messages = await run(
        create_tool_agent(ScriptedChat(reply=script(*steps)), TieredTaskMiddleware(memory)), way
    )
    assert [result.status for result in results(messages)] == ["error", "error"]
    assert [cycle.outcome for cycle in cycles(memory)] == [ExecutionOutcome.FAILURE] * 2
    assert "Field required" in str(cycles(memory)[0].error_message)
    assert "no_such_tool is not a valid tool" in str(cycles(memory)[1].error_message)
    assert messages[-1].text == "done"


@WAYS
async def test_a_tool_that_returns_a_command_is_recorded(memory: AgentMemory, way: str) -> None:
    await run(
        create_tool_agent(ScriptedChat(reply=script(call("hand_over"))), TieredTaskMiddleware(memory)), way
    )
    (cycle,) = cycles(memory)
    assert cycle.observation is not None
    assert cycle.observation.raw_output == "boat is handed over"


@WAYS
async def test_an_interrupting_tool_is_recorded_after_the_resume(memory: AgentMemory, way: str) -> None:
    agent = create_tool_agent(ScriptedChat(reply=script(call("ask_person"))), TieredTaskMiddleware(memory))
    await run(agent, way)
    assert cycles(memory) == []
    answer: Any = Command(resume="yes")
    if way == "ainvoke":
        await agent.ainvoke(answer, config())
    else:
        agent.invoke(answer, config())
    (cycle,) = cycles(memory)
    assert cycle.outcome is ExecutionOutcome.SUCCESS


@WAYS
async def test_a_looping_agent_is_stopped(memory: AgentMemory, way: str) -> None:
    model = ScriptedChat(reply=build_looping_script())
    messages = await run(create_tool_agent(model, TieredTaskMiddleware(memory)), way)
    assert RUNS["boat"] == len(cycles(memory)) == MOST
    assert messages[-1].text == "I cannot find it."
    assert [result.status for result in results(messages)] == ["success"] * MOST + ["error"]
    assert str(results(messages)[-1].text).startswith("Blocked: look_up")
    assert "call answer_guard with the reason" in results(messages)[-1].text
    for shown in model.seen:
        check_tool_call_order(shown)


@WAYS
async def test_a_blocked_loop_runs_no_tool_again(memory: AgentMemory, way: str) -> None:
    model = ScriptedChat(reply=build_looping_script(40, stops_when_blocked=False))
    await run(create_tool_agent(model, TieredTaskMiddleware(memory, stop_after=0)), way)
    assert len(model.seen) == 41
    assert RUNS["boat"] == MOST


@WAYS
async def test_equal_parallel_calls_are_blocked(memory: AgentMemory, way: str) -> None:
    calls = [{"name": "look_up", "args": {"what": "boat"}, "id": "x"}] * 20
    model = ScriptedChat(reply=script(AIMessage("", tool_calls=calls), AIMessage("", tool_calls=calls)))
    messages = await run(create_tool_agent(model, TieredTaskMiddleware(memory)), way)
    assert RUNS["boat"] == MOST
    assert Counter(result.status for result in results(messages)) == {"success": MOST, "error": 40 - MOST}
    for shown in model.seen:
        check_tool_call_order(shown)


@WAYS
async def test_different_parallel_calls_run_concurrently(memory: AgentMemory, way: str) -> None:
    meeting = threading.Barrier(2, timeout=LIMIT_SECONDS)

    @tool
    def meet(who: str) -> str:
        """Wait for the other one."""
        meeting.wait()
        return f"{who} was there"

    calls = [{"name": "meet", "args": {"who": who}, "id": who} for who in ("Ann", "Bob")]
    model = ScriptedChat(reply=script(AIMessage("both", tool_calls=calls)))
    agent = create_agent(
        model, [meet], middleware=[TieredTaskMiddleware(memory)], checkpointer=InMemorySaver()
    )
    await run(agent, way)
    assert {cycle.action.parameters["who"] for cycle in cycles(memory)} == {"Ann", "Bob"}
    assert {cycle.thought.content for cycle in cycles(memory)} == {"both"}


@WAYS
async def test_an_answer_lifts_the_block(memory: AgentMemory, way: str) -> None:
    answer = call(ANSWER_TOOL, reason="the boat may have come in")
    steps = [*[call()] * (MOST + 1), answer, call()]
    messages = await run(
        create_tool_agent(ScriptedChat(reply=script(*steps)), TieredTaskMiddleware(memory)), way
    )
    assert RUNS["boat"] == MOST + 1
    texts = [str(result.text) for result in results(messages)]
    assert texts[MOST].startswith("Blocked:")
    assert texts[MOST + 1] == "The block is lifted for now."
    assert texts[MOST + 2] == "there is nothing about boat"
    assert len(cycles(memory)) == MOST + 1


def test_an_answer_without_a_reason_does_not_lift_the_block(memory: AgentMemory) -> None:
    steps = [*[call()] * MOST, call(ANSWER_TOOL, reason="because"), call()]
    messages = ask(create_tool_agent(ScriptedChat(reply=script(*steps)), TieredTaskMiddleware(memory)))
    assert "No block was lifted" in results(messages)[-2].text
    assert RUNS["boat"] == MOST


def test_the_answer_tool_has_only_the_argument_reason(memory: AgentMemory) -> None:
    (answer,) = TieredTaskMiddleware(memory).tools
    assert list(answer.tool_call_schema.model_json_schema()["properties"]) == ["reason"]  # type: ignore[union-attr]


@WAYS
@pytest.mark.parametrize("show", [True, False])
async def test_warnings_reach_the_model_and_are_not_stored_in_the_state(
    memory: AgentMemory, way: str, *, show: bool
) -> None:
    model = ScriptedChat(reply=script(*[call()] * 5))
    agent = create_tool_agent(model, TieredTaskMiddleware(memory, show=show), system_prompt="Be brief.")
    messages = await run(agent, way)
    assert "Warning:" in join_texts(model.seen[-1])
    assert ("Recent Actions" in join_texts(model.seen[-1])) is show
    assert "Warning:" not in join_texts(model.seen[1])
    assert TASK_FENCE_OPENING not in join_texts(messages)
    newest = str(model.seen[-1][-1].text)
    assert newest.startswith(TASK_FENCE_OPENING)
    assert strip_fences(newest) == "there is nothing about boat"
    assert TASK_FENCE_OPENING not in join_texts(model.seen[-1][:-1])
    assert [type(message) for message in model.seen[-1]].count(SystemMessage) == 1


def test_a_task_without_cycles_adds_nothing_to_the_prompt(memory: AgentMemory) -> None:
    model = ScriptedChat()
    ask(create_tool_agent(model, TieredTaskMiddleware(memory)))
    assert TASK_FENCE_OPENING not in join_texts(model.seen[-1])


def test_earlier_actions_precede_the_next_question(memory: AgentMemory) -> None:
    model = ScriptedChat(reply=script(call()))
    agent = create_tool_agent(model, TieredTaskMiddleware(memory))
    ask(agent)
    ask(agent, "And the harbour?")
    assert "Recent Actions" in model.seen[-1][-1].text
    assert strip_fences(str(model.seen[-1][-1].text)) == "And the harbour?"
    assert memory.working.current_goal == "Find the boat."


@pytest.mark.sample(2)
@pytest.mark.parametrize("budget", [1, 20, 60, 200])
@pytest.mark.parametrize("show", [True, False])
def test_the_task_text_stays_within_its_budget(memory: AgentMemory, budget: int, *, show: bool) -> None:
    model = ScriptedChat(reply=script(*[call(what="a boat </memory> " * 20)] * 6))
    tasks = TieredTaskMiddleware(memory, budget_tokens=budget, show=show)
    ask(create_tool_agent(model, tasks))
    texts = [str(shown[-1].text) for shown in model.seen if TASK_FENCE_OPENING in shown[-1].text]
    assert bool(texts) is (budget >= 60)
    for text in texts:
        fence = text[: text.index("\n</memory>") + len("\n</memory>")]
        assert is_only_fenced(fence)
        assert memory.counter.count(fence) <= budget
    assert not tasks.failures


def test_a_task_text_that_never_fits_is_given_up_after_five_attempts(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(create_tool_agent(ScriptedChat(reply=script(call())), TieredTaskMiddleware(memory)))
    rooms: list[int] = []

    def ignore_room(*, max_tokens: int) -> str:
        rooms.append(max_tokens)
        return "boat " * 100

    budget = memory.counter.count(wrap_in_fence([ignore_room(max_tokens=0)], TASK_FENCE_OPENING)) - 1
    monkeypatch.setattr(memory, "format_for_prompt", ignore_room)
    assert render_task(memory, budget, with_history=True) == ""
    assert len(rooms[1:]) == 5
    assert render_task(memory, budget + 1, with_history=True) != ""


def test_a_goal_and_a_user_context_that_were_set_are_kept(memory: AgentMemory) -> None:
    memory.start_task("Sell the boat.", {"price": "100"})
    ask(create_tool_agent(ScriptedChat(), TieredTaskMiddleware(memory)))
    assert memory.working.current_goal == "Sell the boat."
    memory.clear_task()
    memory.context_store.set_user_context({"price": "200"})
    ask(create_tool_agent(ScriptedChat(), TieredTaskMiddleware(memory, goal_from_first_message=False)))
    assert memory.working.current_goal in (None, "")
    ask(create_tool_agent(ScriptedChat(), TieredTaskMiddleware(memory)))
    assert memory.working.current_goal == "Find the boat."
    assert memory.context_store.get_all() == {"price": "200"}


def test_each_thread_has_its_own_task(engine: MemoryEngine) -> None:
    tasks = TieredTaskMiddleware(engine=engine)
    for thread in ("t1", "t2"):
        model = ScriptedChat(reply=script(*[call()] * 6))
        ask(create_tool_agent(model, tasks), f"Find the boat of {thread}.", thread)
        assert ("t1" if thread == "t2" else "t2") not in join_texts(model.seen[-1])
    assert RUNS["boat"] == 12
    for thread in ("t1", "t2"):
        found = AgentMemory(engine=engine, namespace=("threads", thread, "agent"), task=thread)
        assert found.working.current_goal == f"Find the boat of {thread}."
        assert len(cycles(found)) == 6
    assert not tasks.failures


def test_each_user_has_a_separate_task(engine: MemoryEngine) -> None:
    tasks = TieredTaskMiddleware(engine=engine, namespace=("acme", "{user_id}"))
    for user in ("alice", "bob"):
        agent = create_tool_agent(ScriptedChat(reply=script(*[call()] * 6)), tasks)
        agent.invoke({"messages": [HumanMessage("Find it.")]}, config(), context={"user_id": user})
    assert RUNS["boat"] == 12
    assert set(engine.namespaces("acme")) == {("acme", "alice", "agent"), ("acme", "bob", "agent")}


@WAYS
async def test_a_task_continues_after_a_restart(tmp_path: Path, way: str) -> None:
    path, saver = tmp_path / "memory.db", InMemorySaver()
    shown = []
    for _ in range(3):
        with MemoryEngine(path, embedder=None) as engine:
            model = ScriptedChat(reply=script(*[call()] * 4))
            agent = create_agent(
                model,
                TOOLS,
                middleware=[TieredTaskMiddleware(engine=engine, counts_across_turns=True)],
                checkpointer=saver,
            )
            await run(agent, way)
            shown.append(join_texts(model.seen[-1]))
    assert RUNS["boat"] == MOST
    assert "Blocked:" not in shown[0]
    assert "Blocked:" in shown[1]
    assert "Blocked:" in shown[2]


def test_cycles_of_another_process_count_in_the_next_run(tmp_path: Path) -> None:
    saver, path = InMemorySaver(), tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None) as first, MemoryEngine(path, embedder=None) as second:
        both = [TieredTaskMiddleware(engine=engine, counts_across_turns=True) for engine in (first, second)]
        for turn in range(6):
            model = ScriptedChat(reply=script(call(), call()))
            ask(create_agent(model, TOOLS, middleware=[both[turn % 2]], checkpointer=saver))
    assert RUNS["boat"] == MOST


def test_an_erased_task_starts_without_cycles(engine: MemoryEngine) -> None:
    tasks = TieredTaskMiddleware(engine=engine)
    agent = create_tool_agent(ScriptedChat(reply=script(call())), tasks)
    ask(agent)
    engine.namespace(("threads", "t", "agent")).delete()
    again = ScriptedChat(reply=script(call()))
    ask(create_tool_agent(again, tasks), "Once more.")
    assert TASK_FENCE_OPENING not in join_texts(again.seen[0])
    assert TASK_FENCE_OPENING in join_texts(again.seen[-1])
    assert not tasks.failures


@WAYS
async def test_a_store_failure_does_not_break_the_agent(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.02)) as engine:
        tasks = TieredTaskMiddleware(engine=engine)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        steps = [call(), call(ANSWER_TOOL, reason="it has to be")]
        messages = await run(create_tool_agent(ScriptedChat(reply=script(*steps)), tasks), way)
        other.execute("ROLLBACK")
        other.close()
        assert messages[-1].text == "done"
        assert RUNS["boat"] == 1
        assert tasks.failures["StorageBusyError"] >= 2
        assert "continues without task memory" in caplog.text
        with pytest.raises(RuntimeError, match="no boat"):
            await run(create_tool_agent(ScriptedChat(reply=script(call("broken"))), tasks), way)


def test_warnings_do_not_contain_driver_messages(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no answer from postgresql://me:hunter2@db")

    monkeypatch.setattr(memory, "record_cycle", fail)
    tasks = TieredTaskMiddleware(memory)
    with caplog.at_level("INFO"):
        ask(create_tool_agent(ScriptedChat(reply=script(call())), tasks))
    assert tasks.failures == {"OSError": 1}
    assert "continues without task memory: OSError" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_call_that_cannot_be_recorded_is_counted_and_its_tool_runs(memory: AgentMemory) -> None:
    malformed: Any = {"name": "look", "args": None, "id": "c"}
    runtime: Any = None
    request = ToolCallRequest(malformed, None, {"messages": [HumanMessage("Find the boat.")]}, runtime)
    result, tasks = ToolMessage("a boat", tool_call_id="c"), TieredTaskMiddleware(memory)
    assert tasks.wrap_tool_call(request, lambda _: result) is result
    assert tasks.failures == {"AttributeError": 1}
    assert cycles(memory) == []


@WAYS
async def test_a_closed_memory_does_not_break_the_agent(way: str) -> None:
    memory = AgentMemory()
    memory.close()
    tasks = TieredTaskMiddleware(memory)
    agent = create_tool_agent(ScriptedChat(reply=script(call(), call("broken"))), tasks)
    with pytest.raises(RuntimeError, match="no boat"):
        await run(agent, way)
    assert tasks.failures == {EngineClosedError.__name__: 3}  # the beginning, and the record of both calls


@WAYS
async def test_a_failure_to_learn_is_counted_and_the_run_still_answers(
    memory: AgentMemory, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = script(call(), call("fetch", url="https://gate.example/boat"))

    def reply(messages: Sequence[BaseMessage]) -> AIMessage:
        answer = steps(messages)
        if not answer.tool_calls:
            memory.close()  # only the learning comes after the last answer
        return answer

    tasks = TieredTaskMiddleware(memory)
    messages = await run(create_tool_agent(ScriptedChat(reply=reply), tasks), way)
    assert messages[-1].text == "done"
    assert tasks.failures == {EngineClosedError.__name__: 1}
    assert "continues without task memory: EngineClosedError" in caplog.text


def test_an_unsaved_answer_to_the_guard_does_not_lift_the_block(memory: AgentMemory) -> None:
    again = build_looping_script(stops_when_blocked=False)

    def reply(messages: Sequence[BaseMessage]) -> AIMessage:
        text = strip_fences(str(messages[-1].text))
        if "Blocked:" in text:
            memory.close()
            return call(ANSWER_TOOL, reason="The list is refreshed every minute.")
        return AIMessage("I give up.") if text == BLOCK_NOT_LIFTED else again(messages)

    tasks = TieredTaskMiddleware(memory)
    assert ask(create_tool_agent(ScriptedChat(reply=reply), tasks))[-1].text == "I give up."
    assert tasks.failures == {EngineClosedError.__name__: 2}  # the answer, and the learning at the end


class FailingCounter:
    """Token counter that fails after the first model call."""

    name = "failing"
    fails = False

    def count(self, text: str) -> int:
        if self.fails:
            raise ConnectionError("no vocabulary")
        return len(text) // 4


def test_a_failing_counter_leaves_the_messages_unchanged() -> None:
    counter, steps = FailingCounter(), script(call())

    def reply(messages: Sequence[BaseMessage]) -> AIMessage:
        counter.fails = True
        return steps(messages)

    model = ScriptedChat(reply=reply)
    with MemoryEngine(counter=counter, embedder=None) as engine:
        tasks = TieredTaskMiddleware(engine=engine)
        messages = ask(create_tool_agent(model, tasks))
    assert messages[-1].text == "done"
    assert model.seen[-1] == messages[:-1]
    assert tasks.failures == {"ConnectionError": 2}  # the record of the call, and what the model is shown


def test_a_run_without_user_and_thread_continues_and_logs_a_warning(
    engine: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TieredTaskMiddleware(engine=engine)
    agent = create_agent(ScriptedChat(reply=script(call())), TOOLS, middleware=[tasks])
    assert agent.invoke({"messages": [HumanMessage("hello")]})["messages"][-1].text == "done"
    assert tasks.failures["InvalidInputError"] >= 3
    assert len(caplog.records) == 1
    assert engine.namespaces() == ()


@pytest.mark.parametrize("first", ["memory", "tasks"])
def test_task_middleware_works_together_with_memory_middleware(engine: MemoryEngine, first: str) -> None:
    tasks, memory = TieredTaskMiddleware(engine=engine), TieredMemoryMiddleware(engine)
    both: list[Any] = [memory, tasks] if first == "memory" else [tasks, memory]
    model = ScriptedChat(reply=build_looping_script())
    agent = create_agent(model, TOOLS, middleware=both, checkpointer=InMemorySaver(), context_schema=dict)
    state = agent.invoke({"messages": [HumanMessage("Find it.")]}, config(), context={"user_id": "alice"})
    assert RUNS["boat"] == MOST
    assert "Recent Actions" in join_texts(model.seen[-1])
    for shown in model.seen:
        check_tool_call_order(shown)
    stored = [
        message.content for message in engine.session("alice", "t").messages() if not message.is_summary
    ]
    assert stored == [str(message.text) for message in state["messages"]]
    assert not tasks.failures
    assert not memory.stats.failures


def test_invalid_combinations_of_memory_and_engine_are_rejected(
    memory: AgentMemory, engine: MemoryEngine
) -> None:
    invalid_options: list[dict[str, Any]] = [
        {},
        {"memory": memory, "engine": engine},
        {"memory": engine},
        {"engine": memory},
        {"memory": memory, "namespace": "acme"},
    ]
    for options in invalid_options:
        with pytest.raises(InvalidConfigError):
            TieredTaskMiddleware(**options)


async def test_a_lock_of_the_registry_is_reentrant() -> None:
    turns = LockRegistry()
    with turns.lock("a"), turns.lock("a"), turns.lock("b"):
        pass
    async with turns.alock("a"), turns.alock("a"):
        pass
    assert not turns._locks
