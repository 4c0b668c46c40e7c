"""Records the tool calls of LlamaIndex agents as cycles of a task, and stops an agent that goes in circles."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.llms.types import TextBlock
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import Context
from pydantic import BaseModel, Field
from workflows.runtime.types.results import WaitingForEvent

from langmem_tiers.adapting.told import in_words
from langmem_tiers.agent_memory import AgentMemory
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.tasks import Action, ExecutionOutcome, Thought, plain_value
from langmem_tiers.tiers.task.guard_advice import AdviceLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.tiers.task.guard_advice import GuardAdvice

_log = logging.getLogger("langmem_tiers")
_ANSWER = "answer_guard"
_Agent = TypeVar("_Agent", bound=BaseWorkflowAgent | AgentWorkflow)


def watch_tools(tools: Iterable[BaseTool | Callable[..., Any]], memory: AgentMemory) -> list[BaseTool]:
    """Tools that record each of their calls as a cycle of the memory's task.

    What the guard has to say stands below the result of a call, where the model reads it. A call that the guard
    blocks is not made: its result is the guard's message. An exception of a tool is recorded and raised.

    Args:
        tools: Tools or functions. Those that are watched already are watched for this memory from now on.
        memory: The task.

    Returns:
        The tools in their order, and ``answer_guard`` with which a model says why a blocked call is needed.

    Raises:
        InvalidInputError: A tool of one's own is called ``answer_guard``, or an argument is of a wrong type.
    """
    return _watched(tools, _Watch(_checked(memory)))


def watch_agent(agent: _Agent, memory: AgentMemory) -> _Agent:
    """Watch all tools of an agent, or of all agents of a workflow, in place; those of its retriever as well.

    As ``watch_tools``, with two differences. An agent tells its model of an exception by its text; the guard's word
    stands below it. And a ``CodeActAgent`` is watched by the code that it runs: it can call no ``answer_guard``,
    so it has to do something else, or ``memory.answer_guard`` is called for it.

    Args:
        agent: A ``FunctionAgent``, ``ReActAgent``, ``CodeActAgent`` or ``AgentWorkflow``.
        memory: The task.

    Returns:
        The agent.

    Raises:
        InvalidInputError: As ``watch_tools``; nothing is changed then.
    """
    given: object = agent
    if not isinstance(given, BaseWorkflowAgent | AgentWorkflow):
        raise InvalidInputError(
            f"a {type(given).__name__} is no agent: pass a FunctionAgent, ReActAgent, CodeActAgent or AgentWorkflow"
        )
    watch = _Watch(_checked(memory), tells_errors=True)
    agents = list(given.agents.values()) if isinstance(given, AgentWorkflow) else [given]
    found = [_watched(one.tools or (), watch, can_answer=not isinstance(one, CodeActAgent)) for one in agents]
    for one, tools in zip(agents, found, strict=True):
        one.tools = list(tools)
        if one.tool_retriever is not None:
            one.tool_retriever = _WatchedRetriever(one.tool_retriever, watch)
    return agent


@dataclass(slots=True)
class _Watch:
    """What the tools of one agent have in common."""

    memory: AgentMemory
    tells_errors: bool = False
    """Whether an exception becomes an output when there is a word of the guard to go with it."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Tools run at the same time: what the guard says belongs to the cycle that was just recorded."""

    def __deepcopy__(self, _: dict[int, Any]) -> _Watch:
        return self  # copies of an agent work at the same task


@dataclass(frozen=True, slots=True)
class _Call:
    action: Action
    url: str | None
    started: float = field(default_factory=perf_counter)


