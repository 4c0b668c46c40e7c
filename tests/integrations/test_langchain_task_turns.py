"""Loop detection across user turns, ignored blocks and store failures."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    EngineConfig,
    InvalidConfigError,
    InvalidInputError,
    MemoryEngine,
)
from langmem_tiers.integration_kit.task_registry import TaskRegistry
from langmem_tiers.integration_kit.tool_messages import ANSWER_TOOL
from langmem_tiers_langchain import TieredTaskMiddleware
from langmem_tiers_langchain.tasks import ThreadTasks
from tests.integrations.langchain_agents import ScriptedChat, check_tool_call_order, join_texts
from tests.integrations.tool_agents import (
    MOST,
    RUNS,
    ask,
    broken,
    build_looping_script,
    call,
    create_tool_agent,
    results,
    run,
    script,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAYS = pytest.mark.parametrize("way", ["invoke", "ainvoke"])


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


@WAYS
async def test_the_same_question_in_many_turns_is_not_a_loop(memory: AgentMemory, way: str) -> None:
    tasks = TieredTaskMiddleware(memory)
    for _ in range(12):
        model = ScriptedChat(reply=script(call()))
        messages = await run(create_tool_agent(model, tasks), way, "Is the boat there today?")
        assert not results(messages)[-1].additional_kwargs
        assert "Warning" not in join_texts(model.seen[-1])
    assert RUNS["boat"] == 12
    assert memory.short_term.get_action_frequency("look_up", {"what": "boat"}) == 12


def test_a_loop_within_a_turn_is_stopped_in_every_turn(memory: AgentMemory) -> None:
    tasks = TieredTaskMiddleware(memory)
    for _ in range(3):
        RUNS.clear()
        ask(create_tool_agent(ScriptedChat(reply=build_looping_script()), tasks))
        assert RUNS["boat"] == MOST


def test_with_counts_across_turns_calls_of_all_turns_are_counted(memory: AgentMemory) -> None:
    tasks = TieredTaskMiddleware(memory, counts_across_turns=True)
    for _ in range(10):
        ask(create_tool_agent(ScriptedChat(reply=script(call())), tasks), "Go on.")
    assert RUNS["boat"] == MOST


@WAYS
@pytest.mark.parametrize("limit", [1, 5])
async def test_a_run_that_ignores_every_block_ends(memory: AgentMemory, way: str, limit: int) -> None:
    model = ScriptedChat(reply=build_looping_script(200, stops_when_blocked=False))
    messages = await run(create_tool_agent(model, TieredTaskMiddleware(memory, stop_after=limit)), way)
    assert len(model.seen) == MOST + limit
    assert isinstance(messages[-1], AIMessage)
    assert str(messages[-1].text).startswith(f"Stopped after {limit} blocked attempts. Blocked: look_up")
    assert "answer_guard" not in messages[-1].text
    check_tool_call_order(messages)


def test_a_different_call_between_blocked_ones_keeps_the_run_going(memory: AgentMemory) -> None:
    steps = [*[call()] * (MOST + 4), call("fetch", url="https://example.com"), *[call()] * 4]
    model = ScriptedChat(reply=script(*steps))
    messages = ask(create_tool_agent(model, TieredTaskMiddleware(memory, stop_after=5)))
    assert messages[-1].text == "done"
    assert len(model.seen) == len(steps) + 1


def test_the_next_question_after_a_stopped_run_is_answered(memory: AgentMemory) -> None:
    tasks = TieredTaskMiddleware(memory, stop_after=1)
    agent = create_tool_agent(
        ScriptedChat(reply=build_looping_script(MOST + 1, stops_when_blocked=False)), tasks
    )
    assert "Stopped" in ask(agent)[-1].text
    assert ask(agent, "And now?")[-1].text == "done"


def test_a_negative_stop_after_is_rejected(memory: AgentMemory) -> None:
    with pytest.raises(InvalidInputError, match="stop_after"):
        TieredTaskMiddleware(memory, stop_after=-1)


def test_a_loop_is_stopped_while_the_store_fails(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.02)) as engine:
        memory = AgentMemory(engine=engine, task="t")
        tasks = TieredTaskMiddleware(memory)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        messages = ask(create_tool_agent(ScriptedChat(reply=build_looping_script()), tasks))
        other.execute("ROLLBACK")
        other.close()
    assert messages[-1].text == "I cannot find it."
    assert RUNS["boat"] == MOST
    assert tasks.failures["StorageBusyError"] >= MOST


@WAYS
async def test_rejected_answers_between_blocks_do_not_keep_a_run_going(memory: AgentMemory, way: str) -> None:
    refused = call(ANSWER_TOOL, reason="because")
    steps = [*[call()] * MOST, *[call(), refused] * 50]
    model = ScriptedChat(reply=script(*steps))
    messages = await run(create_tool_agent(model, TieredTaskMiddleware(memory)), way)
    assert len(model.seen) == MOST + 5
    assert str(messages[-1].text).startswith("Stopped after 5 blocked attempts. Blocked: look_up")


def test_a_repeated_answer_does_not_keep_a_run_going(memory: AgentMemory) -> None:
    answer = call(ANSWER_TOOL, reason="I really need this")
    model = ScriptedChat(reply=script(*[call()] * MOST, *[call(), answer] * 100))
    assert (
        "Stopped after 5 blocked attempts"
        in ask(create_tool_agent(model, TieredTaskMiddleware(memory)))[-1].text
    )
    assert RUNS["boat"] < 2 * MOST


def test_a_failing_call_with_changing_arguments_is_stopped(memory: AgentMemory) -> None:
    steps = [call("broken", what=f"host-{number}") for number in range(60)]
    model = ScriptedChat(reply=script(*steps))
    agent = create_agent(
        model, [broken], middleware=[ToolRetryMiddleware(max_retries=0), TieredTaskMiddleware(memory)]
    )
    messages = ask(agent)
    assert "Stopped after" in messages[-1].text
    assert len(memory.short_term) < 15


def test_the_newest_question_is_the_goal_unless_it_was_set(memory: AgentMemory) -> None:
    agent = create_tool_agent(ScriptedChat(), TieredTaskMiddleware(memory))
    for question, goal in [
        ("Hello there", "Hello there"),
        ("What is the weather in Paris?", "What is the weather in Paris?"),
        ("yes, please", "What is the weather in Paris?"),
        ("Book a flight to Oslo", "Book a flight to Oslo"),
        ("请帮我查一下明天去上海的火车票", "请帮我查一下明天去上海的火车票"),
        ("好的", "请帮我查一下明天去上海的火车票"),
    ]:
        ask(agent, question)
        assert memory.working.current_goal == goal
    memory.working.set_goal("Plan a holiday")
    ask(agent, "And now a hotel in Oslo")
    assert memory.working.current_goal == "Plan a holiday"


def test_the_number_of_open_tasks_is_bounded_and_none_loses_its_cycles() -> None:
    with MemoryEngine(embedder=None) as engine:
        registry = TaskRegistry(engine, max_open_tasks=3)
        tasks = ThreadTasks(registry, ("acme",))
        for thread in [*"abcde", *"abcde"]:
            runtime = SimpleNamespace(execution_info=SimpleNamespace(thread_id=thread, checkpoint_ns=""))
            tasks.open_task(runtime, []).record_cycle("", AgentAction("look", {"at": thread}))
        assert len(registry) == 3
        for thread in "abcde":
            assert (
                AgentMemory(engine=engine, namespace=("acme", "agent"), task=thread).working.cycle_count == 2
            )


def test_unguarded_tools_cannot_be_combined_with_a_memory(memory: AgentMemory) -> None:
    with pytest.raises(InvalidConfigError, match="unguarded"):
        TieredTaskMiddleware(memory, unguarded_tools=["look_up"])
    with MemoryEngine(embedder=None) as engine:
        tasks = TieredTaskMiddleware(engine=engine, unguarded_tools=["look_up"])
        ask(create_tool_agent(ScriptedChat(reply=script(*[call()] * 20)), tasks))
    assert RUNS["boat"] == 20
