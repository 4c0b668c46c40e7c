"""Task memory for agents: tool calls become cycles, warnings reach the model, and a loop is stopped."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware, AgentState, hook_config
from langchain.tools import ToolRuntime  # noqa: TC002 - the framework reads it from the tool and hands it in
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.errors import GraphBubbleUp

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.prompt_fences import TASK_FENCE_OPENING, neutralize_fence_tags, wrap_in_fence
from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.integration_kit.lock_registry import LockRegistry
from langmem_tiers.integration_kit.task_registry import resolve_task_source
from langmem_tiers.integration_kit.tool_messages import (
    ANSWER_TOOL,
    ANSWER_TOOL_DESCRIPTION,
    BLOCK_LIFTED,
    BLOCK_NOT_LIFTED,
    format_advice,
    format_stop_message,
    is_block,
)
from langmem_tiers_langchain.message_edits import prepend_text
from langmem_tiers_langchain.message_source import SOURCE_METADATA
from langmem_tiers_langchain.run_location import RunLocator
from langmem_tiers_langchain.tool_cycles import (
    CycleResult,
    RequestedAction,
    find_new_goal,
    get_state_messages,
    read_requested_action,
    to_cycle_result,
    to_failed_result,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence

    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime
    from langgraph.types import Command

    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.integration_kit.task_registry import TaskRegistry
    from langmem_tiers.tasks.agent_memory import AgentMemory
    from langmem_tiers.tasks.guard_advice import GuardAdvice
    from langmem_tiers_langchain.run_location import Owner


_BLOCKED_KEY = "langmem_tiers_blocked"  # in the additional_kwargs of such a result


def build_blocked_result(advice: GuardAdvice, request: ToolCallRequest) -> ToolMessage:
    """The result of a call that was not made."""
    return ToolMessage(
        format_advice(advice),
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error",
        additional_kwargs={_BLOCKED_KEY: True},
    )


def build_stop_update(messages: Sequence[BaseMessage], most: int) -> dict[str, Any] | None:
    """The end of a run whose model asked for nothing but what is blocked, so many times in a row.

    Args:
        messages: Of the run.
        most: Times that it may; 0 for as often as it likes.
    """
    if (
        not most
        or _count_ignored_rounds(messages) < most
        or not any(one.additional_kwargs.get(_BLOCKED_KEY) for one in messages)
    ):
        return None
    blocked = next(one for one in reversed(messages) if one.additional_kwargs.get(_BLOCKED_KEY))
    return {"jump_to": "end", "messages": [AIMessage(format_stop_message(most, str(blocked.text)))]}


def _count_ignored_rounds(messages: Sequence[BaseMessage]) -> int:
    rounds = 0
    for message in reversed(messages):
        if isinstance(message, AIMessage) and message.tool_calls:
            rounds += 1
        elif not _is_refusal(message):
            break
    return rounds


def _is_refusal(message: BaseMessage) -> bool:
    is_answer = isinstance(message, ToolMessage) and message.name == ANSWER_TOOL
    return bool(message.additional_kwargs.get(_BLOCKED_KEY)) or (
        is_answer and message.text == BLOCK_NOT_LIFTED
    )


class ThreadTasks:
    """The tasks of threads, each called like its thread.

    Args:
        tasks: Holds them.
        namespace: Whose, as for ``TieredMemoryMiddleware``.
    """

    def __init__(self, tasks: TaskRegistry, namespace: Owner) -> None:
        self._registry = tasks
        self._locator = RunLocator(namespace)

    def open_task(
        self,
        runtime: Any,  # noqa: ANN401 - of any graph
        messages: Iterable[BaseMessage],
        *,
        afresh: bool = False,
    ) -> AgentMemory:
        """The memory of the thread that runs.

        Args:
            runtime: Of the run.
            messages: Its state.
            afresh: Whether to look for what another process did at the task since.
        """
        place = self._locator.locate(runtime, messages)
        return self._registry.open_task(place.namespace, place.session, afresh=afresh)


_MAX_TRIES = 5
"""What is made harmless may take a little more than before."""


def render_task(memory: AgentMemory, budget_tokens: int, *, with_history: bool) -> str:
    """What there is to say about a task, fenced; empty if there is nothing, or no room for it.

    Args:
        memory: Of the task.
        budget_tokens: What it may take with its fence.
        with_history: Whether what was done is told as well, not only warnings.
    """
    room = budget_tokens - memory.counter.count(wrap_in_fence([], TASK_FENCE_OPENING))
    for _ in range(_MAX_TRIES):
        if room <= 0 or not (said := _render_content(memory, room, with_history=with_history)):
            break
        text = wrap_in_fence([neutralize_fence_tags(said)], TASK_FENCE_OPENING)
        if (excess := memory.counter.count(text) - budget_tokens) <= 0:
            return text
        room -= excess
    return ""


def insert_before_turn(messages: Sequence[BaseMessage], text: str) -> list[Any]:
    """The messages with a text at the beginning of the newest turn of the user or of tools.

    It is inside the turn's first message: a system message there is refused by some providers, anything between a
    call and its result by all. What comes before stays as it was, which providers cache.
    """
    place = len(messages)
    while place and isinstance(messages[place - 1], ToolMessage):
        place -= 1
    if place == len(messages) and messages and isinstance(messages[-1], HumanMessage):
        place -= 1
    if place == len(messages):
        return [*messages, HumanMessage(text, additional_kwargs=dict(SOURCE_METADATA))]
    return [*messages[:place], prepend_text(messages[place], text), *messages[place + 1 :]]


def _render_content(memory: AgentMemory, room: int, *, with_history: bool) -> str:
    if with_history and memory.working.cycle_count:
        return memory.format_for_prompt(max_tokens=room)
    said = "\n".join(memory.warnings())
    while said and (tokens := memory.counter.count(said)) > room:
        said = said[: min(len(said) - 1, len(said) * room // tokens)]
    return said


_log = logging.getLogger("langmem_tiers")
_MAX_WARNINGS = 100
"""Different ones that are remembered, so that each is logged once."""


class TieredTaskMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Gives an agent a memory of what it does: ``middleware=[TieredTaskMiddleware(engine=engine)]``.

    Each tool call is recorded as a cycle of thought, action and observation. Warnings of loops, and what was done
    so far, come in front of the newest turn of what the model sees; the state's messages are never changed. A call
    that the guard blocks is not run: the model is told why, and may answer with the tool ``answer_guard``; if it asks
    for nothing else any more, the run ends. What a user asks for anew is no repeat of what was done for a question
    before. If memory fails, the agent goes on without it, with a warning.

    The same call of several at once waits for its twin, so that the guard sees one after another.

    Args:
        memory: The one task of all runs.
        engine: In its place: keeps a task for each thread, called like the thread, which goes on after a restart.
        namespace: Whose tasks, with an engine: labels such as ``("acme", "{user_id}")`` or a function of the runtime;
            the ``user_id`` of the run or else its thread, if left out. Tasks are in the namespace that has the label
            ``"agent"`` behind these, apart from what ``TieredMemoryMiddleware`` keeps of the thread.
        budget_tokens: What may be put in front of the model.
        show: Whether what was done so far is shown as well, not only warnings.
        goal_from_first_message: Whether what the user says first is the goal of a task that has none. What is asked
            later, in four words or more, is the goal from then on.
        counts_across_turns: Whether what was done for earlier messages of the user counts as a repeat: for agents that
            are told "go on" after each step.
        stop_after: Times in a row that the model may ask for nothing but what is blocked, until the run ends; 0 for
            as often as it likes.
        unguarded_tools: With an engine: tools that may be called as often as the model likes, such as one that asks
            whether a job is done.

    Raises:
        InvalidConfigError: Neither a memory nor an engine is given, or both.
    """

    def __init__(  # noqa: PLR0913 - all but the first by keyword
        self,
        memory: AgentMemory | None = None,
        *,
        engine: MemoryEngine | None = None,
        namespace: Owner = None,
        budget_tokens: int = 2000,
        show: bool = True,
        goal_from_first_message: bool = True,
        counts_across_turns: bool = False,
        stop_after: int = 5,
        unguarded_tools: Collection[str] = (),
    ) -> None:
        super().__init__()
        one, held = resolve_task_source(memory, engine, namespace, unguarded_tools)
        self._memory: AgentMemory | None = one
        self._tasks = None if held is None else ThreadTasks(held, namespace)
        self._budget_tokens = check_whole(budget_tokens, 1, "budget_tokens")
        self._show = show
        self._takes_goal = goal_from_first_message
        self._counts_across_turns = counts_across_turns
        self._stop_after = check_whole(stop_after, 0, "stop_after")
        self._locks = LockRegistry()
        self.failures: Counter[str] = Counter()
        """What failed while the agent went on, by the name of the error."""
        self._logged_warnings: set[str] = set()
        self._lock = threading.Lock()
        self.tools = [self._build_answer_tool()]

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Take up the task of the run; what the user says first is its goal, if it has none."""
        messages = state["messages"]
        memory = self._open_task(runtime, messages, afresh=True)
        if memory is not None:
            try:
                self._begin_turn(memory, messages)
            except Exception as error:  # noqa: BLE001 - whatever memory does, the agent goes on
                self._report_failure(error)
        return None

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The same without keeping the event loop."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Learn what worked more than once."""
        memory = self._open_task(runtime, state["messages"])
        if memory is not None:
            try:
                memory.learn_from_success()
            except Exception as error:  # noqa: BLE001 - whatever memory does, the agent goes on
                self._report_failure(error)
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The same without keeping the event loop."""
        return await asyncio.to_thread(self.after_agent, state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002 - the framework's
        """End a run that asks for nothing but what is blocked."""
        return build_stop_update(state["messages"], self._stop_after)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Show the model what there is to say about its task."""
        return handler(self._add_task_text(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same without keeping the event loop."""
        return await handler(await asyncio.to_thread(self._add_task_text, request))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run a tool unless the guard blocks the call, and record what came of it."""
        found = self._read_request(request)
        if found is None:
            return handler(request)
        memory, call, key = found
        with self._locks.lock(key):
            if (block := self._check_guard(memory, call, request)) is not None:
                return block
            start = time.perf_counter()
            try:
                result = handler(request)
            except GraphBubbleUp:  # it waits for somebody, and is called again
                raise
            except Exception as error:
                self._record_cycle(memory, call, to_failed_result(error), start)
                raise
            self._record_result(memory, call, result, start)
            return result

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The same without keeping the event loop."""
        found = await asyncio.to_thread(self._read_request, request)
        if found is None:
            return await handler(request)
        memory, call, key = found
        async with self._locks.alock(key):
            if (block := await asyncio.to_thread(self._check_guard, memory, call, request)) is not None:
                return block
            start = time.perf_counter()
            try:
                result = await handler(request)
            except GraphBubbleUp:
                raise
            except Exception as error:
                await asyncio.to_thread(self._record_cycle, memory, call, to_failed_result(error), start)
                raise
            await asyncio.to_thread(self._record_result, memory, call, result, start)
            return result

    def _open_task(
        self,
        runtime: Any,  # noqa: ANN401 - of a node or of a tool
        messages: Sequence[BaseMessage],
        *,
        afresh: bool = False,
    ) -> AgentMemory | None:
        if self._tasks is None:
            return self._memory
        try:
            return self._tasks.open_task(runtime, messages, afresh=afresh)
        except Exception as error:  # noqa: BLE001 - whatever memory does, the agent goes on
            self._report_failure(error)
            return None

    def _begin_turn(self, memory: AgentMemory, messages: Sequence[BaseMessage]) -> None:
        goal = find_new_goal(messages, memory.working.current_goal) if self._takes_goal else None
        # Not start_task: what was handed in with the memory, or done already, stays in sight.
        if goal is not None:
            memory.working.set_goal(goal)
        if messages and isinstance(messages[-1], HumanMessage) and not self._counts_across_turns:
            memory.new_turn()

    def _read_request(self, request: ToolCallRequest) -> tuple[AgentMemory, RequestedAction, Hashable] | None:
        if request.tool_call["name"] == ANSWER_TOOL:
            return None
        memory = self._open_task(request.runtime, get_state_messages(request.state))
        if memory is None:
            return None
        try:
            call = read_requested_action(request)
            what = (call.action.tool_name, call.action.parameters_json)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)
            return None
        return memory, call, (memory.namespace, memory.task, *what)

    def _check_guard(
        self, memory: AgentMemory, call: RequestedAction, request: ToolCallRequest
    ) -> ToolMessage | None:
        try:
            advice = memory.check_action(call.action, **call.url_argument)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)
            return None
        return build_blocked_result(advice, request) if is_block(advice) else None

    def _record_result(
        self, memory: AgentMemory, call: RequestedAction, result: object, start: float
    ) -> None:
        try:
            ending = to_cycle_result(result)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)
        else:
            self._record_cycle(memory, call, ending, start)

    def _record_cycle(
        self, memory: AgentMemory, call: RequestedAction, ending: CycleResult, start: float
    ) -> None:
        duration_ms = (time.perf_counter() - start) * 1000
        try:
            memory.record_cycle(
                call.thought,
                call.action,
                ending.observation,
                ending.outcome,
                duration_ms=duration_ms,
                error_message=ending.error_message,
                **call.url_argument,
            )
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)

    def _add_task_text(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        memory = self._open_task(request.runtime, request.state["messages"])
        if memory is None:
            return request
        try:
            text = render_task(memory, self._budget_tokens, with_history=self._show)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)
            return request
        return request.override(messages=insert_before_turn(request.messages, text)) if text else request

    def _build_answer_tool(self) -> StructuredTool:
        def answer(reason: str, runtime: ToolRuntime[Any, Any]) -> str:
            memory = self._open_task(runtime, get_state_messages(runtime.state))
            try:
                accepted = memory is not None and memory.answer_guard(reason)
            except Exception as error:  # noqa: BLE001 - as above
                self._report_failure(error)
                accepted = False
            return BLOCK_LIFTED if accepted else BLOCK_NOT_LIFTED

        async def aanswer(reason: str, runtime: ToolRuntime[Any, Any]) -> str:
            return await asyncio.to_thread(answer, reason, runtime)

        return StructuredTool.from_function(
            answer,
            aanswer,
            name=ANSWER_TOOL,
            description=ANSWER_TOOL_DESCRIPTION,
        )

    def _report_failure(self, error: Exception) -> None:
        kind, told = type(error).__name__, str(error) if isinstance(error, LangmemTiersError) else ""
        with self._lock:
            self.failures[kind] += 1
            is_new = (what := f"{kind} {told}") not in self._logged_warnings
            self._logged_warnings = (
                {*self._logged_warnings, what} if len(self._logged_warnings) < _MAX_WARNINGS else {what}
            )
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "the agent goes on without task memory: %s %s", kind, told)
        # What a driver raises may quote an address with its password: only who looks closer sees it.
        _log.debug("the agent goes on without task memory", exc_info=error)
