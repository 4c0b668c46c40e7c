"""Endpoints that ask memory."""

from __future__ import annotations

from fastapi import APIRouter

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.recall.models import RecallFilters
from langmem_tiers.server import response_models, serializers
from langmem_tiers.server.dependencies import AtDesk, in_thread
from langmem_tiers.server.request_models import AskContext, AskRecall  # noqa: TC001 - read at run time
from langmem_tiers.text.token_counting import count_messages

router = APIRouter()


@router.post("/recall")
@in_thread()
def recall(desk: AtDesk, asked: AskRecall) -> response_models.RecallAnswer:
    """What was said in any session, or is known, that answers a query: best first, each with the reasons."""
    there, now = desk.there(asked.namespace), SystemClock().monotonic
    started = now()
    found = there.recall(asked.query, limit=asked.limit, strategy=asked.strategy, filters=_filters(asked))
    return response_models.RecallAnswer(
        hits=[serializers.hit_item(hit) for hit in found.hits],
        strategy=found.strategy.value,
        candidates=found.candidates,
        problems=[serializers.clean(one) for one in found.problems],
        seconds=round(now() - started, 6),
    )


def _filters(asked: AskRecall) -> RecallFilters | None:
    if asked.session is None and asked.since is None and asked.until is None:
        return None
    return RecallFilters(
        sessions=None if asked.session is None else frozenset({asked.session}),
        since=asked.since,
        until=asked.until,
    )


@router.post("/context")
@in_thread()
def context(desk: AtDesk, asked: AskContext) -> response_models.ContextAnswer:
    """What would go to the model for a question, within a budget, and what would be left out. Nothing is changed."""
    session = desk.session(asked.namespace, asked.session)
    counter = desk.engine.counter
    taken = serializers.system_tokens(counter, asked.system)
    whole = desk.budget(session, asked.budget)
    if taken and taken + count_messages(counter, ()) >= whole.available:
        raise BudgetExceededError(
            f"the system prompt takes {taken} of {whole.available} tokens: raise the budget or shorten it"
        )
    previewed = session.preview(asked.question, budget=whole.resized(whole.available - taken))
    return serializers.told(previewed, counter, budget=whole.available, system=asked.system)
