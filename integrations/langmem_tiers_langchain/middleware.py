"""Memory middleware for LangChain agents: recall, compression, token budget and storage."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage

from langmem_tiers import BudgetExceededError, LangmemTiersError
from langmem_tiers_langchain.namespaces import RunLocator
from langmem_tiers_langchain.prompt_budget import PromptBudgeter, TokenCalibration
from langmem_tiers_langchain.recorder import ThreadRecorder
from langmem_tiers_langchain.thread_view import RenderedThread, ThreadRenderer
from langmem_tiers_langchain.tool_call_repair import repair_tool_calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import ModelRequest
    from langgraph.runtime import Runtime

    from langmem_tiers import MemoryEngine, TokenBudget
    from langmem_tiers_langchain.namespaces import Owner

_log = logging.getLogger("langmem_tiers")
_MAX_WARNINGS = 100
"""Number of distinct warnings to remember, so that each is logged once."""


@dataclass(slots=True)
class MiddlewareStats:
    """Counters of a middleware since its creation."""

    calls: int = 0
    """Number of prepared model calls."""
    stored: int = 0
    """Number of stored messages."""
    failures: Counter[str] = field(default_factory=Counter)
    """Number of failures that did not stop the agent, by error type."""


class TieredMemoryMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Memory for an agent: ``create_agent(model, tools, middleware=[TieredMemoryMiddleware(engine)])``.

    Before each model call, the middleware stores the new messages of the thread. It recalls memories for the newest
    question, from this thread and from other threads of the same user. The model sees as much of the thread as fits
    the budget. The messages in the state are never changed. If memory fails, the agent continues without it, and a
    warning is logged.

    Args:
        engine: Memory engine.
        namespace: Owner of the memory: labels such as ``("acme", "{user_id}")``, filled from the run's context or
            ``configurable``, or a function of the runtime. Default: the ``user_id`` of the run; a thread without
            a user has its own memory.
        budget: Budget of a prompt, in tokens or as a ``TokenBudget``. Default: from the model's profile.
        recall: True to include knowledge and memories from other sessions.
        name: Name of the middleware, required to use two of them in one agent.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        *,
        namespace: Owner = None,
        budget: TokenBudget | int | None = None,
        recall: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._locator = RunLocator(namespace)
        self._budgeter = PromptBudgeter(budget, engine.config.budget, engine.counter)
        self._recall = recall
        self._name = name
        self._recorder = ThreadRecorder(engine)
        self.calibration = TokenCalibration()
        self.stats = MiddlewareStats()
        self._logged_warnings: set[str] = set()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Name of the middleware in the agent."""
        return self._name or type(self).__name__

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with its view of the thread, and store the response."""
        view = self._render_thread(request)
        response = handler(request.override(messages=view.messages))
        self._record_response(request, view, response)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Run ``wrap_model_call`` without blocking the event loop."""
        view = await asyncio.to_thread(self._render_thread, request)
        response = await handler(request.override(messages=view.messages))
        await asyncio.to_thread(self._record_response, request, view, response)
        return response

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store messages that no model call has seen, such as the last tool results."""
        self._record_messages(runtime, state["messages"])
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Run ``after_agent`` without blocking the event loop."""
        await asyncio.to_thread(self._record_messages, runtime, state["messages"])
        return None

    def _render_thread(self, request: ModelRequest[Any]) -> RenderedThread:
        with self._lock:
            self.stats.calls += 1
        try:
            ratio = self.calibration.get_ratio(request.model)
            allowance = self._budgeter.compute_allowance(request, ratio)
            renderer = ThreadRenderer(self._engine, self._budgeter, allowance, request.messages)
            return self._render_with_memory(request, renderer) or renderer.render_plain()
        except BudgetExceededError:
            raise
        except Exception as error:  # noqa: BLE001 - even token counting failed: use the thread unchanged
            self._report_failure(error)
            return RenderedThread(repair_tool_calls(request.messages), 0)

    def _render_with_memory(
        self, request: ModelRequest[Any], renderer: ThreadRenderer
    ) -> RenderedThread | None:
        # Store the messages of the state, not those of the request: other middleware may have rewritten the
        # request or added messages to it.
        messages = request.state["messages"]
        try:
            location = self._locator.locate(request.runtime, messages)
            thread, stored = self._recorder.write(location, messages)
            self._count_stored(stored)
            return renderer.render_with_memory(thread, messages, recall=self._recall)
        except BudgetExceededError:
            return None  # the plain view needs less space and may fit
        except Exception as error:  # noqa: BLE001 - a memory failure must not stop the agent
            self._report_failure(error)
            return None

    def _record_response(
        self, request: ModelRequest[Any], view: RenderedThread, response: ModelResponse[Any]
    ) -> None:
        for message in response.result:
            if message.id is None:
                # The state would assign an id after this hook. Assigning it here makes both ids equal, so the
                # message is not stored twice.
                message.id = str(uuid.uuid4())
            usage: Any = message.usage_metadata if isinstance(message, AIMessage) else None
            reported = usage.get("input_tokens") if isinstance(usage, dict) else None
            if isinstance(reported, int):
                self.calibration.learn(request.model, view.tokens, reported)
        self._record_messages(request.runtime, [*request.state["messages"], *response.result])

    def _record_messages(self, runtime: Runtime[Any], messages: Sequence[BaseMessage]) -> None:
        try:
            self._count_stored(self._recorder.write(self._locator.locate(runtime, messages), messages)[1])
        except Exception as error:  # noqa: BLE001 - the next call of the thread stores them
            self._report_failure(error)

    def _count_stored(self, stored: int) -> None:
        with self._lock:
            self.stats.stored += stored

    def _report_failure(self, error: Exception) -> None:
        # Texts of foreign errors may contain secrets, so only our own are part of the message.
        kind, detail = type(error).__name__, str(error) if isinstance(error, LangmemTiersError) else ""
        with self._lock:
            self.stats.failures[kind] += 1
            is_new = (warning := f"{kind} {detail}") not in self._logged_warnings
            # Start over when full: the set must not grow without bound.
            self._logged_warnings = (
                {*self._logged_warnings, warning} if len(self._logged_warnings) < _MAX_WARNINGS else {warning}
            )
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "the agent continues without memory: %s %s", kind, detail, exc_info=not detail)
