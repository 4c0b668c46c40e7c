"""Records the tool calls of LlamaIndex agents as cycles of a task, and stops an agent that goes in circles."""

from __future__ import annotations

import functools
import re
import types
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from llama_index.core.agent.react.types import ActionReasoningStep, ResponseReasoningStep
from llama_index.core.agent.workflow import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    ToolCall,
)
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context

from langmem_tiers.common.checks import check_whole
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.integration_kit.task_registry import check_agent_memory, resolve_task_source
from langmem_tiers_llamaindex.task_watcher import ConversationTasks, TaskWatcher
from langmem_tiers_llamaindex.watched_tools import (
    AnswerTool,
    MissingTool,
    WatchedRetriever,
    WatchedTool,
    build_answer_tool,
    wrap_tool,
    wrap_tools,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from llama_index.core.agent.workflow import ToolCallResult
    from llama_index.core.agent.workflow.agent_context import AgentContext
    from llama_index.core.tools import BaseTool

    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.tasks.agent_memory import AgentMemory

    _OriginalMethod: TypeAlias = Callable[..., Awaitable[Any]]


_AgentClass: TypeAlias = type[BaseWorkflowAgent] | type[AgentWorkflow]
_WATCHED_ATTRIBUTE = "__langmem_tiers_watched__"
_WATCHER_ATTRIBUTE = "_langmem_tiers_watch"
_CODE_BLOCK = re.compile(r"<execute>.*?</execute>", re.DOTALL)


def can_answer(agent: BaseWorkflowAgent) -> bool:
    """Whether an agent can call ``answer_guard``: one that runs code calls no tools."""
    return not isinstance(agent, CodeActAgent)


def attach_watcher(agent: BaseWorkflowAgent | AgentWorkflow, watch: TaskWatcher) -> None:
    """Watch an agent or a workflow from now on; its tools are watched apart from that."""
    if not hasattr(type(agent), _WATCHED_ATTRIBUTE):
        object.__setattr__(agent, "__class__", _build_watched_class(type(agent)))
    object.__setattr__(agent, _WATCHER_ATTRIBUTE, watch)


@functools.lru_cache(maxsize=64)
def _build_watched_class(kind: _AgentClass) -> type[Any]:
    """The same kind of agent, whose agents can be watched.

    A class and not functions of the one agent: its copies are watched as well.
    """
    does = _AGENT_METHODS if issubclass(kind, BaseWorkflowAgent) else _COMMON_METHODS
    members: dict[str, Any] = {
        _WATCHED_ATTRIBUTE: True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,  # workflows are known by it
        **{name: _wrap_method(getattr(kind, name), do) for name, do in does.items()},
    }
    made = types.new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(members))
    made._step_functions = kind._step_functions  # type: ignore[attr-defined]  # noqa: SLF001 - steps that are no methods are not inherited
    return made


def _wrap_method(plain: Callable[..., Any], do: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)  # so what was a step is one with the same settings
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the framework's signatures
        watch = getattr(self, _WATCHER_ATTRIBUTE, None)
        if watch is None:  # a new one of the same class
            return await plain(self, *args, **kwargs)
        return await do(watch, self, functools.partial(plain, self), *args, **kwargs)

    return method


async def _call_tool(
    watch: TaskWatcher,
    _: Any,  # noqa: ANN401 - any agent of the framework
    plain: _OriginalMethod,
    *args: object,
    **kwargs: object,
) -> Any:  # noqa: ANN401 - any tool result
    given = [*args, *kwargs.values()]
    ctx = next(one for one in given if isinstance(one, Context))
    asked = next(one for one in given if isinstance(one, ToolCall))
    async with watch.track_call(ctx, asked.tool_name):
        return await plain(*args, **kwargs)


