"""Task memory for LlamaIndex agents: records tool calls as cycles and stops agents that are stuck in a loop."""

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

from langmem_tiers import InvalidInputError
from langmem_tiers.integration_kit import check_agent_memory, check_whole, resolve_task_source
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

    from langmem_tiers import AgentMemory, MemoryEngine

    _OriginalMethod: TypeAlias = Callable[..., Awaitable[Any]]


_AgentClass: TypeAlias = type[BaseWorkflowAgent] | type[AgentWorkflow]
_WATCHED_ATTRIBUTE = "__langmem_tiers_watched__"
_WATCHER_ATTRIBUTE = "_langmem_tiers_watch"
_CODE_BLOCK = re.compile(r"<execute>.*?</execute>", re.DOTALL)


def can_answer(agent: BaseWorkflowAgent) -> bool:
    """Return True if the agent can call ``answer_guard``; a ``CodeActAgent`` cannot call tools."""
    return not isinstance(agent, CodeActAgent)


def attach_watcher(agent: BaseWorkflowAgent | AgentWorkflow, watch: TaskWatcher) -> None:
    """Attach a watcher to an agent or a workflow; its tools are wrapped separately."""
    if not hasattr(type(agent), _WATCHED_ATTRIBUTE):
        object.__setattr__(agent, "__class__", _build_watched_class(type(agent)))
    object.__setattr__(agent, _WATCHER_ATTRIBUTE, watch)


@functools.lru_cache(maxsize=64)
def _build_watched_class(kind: _AgentClass) -> type[Any]:
    """Return a subclass of an agent class whose instances can have a watcher.

    Overriding methods in a class instead of in one object also covers copies of the agent.
    """
    wrappers = _AGENT_METHODS if issubclass(kind, BaseWorkflowAgent) else _COMMON_METHODS
    members: dict[str, Any] = {
        _WATCHED_ATTRIBUTE: True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,  # the framework identifies workflows by this name
        **{name: _wrap_method(getattr(kind, name), wrapper) for name, wrapper in wrappers.items()},
    }
    watched = types.new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(members))
    watched._step_functions = kind._step_functions  # type: ignore[attr-defined]  # noqa: SLF001 - steps that are not methods are not inherited
    return watched


def _wrap_method(plain: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)  # copies the attributes that mark a workflow step
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the framework's signatures
        watch = getattr(self, _WATCHER_ATTRIBUTE, None)
        if watch is None:  # a new instance of the subclass, without a watcher
            return await plain(self, *args, **kwargs)
        return await wrapper(watch, self, functools.partial(plain, self), *args, **kwargs)

    return method


async def _call_tool(
    watch: TaskWatcher,
    _: Any,  # noqa: ANN401 - any agent of the framework
    plain: _OriginalMethod,
    *args: object,
    **kwargs: object,
) -> Any:  # noqa: ANN401 - any tool result
    # Agents and workflows have different signatures, so the arguments are found by their type.
    values = [*args, *kwargs.values()]
    ctx = next(value for value in values if isinstance(value, Context))
    call = next(value for value in values if isinstance(value, ToolCall))
    async with watch.track_call(ctx, call.tool_name):
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
    is_answerable = can_answer(agent)
    # Handoff tools are created for each call, and the agent may have received new tools since it was watched.
    wrapped = [
        tool
        if isinstance(tool, WatchedTool | AnswerTool)
        else wrap_tool(tool, watch, can_answer=is_answerable)
        for tool in tools
    ]
    # A call of a tool that does not exist is recorded too, because a model can repeat it endlessly.
    active = watch.active_call
    if active is not None and active.tool not in {tool.metadata.name for tool in wrapped}:
        wrapped.append(wrap_tool(MissingTool(active.tool), watch, can_answer=is_answerable))
    return wrapped


async def _take_step(
    watch: TaskWatcher,
    agent: BaseWorkflowAgent,
    plain: _OriginalMethod,
    ctx: AgentContext,
    *args: object,
    **kwargs: object,
) -> AgentOutput:
    # num_iterations counts the steps of this run. A run that resumes after waiting for a person has a count above 0.
    if not await ctx.store.get("num_iterations", default=0):
        await watch.begin_run(ctx)
    if (stop_message := await watch.get_stop_message(ctx)) is not None:
        return await _build_stop_output(agent, ctx, stop_message)
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
    text = output.response.content or ""
    return (_CODE_BLOCK.sub("", text) if isinstance(agent, CodeActAgent) else text).strip()


async def _build_stop_output(agent: BaseWorkflowAgent, ctx: AgentContext, text: str) -> AgentOutput:
    """Return the final step of a run, as if the model had answered."""
    answer = ChatMessage(role="assistant", content=text)
    # Each kind of agent collects the messages of the run in a different place and stores them when the run ends.
    if isinstance(agent, ReActAgent):
        last = ResponseReasoningStep(thought="I am stuck in a loop.", response=text)
        await _append(ctx, agent.reasoning_key, last)
    elif isinstance(agent, FunctionAgent | CodeActAgent):
        await _append(ctx, agent.scratchpad_key, answer)
    if agent.streaming and ctx.is_running:
        ctx.write_event_to_stream(AgentStream(delta=text, response=text, current_agent_name=agent.name))
    return AgentOutput(response=answer, current_agent_name=agent.name)


