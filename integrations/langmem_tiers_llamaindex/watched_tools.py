"""Tools that record their calls as cycles of a task."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput
from pydantic import BaseModel, Field
from workflows.runtime.types.results import WaitingForEvent

from langmem_tiers import InvalidInputError, Thought
from langmem_tiers.integration_kit import (
    ANSWER_TOOL,
    ANSWER_TOOL_DESCRIPTION,
    BLOCK_LIFTED,
    BLOCK_NOT_LIFTED,
    describe_tool_error,
    format_advice,
    is_block,
)
from langmem_tiers_llamaindex.task_watcher import (
    HANDOFF,
    WatchedCall,
    append_text,
    build_blocked_output,
    build_watched_call,
    describe_value,
    to_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.integration_kit import GuardAdvice
    from langmem_tiers_llamaindex.task_watcher import TaskWatcher

_log = logging.getLogger("langmem_tiers")


class WatchedTool(AsyncBaseTool):
    """Tool wrapper that records calls as cycles of a task; created by ``watch_tools`` and ``watch_agent``.

    It behaves like the wrapped tool. If memory fails, the call continues unrecorded, and the failure is logged and
    counted in ``failures``.
    """

    def __init__(self, tool: BaseTool, watch: TaskWatcher, *, can_answer: bool = True) -> None:
        self._tool = tool
        self._watcher = watch
        self._can_answer = can_answer
        self._failures = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the tool
        # copy and pickle look up attributes before the state is restored: without the check, this would not end.
        if name.startswith("__") or "_tool" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._tool, name)

    def __repr__(self) -> str:
        return f"WatchedTool({self._name!r})"

    @property
    def metadata(self) -> ToolMetadata:
        """Metadata of the wrapped tool."""
        return self._tool.metadata

    @property
    def failures(self) -> int:
        """Number of calls that were not checked or not recorded because memory failed."""
        return self._failures

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - the framework's signature
        """Run ``call``."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        """Call the tool, unless the guard blocks it."""
        call = build_watched_call(self._name, self.metadata.fn_schema, args, kwargs)
        # The lock covers check and record: otherwise, concurrent identical calls would all pass the guard.
        with self._watcher.locks.lock(self._build_lock_key(call)):
            return self._call(call, *args, **kwargs)

    def _call(self, call: WatchedCall, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        before = self._check_guard(call)
        if is_block(before):
            return build_blocked_output(call, before, can_answer=self._can_answer)
        try:
            output = _run_tool(self._tool, *args, **kwargs)
        except WaitingForEvent:  # not a result: the call is repeated when a person has answered
            raise
        except Exception as error:
            error_output = self._report_error(call, error, before)
            if error_output is None:
                raise
            return error_output
        return self._report_output(call, output, before)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        """Run ``call`` without blocking the event loop."""
        call = build_watched_call(self._name, self.metadata.fn_schema, args, kwargs)
        async with self._watcher.locks.alock(self._build_lock_key(call)):
            return await self._acall(call, *args, **kwargs)

    async def _acall(self, call: WatchedCall, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        before = await asyncio.to_thread(self._check_guard, call)
        if is_block(before):
            return build_blocked_output(call, before, can_answer=self._can_answer)
        try:
            if isinstance(self._tool, AsyncBaseTool):
                output = await self._tool.acall(*args, **kwargs)
            else:
                output = await asyncio.to_thread(_run_tool, self._tool, *args, **kwargs)
        except WaitingForEvent:  # as above
            raise
        except Exception as error:
            error_output = await asyncio.to_thread(self._report_error, call, error, before)
            if error_output is None:
                raise
            return error_output
        return await asyncio.to_thread(self._report_output, call, output, before)

    @property
    def _name(self) -> str:
        return self.metadata.name or type(self._tool).__name__

    def _build_lock_key(self, call: WatchedCall) -> tuple[str | None, str, str]:
        active = self._watcher.active_call
        return (None if active is None else active.task, call.action.tool_name, call.action.parameters_json)

    def _check_guard(self, call: WatchedCall) -> GuardAdvice | None:
        def check() -> GuardAdvice | None:
            task = self._watcher.get_task()
            return None if task is None else task.check_action(call.action, call.url)

        return self._run_safely(check)

    def _report_output(self, call: WatchedCall, output: ToolOutput, before: GuardAdvice | None) -> ToolOutput:
        value: object = output
        if not isinstance(
            value, ToolOutput
        ):  # a tool that violates its interface: the agent handles the value
            self._record_cycle(call, value, None)
            return output
        error: object = (output.exception or output.content) if output.is_error else None
        advice = self._record_cycle(call, output.content, error) or (before if output.is_error else None)
        # Direct results are read by a person, not by a model. The exception is a handoff, which the next agent reads.
        is_direct = self.metadata.return_direct and self._name != HANDOFF
        if advice is None or (is_direct and not output.is_error):
            return output
        return append_text(output, format_advice(advice, can_answer=self._can_answer))

    def _report_error(
        self, call: WatchedCall, error: Exception, before: GuardAdvice | None
    ) -> ToolOutput | None:
        advice = self._record_cycle(call, error, error) or before
        if advice is None or not self._watcher.reports_errors:
            return None
        output = ToolOutput(
            tool_name=self._name,
            content=str(error),
            raw_input=dict(call.action.parameters),
            raw_output=str(error),
            is_error=True,
            exception=error,
        )
        return append_text(output, format_advice(advice, can_answer=self._can_answer))

    def _record_cycle(self, call: WatchedCall, seen: object, error: object) -> GuardAdvice | None:
        details: dict[str, Any] = {"duration_ms": call.duration_ms}
        if call.url is not None:
            details["url"] = call.url
        if error is not None:
            details["error_message"] = describe_value(error)

        def record() -> GuardAdvice | None:
            memory, active = self._watcher.get_task(), self._watcher.active_call
            if memory is None:
                return None
            # Without the lock, another call could record its cycle before memory.advice is read.
            with self._watcher.lock:
                thought_text = (active.thought if active is not None else "") or call.reason
                thought = memory.working.active_thought or Thought(thought_text)
                memory.record_cycle(
                    thought, call.action, call.describe_observation(seen), to_outcome(error), **details
                )
                return memory.advice

        return self._run_safely(record)

    def _run_safely(self, do: Callable[[], GuardAdvice | None]) -> GuardAdvice | None:
        try:
            return do()
        except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
            with self._watcher.lock:
                self._failures += 1
            # Only the error type: the message of a database driver may contain a URL with a password.
            _log.warning("memory failed during a call of %r: %s", self._name, type(error).__name__)
            _log.debug("memory failed during a call of %r", self._name, exc_info=error)
            return None


class _WatchedFunctionTool(WatchedTool, FunctionTool):
    # Agents pass a Context only to function tools, and CodeActAgent accepts only function tools. The attributes of
    # FunctionTool are those of the wrapped tool, by __getattr__.
    pass


class AnswerTool(FunctionTool):
    """The tool ``answer_guard``; its calls are not recorded as cycles."""


class _Answer(BaseModel):
    reason: str = Field(description="Why the blocked call should be repeated, in one sentence.")


class WatchedRetriever(ObjectRetriever[Any]):
    """Tool retriever that wraps the retrieved tools."""

    def __init__(self, retriever: ObjectRetriever[Any], watch: TaskWatcher, *, can_answer: bool) -> None:
        inner = retriever._inner if isinstance(retriever, WatchedRetriever) else retriever  # noqa: SLF001 - the same class
        super().__init__(inner.retriever, inner.object_node_mapping, inner.node_postprocessors)
        self._inner: ObjectRetriever[Any] = inner
        self._watcher = watch
        self._can_answer = can_answer

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:  # noqa: ANN401 - the framework's signature
        """Return the wrapped tools for a query."""
        found = self._inner.retrieve(str_or_query_bundle)
        return wrap_tools(found, self._watcher, can_answer=self._can_answer)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:  # noqa: ANN401 - as above
        """Run ``retrieve`` without blocking the event loop."""
        found = await self._inner.aretrieve(str_or_query_bundle)
        return wrap_tools(found, self._watcher, can_answer=self._can_answer)


class MissingTool(AsyncBaseTool):
    """Stand-in for a tool that a model requested and that does not exist."""

    def __init__(self, name: str) -> None:
        self._metadata = ToolMetadata(name=name, description="Unknown tool.")

    @property
    def metadata(self) -> ToolMetadata:
        """Metadata with the requested name."""
        return self._metadata

    def call(self, *_: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - the framework's signature
        """Return the same error as the framework."""
        return ToolOutput(
            content=f"Tool {self._metadata.name} not found. Please select a tool that is available.",
            tool_name=self._metadata.get_name(),
            raw_input=kwargs,
            raw_output=None,
            is_error=True,
        )

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        """Run ``call``."""
        return self.call(*args, **kwargs)


def wrap_tools(
    tools: Iterable[BaseTool | Callable[..., Any]], watch: TaskWatcher, *, can_answer: bool = True
) -> list[BaseTool]:
    """Wrap tools for a watcher, without ``answer_guard``.

    Args:
        tools: Tools or functions, possibly wrapped already for another watcher.
        watch: Watcher that records the calls.
        can_answer: True if the agent also has ``answer_guard``.
    """
    found = (tool for tool in tools if not isinstance(tool, AnswerTool))
    return [wrap_tool(tool, watch, can_answer=can_answer) for tool in found]


def wrap_tool(original: BaseTool | Callable[..., Any], watch: TaskWatcher, *, can_answer: bool) -> BaseTool:
    """Wrap one tool or function; see ``wrap_tools``."""
    tool = original if isinstance(original, BaseTool) else FunctionTool.from_defaults(original)
    if isinstance(tool, WatchedTool):
        tool = tool._tool  # noqa: SLF001 - the same class
    if tool.metadata.name == ANSWER_TOOL:
        raise InvalidInputError(f"the tool name {ANSWER_TOOL!r} is reserved for the guard: rename the tool")
    kind = _WatchedFunctionTool if isinstance(tool, FunctionTool) else WatchedTool
    return kind(tool, watch, can_answer=can_answer)


def build_answer_tool(watch: TaskWatcher) -> BaseTool:
    """Return the tool with which a model explains why a blocked call is needed."""

    def answer_guard(reason: str) -> str:
        try:
            task = watch.get_task()
            is_accepted = task is not None and task.answer_guard(reason)
        except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
            return describe_tool_error(error)
        return BLOCK_LIFTED if is_accepted else BLOCK_NOT_LIFTED

    return AnswerTool.from_defaults(
        answer_guard,
        name=ANSWER_TOOL,
        description=ANSWER_TOOL_DESCRIPTION,
        fn_schema=_Answer,
    )


def _run_tool(tool: BaseTool, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
    return tool.call(*args, **kwargs) if isinstance(tool, AsyncBaseTool) else tool(*args, **kwargs)
