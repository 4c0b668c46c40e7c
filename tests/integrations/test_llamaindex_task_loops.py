"""Loops outside tools, recorded thoughts, and runs that ignore every block."""

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
IGNORE_SKIPPED_SERIALIZATION = pytest.mark.filterwarnings("ignore:Skipping serialization")


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        yield opened


class Page:
    """Tool that always returns the same page."""

    def __init__(self) -> None:
        self.clicks: list[str] = []

    def click(self, selector: str) -> str:
        """Click an element."""
        self.clicks.append(selector)
        return "A button."


def click(selector: str = "#buy", text: str = "") -> Any:
    return create_tool_calls(("call", "click", {"selector": selector}), text=text)


def create_guard_answer(reason: str) -> Any:
    return create_tool_calls(("why", "answer_guard", {"reason": reason}))


async def ask(agent: Any, history: Any = None, question: str = "Buy it.", **options: Any) -> AgentOutput:
    # The default history leaves a database open.
    memory = ChatMemoryBuffer.from_defaults(token_limit=20_000) if history is None else history
    output = await agent.run(question, memory=memory, **options)
    assert isinstance(output, AgentOutput)
    return output


def results(llm: ScriptedLLM) -> list[str]:
    return [message.content or "" for message in llm.seen[-1] if message.role == "tool"]


def list_tool_names(memory: AgentMemory) -> list[str]:
    return [cycle.action.tool_name for cycle in memory.short_term.get_recent(50)]


def list_thoughts(memory: AgentMemory) -> list[str]:
    return [cycle.thought.content for cycle in memory.short_term.get_recent(50)]


# Loops past the tools


@pytest.mark.parametrize("in_workflow", [False, True])
async def test_calls_of_a_missing_tool_are_recorded_as_cycles(memory: AgentMemory, in_workflow: bool) -> None:  # noqa: FBT001 - a parameter
    missing = create_tool_calls(("call", "teleport", {"to": "Rome"}))
    llm = ScriptedLLM(reply=AnswerSequence(*[missing] * 9, "I give up."))
    agent = FunctionAgent(tools=[Page().click], llm=llm)
    watched: Any = watch_agent(AgentWorkflow(agents=[agent]) if in_workflow else agent, memory)
    assert str(await ask(watched)) == "I give up."
    cycles = memory.short_term.get_recent(20)
    assert 3 <= len(cycles) <= MOST
    assert {(cycle.action.tool_name, dict(cycle.action.parameters)["to"]) for cycle in cycles} == {
        ("teleport", "Rome")
    }
    assert {cycle.outcome.value for cycle in cycles} == {"failure"}
    texts = results(llm)
    assert texts[0] == "Tool teleport not found. Please select a tool that is available."
    assert texts[2].startswith(f"{texts[0]}\n\n")
    assert all(text.startswith("Blocked: teleport") for text in texts[len(cycles) :])


async def test_a_react_agent_that_calls_a_missing_tool_is_stopped(memory: AgentMemory) -> None:
    llm = CompletionLLM(reply=lambda _: "Thought: I go.\nAction: teleport\nAction Input: {}")
    answer = str(await ask(watch_agent(ReActAgent(tools=[Page().click], llm=llm), memory)))
    assert answer.startswith("Stopped after 5 blocked attempts. Blocked: teleport")
    assert 3 <= memory.working.cycle_count <= MOST


def create_handoff_reply(to: str, reasons: Iterator[str]) -> Any:
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
    numbered_reasons = (f"{reason} {number}" for number, reason in enumerate(itertools.cycle(reasons)))
    first = FunctionAgent(
        name="one", description="One.", llm=ScriptedLLM(reply=create_handoff_reply("other", numbered_reasons))
    )
    second = FunctionAgent(
        name="other",
        description="Other.",
        llm=ScriptedLLM(reply=create_handoff_reply("one", numbered_reasons)),
    )
    flow = watch_agent(AgentWorkflow(agents=[first, second], root_agent="one"), memory)
    ctx: Context[Any] = Context(flow)
    output = await ask(flow, ctx=ctx, max_iterations=60)
    assert str(output) == "I do it myself."
    assert set(list_tool_names(memory)) == {"handoff"}
    assert 3 <= memory.working.cycle_count <= 20
    assert list_thoughts(memory)[:2] == [f"{reasons[0]} 0", f"{reasons[1 % len(reasons)]} 1"]
    assert isinstance(first.llm, ScriptedLLM)
    assert isinstance(second.llm, ScriptedLLM)
    steps = len(first.llm.seen) + len(second.llm.seen)
    assert steps == memory.working.cycle_count + 2  # what was blocked was no handoff: the same agent answered
    assert await ctx.store.get("current_agent_name") == output.current_agent_name
    seen = texts(first.llm.seen[-1]) + texts(second.llm.seen[-1])
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
    assert str(output).startswith("Stopped after 5 blocked attempts. Blocked: handoff")


