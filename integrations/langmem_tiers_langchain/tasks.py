"""Task memory middleware: records tool calls as cycles, warns the model, and stops loops."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware, AgentState, hook_config
from langchain.tools import ToolRuntime  # noqa: TC002 - the framework injects it by the annotation of the tool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from langmem_tiers import AgentAction, ExecutionOutcome, LangmemTiersError
from langmem_tiers.integration_kit import (
    ANSWER_TOOL,
    ANSWER_TOOL_DESCRIPTION,
    BLOCK_LIFTED,
    BLOCK_NOT_LIFTED,
    TASK_FENCE_OPENING,
    LockRegistry,
    check_whole,
    format_advice,
    format_stop_message,
    is_block,
    neutralize_fence_tags,
    resolve_task_source,
    wrap_in_fence,
)
from langmem_tiers_langchain.convert import SOURCE_METADATA, is_added_by_middleware
from langmem_tiers_langchain.message_edits import prepend_text
from langmem_tiers_langchain.namespaces import RunLocator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence

    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime

    from langmem_tiers import AgentMemory, MemoryEngine
    from langmem_tiers.integration_kit import GuardAdvice, TaskRegistry
    from langmem_tiers_langchain.namespaces import Owner


_MIN_GOAL_WORDS = 4
"""Minimum number of words of a goal; shorter texts, such as "yes, go on", are not goals."""
_FIRST_UNSPACED_CHARACTER = "\u0e00"
"""First character (Thai) of the scripts without spaces between words, such as Chinese and Japanese."""


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """Tool call requested by a model."""

    thought: str
    action: AgentAction
    url: str | None
    """URL from the arguments; None for the current page of the task."""

    @property
    def url_argument(self) -> dict[str, str]:
        """URL as a keyword argument; empty if there is none."""
        return {} if self.url is None else {"url": self.url}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Outcome of a tool call."""

    outcome: ExecutionOutcome
    observation: str
    error_message: str | None = None


def read_requested_action(request: ToolCallRequest) -> RequestedAction:
    """Return the requested action with the model's text that preceded it."""
    call = request.tool_call
    arguments = call["args"]
    url = arguments.get("url")
    return RequestedAction(
        _find_thought(get_state_messages(request.state), call["id"]),
        AgentAction(call["name"], arguments),
        url if isinstance(url, str) and url else None,
    )


def find_new_goal(messages: Sequence[BaseMessage], goal: str | None) -> str | None:
    """Return the user's newest request if it differs from the goal, else None.

    Args:
        messages: Messages of the run.
        goal: Current goal. A goal that is not one of the messages was set by the caller and is kept.
    """
    texts = [
        str(message.text)
        for message in messages
        if isinstance(message, HumanMessage) and not is_added_by_middleware(message)
    ]
    texts = [text for text in texts if text.strip()]
    if not texts or (goal and goal not in texts):
        return None
    new_goal = next((text for text in reversed(texts) if _is_request(text)), goal or texts[0])
    return new_goal if new_goal != goal else None


def _is_request(text: str) -> bool:
    # In scripts without spaces, two characters count as one word.
    unspaced = sum(char >= _FIRST_UNSPACED_CHARACTER for char in text)
    return len(text.split()) + unspaced // 2 >= _MIN_GOAL_WORDS


def get_state_messages(state: object) -> Sequence[BaseMessage]:
    """Return the messages of a graph state: a list, a mapping or an object."""
    if isinstance(state, list):
        return state
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return messages if isinstance(messages, list) else []


def to_cycle_result(result: object) -> CycleResult:
    """Convert the result of a tool: a message, a command for the graph, or a list of them."""
    parts = result if isinstance(result, list) else [result]
    messages = [message for part in parts for message in _list_messages(part)]
    message_text = "\n".join(text for message in messages if (text := str(message.text)))
    observation = message_text or "\n".join(
        _describe_command(part) for part in parts if isinstance(part, Command)
    )
    if any(isinstance(message, ToolMessage) and message.status == "error" for message in messages):
        return CycleResult(
            ExecutionOutcome.FAILURE, observation, observation or "the tool answered with an error"
        )
    return CycleResult(ExecutionOutcome.SUCCESS, observation)


