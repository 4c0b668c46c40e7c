"""A long agent run with parallel calls, failing tools and interrupts under a small budget."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langmem_tiers import MemoryEngine
from langmem_tiers_langchain.middleware import TieredMemoryMiddleware
from langmem_tiers_langchain.prompt_budget import PromptBudgeter
from tests.integrations.langchain_agents import ScriptedChat, check_tool_call_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig

BUDGET = 1800
THREADS = ("first", "second", "third", "fourth")
WRITTEN_ONCE = THREADS[1:]  # their state is written at the end of each run, not after each step
WAYS = ("invoke", "ainvoke", "stream", "astream")


@tool
def look_up(what: str) -> str:
    """Look something up in the book of gates."""
    return f"The {what} is at https://gate.example/{what}, open from 9:00. " * random.Random(what).randint(
        1, 12
    )


@tool
def ask_person(what: str) -> str:
    """Ask the person in charge."""
    return str(interrupt(f"May I have the {what}?"))


@tool
def fall_over(what: str) -> str:
    """A tool that fails."""
    raise RuntimeError(f"no {what} today")


class Script:
    """Choose the answer by turn and step only, so that it is the same for every way to run the agent."""

    def __init__(self) -> None:
        self.turn = 0
        self.steps: dict[int, int] = {}

    def __call__(self, messages: Sequence[BaseMessage]) -> AIMessage:
        step = self.steps[self.turn] = self.steps.get(self.turn, 0) + 1
        chance = random.Random(f"{self.turn} {step}")
        if step > chance.randint(1, 2):
            return AIMessage(f"The answer to question {self.turn}. " * chance.randint(1, 8))
        names = chance.choices(
            ["look_up", "ask_person", "fall_over"], [8, 1, 1], k=chance.choice([1, 1, 2, 3])
        )
        calls = [
            {
                "name": name,
                "args": {"what": f"thing-{self.turn}-{step}-{n}"},
                "id": f"c-{self.turn}-{step}-{n}",
            }
            for n, name in enumerate(names)
        ]
        return AIMessage("Let me see." if chance.random() < 0.5 else "", tool_calls=calls)


async def run(agent: Any, way: str, value: Any, config: RunnableConfig) -> tuple[bool, list[Any]]:
    """Run the agent; return whether no tool failed, and the interrupts."""
    options: Any = {"context": {"user_id": "alice"}}
    if config["configurable"]["thread_id"] in WRITTEN_ONCE:
        options["durability"] = "exit"
    chunks: list[Any] = []
    try:
        if way == "invoke":
            chunks.append(agent.invoke(value, config, **options))
        elif way == "ainvoke":
            chunks.append(await agent.ainvoke(value, config, **options))
        elif way == "stream":
            chunks.extend(agent.stream(value, config, **options))
        else:
            chunks.extend([chunk async for chunk in agent.astream(value, config, **options)])
    except RuntimeError as error:
        assert "today" in str(error)  # noqa: PT017 - the tool's own
        return False, []
    return True, [waiting for chunk in chunks for waiting in chunk.get("__interrupt__", ())]


@pytest.mark.parametrize("turns", [40, pytest.param(500, marks=pytest.mark.soak)])
async def test_every_prompt_of_a_long_run_is_complete_and_within_the_budget(turns: int) -> None:
    script = Script()
    model = ScriptedChat(reply=script)
    # Several threads: the checkpointer's work grows with the square of a thread's length.
    configs: list[RunnableConfig] = [
        {"configurable": {"thread_id": name}, "recursion_limit": 50} for name in THREADS
    ]
    failed = interrupted = 0
    with MemoryEngine() as engine:
        memory = TieredMemoryMiddleware(engine, budget=BUDGET)
        sizes = PromptBudgeter(BUDGET, engine.config.budget, engine.counter)
        agent: Any = create_agent(
            model,
            [look_up, ask_person, fall_over],
            system_prompt="Be brief.",
            middleware=[memory],
            checkpointer=InMemorySaver(),
            context_schema=dict,
        )
        question_ids: list[str] = []
        for turn in range(turns):
            script.turn, way = turn, WAYS[turn % 4]
            config = configs[turn * len(configs) // turns]
            question_ids.append(f"q{turn}")
            question = HumanMessage(f"Question {turn}: where is thing {turn % 50}?", id=f"q{turn}")
            worked, waiting = await run(agent, way, {"messages": [question]}, config)
            while waiting:
                interrupted += 1
                answers = {interruption.id: "yes, take it" for interruption in waiting}
                worked, waiting = await run(agent, way, Command(resume=answers), config)
            failed += not worked
        state = [message for config in configs for message in agent.get_state(config).values["messages"]]
        stored = [
            message.id
            for name in THREADS
            for message in engine.session("alice", name).messages()
            if not message.is_summary
        ]
        for shown in model.seen:
            check_tool_call_order(shown)
            assert isinstance(shown[0], SystemMessage)
            assert sum(sizes.count_tokens(message) for message in shown) <= BUDGET
    assert not memory.stats.failures
    assert [
        message.id for message in state if message.id in set(question_ids)
    ] == question_ids  # the state keeps everything
    assert set(stored) >= {message.id for message in state}
    assert len(stored) == len(set(stored))
    calls = sum(isinstance(message, ToolMessage) for message in state)
    assert len(model.seen) > turns
    assert failed > turns // 25
    assert interrupted > turns // 25
    assert calls > turns
