"""Endpoints that ask memory."""

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
def handle_recall(desk: CurrentRequest, asked: RecallMemoriesRequest) -> response_models.RecallResponse:
    """What was said in any session, or is known, that answers a query: best first, each with the reasons."""
    there, now = desk.require_namespace(asked.namespace), SystemClock().monotonic
    started = now()
    found = there.recall(
        asked.query, limit=asked.limit, strategy=asked.strategy, filters=_build_filters(asked)
    )
    return response_models.RecallResponse(
        hits=[serializers.serialize_hit(hit) for hit in found.hits],
        strategy=found.strategy.value,
        candidates=found.candidates,
        problems=[serializers.replace_surrogates(one) for one in found.problems],
        seconds=round(now() - started, 6),
    )


def _build_filters(asked: RecallMemoriesRequest) -> RecallFilters | None:
    if asked.session is None and asked.since is None and asked.until is None:
        return None
    return RecallFilters(
        sessions=None if asked.session is None else frozenset({asked.session}),
        since=asked.since,
        until=asked.until,
    )


@router.post("/context")
@run_in_thread_pool()
def preview_context(desk: CurrentRequest, asked: PreviewContextRequest) -> response_models.ContextResponse:
    """What would go to the model for a question, within a budget, and what would be left out. Nothing is changed."""
    session = desk.require_session(asked.namespace, asked.session)
    counter = desk.engine.counter
    taken = serializers.count_system_tokens(counter, asked.system)
    whole = desk.build_budget(session, asked.budget)
    if taken and taken + count_messages(counter, ()) >= whole.available:
        raise BudgetExceededError(
            f"the system prompt takes {taken} of {whole.available} tokens: raise the budget or shorten it"
        )
    previewed = session.preview(asked.question, budget=whole.resized(whole.available - taken))
    return serializers.serialize_context(previewed, counter, budget=whole.available, system=asked.system)