def to_failed_result(error: Exception) -> CycleResult:
    """Convert an exception that a tool raised."""
    outcome = ExecutionOutcome.TIMEOUT if isinstance(error, TimeoutError) else ExecutionOutcome.FAILURE
    observation = f"{type(error).__name__}: {error}".removesuffix(": ")  # the text may be empty
    return CycleResult(outcome, observation, observation)


def _find_thought(messages: Sequence[BaseMessage], call_id: str | None) -> str:
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(call["id"] == call_id for call in message.tool_calls):
            return str(message.text)
    return ""


def _list_messages(part: object) -> list[BaseMessage]:
    if not isinstance(part, Command):
        return [part] if isinstance(part, BaseMessage) else []
    changes: Any = part.update
    # An update may be a mapping, an object, or a list of (channel, value) pairs.
    if isinstance(changes, list):
        changes = dict(pair for pair in changes if isinstance(pair, tuple) and len(pair) == 2)
    value = changes.get("messages") if isinstance(changes, Mapping) else getattr(changes, "messages", None)
    candidates = value if isinstance(value, list | tuple) else [value]
    return [message for message in candidates if isinstance(message, BaseMessage)]


def _describe_command(command: Command[Any]) -> str:
    target = f"goto {command.goto!r}" if command.goto else ""
    changes = f"update {sorted(map(str, command.update))!r}" if isinstance(command.update, Mapping) else ""
    return "; ".join(filter(None, [target, changes]))


_BLOCKED_KEY = "langmem_tiers_blocked"  # marks results of blocked calls in their additional_kwargs


def build_blocked_result(advice: GuardAdvice, request: ToolCallRequest) -> ToolMessage:
    """Return the result of a call that the guard blocked."""
    return ToolMessage(
        format_advice(advice),
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error",
        additional_kwargs={_BLOCKED_KEY: True},
    )


def build_stop_update(messages: Sequence[BaseMessage], max_blocked: int) -> dict[str, Any] | None:
    """Return the state update that ends a run after ``max_blocked`` consecutive rounds of blocked calls, else None.

    Args:
        messages: Messages of the run.
        max_blocked: Maximum number of such rounds; 0 for no limit.
    """
    if (
        not max_blocked
        or _count_ignored_rounds(messages) < max_blocked
        or not any(message.additional_kwargs.get(_BLOCKED_KEY) for message in messages)
    ):
        return None
    blocked = next(message for message in reversed(messages) if message.additional_kwargs.get(_BLOCKED_KEY))
    return {"jump_to": "end", "messages": [AIMessage(format_stop_message(max_blocked, str(blocked.text)))]}


def _count_ignored_rounds(messages: Sequence[BaseMessage]) -> int:
    # Count model messages with tool calls from the end, as long as all results between them are refusals.
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
    """Tasks of threads; each task has the name of its thread.

    Args:
        tasks: Registry of open tasks.
        namespace: Owner of the tasks, as for ``TieredMemoryMiddleware``.
    """

    def __init__(self, tasks: TaskRegistry, namespace: Owner) -> None:
        self._registry = tasks
        self._locator = RunLocator(namespace)

    def open_task(
        self,
        runtime: Any,  # noqa: ANN401 - the runtime of any graph
        messages: Iterable[BaseMessage],
        *,
        reload: bool = False,
    ) -> AgentMemory:
        """Return the task memory of the running thread.

        Args:
            runtime: Runtime of the run.
            messages: Messages of the agent's state.
            reload: True to reload the task if another process changed it.
        """
        location = self._locator.locate(runtime, messages)
        return self._registry.open_task(location.namespace, location.session, reload=reload)


_MAX_ATTEMPTS = 5
"""Attempts to fit the budget: neutralized fence tags may take more tokens than the original text."""