async def _get_tools(
    watch: TaskWatcher,
    agent: BaseWorkflowAgent | AgentWorkflow,
    plain: _OriginalMethod,
    *args: object,
    **kwargs: object,
) -> list[BaseTool]:
    tools = await plain(*args, **kwargs)
    if isinstance(agent, AgentWorkflow):
        agent = agent.agents[str(kwargs["agent_name"] if "agent_name" in kwargs else args[0])]
    answers = can_answer(agent)
    # Handoffs are made anew for each call, and an agent may have got further tools since.
    known = [
        tool if isinstance(tool, WatchedTool | AnswerTool) else wrap_tool(tool, watch, can_answer=answers)
        for tool in tools
    ]
    doing = watch.active_call
    if doing is not None and doing.tool not in {tool.metadata.name for tool in known}:
        known.append(wrap_tool(MissingTool(doing.tool), watch, can_answer=answers))
    return known


async def _take_step(
    watch: TaskWatcher,
    agent: BaseWorkflowAgent,
    plain: _OriginalMethod,
    ctx: AgentContext,
    *args: object,
    **kwargs: object,
) -> AgentOutput:
    # The framework's count of steps in this run; one that waited for a person has some behind it.
    if not await ctx.store.get("num_iterations", default=0):
        await watch.begin_run(ctx)
    if (said := await watch.get_stop_message(ctx)) is not None:
        return await _build_stop_output(agent, ctx, said)
    output: AgentOutput = await plain(ctx, *args, **kwargs)
    await watch.save_thought(ctx, await _find_thought(agent, ctx, output))
    return output


async def _handle_results(
    watch: TaskWatcher,
    _: BaseWorkflowAgent,
    plain: _OriginalMethod,
    ctx: Context[Any],
    results: list[ToolCallResult],
    *args: object,
    **kwargs: object,
) -> None:
    await watch.count_round(ctx, results)
    await plain(ctx, results, *args, **kwargs)


_COMMON_METHODS: dict[str, Callable[..., Any]] = {"call_tool": _call_tool, "get_tools": _get_tools}
_AGENT_METHODS: dict[str, Callable[..., Any]] = {
    **_COMMON_METHODS,
    "take_step": _take_step,
    "handle_tool_call_results": _handle_results,
}


async def _find_thought(agent: BaseWorkflowAgent, ctx: AgentContext, output: AgentOutput) -> str:
    if not output.tool_calls:
        return ""
    if isinstance(agent, ReActAgent):
        steps = await ctx.store.get(agent.reasoning_key, default=None)
        return steps[-1].thought if steps and isinstance(steps[-1], ActionReasoningStep) else ""
    said = output.response.content or ""
    return (_CODE_BLOCK.sub("", said) if isinstance(agent, CodeActAgent) else said).strip()


async def _build_stop_output(agent: BaseWorkflowAgent, ctx: AgentContext, said: str) -> AgentOutput:
    """The last step of a run, as if the model had answered."""
    answer = ChatMessage(role="assistant", content=said)
    # Where each kind keeps what it will put into the history when the run ends.
    if isinstance(agent, ReActAgent):
        last = ResponseReasoningStep(thought="I am going in circles.", response=said)
        await _append(ctx, agent.reasoning_key, last)
    elif isinstance(agent, FunctionAgent | CodeActAgent):
        await _append(ctx, agent.scratchpad_key, answer)
    if agent.streaming and ctx.is_running:
        ctx.write_event_to_stream(AgentStream(delta=said, response=said, current_agent_name=agent.name))
    return AgentOutput(response=answer, current_agent_name=agent.name)


async def _append(ctx: AgentContext, key: str, value: object) -> None:
    held = await ctx.store.get(key, default=None)
    await ctx.store.set(key, [*(held or []), value])


_Agent = TypeVar("_Agent", bound=BaseWorkflowAgent | AgentWorkflow)


def watch_tools(tools: Iterable[BaseTool | Callable[..., Any]], memory: AgentMemory) -> list[BaseTool]:
    """Tools that record each of their calls as a cycle of the memory's task.

    What the guard has to say stands below the result of a call, where the model reads it. A call that the guard
    blocks is not made: its result is the guard's message. An exception of a tool is recorded and raised.

    Tools know of nothing but their calls: for an agent, ``watch_agent`` does more.

    Args:
        tools: Tools or functions. Those that are watched already are watched for this memory from now on.
        memory: The task. Where a user says something new, call ``memory.new_turn()``.

    Returns:
        The tools in their order, and ``answer_guard`` with which a model says why a blocked call is needed.

    Raises:
        InvalidInputError: A tool of one's own is called ``answer_guard``, or an argument is of a wrong type.
    """
    watch = TaskWatcher(check_agent_memory(memory))
    return [*wrap_tools(tools, watch), build_answer_tool(watch)]


