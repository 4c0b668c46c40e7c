"""Watched LlamaIndex agents: tool calls are recorded as cycles and loops are stopped."""

from __future__ import annotations

import asyncio
import copy
import logging
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import AgentMemory, MemoryEngine
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.models import AgentAction, ExecutionOutcome, Thought

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
    from llama_index.core.base.llms.types import ImageBlock, TextBlock
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.objects import ObjectRetriever, SimpleToolNodeMapping
    from llama_index.core.schema import NodeWithScore
    from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata, ToolOutput
    from llama_index.core.tools.calling import acall_tool, call_tool
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

    import langmem_tiers_llamaindex
    from langmem_tiers_llamaindex.tasks import watch_agent, watch_tools
    from langmem_tiers_llamaindex.watched_tools import WatchedTool

    from .llamaindex_agents import (
        AnswerSequence,
        CompletionLLM,
        Prompt,
        ScriptedLLM,
        SingleNodeRetriever,
        create_tool_calls,
        texts,
    )

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
REASON = "The page was still loading."
MOST = 7  # calls of a loop until it is blocked


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory() as opened:
        opened.start_task("Find the price.")
        yield opened


class Page:
    """Tool that always returns the same page."""

    def __init__(self, shows: str | Exception = "A button.") -> None:
        self.clicks = 0
        self._shows = shows

    def click(self, selector: str) -> str:
        """Click an element."""
        self.clicks += 1
        if isinstance(self._shows, Exception):
            raise self._shows
        return self._shows


def run(agent: Any, question: str = "Buy it.", **options: Any) -> Any:
    async def ask() -> Any:
        # The default history leaves a database open.
        history = ChatMemoryBuffer.from_defaults(token_limit=20_000)
        return await agent.run(question, memory=history, early_stopping_method="generate", **options)

    return asyncio.run(ask())


def click(number: int = 1, selector: str = "#buy") -> Any:
    return create_tool_calls((f"call-{number}", "click", {"selector": selector}))


def create_looping_replies(rounds: int, *, after: str = "I give up.") -> AnswerSequence:
    return AnswerSequence(*(click(number) for number in range(rounds)), after)


def list_cycles(memory: AgentMemory) -> list[tuple[str, dict[str, Any], str, str]]:
    return [
        (
            cycle.action.tool_name,
            dict(cycle.action.parameters),
            cycle.observation.text if cycle.observation else "",
            cycle.outcome.value,
        )
        for cycle in memory.short_term.get_recent(50)
    ]


def get_watched_tool(tools: list[BaseTool]) -> WatchedTool:
    (tool, _) = tools
    assert isinstance(tool, WatchedTool)
    return tool


def call_repeatedly(tool: WatchedTool, times: int, **arguments: Any) -> list[ToolOutput]:
    return [tool.call(**arguments) for _ in range(times)]


# What agents do


@pytest.mark.parametrize("streaming", [True, False])
def test_tool_calls_of_an_agent_are_recorded_as_cycles(memory: AgentMemory, streaming: bool) -> None:  # noqa: FBT001 - a parameter
    page = Page()
    llm = ScriptedLLM(reply=AnswerSequence(click(1, "#a"), click(2, "#b"), "Done."))
    agent = watch_agent(FunctionAgent(tools=[page.click], llm=llm, streaming=streaming), memory)
    memory.working.set_active(Thought("The button buys it."))
    assert str(run(agent)) == "Done."
    assert list_cycles(memory) == [
        ("click", {"selector": "#a"}, "A button.", "success"),
        ("click", {"selector": "#b"}, "A button.", "success"),
    ]
    (first, _) = memory.short_term.get_recent(2)
    assert first.thought.content == "The button buys it."
    assert first.duration_ms > 0


def test_a_looping_function_agent_is_stopped_and_gets_the_reason(memory: AgentMemory) -> None:
    page = Page()
    llm = ScriptedLLM(reply=create_looping_replies(12))
    agent = watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory, stop_after=0)
    assert str(run(agent)) == "I give up."
    assert 3 <= page.clicks <= MOST
    assert len(list_cycles(memory)) == page.clicks  # what was blocked did not happen
    seen = [message.content or "" for message in llm.seen[-1] if message.role == "tool"]
    assert len(seen) == 12
    assert seen[0] == "A button."
    assert any(text.startswith("A button.\n\nWarning: ") for text in seen)
    assert all(text.startswith("Blocked: ") for text in seen[page.clicks :])