# Thoughts


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_text_next_to_a_call_is_recorded_as_its_thought(
    memory: AgentMemory,
    streaming: bool,  # noqa: FBT001 - a parameter
) -> None:
    two_calls = create_tool_calls(
        ("1", "click", {"selector": "#a"}), ("2", "click", {"selector": "#b"}), text="Both may buy it."
    )
    steps = [click("#c", "The button buys it."), two_calls, click("#d"), "Done."]
    agent = FunctionAgent(
        tools=[Page().click], llm=ScriptedLLM(reply=AnswerSequence(*steps)), streaming=streaming
    )
    await ask(watch_agent(agent, memory))
    assert list_thoughts(memory) == ["The button buys it.", "Both may buy it.", "Both may buy it.", ""]


async def test_the_thought_of_a_react_agent_is_recorded(memory: AgentMemory) -> None:
    steps = [
        'Thought: I look for it.\nAction: click\nAction Input: {"selector": "#find"}',
        'Thought: I buy it.\nAction: click\nAction Input: {"selector": "#buy"}',
        "Thought: It is bought.\nAnswer: Done.",
    ]
    agent = ReActAgent(tools=[Page().click], llm=CompletionLLM(reply=AnswerSequence(*steps)))
    assert str(await ask(watch_agent(agent, memory))) == "Done."
    assert list_thoughts(memory) == ["I look for it.", "I buy it."]


async def test_the_thought_of_a_code_agent_is_its_text_without_the_code(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence("I add them.\n<execute>1 + 2</execute>", "It is three."))
    agent = CodeActAgent(code_execute_fn=lambda code: str(len(code)), llm=llm)
    await ask(watch_agent(agent, memory))
    assert list_thoughts(memory) == ["I add them."]


async def test_a_thought_that_was_set_explicitly_takes_precedence(memory: AgentMemory) -> None:
    memory.working.set_active(Thought("I know better."))
    llm = ScriptedLLM(reply=AnswerSequence(click(text="The button buys it."), "Done."))
    await ask(watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory))
    assert list_thoughts(memory) == ["I know better."]


# Blocks


async def test_the_block_text_explains_how_to_answer(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*[click()] * (MOST + 1), "I give up."))
    await ask(watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory))
    texts = results(llm)
    assert texts[-1].startswith("Blocked: ")
    assert texts[-1].endswith(ANSWER)
    assert all(ANSWER not in text for text in texts if "Warning: " in text)


async def test_a_code_agent_gets_no_answer_tool(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*["<execute>1 + 2</execute>"] * 9, "It is three."))
    await ask(watch_agent(CodeActAgent(code_execute_fn=lambda code: str(len(code)), llm=llm), memory))
    assert "Blocked: " in texts(llm.seen[-1])
    assert "answer_guard" not in texts(llm.seen[-1])


# Runs that ignore blocks


@pytest.mark.parametrize("limit", [1, 5])
async def test_a_run_that_ignores_every_block_ends_with_an_answer(memory: AgentMemory, limit: int) -> None:
    page, llm = Page(), ScriptedLLM(reply=AnswerSequence(click()))
    agent = watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory, stop_after=limit)
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    handler = agent.run("Buy it.", memory=history)
    streamed = [event async for event in handler.stream_events() if isinstance(event, AgentStream)]
    answer = str(await handler)
    assert answer.startswith(f"Stopped after {limit} blocked attempts. Blocked: click")
    assert "answer_guard" not in answer
    assert streamed[-1].response == answer
    assert len(page.clicks) == MOST
    assert len(llm.seen) == MOST + limit
    stored = history.get_all()
    assert stored[-1].content == answer
    check_call_order(stored)


