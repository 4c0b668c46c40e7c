"""Agents and workflows that are watched: which calls they make, why, and when they are stopped."""

from __future__ import annotations

import functools
import re
import types
from typing import TYPE_CHECKING, Any, TypeAlias

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

from langmem_tiers_llamaindex.watched_tools import AnswerTool, MissingTool, WatchedTool, wrap_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from llama_index.core.agent.workflow import ToolCallResult
    from llama_index.core.agent.workflow.agent_context import AgentContext
    from llama_index.core.tools import BaseTool

    from langmem_tiers_llamaindex.task_runs import TaskWatcher

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