def test_an_agent_that_ignores_blocks_does_not_run_its_tool(memory: AgentMemory) -> None:
    page = Page()
    llm = ScriptedLLM(reply=AnswerSequence(click()))
    agent = watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory, stop_after=0)
    with pytest.raises(Exception, match="Max iterations"):
        asyncio.run(_run_without_early_stopping(agent))
    assert page.clicks <= MOST


async def _run_without_early_stopping(agent: Any) -> None:
    await agent.run("Buy it.", memory=ChatMemoryBuffer.from_defaults(token_limit=20_000))


def test_a_looping_react_agent_is_stopped_and_gets_the_reason(memory: AgentMemory) -> None:
    def reply(prompt: Prompt) -> str:
        if "Observation: Blocked" in texts(prompt):
            return "Thought: I am stuck in a loop.\nAnswer: It cannot be bought."
        return 'Thought: I click.\nAction: click\nAction Input: {"selector": "#buy"}'

    page = Page()
    llm = CompletionLLM(reply=reply)
    agent = watch_agent(ReActAgent(tools=[page.click], llm=llm), memory)
    assert str(run(agent)) == "It cannot be bought."
    assert 3 <= page.clicks <= MOST
    assert "A button.\n\nWarning: " in texts(llm.seen[-1])
    assert "answer_guard" in texts(llm.seen[0])


def test_the_agents_of_a_workflow_share_the_task(memory: AgentMemory) -> None:
    page = Page()
    handoff = create_tool_calls(("h", "handoff", {"to_agent": "buyer", "reason": "It is found."}))
    finder = FunctionAgent(
        name="finder",
        description="Finds.",
        tools=[page.click],
        llm=ScriptedLLM(reply=AnswerSequence(click(1, "#find"), handoff)),
    )
    llm = ScriptedLLM(reply=create_looping_replies(11))
    buyer = FunctionAgent(name="buyer", description="Buys.", tools=[page.click], llm=llm)
    flow = AgentWorkflow(agents=[finder, buyer], root_agent="finder")
    assert watch_agent(flow, memory) is flow
    assert str(run(flow)) == "I give up."
    done = [parameters.get("selector", name) for name, parameters, _, _ in list_cycles(memory)]
    assert done == ["#find", "handoff", *["#buy"] * (page.clicks - 1)]
    assert page.clicks <= MOST + 1
    assert "Blocked: " in texts(llm.seen[-1])


def test_an_answer_lifts_the_block(memory: AgentMemory) -> None:
    def reply(prompt: Prompt) -> Any:
        texts = [message.content or "" for message in prompt if message.role == "tool"]
        if texts and texts[-1].startswith("Blocked"):
            return create_tool_calls(("why", "answer_guard", {"reason": REASON}))
        return "Bought." if texts and page.clicks > before else click(len(texts))

    page = Page()
    before = len(
        [
            output
            for output in call_repeatedly(
                get_watched_tool(watch_tools([page.click], memory)), 12, selector="#buy"
            )
            if not output.is_error
        ]
    )
    assert before == page.clicks <= MOST
    llm = ScriptedLLM(reply=reply)
    agent = watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory, counts_across_turns=True)
    assert str(run(agent)) == "Bought."
    assert page.clicks == before + 1
    assert "The block is lifted" in texts(llm.seen[-1])
    assert "answer_guard" not in [name for name, _, _, _ in list_cycles(memory)]


def test_a_failing_tool_is_recorded_and_its_agent_warned_then_stopped(memory: AgentMemory) -> None:
    page = Page(ValueError("no such element"))
    llm = ScriptedLLM(reply=create_looping_replies(12))
    run(watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory))
    assert page.clicks <= MOST
    assert {cycle[2:] for cycle in list_cycles(memory)} == {("no such element", "failure")}
    assert memory.is_repeated_failure(AgentAction("click", {"selector": "#buy"}))
    seen = [message.content or "" for message in llm.seen[-1] if message.role == "tool"]
    assert seen[0] == "no such element"
    assert seen[1].startswith("no such element\n\n")
    assert seen[-1].startswith("Blocked: ")


def test_parallel_calls_are_all_recorded(memory: AgentMemory) -> None:
    page = Page()
    many = create_tool_calls(
        *((f"call-{number}", "click", {"selector": f"#{number}"}) for number in range(8))
    )
    agent = FunctionAgent(tools=[page.click], llm=ScriptedLLM(reply=AnswerSequence(many, "Done.")))
    run(watch_agent(agent, memory))
    assert sorted(cycle[1]["selector"] for cycle in list_cycles(memory)) == [
        f"#{number}" for number in range(8)
    ]