async def _append(ctx: AgentContext, key: str, value: object) -> None:
    values = await ctx.store.get(key, default=None)
    await ctx.store.set(key, [*(values or []), value])


_Agent = TypeVar("_Agent", bound=BaseWorkflowAgent | AgentWorkflow)


def watch_tools(tools: Iterable[BaseTool | Callable[..., Any]], memory: AgentMemory) -> list[BaseTool]:
    """Wrap tools so that each call is recorded as a cycle of the memory's task.

    The guard's advice is appended to the result of a call, where the model reads it. A call that the guard blocks is
    not executed; its result is the guard's message. An exception of a tool is recorded and raised.

    For an agent, prefer ``watch_agent``: it also knows the runs and thoughts of the agent.

    Args:
        tools: Tools or functions. Tools that are already watched are rebound to this memory.
        memory: Task memory. Call ``memory.new_turn()`` when the user says something new.

    Returns:
        The tools in the same order, followed by ``answer_guard``, with which a model explains why a blocked call is
        needed.

    Raises:
        InvalidInputError: A tool is named ``answer_guard``, or an argument has the wrong type.
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
    """Watch all tool calls of an agent or a workflow, in place: ``watch_agent(agent, engine=engine)``.

    It extends ``watch_tools`` as follows:

    - The model's text with a call is the thought of the cycle, unless ``memory.working`` has an active thought.
    - Tools of a retriever, tools that do not exist and handoffs to other agents are recorded as well. A blocked
      handoff is not executed.
    - The model receives the text of an exception, followed by the guard's advice.
    - Calls for a new question of the user do not count as repeats.
    - If the model requests only blocked calls, the run ends with the guard's message as the answer.

    A ``CodeActAgent`` is watched through the code that it runs. It cannot call ``answer_guard``, so it has to do
    something else, or you call ``memory.answer_guard``. A missing tool is a framework error for this agent.

    A workflow is watched together with its agents. If a watched agent is added to a workflow later, only its tools are
    watched, and only with ``memory``.

    Args:
        agent: A ``FunctionAgent``, ``ReActAgent``, ``CodeActAgent`` or ``AgentWorkflow``.
        memory: One task for all runs.
        engine: Alternative to ``memory``: keeps one persistent task per ``Context``. The name of the task is in
            ``ctx.store`` as ``"langmem_tiers_task"``, so a restored Context continues its task. Set the name before
            the first run to continue another task.
        namespace: Owner of the tasks, only with an engine. The label ``"agent"`` is appended.
        counts_across_turns: True if calls of earlier runs count as repeats, for agents that receive "continue" after
            each step.
        stop_after: Number of consecutive rounds with only blocked calls after which the run ends; 0 for no limit
            except the framework's ``max_iterations``.
        unguarded_tools: Tools that may be called without limit, such as polling a job; only with an engine.

    Returns:
        The agent.

    Raises:
        InvalidInputError: As for ``watch_tools``, or neither or both of ``memory`` and ``engine`` are given; nothing
            was changed.
    """
    target: object = agent
    if not isinstance(target, BaseWorkflowAgent | AgentWorkflow):
        raise InvalidInputError(
            f"expected an agent, got {type(target).__name__}: pass a FunctionAgent, ReActAgent, CodeActAgent or "
            "AgentWorkflow"
        )
    task, registry = resolve_task_source(memory, engine, namespace, unguarded_tools)
    tasks = None if registry is None else ConversationTasks(registry, namespace)
    watch = TaskWatcher(
        task,
        tasks,
        reports_errors=True,
        counts_across_turns=counts_across_turns,
        stop_after=check_whole(stop_after, 0, "stop_after"),
    )
    agents = list(target.agents.values()) if isinstance(target, AgentWorkflow) else [target]
    # Wrap all tools before the first agent is changed: an invalid tool must leave all agents unchanged.
    tools_by_agent = [_watch_agent_tools(member, watch) for member in agents]
    for member, tools in zip(agents, tools_by_agent, strict=True):
        member.tools = list(tools)
        if member.tool_retriever is not None:
            member.tool_retriever = WatchedRetriever(
                member.tool_retriever, watch, can_answer=can_answer(member)
            )
        attach_watcher(member, watch)
    attach_watcher(target, watch)
    return agent


def _watch_agent_tools(agent: BaseWorkflowAgent, watch: TaskWatcher) -> list[BaseTool]:
    is_answerable = can_answer(agent)
    tools = wrap_tools(agent.tools or (), watch, can_answer=is_answerable)
    return [*tools, build_answer_tool(watch)] if is_answerable else tools