async def test_parallel_blocked_calls_count_as_one_try(memory: AgentMemory) -> None:
    both = create_tool_calls(("1", "click", {"selector": "#buy"}), ("2", "click", {"selector": "#buy"}))
    llm = ScriptedLLM(reply=AnswerSequence(*[click()] * MOST, both))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory, stop_after=2)
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    assert str(await ask(agent, history)).startswith("Stopped after 2 blocked attempts.")
    assert len(llm.seen) == MOST + 2
    check_call_order(history.get_all())


@IGNORE_SKIPPED_SERIALIZATION
async def test_a_react_agent_that_ignores_every_block_ends_with_an_answer(memory: AgentMemory) -> None:
    page = Page()
    again = 'Thought: I click.\nAction: click\nAction Input: {"selector": "#buy"}'
    llm = CompletionLLM(reply=AnswerSequence(*[again] * (MOST + 5), "Thought: I know.\nAnswer: Hello."))
    agent = watch_agent(ReActAgent(tools=[page.click], llm=llm), memory)
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    ctx: Context[Any] = Context(agent)
    answer = str(await ask(agent, history, ctx=ctx))
    assert answer.startswith("Stopped after 5 blocked attempts. Blocked: click")
    assert len(llm.seen) == MOST + 5
    assert str(history.get_all()[-1].content).endswith(f"Answer: {answer}")
    assert str(await ask(agent, question="And now?", ctx=ctx)) == "Hello."


async def test_a_code_agent_that_ignores_every_block_ends_with_an_answer(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence("<execute>1 + 2</execute>"))
    history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
    agent = watch_agent(CodeActAgent(code_execute_fn=lambda code: str(len(code)), llm=llm), memory)
    answer = str(await ask(agent, history))
    assert answer.startswith("Stopped after 5 blocked attempts. Blocked: execute")
    assert history.get_all()[-1].content == answer


async def test_a_rejected_answer_does_not_reset_the_count_of_blocked_tries(memory: AgentMemory) -> None:
    steps = [
        *[click()] * (MOST + 2),
        create_guard_answer("please"),
        click(),
        create_guard_answer("please"),
        click(),
    ]
    llm = ScriptedLLM(reply=AnswerSequence(*steps))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory)
    assert str(await ask(agent)).startswith("Stopped after 5 blocked attempts. Blocked: click")
    assert len(llm.seen) == MOST + 5


async def test_a_different_call_between_blocked_ones_keeps_the_run_going(memory: AgentMemory) -> None:
    steps = [*[click()] * (MOST + 4), click("#else"), *[click()] * 4, "Done."]
    llm = ScriptedLLM(reply=AnswerSequence(*steps))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory)
    assert str(await ask(agent)) == "Done."


async def test_an_accepted_answer_resets_the_count_of_blocked_tries(memory: AgentMemory) -> None:
    page = Page()
    steps = [*[click()] * (MOST + 1), create_guard_answer("It was still loading."), click(), "Done."]
    agent = FunctionAgent(tools=[page.click], llm=ScriptedLLM(reply=AnswerSequence(*steps)))
    assert str(await ask(watch_agent(agent, memory, stop_after=2))) == "Done."
    assert len(page.clicks) == MOST + 1


@IGNORE_SKIPPED_SERIALIZATION
async def test_the_next_question_after_a_stopped_run_is_answered(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*[click()] * (MOST + 1), click(), "Bought."))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory, stop_after=1)
    ctx: Context[Any] = Context(agent)
    assert str(await ask(agent, ctx=ctx)).startswith("Stopped after 1 blocked attempts.")
    assert str(await ask(agent, question="And now?", ctx=ctx)) == "Bought."


async def test_answers_without_a_block_do_not_end_the_run(memory: AgentMemory) -> None:
    llm = ScriptedLLM(reply=AnswerSequence(*[create_guard_answer("For no reason.")] * 8, "Done."))
    agent = watch_agent(FunctionAgent(tools=[Page().click], llm=llm), memory, stop_after=2)
    assert str(await ask(agent)) == "Done."


async def test_equal_parallel_calls_run_sequentially(memory: AgentMemory) -> None:
    page = Page()
    tool = watch_tools([page.click], memory)[0]
    assert isinstance(tool, WatchedTool)
    outputs = await asyncio.gather(*[tool.acall(selector="#buy") for _ in range(20)])
    assert len(page.clicks) == memory.working.cycle_count == MOST
    assert sum(output.is_error for output in outputs) == 20 - MOST