def annotate_context(do: Any) -> Any:
    do.__annotations__["ctx"] = Context  # the framework does not read annotations that are text
    return do


def test_a_tool_gets_its_context_and_cycles_do_not_contain_it(memory: AgentMemory) -> None:
    async def note(ctx: Context, text: str) -> str:
        """Note something."""
        await ctx.store.set("noted", text)
        return f"noted {await ctx.store.get('noted')}"

    llm = ScriptedLLM(reply=AnswerSequence(create_tool_calls(("1", "note", {"text": "tea"})), "Done."))
    agent = watch_agent(FunctionAgent(tools=[annotate_context(note)], llm=llm), memory)
    assert str(run(agent)) == "Done."
    assert list_cycles(memory) == [("note", {"text": "tea"}, "noted tea", "success")]


def test_a_tool_that_waits_for_a_person_is_recorded_once(memory: AgentMemory) -> None:
    async def confirm(ctx: Context, what: str) -> str:
        """Ask a person."""
        request = InputRequiredEvent(prefix=what)  # type: ignore[call-arg]  # events take any field
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id=what, waiter_event=request)
        return str(answer.response)

    async def ask() -> str:
        llm = ScriptedLLM(
            reply=AnswerSequence(create_tool_calls(("1", "confirm", {"what": "Sure?"})), "Done.")
        )
        agent = watch_agent(FunctionAgent(tools=[annotate_context(confirm)], llm=llm), memory)
        handler = agent.run("Buy it.", memory=ChatMemoryBuffer.from_defaults(token_limit=20_000))
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert handler.ctx is not None
                handler.ctx.send_event(HumanResponseEvent(response="yes"))  # type: ignore[call-arg]  # as above
        return str(await handler)

    assert asyncio.run(ask()) == "Done."
    assert list_cycles(memory) == [("confirm", {"what": "Sure?"}, "yes", "success")]


def test_a_tool_with_return_direct_gets_no_warning_but_is_blocked(memory: AgentMemory) -> None:
    page = Page()
    tool = FunctionTool.from_defaults(page.click, return_direct=True)
    for _ in range(MOST + 1):
        llm = ScriptedLLM(reply=AnswerSequence(click(), "It is blocked."))
        agent = watch_agent(FunctionAgent(tools=[tool], llm=llm), memory, counts_across_turns=True)
        answer = str(run(agent))
        assert answer in ("A button.", "It is blocked.")
    assert answer == "It is blocked."
    assert page.clicks <= MOST


def test_a_looping_code_agent_is_stopped(memory: AgentMemory) -> None:
    ran: list[str] = []

    def execute(code: str) -> str:
        """Run code."""
        ran.append(code)
        return "3"

    llm = ScriptedLLM(reply=AnswerSequence(*["<execute>print(add(1, 2))</execute>"] * 10, "It is three."))
    agent = watch_agent(CodeActAgent(code_execute_fn=execute, tools=[_add], llm=llm), memory)
    assert str(run(agent)) == "It is three."
    assert 3 <= len(ran) <= MOST
    assert "Blocked: " in texts(llm.seen[-1])
    assert "def _add(" in texts(llm.seen[0])
    assert "answer_guard" not in texts(llm.seen[0])


def _add(first: int, second: int) -> int:
    """Add."""
    return first + second


def test_tools_of_a_tool_retriever_are_watched(memory: AgentMemory) -> None:
    page = Page()
    tool = FunctionTool.from_defaults(page.click)
    mapping = SimpleToolNodeMapping.from_objects([tool])

    class Lookup(SingleNodeRetriever):
        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [NodeWithScore(node=mapping.to_node(tool), score=1.0)]

    retriever: ObjectRetriever[Any] = ObjectRetriever(Lookup(), mapping)
    agent = FunctionAgent(tool_retriever=retriever, llm=ScriptedLLM(reply=create_looping_replies(12)))
    run(watch_agent(watch_agent(agent, memory), memory))
    assert page.clicks <= MOST
    assert len(list_cycles(memory)) == page.clicks
    assert agent.tool_retriever is not None
    (found,) = agent.tool_retriever.retrieve("click")
    assert isinstance(found, WatchedTool)


# Across processes and failures


