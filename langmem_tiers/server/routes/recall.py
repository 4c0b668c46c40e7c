"""Routes that recall memories and preview contexts."""

from __future__ import annotations

from fastapi import APIRouter

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.recall.models import RecallFilters
from langmem_tiers.server import response_models, serializers
from langmem_tiers.server.dependencies import CurrentRequest, run_in_thread_pool
from langmem_tiers.server.request_models import PreviewContextRequest, RecallMemoriesRequest  # noqa: TC001 - read at run time
from langmem_tiers.text.token_counting import count_messages

router = APIRouter()


@router.post("/recall")
@run_in_thread_pool()
def handle_recall(context: CurrentRequest, body: RecallMemoriesRequest) -> response_models.RecallResponse:
    """Recall messages and knowledge that answer a query, best first, each with its score breakdown."""
    memory, now = context.require_namespace(body.namespace), SystemClock().monotonic
    started = now()
    found = memory.recall(body.query, limit=body.limit, strategy=body.strategy, filters=_build_filters(body))
    return response_models.RecallResponse(
        hits=[serializers.serialize_hit(hit) for hit in found.hits],
        strategy=found.strategy.value,
        candidates=found.candidates,
        problems=[serializers.replace_surrogates(problem) for problem in found.problems],
        seconds=round(now() - started, 6),
    )


def _build_filters(body: RecallMemoriesRequest) -> RecallFilters | None:
    if body.session is None and body.since is None and body.until is None:
        return None
    return RecallFilters(
        sessions=None if body.session is None else frozenset({body.session}),
        since=body.since,
        until=body.until,
    )


@router.post("/context")
@run_in_thread_pool()
def preview_context(context: CurrentRequest, body: PreviewContextRequest) -> response_models.ContextResponse:
    """Preview the context for a question within a budget, and the memories left out. Nothing is changed."""
    session = context.require_session(body.namespace, body.session)
    counter = context.engine.counter
    system_tokens = serializers.count_system_tokens(counter, body.system)
    budget = context.build_budget(session, body.budget)
    if system_tokens and system_tokens + count_messages(counter, ()) >= budget.available:
        raise BudgetExceededError(
            f"the system prompt takes {system_tokens} of {budget.available} tokens: raise the budget or shorten it"
        )
    preview = session.preview(body.question, budget=budget.resized(budget.available - system_tokens))
    return serializers.serialize_context(preview, counter, budget=budget.available, system=body.system)
