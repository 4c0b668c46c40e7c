"""Records the tool calls of LlamaIndex agents as cycles of a task, and stops an agent that goes in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent

from langmem_tiers.common.checks import check_whole
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.integration_kit.task_registry import check_agent_memory, resolve_task_source
from langmem_tiers_llamaindex.task_runs import ConversationTasks, TaskWatcher
from langmem_tiers_llamaindex.watched_agents import attach_watcher, can_answer
from langmem_tiers_llamaindex.watched_tools import WatchedRetriever, build_answer_tool, wrap_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from llama_index.core.tools import BaseTool

    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.tasks.agent_memory import AgentMemory

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