def test_a_task_continues_after_a_restart(tmp_path: Path) -> None:
    page = Page()

    def session(rounds: int) -> str:
        with MemoryEngine(tmp_path / "memory.db", embedder=None) as engine:
            memory = AgentMemory(engine=engine, task="buy")
            llm = ScriptedLLM(reply=create_looping_replies(rounds))
            run(watch_agent(FunctionAgent(tools=[page.click], llm=llm), memory, counts_across_turns=True))
            assert memory.working.cycle_count == page.clicks
            return texts(llm.seen[-1])

    assert "Blocked: " not in session(3)
    assert "Warning: " in session(3)
    assert "Blocked: " in session(3)
    assert page.clicks <= MOST


def test_a_store_failure_does_not_break_the_agent(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("postgresql://ada:secret@host is away")

    monkeypatch.setattr(memory.engine._services.short_term.messages, "append", broken)
    page = Page()
    agent = watch_agent(
        FunctionAgent(tools=[page.click], llm=ScriptedLLM(reply=create_looping_replies(2))), memory
    )
    with caplog.at_level(logging.WARNING, logger="langmem_tiers"):
        assert str(run(agent)) == "I give up."
    assert page.clicks == 2
    assert agent.tools is not None
    assert agent.tools[0].failures == 2  # type: ignore[union-attr]  # a watched tool
    assert "memory failed during a call of 'click'" in caplog.text
    assert "secret" not in caplog.text


def test_with_a_closed_memory_tools_raise_their_own_errors(memory: AgentMemory) -> None:
    tool, answer = watch_tools([Page(KeyError("gone")).click], memory)
    memory.engine.close()
    with pytest.raises(KeyError, match="gone"):
        tool(selector="#buy")  # type: ignore[call-arg]  # declared with one input
    assert isinstance(tool, WatchedTool)
    assert tool.failures == 1
    assert not answer(reason=REASON).is_error  # type: ignore[call-arg]  # as above


# The tools themselves


def test_a_watched_tool_supports_every_way_to_call_it(memory: AgentMemory) -> None:
    tool = get_watched_tool(watch_tools([Page().click], memory))
    assert isinstance(tool, FunctionTool)
    arguments = {"selector": "#a"}
    outputs = [
        tool.call(**arguments),
        tool(selector="#b"),
        asyncio.run(tool.acall(selector="#c")),
        call_tool(tool, {"selector": "#d"}),
        asyncio.run(acall_tool(tool, {"selector": "#e"})),
        tool.call("#f"),
    ]
    assert [output.content for output in outputs] == ["A button."] * 6
    assert outputs[0].raw_input == {"args": (), "kwargs": arguments}
    assert [cycle[1] for cycle in list_cycles(memory)] == [{"selector": f"#{letter}"} for letter in "abcdef"]


def test_a_watched_tool_has_the_metadata_of_its_inner_tool(memory: AgentMemory) -> None:
    inner = FunctionTool.from_defaults(_add, return_direct=True, partial_params={"first": 1})
    tool = get_watched_tool(watch_tools([inner], memory))
    assert tool.metadata is inner.metadata
    assert tool.partial_params == {"first": 1}
    assert tool.real_fn is _add
    assert tool(second=2).raw_output == 3
    assert list_cycles(memory)[0][1] == {"second": 2}
    with pytest.raises(AttributeError, match="nothing"):
        _ = tool.nothing
    assert repr(tool) == "WatchedTool('_add')"


class Plain(BaseTool):
    """Tool without async support."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata("Looks.", name="look")

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002 - the framework's signature
        if input == "slow":
            late = TimeoutError("late")
            return ToolOutput("look", content="late", raw_input={}, is_error=True, exception=late)
        return ToolOutput("look", blocks=[ImageBlock(image=b"picture")], raw_input={})


def test_a_tool_without_async_works_and_keeps_its_images(memory: AgentMemory) -> None:
    tool = get_watched_tool(watch_tools([Plain()], memory))
    assert not isinstance(tool, FunctionTool)
    outputs = [asyncio.run(tool.acall(input="door")) for _ in range(3)]
    outputs += call_repeatedly(tool, 3, input="door")
    warned = next(output for output in outputs if len(output.blocks) == 2)
    picture, words = warned.blocks
    assert isinstance(picture, ImageBlock)
    assert isinstance(words, TextBlock)
    assert words.text
    assert {cycle[3] for cycle in list_cycles(memory)} == {"success"}


def test_the_url_of_a_cycle_comes_from_its_parameters(memory: AgentMemory) -> None:
    def go(url: str = "", where: str = "") -> str:
        """Go somewhere."""
        return f"{url}{where}"

    tool = get_watched_tool(watch_tools([go], memory))
    for arguments in ({"url": "/cart"}, {"where": "https://shop.example/a"}, {"where": "the shop"}):
        tool.call(**arguments)
    cart, shop, nowhere = memory.short_term.get_recent(3)
    assert (cart.url, shop.url) == ("/cart", "https://shop.example/a")
    assert nowhere.url == shop.url  # where the task is


def test_outcomes_and_urls_are_recorded(memory: AgentMemory) -> None:
    async def fetch(url: str) -> str:
        """Fetch a page."""
        raise TimeoutError if "slow" in url else ConnectionError("refused")

    tool = get_watched_tool(watch_tools([fetch], memory))
    with pytest.raises(TimeoutError):
        asyncio.run(tool.acall(url="https://slow.example/a"))
    with pytest.raises(ConnectionError, match="refused"):
        asyncio.run(tool.acall(url="https://shop.example/b"))
    assert get_watched_tool(watch_tools([Plain()], memory)).call(input="slow").is_error
    slow, refused, late = memory.short_term.get_recent(3)
    assert [cycle.outcome for cycle in (slow, refused, late)] == [
        ExecutionOutcome.TIMEOUT,
        ExecutionOutcome.FAILURE,
        ExecutionOutcome.TIMEOUT,
    ]
    assert (slow.url, slow.error_message) == ("https://slow.example/a", "TimeoutError")
    assert (refused.url, refused.error_message) == ("https://shop.example/b", "refused")


def test_the_original_tool_output_is_not_modified(memory: AgentMemory) -> None:
    output = ToolOutput("click", content="A button.", raw_input={}, raw_output={"a": 1})
    inner = FunctionTool.from_defaults(Page().click, callback=lambda _: output)
    outputs = call_repeatedly(get_watched_tool(watch_tools([inner], memory)), 12, selector="#buy")
    assert output.content == "A button."
    assert any(
        warned_output.content.startswith("A button.\n\nWarning") and warned_output.raw_output == {"a": 1}
        for warned_output in outputs
    )
    blocked = outputs[-1]
    assert blocked.is_error
    assert (blocked.tool_name, blocked.raw_input) == ("click", {"selector": "#buy"})


def test_a_copy_of_a_watched_tool_uses_the_same_memory(memory: AgentMemory) -> None:
    for copy_tool in (copy.copy, copy.deepcopy):
        assert copy_tool(get_watched_tool(watch_tools([_add], memory))).call(first=1, second=2).content == "3"
    assert len(list_cycles(memory)) == 2


def test_watching_tools_again_replaces_their_memory(memory: AgentMemory) -> None:
    with AgentMemory() as other:
        tools = watch_tools(watch_tools([Page().click], other), memory)
        assert [tool.metadata.name for tool in tools] == ["click", "answer_guard"]
        get_watched_tool(tools).call(selector="#buy")
        assert len(list_cycles(memory)) == 1
        assert list_cycles(other) == []


def test_an_answer_without_a_block_or_a_reason_is_rejected(memory: AgentMemory) -> None:
    tool, answer = watch_tools([Page().click], memory)
    assert isinstance(tool, WatchedTool)
    assert str(answer(reason=REASON)).startswith("No block was lifted")  # type: ignore[call-arg]  # declared with one input
    assert call_repeatedly(tool, 12, selector="#buy")[-1].is_error
    assert str(answer(reason="please")).startswith("No block was lifted")  # type: ignore[call-arg]  # as above
    assert tool.call(selector="#buy").is_error
    assert str(answer(reason=REASON)).startswith("The block is lifted")  # type: ignore[call-arg]  # as above
    assert not tool.call(selector="#buy").is_error


def test_invalid_agents_memories_and_tool_names_are_rejected(memory: AgentMemory) -> None:
    invalid_value: Any = object()
    with pytest.raises(InvalidInputError, match="expected an agent, got object"):
        watch_agent(invalid_value, memory)
    with pytest.raises(InvalidInputError, match="expected an AgentMemory, got object"):
        watch_tools([], invalid_value)
    own = FunctionTool.from_defaults(_add, name="answer_guard")
    with pytest.raises(InvalidInputError, match="'answer_guard' is reserved for the guard"):
        watch_tools([own], memory)


def test_the_package_exports_the_watch_functions() -> None:
    for name in ("WatchedTool", "watch_agent", "watch_tools"):
        assert name in langmem_tiers_llamaindex.__all__
        assert getattr(langmem_tiers_llamaindex, name).__name__ == name
