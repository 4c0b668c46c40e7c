"""Memory for agents: recall, compression, budget and write-back, with no other change to the agent."""

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

from langmem_tiers.errors import BudgetExceededError, LangmemTiersError
from langmem_tiers_langchain.prompt_budget import PromptBudgeter, TokenCalibration
from langmem_tiers_langchain.recorder import ThreadRecorder
from langmem_tiers_langchain.repair import repair_tool_calls
from langmem_tiers_langchain.run_location import RunLocator
from langmem_tiers_langchain.thread_view import RenderedThread, ThreadRenderer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import ModelRequest
    from langgraph.runtime import Runtime

    from langmem_tiers import MemoryEngine, TokenBudget
    from langmem_tiers_langchain.run_location import Owner

_log = logging.getLogger("langmem_tiers")
_MAX_WARNINGS = 100
"""Different ones that are remembered, so that each is logged once."""


@dataclass(slots=True)
class MiddlewareStats:
    """What a middleware has done since it was made."""

    calls: int = 0
    """Model calls that it prepared."""
    stored: int = 0
    """Messages that it wrote."""
    failures: Counter[str] = field(default_factory=Counter)
    """What failed while the agent went on, by the name of the error."""


class TieredMemoryMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Gives an agent memory: ``create_agent(model, tools, middleware=[TieredMemoryMiddleware(engine)])``.

    Before each model call it writes back what is new in the thread, recalls what answers the newest question, from
    this and from other threads of the same user, and shows the model as much of the thread as the budget holds. The
    state's messages are never changed. If memory fails, the agent goes on without it, with a warning.

    Args:
        engine: The memory.
        namespace: Whose memory: labels such as ``("acme", "{user_id}")``, filled from the run's context or
            ``configurable``, or a function of the runtime. If left out, the ``user_id`` of the run; without one, each
            thread remembers for itself.
        budget: What a prompt may take, in tokens or as a ``TokenBudget``; by the model's profile, if left out.
        recall: Whether what is known and what was said elsewhere comes along.
        name: Tells two of them in one agent apart.
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
        """The name of the middleware in its agent."""
        return self._name or type(self).__name__

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Show the model its view of the thread, and remember what it answers."""
        seen = self._render_thread(request)
        response = handler(request.override(messages=seen.messages))
        self._record_response(request, seen, response)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same without keeping the event loop."""
        seen = await asyncio.to_thread(self._render_thread, request)
        response = await handler(request.override(messages=seen.messages))
        await asyncio.to_thread(self._record_response, request, seen, response)
        return response

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Remember what no model call has seen, such as the results of the last tools."""
        self._record_messages(runtime, state["messages"])
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The same without keeping the event loop."""
        await asyncio.to_thread(self._record_messages, runtime, state["messages"])
        return None

    def _render_thread(self, request: ModelRequest[Any]) -> RenderedThread:
        with self._lock:
            self.stats.calls += 1
        try:
            ratio = self.calibration.get_ratio(request.model)
            allowance = self._budgeter.compute_allowance(request, ratio)
            view = ThreadRenderer(self._engine, self._budgeter, allowance, request.messages)
            return self._render_with_memory(request, view) or view.render_plain()
        except BudgetExceededError:
            raise
        except Exception as error:  # noqa: BLE001 - not even counting works: the thread goes on as it is
            self._report_failure(error)
            return RenderedThread(repair_tool_calls(request.messages), 0)

    def _render_with_memory(self, request: ModelRequest[Any], view: ThreadRenderer) -> RenderedThread | None:
        # The state is the record; other middleware may show its messages in other words, or add to them.
        said = request.state["messages"]
        try:
            place = self._locator.locate(request.runtime, said)
            thread, stored = self._recorder.write(place, said)
            self._count_stored(stored)
            return view.render_with_memory(thread, said, recall=self._recall)
        except BudgetExceededError:
            return None  # without memory it may fit
        except Exception as error:  # noqa: BLE001 - whatever memory does, the agent goes on
            self._report_failure(error)
            return None

    def _record_response(
        self, request: ModelRequest[Any], seen: RenderedThread, response: ModelResponse[Any]
    ) -> None:
        for message in response.result:
            if message.id is None:
                message.id = str(uuid.uuid4())  # as the state would do, a moment later
            used: Any = message.usage_metadata if isinstance(message, AIMessage) else None
            told = used.get("input_tokens") if isinstance(used, dict) else None
            if isinstance(told, int):
                self.calibration.learn(request.model, seen.tokens, told)
        self._record_messages(request.runtime, [*request.state["messages"], *response.result])

    def _record_messages(self, runtime: Runtime[Any], messages: Sequence[BaseMessage]) -> None:
        try:
            self._count_stored(self._recorder.write(self._locator.locate(runtime, messages), messages)[1])
        except Exception as error:  # noqa: BLE001 - written with the next call, if the thread goes on
            self._report_failure(error)

    def _count_stored(self, stored: int) -> None:
        with self._lock:
            self.stats.stored += stored

    def _report_failure(self, error: Exception) -> None:
        kind, told = type(error).__name__, str(error) if isinstance(error, LangmemTiersError) else ""
        with self._lock:
            self.stats.failures[kind] += 1
            is_new = (what := f"{kind} {told}") not in self._logged_warnings
            self._logged_warnings = (
                {*self._logged_warnings, what} if len(self._logged_warnings) < _MAX_WARNINGS else {what}
            )
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "the agent goes on without memory: %s %s", kind, told, exc_info=not told)