def render_task(memory: AgentMemory, budget_tokens: int, *, with_history: bool) -> str:
    """Return the fenced text about a task; empty if there is none or it does not fit.

    Args:
        memory: Task memory.
        budget_tokens: Maximum number of tokens, including the fence.
        with_history: True to include completed steps; False for warnings only.
    """
    room = budget_tokens - memory.counter.count(wrap_in_fence([], TASK_FENCE_OPENING))
    for _ in range(_MAX_ATTEMPTS):
        if room <= 0 or not (content := _render_content(memory, room, with_history=with_history)):
            break
        text = wrap_in_fence([neutralize_fence_tags(content)], TASK_FENCE_OPENING)
        if (excess := memory.counter.count(text) - budget_tokens) <= 0:
            return text
        room -= excess
    return ""


def insert_before_turn(messages: Sequence[BaseMessage], text: str) -> list[Any]:
    """Insert a text at the beginning of the newest turn of the user or of tools.

    The text becomes part of the first message of the turn. Some providers reject a system message at this
    position, and all reject a message between a call and its result. Earlier messages are unchanged, so prompt
    caches remain valid.
    """
    index = len(messages)
    while index and isinstance(messages[index - 1], ToolMessage):
        index -= 1
    if index == len(messages) and messages and isinstance(messages[-1], HumanMessage):
        index -= 1
    if index == len(messages):
        return [*messages, HumanMessage(text, additional_kwargs=dict(SOURCE_METADATA))]
    return [*messages[:index], prepend_text(messages[index], text), *messages[index + 1 :]]


