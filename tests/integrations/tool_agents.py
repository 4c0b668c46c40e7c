"""LangChain agents with tools and scripted models."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime  # noqa: TC002 - the framework reads it from the tool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langmem_tiers.common.prompt_fences import strip_fences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers import AgentMemory
    from langmem_tiers.tasks.models import Cycle
    from langmem_tiers_langchain import TieredTaskMiddleware
    from tests.integrations.langchain_agents import ScriptedChat

RUNS: Counter[str] = Counter()
"""How often ``look_up`` ran, by what it was asked for."""
MOST = 7
"""Times that the guard lets the same call through."""


@tool
def look_up(what: str) -> str:
    """Look something up."""
    RUNS[what] += 1
    time.sleep(0.005)  # so that calls at once do overlap
    return f"there is nothing about {what}"


@tool
def fetch(url: str) -> str:
    """Get a page."""
    return f"the page at {url}"


@tool
def broken(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"no {what}")


@tool
def slow(what: str) -> str:
    """Take too long."""
    raise TimeoutError(f"{what} took too long")


@tool
def hand_over(what: str, runtime: ToolRuntime) -> Command[Any]:
    """Answer with a command."""
    return Command(
        update={"messages": [ToolMessage(f"{what} is handed over", tool_call_id=runtime.tool_call_id)]}
    )


@tool
def ask_person(what: str) -> str:
    """Wait for a person."""
    return f"the person says {interrupt(what)}"


TOOLS = [look_up, fetch, broken, slow, hand_over, ask_person]


def call(name: str = "look_up", content: str = "", **args: Any) -> AIMessage:
    args = args or {"what": "boat"}
    return AIMessage(content, tool_calls=[{"name": name, "args": args, "id": "x"}])


def script(*steps: AIMessage) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """Return a reply function: the steps in order with unique call ids, then a final answer."""
    left = iter(enumerate(steps))

    def reply(_: Sequence[BaseMessage]) -> AIMessage:
        number, step = next(left, (0, AIMessage("done")))
        calls = [{**tool_call, "id": f"{number}-{place}"} for place, tool_call in enumerate(step.tool_calls)]
        return AIMessage(step.content, tool_calls=calls)

    return reply


def build_looping_script(
    calls: int = 30, *, stops_when_blocked: bool = True
) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """Build a reply function that repeats one call until it is blocked."""
    again = script(*[call() for _ in range(calls)])

    def reply(messages: Sequence[BaseMessage]) -> AIMessage:
        if stops_when_blocked and "Blocked:" in strip_fences(str(messages[-1].text)):
            return AIMessage("I cannot find it.")
        return again(messages)

    return reply


def create_tool_agent(model: ScriptedChat, tasks: TieredTaskMiddleware, **options: Any) -> Any:
    return create_agent(
        model, TOOLS, middleware=[tasks], checkpointer=InMemorySaver(), context_schema=dict, **options
    )


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": 500}


def ask(agent: Any, text: str = "Find the boat.", thread: str = "t") -> list[BaseMessage]:
    found: list[BaseMessage] = agent.invoke({"messages": [HumanMessage(text)]}, config(thread))["messages"]
    return found


async def run(agent: Any, way: str, text: str = "Find the boat.") -> list[BaseMessage]:
    if way == "invoke":
        return ask(agent, text)
    state = await agent.ainvoke({"messages": [HumanMessage(text)]}, config())
    found: list[BaseMessage] = state["messages"]
    return found


def cycles(memory: AgentMemory) -> list[Cycle]:
    return memory.short_term.entries


def results(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]
