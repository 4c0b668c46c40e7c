"""Where a loop begins and where it ends: turns of the user, blocks that are ignored, a store that is away."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from langchain_core.messages import AIMessage

from langmem_tiers import AgentMemory, EngineConfig, InvalidInputError, MemoryEngine
from langmem_tiers_langchain import TieredTaskMiddleware
from tests.integrations.acting_agents import MOST, RUNS, agent_of, ask, call, looping, results, run, script
from tests.integrations.langchain_agents import ScriptedChat, check_whole, texts

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
async def test_the_same_question_in_many_turns_is_no_loop(memory: AgentMemory, way: str) -> None:
    tasks = TieredTaskMiddleware(memory)
    for _ in range(12):
        model = ScriptedChat(reply=script(call()))
        messages = await run(agent_of(model, tasks), way, "Is the boat there today?")
        assert not results(messages)[-1].additional_kwargs
        assert "Warning" not in texts(model.seen[-1])
    assert RUNS["boat"] == 12
    assert memory.short_term.get_action_frequency("look_up", {"what": "boat"}) == 12


def test_a_loop_within_a_turn_is_stopped_in_whichever_turn_it_comes(memory: AgentMemory) -> None:
    tasks = TieredTaskMiddleware(memory)
    for _ in range(3):
        RUNS.clear()
        ask(agent_of(ScriptedChat(reply=looping()), tasks))
        assert RUNS["boat"] == MOST


def test_turns_count_together_where_an_agent_is_only_told_to_go_on(memory: AgentMemory) -> None:
    tasks = TieredTaskMiddleware(memory, counts_across_turns=True)
    for _ in range(10):
        ask(agent_of(ScriptedChat(reply=script(call())), tasks), "Go on.")
    assert RUNS["boat"] == MOST


@WAYS
@pytest.mark.parametrize("most", [1, 5])
async def test_a_run_that_ignores_every_block_ends(memory: AgentMemory, way: str, most: int) -> None:
    model = ScriptedChat(reply=looping(200, stops_when_told=False))
    messages = await run(agent_of(model, TieredTaskMiddleware(memory, stop_after=most)), way)
    assert len(model.seen) == MOST + most
    assert isinstance(messages[-1], AIMessage)
    assert str(messages[-1].text).startswith(f"Stopped after {most} blocked tries. Blocked: look_up")
    assert "answer_guard" not in messages[-1].text
    check_whole(messages)


def test_a_run_that_does_something_else_in_between_goes_on(memory: AgentMemory) -> None:
    steps = [*[call()] * (MOST + 4), call("fetch", url="https://example.com"), *[call()] * 4]
    model = ScriptedChat(reply=script(*steps))
    messages = ask(agent_of(model, TieredTaskMiddleware(memory, stop_after=5)))
    assert messages[-1].text == "done"
    assert len(model.seen) == len(steps) + 1


def test_the_next_question_after_a_run_was_ended_is_answered(memory: AgentMemory) -> None:
    tasks = TieredTaskMiddleware(memory, stop_after=1)
    agent = agent_of(ScriptedChat(reply=looping(MOST + 1, stops_when_told=False)), tasks)
    assert "Stopped" in ask(agent)[-1].text
    assert ask(agent, "And now?")[-1].text == "done"


def test_stop_after_is_a_whole_number(memory: AgentMemory) -> None:
    with pytest.raises(InvalidInputError, match="stop_after"):
        TieredTaskMiddleware(memory, stop_after=-1)


def test_a_loop_is_stopped_while_the_store_is_away(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.02)) as engine:
        memory = AgentMemory(engine=engine, task="t")
        tasks = TieredTaskMiddleware(memory)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        messages = ask(agent_of(ScriptedChat(reply=looping()), tasks))
        other.execute("ROLLBACK")
        other.close()
    assert messages[-1].text == "I cannot find it."
    assert RUNS["boat"] == MOST
    assert tasks.failures["StorageBusyError"] >= MOST