class WatchedTool(AsyncBaseTool):
    """A tool whose calls are cycles of a task; ``watch_tools`` makes it.

    It looks and works like the tool inside. If memory fails, the call goes on unrecorded: that is logged and
    counted in ``failures``.
    """

    def __init__(self, tool: BaseTool, watch: _Watch) -> None:
        self._tool = tool
        self._watch = watch
        self._failures = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the tool has
        if name.startswith("__") or "_tool" not in self.__dict__:  # a copy that is not filled yet
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._tool, name)

    def __repr__(self) -> str:
        return f"WatchedTool({self._name!r})"

    @property
    def metadata(self) -> ToolMetadata:
        """Of the tool inside."""
        return self._tool.metadata

    @property
    def failures(self) -> int:
        """How often memory failed, so that a call was not checked or not recorded."""
        return self._failures

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - the framework's signature
        """The same as ``call``."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        """Call the tool, unless the guard blocks it."""
        call = self._about(args, kwargs)
        before = self._check(call)
        if _blocks(before):
            return self._answer(call, before.message)
        try:
            output = _run(self._tool, *args, **kwargs)
        except WaitingForEvent:  # the call is made once more when a person has answered
            raise
        except Exception as error:
            told = self._failed(call, error, before)
            if told is None:
                raise
            return told
        return self._done(call, output, before)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
        """The same without blocking."""
        call = self._about(args, kwargs)
        before = await asyncio.to_thread(self._check, call)
        if _blocks(before):
            return self._answer(call, before.message)
        try:
            if isinstance(self._tool, AsyncBaseTool):
                output = await self._tool.acall(*args, **kwargs)
            else:
                output = await asyncio.to_thread(_run, self._tool, *args, **kwargs)
        except WaitingForEvent:  # as above
            raise
        except Exception as error:
            told = await asyncio.to_thread(self._failed, call, error, before)
            if told is None:
                raise
            return told
        return await asyncio.to_thread(self._done, call, output, before)

    @property
    def _name(self) -> str:
        return self.metadata.name or type(self._tool).__name__

    def _about(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        # As plain values: the same call is known again, and a tool may change what it was handed.
        given = {name: value for name, value in kwargs.items() if not isinstance(value, Context)}
        if args:
            given["args"] = [value for value in args if not isinstance(value, Context)]
        return _Call(Action(self._name, plain_value(given)), _address(given))

    def _check(self, call: _Call) -> GuardAdvice | None:
        return self._safely(lambda: self._watch.memory.check_action(call.action, call.url))

    def _done(self, call: _Call, output: ToolOutput, before: GuardAdvice | None) -> ToolOutput:
        given: object = output
        if not isinstance(given, ToolOutput):  # of a tool that keeps to no rules; the agent sees to it
            self._record(call, given, None)
            return output
        error: object = (output.exception or output.content) if output.is_error else None
        advice = self._record(call, output.content, error) or (before if output.is_error else None)
        if advice is None or (self.metadata.return_direct and not output.is_error):
            return output  # what is returned directly is read by a person and by no model
        return _with_words(output, advice.message)

    def _failed(self, call: _Call, error: Exception, before: GuardAdvice | None) -> ToolOutput | None:
        advice = self._record(call, error, error) or before
        if advice is None or not self._watch.tells_errors:
            return None
        return _with_words(self._answer(call, str(error), error), advice.message)

    def _record(self, call: _Call, seen: object, error: object) -> GuardAdvice | None:
        took = (perf_counter() - call.started) * 1000

        def record() -> GuardAdvice | None:
            about: dict[str, Any] = {"duration_ms": took}
            if call.url is not None:
                about["url"] = call.url
            if error is not None:
                about["error_message"] = _text(error)
            memory = self._watch.memory
            with self._watch.lock:
                thought = memory.working.active_thought or Thought()
                memory.record_cycle(thought, call.action, _text(seen), _outcome(error), **about)
                return memory.advice

        return self._safely(record)

    def _safely(self, do: Callable[[], GuardAdvice | None]) -> GuardAdvice | None:
        try:
            return do()
        except Exception as error:  # noqa: BLE001 - whatever memory raises, the agent goes on
            with self._watch.lock:
                self._failures += 1
            # Only its kind: what a driver raises may quote an address with its password.
            _log.warning("memory failed at a call of %r: %s", self._name, type(error).__name__)
            _log.debug("memory failed at a call of %r", self._name, exc_info=error)
            return None

    def _answer(self, call: _Call, text: str, error: Exception | None = None) -> ToolOutput:
        return ToolOutput(
            tool_name=self._name,
            content=text,
            raw_input=dict(call.action.parameters),
            raw_output=text,
            is_error=True,
            exception=error,
        )


class _WatchedFunctionTool(WatchedTool, FunctionTool):
    # Agents hand a Context to function tools only, and one that runs code takes no others. What a function tool
    # has is that of the tool inside.
    pass


class _AnswerTool(FunctionTool):
    """The tool ``answer_guard``: no cycle of its own."""


class _Answer(BaseModel):
    reason: str = Field(description="Why the blocked call should be made once more, in a sentence.")


class _WatchedRetriever(ObjectRetriever[Any]):
    """Finds tools, and watches them."""

    def __init__(self, retriever: ObjectRetriever[Any], watch: _Watch) -> None:
        inner = retriever._inner if isinstance(retriever, _WatchedRetriever) else retriever  # noqa: SLF001 - its own kind
        super().__init__(inner.retriever, inner.object_node_mapping, inner.node_postprocessors)
        self._inner: ObjectRetriever[Any] = inner
        self._watch = watch

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:  # noqa: ANN401 - the framework's signature
        return _watched(self._inner.retrieve(str_or_query_bundle), self._watch, can_answer=False)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:  # noqa: ANN401 - as above
        return _watched(await self._inner.aretrieve(str_or_query_bundle), self._watch, can_answer=False)


def _checked(memory: object) -> AgentMemory:
    if not isinstance(memory, AgentMemory):
        raise InvalidInputError(
            f"a {type(memory).__name__} is no AgentMemory: pass AgentMemory(engine=..., task='...')"
        )
    return memory


def _watched(
    tools: Iterable[BaseTool | Callable[..., Any]], watch: _Watch, *, can_answer: bool = True
) -> list[BaseTool]:
    watched: list[BaseTool] = []
    for given in tools:
        if isinstance(given, _AnswerTool):
            continue
        tool = given if isinstance(given, BaseTool) else FunctionTool.from_defaults(given)
        if isinstance(tool, WatchedTool):
            tool = tool._tool  # noqa: SLF001 - its own kind
        if tool.metadata.name == _ANSWER:
            raise InvalidInputError(
                f"{_ANSWER!r} is the tool that answers the guard: call yours something else"
            )
        kind = _WatchedFunctionTool if isinstance(tool, FunctionTool) else WatchedTool
        watched.append(kind(tool, watch))
    return [*watched, _answer_tool(watch.memory)] if can_answer else watched


def _answer_tool(memory: AgentMemory) -> BaseTool:
    def answer_guard(reason: str) -> str:
        try:
            accepted = memory.answer_guard(reason)
        except Exception as error:  # noqa: BLE001 - as above
            return in_words(error)
        if accepted:
            return "Accepted: the blocked call may be made once more."
        return "Not accepted: nothing is blocked, or the reason is shorter than three words."

    return _AnswerTool.from_defaults(
        answer_guard,
        name=_ANSWER,
        description=(
            "Say why a call that was blocked for going in circles should be made once more. Use it only after a "
            "result that starts with 'Blocked', and only if there is a reason; else do something different."
        ),
        fn_schema=_Answer,
    )


def _run(tool: BaseTool, *args: Any, **kwargs: Any) -> ToolOutput:  # noqa: ANN401 - as above
    return tool.call(*args, **kwargs) if isinstance(tool, AsyncBaseTool) else tool(*args, **kwargs)


def _address(given: dict[str, Any]) -> str | None:
    values = [given.get("url"), *given.values()]
    return next((one for one in values if isinstance(one, str) and _is_address(one)), None)


def _is_address(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://")) and not any(map(str.isspace, text))


def _text(value: object) -> str:
    return str(value) or (type(value).__name__ if isinstance(value, Exception) else "")


def _outcome(error: object) -> ExecutionOutcome:
    if error is None:
        return ExecutionOutcome.SUCCESS
    return ExecutionOutcome.TIMEOUT if isinstance(error, TimeoutError) else ExecutionOutcome.FAILURE


def _blocks(advice: GuardAdvice | None) -> TypeGuard[GuardAdvice]:
    return advice is not None and advice.level is AdviceLevel.BLOCK


def _with_words(output: ToolOutput, words: str) -> ToolOutput:
    # A copy: a tool may keep what it gave. Pictures and the like stay where they are.
    blocks = list(output.blocks)
    last = blocks.pop() if blocks and isinstance(blocks[-1], TextBlock) else None
    text = f"{last.text}\n\n{words}" if isinstance(last, TextBlock) and last.text else words
    return output.model_copy(update={"blocks": [*blocks, TextBlock(text=text)]})
