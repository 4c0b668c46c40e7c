"""Loops that no tool of an agent sees, what was thought in them, and how a run ends that ignores every block."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import AgentMemory
from langmem_tiers.tasks.models import Thought

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import (
        AgentOutput,
        AgentStream,
        AgentWorkflow,
        CodeActAgent,
        FunctionAgent,
        ReActAgent,
    )
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.workflow import Context

    from langmem_tiers_llamaindex import WatchedTool
    from langmem_tiers_llamaindex.tasks import watch_agent, watch_tools

    from .llamaindex_agents import (
        AnswerSequence,
        CompletionLLM,
        Prompt,
        ScriptedLLM,
        check_call_order,
        create_tool_calls,
        texts,
    )

if TYPE_CHECKING:
    from collections.abc import Iterator

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ANSWER = "To answer, call answer_guard with the reason, in three words or more."
MOST = 7  # calls of a loop until it is blocked
# The framework's own history cannot be written down with a Context that goes on; a new one is handed in then.
GOES_ON = pytest.mark.filterwarnings("ignore:Skipping serialization")


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


class Page:
    """A tool that always shows the same."""

    def __init__(self) -> None:
        self.clicks: list[str] = []

    def click(self, selector: str) -> str:
        """Click an element."""
        self.clicks.append(selector)
        return "A button."


def click(selector: str = "#buy", text: str = "") -> Any:
    return create_tool_calls(("call", "click", {"selector": selector}), text=text)


def answering(reason: str) -> Any:
    return create_tool_calls(("why", "answer_guard", {"reason": reason}))


async def ask(agent: Any, history: Any = None, question: str = "Buy it.", **about: Any) -> AgentOutput:
    # The default history leaves a database open.
    held = ChatMemoryBuffer.from_defaults(token_limit=20_000) if history is None else history
    output = await agent.run(question, memory=held, **about)
    assert isinstance(output, AgentOutput)
    return output


def results(llm: ScriptedLLM) -> list[str]:
    return [message.content or "" for message in llm.seen[-1] if message.role == "tool"]


def names(memory: AgentMemory) -> list[str]:
    return [one.action.tool_name for one in memory.short_term.get_recent(50)]


def thoughts(memory: AgentMemory) -> list[str]:
    return [one.thought.content for one in memory.short_term.get_recent(50)]


# Loops past the tools


@pytest.mark.parametrize("in_workflow", [False, True])
async def test_calls_of_a_tool_that_does_not_exist_are_cycles(memory: AgentMemory, in_workflow: bool) -> None:  # noqa: FBT001 - a parameter
    missing = create_tool_calls(("call", "teleport", {"to": "Rome"}))
    llm = ScriptedLLM(reply=AnswerSequence(*[missing] * 9, "I give up."))
    agent = FunctionAgent(tools=[Page().click], llm=llm)
    watched: Any = watch_agent(AgentWorkflow(agents=[agent]) if in_workflow else agent, memory)
    assert str(await ask(watched)) == "I give up."
    done = memory.short_term.get_recent(20)
    assert 3 <= len(done) <= MOST
    assert {(one.action.tool_name, dict(one.action.parameters)["to"]) for one in done} == {
        ("teleport", "Rome")
    }
    assert {one.outcome.value for one in done} == {"failure"}
    told = results(llm)
    assert told[0] == "Tool teleport not found. Please select a tool that is available."
    assert told[2].startswith(f"{told[0]}\n\n")
    assert all(one.startswith("Blocked: teleport") for one in told[len(done) :])


async def test_a_react_agent_that_asks_for_no_such_tool_is_stopped(memory: AgentMemory) -> None:
    llm = CompletionLLM(reply=lambda _: "Thought: I go.\nAction: teleport\nAction Input: {}")
    answer = str(await ask(watch_agent(ReActAgent(tools=[Page().click], llm=llm), memory)))
    assert answer.startswith("Stopped after 5 blocked tries. Blocked: teleport")
    assert 3 <= memory.working.cycle_count <= MOST


def handing(to: str, reasons: Iterator[str]) -> Any:
    def reply(prompt: Prompt) -> Any:
        if "Blocked: handoff" in (prompt[-1].content or ""):
            return "I do it myself."
        return create_tool_calls(("h", "handoff", {"to_agent": to, "reason": next(reasons)}))

    return reply


@pytest.mark.parametrize(
    "reasons", [["It is yours."], ["It is yours.", "I cannot.", "Ask again.", "Prices!"]]
)
async def test_agents_that_hand_off_to_each_other_are_stopped(
    memory: AgentMemory, reasons: list[str]
) -> None:
    why = (f"{one} {number}" for number, one in enumerate(itertools.cycle(reasons)))
    one = FunctionAgent(name="one", description="One.", llm=ScriptedLLM(reply=handing("other", why)))
    other = FunctionAgent(name="other", description="Other.", llm=ScriptedLLM(reply=handing("one", why)))
    flow = watch_agent(AgentWorkflow(agents=[one, other], root_agent="one"), memory)
    ctx: Context[Any] = Context(flow)
    output = await ask(flow, ctx=ctx, max_iterations=60)
    assert str(output) == "I do it myself."
    assert set(names(memory)) == {"handoff"}
    assert 3 <= memory.working.cycle_count <= 20
    assert thoughts(memory)[:2] == [f"{reasons[0]} 0", f"{reasons[1 % len(reasons)]} 1"]
    assert isinstance(one.llm, ScriptedLLM)
    assert isinstance(other.llm, ScriptedLLM)
    steps = len(one.llm.seen) + len(other.llm.seen)
    assert steps == memory.working.cycle_count + 2  # what was blocked was no handoff: the same agent answered
    assert await ctx.store.get("current_agent_name") == output.current_agent_name
    seen = texts(one.llm.seen[-1]) + texts(other.llm.seen[-1])
    assert "Warning: " in seen
    assert ANSWER in seen


async def test_a_handoff_that_is_blocked_for_good_ends_the_run(memory: AgentMemory) -> None:
    def always(to: str) -> ScriptedLLM:
        call = create_tool_calls(("h", "handoff", {"to_agent": to, "reason": "It is yours."}))
        return ScriptedLLM(reply=AnswerSequence(call))

    agents: list[Any] = [
        FunctionAgent(name="one", description="One.", llm=always("other")),
        FunctionAgent(name="other", description="Other.", llm=always("one")),
    ]
    flow = watch_agent(AgentWorkflow(agents=agents, root_agent="one"), memory)
    output = await ask(flow, max_iterations=60)
    assert str(output).startswith("Stopped after 5 blocked tries. Blocked: handoff")


# Thoughts


@pytest.mark.parametrize("streaming", [True, False])
async def test_what_a_model_says_with_a_call_is_its_thought(memory: AgentMemory, streaming: bool) -> None:  # noqa: FBT001 - a parameter
    two = create_tool_calls(
        ("1", "click", {"selector": "#a"}), ("2", "click", {"selector": "#b"}), text="Both may buy it."
    )
    steps = [click("#c", "The button buys it."), two, click("#d"), "Done."]
    agent = FunctionAgent(
        tools=[Page().click], llm=ScriptedLLM(reply=AnswerSequence(*steps)), streaming=streaming
    )
    await ask(watch_agent(agent, memory))
    assert thoughts(memory) == ["The button buys it.", "Both may buy it.", "Both may buy it.", ""]


async def test_the_thought_of_a_react_agent_is_recorded(memory: AgentMemory) -> None:
    steps = [
        'Thought: I look for it.\nAction: click\nAction Input: {"selector": "#find"}',
        'Thought: I buy it.\nAction: click\nAction Input: {"selector": "#buy"}',
        "Thought: It is bought.\nAnswer: Done.",
    ]
    agent = ReActAgent(tools=[Page().click], llm=CompletionLLM(reply=AnswerSequence(*steps)))
    assert str(await ask(watch_agent(agent, memory))) == "Done."
    assert thoughts(memory) == ["I look for it.", "I buy it."]


async def test_the_thought_of_an_agent_that_runs_code_is_what_is_not_code(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence("I add them.\n<execute>1 + 2</execute>", "It is three."))
    agent = CodeActAgent(code_execute_fn=lambda code: str(len(code)), llm=llm)
    await ask(watch_agent(agent, memory))
    assert thoughts(memory) == ["I add them."]


async def test_a_thought_that_was_set_by_hand_goes_first(memory: AgentMemory) -> None:
    memory.working.set_active(Thought("I know better."))
    llm = ScriptedLLM(reply=AnswerSequence(click(text="The button buys it."), "Done."))
    await ask(watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory))
    assert thoughts(memory) == ["I know better."]


# Blocks


async def test_a_block_says_how_it_is_answered(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*[click()] * (MOST + 1), "I give up."))
    await ask(watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory))
    told = results(llm)
    assert told[-1].startswith("Blocked: ")
    assert told[-1].endswith(ANSWER)
    assert all(ANSWER not in one for one in told if "Warning: " in one)


async def test_an_agent_that_runs_code_is_told_of_no_tool_to_answer_with(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*["<execute>1 + 2</execute>"] * 9, "It is three."))
    await ask(watch_agent(CodeActAgent(code_execute_fn=lambda code: str(len(code)), llm=llm), memory))
    assert "Blocked: " in texts(llm.seen[-1])
    assert "answer_guard" not in texts(llm.seen[-1])


# Runs that ignore blocks


@pytest.mark.parametrize("most", [1, 5])
async def test_a_run_that_ignores_every_block_ends_with_an_answer(memory: AgentMemory, most: int) -> None:
    page, llm = Page(), ScriptedLLM(reply=AnswerSequence(click()))
    agent = watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory, stop_after=most)
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    handler = agent.run("Buy it.", memory=history)
    streamed = [one async for one in handler.stream_events() if isinstance(one, AgentStream)]
    answer = str(await handler)
    assert answer.startswith(f"Stopped after {most} blocked tries. Blocked: click")
    assert "answer_guard" not in answer
    assert streamed[-1].response == answer
    assert len(page.clicks) == MOST
    assert len(llm.seen) == MOST + most
    kept = history.get_all()
    assert kept[-1].content == answer
    check_call_order(kept)


async def test_several_blocked_calls_at_once_are_one_round(memory: AgentMemory) -> None:
    both = create_tool_calls(("1", "click", {"selector": "#buy"}), ("2", "click", {"selector": "#buy"}))
    llm = ScriptedLLM(reply=AnswerSequence(*[click()] * MOST, both))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory, stop_after=2)
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    assert str(await ask(agent, history)).startswith("Stopped after 2 blocked tries.")
    assert len(llm.seen) == MOST + 2
    check_call_order(history.get_all())


@GOES_ON
async def test_a_react_agent_that_ignores_every_block_ends_with_an_answer(memory: AgentMemory) -> None:
    page = Page()
    again = 'Thought: I click.\nAction: click\nAction Input: {"selector": "#buy"}'
    llm = CompletionLLM(reply=AnswerSequence(*[again] * (MOST + 5), "Thought: I know.\nAnswer: Hello."))
    agent = watch_agent(ReActAgent(tools=[page.click], llm=llm), memory)
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    ctx: Context[Any] = Context(agent)
    answer = str(await ask(agent, history, ctx=ctx))
    assert answer.startswith("Stopped after 5 blocked tries. Blocked: click")
    assert len(llm.seen) == MOST + 5
    assert str(history.get_all()[-1].content).endswith(f"Answer: {answer}")
    assert str(await ask(agent, question="And now?", ctx=ctx)) == "Hello."


async def test_an_agent_that_runs_code_ends_with_an_answer(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence("<execute>1 + 2</execute>"))
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    agent = watch_agent(CodeActAgent(code_execute_fn=lambda code: str(len(code)), llm=llm), memory)
    answer = str(await ask(agent, history))
    assert answer.startswith("Stopped after 5 blocked tries. Blocked: execute")
    assert history.get_all()[-1].content == answer


async def test_a_refused_answer_in_between_does_not_help(memory: AgentMemory) -> None:
    steps = [*[click()] * (MOST + 2), answering("please"), click(), answering("please"), click()]
    llm = ScriptedLLM(reply=AnswerSequence(*steps))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory)
    assert str(await ask(agent)).startswith("Stopped after 5 blocked tries. Blocked: click")
    assert len(llm.seen) == MOST + 5


async def test_a_run_that_does_something_else_in_between_goes_on(memory: AgentMemory) -> None:
    steps = [*[click()] * (MOST + 4), click("#else"), *[click()] * 4, "Done."]
    llm = ScriptedLLM(reply=AnswerSequence(*steps))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory)
    assert str(await ask(agent)) == "Done."


async def test_an_answer_that_is_accepted_begins_the_count_anew(memory: AgentMemory) -> None:
    page = Page()
    steps = [*[click()] * (MOST + 1), answering("It was still loading."), click(), "Done."]
    agent = FunctionAgent(tools=[page.click], llm=ScriptedLLM(reply=AnswerSequence(*steps)))
    assert str(await ask(watch_agent(agent, memory, stop_after=2))) == "Done."
    assert len(page.clicks) == MOST + 1


@GOES_ON
async def test_the_next_question_after_a_run_was_ended_is_answered(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*[click()] * (MOST + 1), click(), "Bought."))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory, stop_after=1)
    ctx: Context[Any] = Context(agent)
    assert str(await ask(agent, ctx=ctx)).startswith("Stopped after 1 blocked tries.")
    assert str(await ask(agent, question="And now?", ctx=ctx)) == "Bought."


async def test_answers_to_no_block_end_nothing(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*[answering("For no reason.")] * 8, "Done."))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory, stop_after=2)
    assert str(await ask(agent)) == "Done."


async def test_equal_calls_at_once_are_made_one_after_the_other(memory: AgentMemory) -> None:
    page = Page()
    tool = watch_tools([page.click], memory)[0]
    assert isinstance(tool, WatchedTool)
    outputs = await asyncio.gather(*[tool.acall(selector="#buy") for _ in range(20)])
    assert len(page.clicks) == memory.working.cycle_count == MOST
    assert sum(one.is_error for one in outputs) == 20 - MOST