def _render_content(memory: AgentMemory, room: int, *, with_history: bool) -> str:
    if with_history and memory.working.cycle_count:
        return memory.format_for_prompt(max_tokens=room)
    text = "\n".join(memory.warnings())
    # Cut in proportion to the excess, by at least one character per attempt so that the loop ends.
    while text and (tokens := memory.counter.count(text)) > room:
        text = text[: min(len(text) - 1, len(text) * room // tokens)]
    return text


_log = logging.getLogger("langmem_tiers")
_MAX_WARNINGS = 100
"""Number of distinct warnings to remember, so that each is logged once."""


class TieredTaskMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Task memory and loop detection for an agent: ``middleware=[TieredTaskMiddleware(engine=engine)]``.

    Each tool call is recorded as a cycle of thought, action and observation. Loop warnings and completed steps are
    inserted before the newest turn of the prompt; the messages in the state are never changed. A call that the guard
    blocks is not executed. The model receives the reason and may respond with the tool ``answer_guard``. The run
    ends if the model requests only blocked calls. Calls for a new question of the user do not count as repeats. If
    memory fails, the agent continues without it, and a warning is logged.

    Concurrent identical calls run one after another, so that the guard sees each of them.

    Args:
        memory: One task for all runs.
        engine: Alternative to ``memory``: keeps one persistent task per thread, named after the thread.
        namespace: Owner of the tasks, only with an engine: labels such as ``("acme", "{user_id}")`` or a function of
            the runtime. Default: the ``user_id`` of the run, or its thread. The label ``"agent"`` is appended, to
            separate the tasks from the messages that ``TieredMemoryMiddleware`` stores.
        budget_tokens: Maximum number of tokens inserted into the prompt.
        show: True to insert completed steps; False for warnings only.
        goal_from_first_message: True to use the user's first message as the goal of a task without a goal. Later
            messages of four words or more replace the goal.
        counts_across_turns: True if calls for earlier messages of the user count as repeats, for agents that receive
            "continue" after each step.
        stop_after: Number of consecutive rounds with only blocked calls after which the run ends; 0 for no limit.
        unguarded_tools: Tools that may be called without limit, such as polling a job; only with an engine.

    Raises:
        InvalidConfigError: Neither or both of ``memory`` and ``engine`` are given.
    """

    def __init__(  # noqa: PLR0913 - all but the first are keyword-only
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
        single_task, registry = resolve_task_source(memory, engine, namespace, unguarded_tools)
        self._memory: AgentMemory | None = single_task
        self._tasks = None if registry is None else ThreadTasks(registry, namespace)
        self._budget_tokens = check_whole(budget_tokens, 1, "budget_tokens")
        self._show = show
        self._takes_goal = goal_from_first_message
        self._counts_across_turns = counts_across_turns
        self._stop_after = check_whole(stop_after, 0, "stop_after")
        self._locks = LockRegistry()
        self.failures: Counter[str] = Counter()
        """Number of failures that did not stop the agent, by error type."""
        self._logged_warnings: set[str] = set()
        self._lock = threading.Lock()
        self.tools = [self._build_answer_tool()]

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Open the task of the run and set its goal from the user's messages."""
        messages = state["messages"]
        memory = self._open_task(runtime, messages, reload=True)
        if memory is not None:
            try:
                self._begin_turn(memory, messages)
            except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
                self._report_failure(error)
        return None

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Run ``before_agent`` without blocking the event loop."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Learn patterns from action sequences that worked more than once."""
        memory = self._open_task(runtime, state["messages"])
        if memory is not None:
            try:
                memory.learn_from_success()
            except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
                self._report_failure(error)
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Run ``after_agent`` without blocking the event loop."""
        return await asyncio.to_thread(self.after_agent, state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002 - the framework's signature
        """End a run whose model requests only blocked calls."""
        return build_stop_update(state["messages"], self._stop_after)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the text about its task."""
        return handler(self._add_task_text(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Run ``wrap_model_call`` without blocking the event loop."""
        return await handler(await asyncio.to_thread(self._add_task_text, request))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run a tool unless the guard blocks the call, and record the result."""
        found = self._read_request(request)
        if found is None:
            return handler(request)
        memory, call, key = found
        # The lock covers check and record: otherwise, concurrent identical calls would all pass the guard.
        with self._locks.lock(key):
            if (block := self._check_guard(memory, call, request)) is not None:
                return block
            start = time.perf_counter()
            try:
                result = handler(request)
            except GraphBubbleUp:  # an interrupt, not a result: the tool is called again on resume
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
        """Run ``wrap_tool_call`` without blocking the event loop."""
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
        runtime: Any,  # noqa: ANN401 - the runtime of a node or of a tool
        messages: Sequence[BaseMessage],
        *,
        reload: bool = False,
    ) -> AgentMemory | None:
        if self._tasks is None:
            return self._memory
        try:
            return self._tasks.open_task(runtime, messages, reload=reload)
        except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
            self._report_failure(error)
            return None

    def _begin_turn(self, memory: AgentMemory, messages: Sequence[BaseMessage]) -> None:
        goal = find_new_goal(messages, memory.working.current_goal) if self._takes_goal else None
        # Not start_task(), which would discard earlier steps and what the caller set in the memory.
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
            signature = (call.action.tool_name, call.action.parameters_json)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)
            return None
        return memory, call, (memory.namespace, memory.task, *signature)

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
            cycle_result = to_cycle_result(result)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_failure(error)
        else:
            self._record_cycle(memory, call, cycle_result, start)

    def _record_cycle(
        self, memory: AgentMemory, call: RequestedAction, result: CycleResult, start: float
    ) -> None:
        duration_ms = (time.perf_counter() - start) * 1000
        try:
            memory.record_cycle(
                call.thought,
                call.action,
                result.observation,
                result.outcome,
                duration_ms=duration_ms,
                error_message=result.error_message,
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
        kind, detail = type(error).__name__, str(error) if isinstance(error, LangmemTiersError) else ""
        with self._lock:
            self.failures[kind] += 1
            is_new = (warning := f"{kind} {detail}") not in self._logged_warnings
            # Start over when full: the set must not grow without bound.
            self._logged_warnings = (
                {*self._logged_warnings, warning} if len(self._logged_warnings) < _MAX_WARNINGS else {warning}
            )
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "the agent continues without task memory: %s %s", kind, detail)
        # Errors of database drivers may contain a URL with a password, so details are logged at DEBUG only.
        _log.debug("the agent continues without task memory", exc_info=error)