def watch_agent(
    agent: _Agent,
    memory: AgentMemory | None = None,
    *,
    engine: MemoryEngine | None = None,
    namespace: str | Iterable[str] | None = None,
    counts_across_turns: bool = False,
    stop_after: int = 5,
    unguarded_tools: Collection[str] = (),
) -> _Agent:
    """Watch all that an agent calls, or all agents of a workflow, in place: ``watch_agent(agent, engine=engine)``.

    As ``watch_tools``, with these differences. What the model said with a call is the thought of its cycle, unless
    ``memory.working`` has an active one. Tools of a retriever, tools that do not exist and handoffs to another agent
    are cycles as well; a handoff that is blocked is not made. An agent tells its model of an exception by its text;
    the guard's word stands below it. What a user asks for in a new run is no repeat of what was done for a question
    before. A model that asks for nothing any more but what is blocked is not asked again: the run ends with the
    guard's word as its answer.

    A ``CodeActAgent`` is watched by the code that it runs: it can call no ``answer_guard``, so it has to do something
    else, or ``memory.answer_guard`` is called for it. A tool that does not exist is an error of the framework for it.

    The agents of a workflow are watched with it: of one that was watched by itself and then put into a workflow, only
    tools are, and only for a memory.

    Args:
        agent: A ``FunctionAgent``, ``ReActAgent``, ``CodeActAgent`` or ``AgentWorkflow``.
        memory: The one task of all runs.
        engine: In its place: keeps a task for each ``Context``. Its name is in ``ctx.store`` as
            ``"langmem_tiers_task"``, so a Context that was written down and read again goes on with it, and so does
            one for which that name was set before its first run.
        namespace: Whose tasks, with an engine. They are in the namespace that has the label ``"agent"`` behind these.
        counts_across_turns: Whether what was done in earlier runs counts as a repeat: for agents that are told
            "go on" after each step.
        stop_after: Times in a row that the model may ask for nothing but what is blocked, until the run ends; 0 for
            as often as the framework's ``max_iterations`` allow.
        unguarded_tools: With an engine: tools that may be called as often as the model likes, such as one that asks
            whether a job is done.

    Returns:
        The agent.

    Raises:
        InvalidInputError: As ``watch_tools``, or neither a memory nor an engine is given, or both; nothing is changed
            then.
    """
    given: object = agent
    if not isinstance(given, BaseWorkflowAgent | AgentWorkflow):
        raise InvalidInputError(
            f"a {type(given).__name__} is no agent: pass a FunctionAgent, ReActAgent, CodeActAgent or AgentWorkflow"
        )
    task, held = resolve_task_source(memory, engine, namespace, unguarded_tools)
    tasks = None if held is None else ConversationTasks(held, namespace)
    watch = TaskWatcher(
        task,
        tasks,
        reports_errors=True,
        counts_across_turns=counts_across_turns,
        stop_after=check_whole(stop_after, 0, "stop_after"),
    )
    agents = list(given.agents.values()) if isinstance(given, AgentWorkflow) else [given]
    found = [_watch_agent_tools(one, watch) for one in agents]
    for one, tools in zip(agents, found, strict=True):
        one.tools = list(tools)
        if one.tool_retriever is not None:
            one.tool_retriever = WatchedRetriever(one.tool_retriever, watch, can_answer=can_answer(one))
        attach_watcher(one, watch)
    attach_watcher(given, watch)
    return agent


def _watch_agent_tools(agent: BaseWorkflowAgent, watch: TaskWatcher) -> list[BaseTool]:
    answers = can_answer(agent)
    tools = wrap_tools(agent.tools or (), watch, can_answer=answers)
    return [*tools, build_answer_tool(watch)] if answers else tools
