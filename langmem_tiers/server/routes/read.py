"""Routes that read. Lists use key-based pagination, so a page never scans the pages before it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.maintenance.models import NamespaceUsage
from langmem_tiers.server import response_models, serializers
from langmem_tiers.server.dependencies import CurrentRequest, build_path_parameter, run_in_thread_pool
from langmem_tiers.server.namespace_listing import get_namespace_usage
from langmem_tiers.server.pagination import decode_cursor, encode_cursor
from langmem_tiers.server.request_models import (
    MAX_QUESTION_CHARACTERS,
    BudgetQuery,
    CursorQuery,
    LimitQuery,
    NamespaceQuery,
    PathText,
    SessionQuery,
)
from langmem_tiers.tasks.history import CyclePlace

router = APIRouter()
_EMPTY_USAGE = NamespaceUsage(
    sessions=0, messages=0, tokens=0, tiers={}, knowledge=0, growth=(), growth_is_whole=True
)


@router.get("/namespaces")
@run_in_thread_pool()
def list_namespaces(
    context: CurrentRequest, limit: LimitQuery = 50, cursor: CursorQuery = None
) -> response_models.PageResponse[response_models.NamespaceItem]:
    """List the namespaces that the token opens, in a stable order."""
    position = decode_cursor("namespaces", cursor, str)
    after = None if position is None else parse_namespace(str(position[0]))
    # Read one extra row to find out whether there is a next page.
    found = context.engine.namespaces(context.token_scope.namespace or (), after=after, limit=limit + 1)
    items = [
        response_models.NamespaceItem(namespace=serializers.replace_surrogates(format_namespace(path)))
        for path in found[:limit]
    ]
    next_cursor = (
        encode_cursor("namespaces", format_namespace(found[limit - 1])) if len(found) > limit else None
    )
    return response_models.PageResponse(items=items, next=next_cursor)


@router.get("/overview")
@run_in_thread_pool()
def get_overview(
    context: CurrentRequest, namespace: NamespaceQuery = None
) -> response_models.OverviewResponse:
    """Return the contents of a namespace by tier, and its growth by day for 90 days."""
    memory = context.require_namespace(namespace)
    usage = get_namespace_usage(memory) or _EMPTY_USAGE
    return response_models.OverviewResponse(
        namespace=serializers.replace_surrogates(format_namespace(memory.path)),
        sessions=usage.sessions,
        messages=usage.messages,
        tokens=usage.tokens,
        tiers=[
            response_models.TierUsageItem(tier=name, entries=tier.entries, tokens=tier.tokens)
            for name, tier in usage.tiers.items()
        ],
        knowledge=usage.knowledge,
        growth=[
            response_models.DailyUsageItem(day=day.day, messages=day.messages, tokens=day.tokens)
            for day in usage.growth
        ],
        growth_is_whole=usage.growth_is_whole,
        optimizer=serializers.serialize_optimizer_status(context.engine.optimizer.report(memory.path)),
        budget=context.engine.config.budget.available,
    )


@router.get("/sessions")
@run_in_thread_pool()
def list_sessions(
    context: CurrentRequest,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.SessionItem]:
    """List the sessions of a namespace, newest first."""
    position = decode_cursor("sessions", cursor, str)
    page = context.require_namespace(namespace).sessions(
        after=None if position is None else str(position[0]), limit=limit
    )
    next_cursor = None if page.next_after is None else encode_cursor("sessions", page.next_after)
    return response_models.PageResponse(
        items=[serializers.serialize_session(info) for info in page.sessions], next=next_cursor
    )


@router.get(f"/sessions/{build_path_parameter('session')}/messages")
@run_in_thread_pool()
def list_messages(
    context: CurrentRequest,
    session: PathText,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.MessageItem]:
    """List the messages of a session, oldest first."""
    after, before = _decode_record_cursor("messages", cursor)
    page = context.require_session(namespace, session).page(after, limit)
    items = [
        response_models.MessageItem(**serializers.serialize_message(message), position=position)
        for position, message in enumerate(page.messages, before + 1)
    ]
    return response_models.PageResponse(
        items=items, next=_encode_record_cursor("messages", page.next_after, before + limit)
    )


@router.get(f"/sessions/{build_path_parameter('session')}/timeline")
@run_in_thread_pool()
def list_timeline(  # noqa: PLR0913, PLR0917 - one for each parameter of the URL
    context: CurrentRequest,
    session: PathText,
    namespace: NamespaceQuery = None,
    question: Annotated[str | None, Query(max_length=MAX_QUESTION_CHARACTERS)] = None,
    budget: BudgetQuery = None,
    order: Literal["oldest", "newest"] = "oldest",
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.TimelineItem]:
    """List the messages of a session with the state that each would have in a context.

    Without a question, nothing is recalled for the context.
    """
    # The order is part of the cursor's listing: a cursor of one order means nothing in the other.
    listing = f"timeline {order}"
    after, before = _decode_record_cursor(listing, cursor)
    record = context.require_session(namespace, session)
    verdicts = context.app_state.preview_cache.get_verdicts(
        record, question, context.build_budget(record, budget), is_first=cursor is None
    )
    page = record.page(after, limit) if order == "oldest" else record.page_back(after, limit)
    items = [
        response_models.TimelineItem(
            **serializers.serialize_message(message),
            position=position if order == "oldest" else None,
            state=verdicts.state_of(message),
            reason=serializers.replace_surrogates(verdicts.reason_of(message)),
        )
        for position, message in enumerate(page.messages, before + 1)
    ]
    return response_models.PageResponse(
        items=items, next=_encode_record_cursor(listing, page.next_after, before + limit)
    )


@router.get(f"/entries/{build_path_parameter('id')}")
@run_in_thread_pool()
def get_entry(
    context: CurrentRequest,
    id: PathText,  # noqa: A002 - as in the path
    namespace: NamespaceQuery = None,
    session: SessionQuery = None,
) -> response_models.EntryResponse:
    """Return a memory with its complete content: a message, an entry, an episode, a chunk or knowledge."""
    return serializers.serialize_entry(context.require_namespace(namespace).entry(id, session=session))


@router.get("/knowledge")
@run_in_thread_pool()
def list_knowledge(
    context: CurrentRequest,
    namespace: NamespaceQuery = None,
    query: Annotated[str | None, Query(max_length=MAX_QUESTION_CHARACTERS)] = None,
    category: str | None = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.KnowledgeItem]:
    """List knowledge by category and key; with a query, return one page of the best matches."""
    position = decode_cursor("knowledge", cursor, str, str)
    knowledge = context.require_namespace(namespace).knowledge
    if query:
        # An inspector only looks: its searches must not count as use.
        hits = knowledge.recall(query, category=category, limit=limit, use=False)
        return response_models.PageResponse(
            items=[serializers.serialize_knowledge(hit.knowledge) for hit in hits]
        )
    after = None if position is None else (str(position[0]), str(position[1]))
    found = knowledge.page(category, after=after, limit=limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    next_cursor = None if last is None else encode_cursor("knowledge", last.category, last.key)
    return response_models.PageResponse(
        items=[serializers.serialize_knowledge(item) for item in found[:limit]], next=next_cursor
    )


@router.get("/tasks")
@run_in_thread_pool()
def list_tasks(
    context: CurrentRequest,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.TaskItem]:
    """List recorded tasks of agents, newest first. A page with fewer items than the limit may have a next page."""
    position = decode_cursor("tasks", cursor, int)
    before = None if position is None else int(position[0])
    page = context.require_namespace(namespace).tasks(before=before, limit=limit)
    next_cursor = None if page.next_before is None else encode_cursor("tasks", page.next_before)
    return response_models.PageResponse(
        items=[serializers.serialize_task(task) for task in page.tasks], next=next_cursor
    )


@router.get(f"/tasks/{build_path_parameter('task')}/cycles")
@run_in_thread_pool()
def list_cycles(
    context: CurrentRequest,
    task: PathText,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.CycleItem]:
    """List the steps of a task, oldest first; steps that belong to a loop are marked."""
    place = CyclePlace()
    if (position := decode_cursor("cycles", cursor, str, int, int)) is not None:
        place = CyclePlace(str(position[0]) or None, int(position[1]), int(position[2]))
    page = context.require_namespace(namespace).task_cycles(task, place=place, limit=limit)
    following = page.next_place
    next_cursor = (
        None
        if following is None
        else encode_cursor("cycles", following.after or "", following.lookback_steps, following.number)
    )
    return response_models.PageResponse(
        items=[serializers.serialize_cycle(cycle) for cycle in page.cycles], next=next_cursor
    )


def _decode_record_cursor(listing: str, cursor: str | None) -> tuple[str | None, int]:
    # The id of the last message before the page, and the number of messages up to it.
    position = decode_cursor(listing, cursor, str, int)
    return (None, 0) if position is None else (str(position[0]), int(position[1]))


def _encode_record_cursor(listing: str, after: str | None, count: int) -> str | None:
    return None if after is None else encode_cursor(listing, after, count)
