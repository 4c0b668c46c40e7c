"""Endpoints that look: what is there. Lists are read by key, page by page, never through."""

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
    desk: CurrentRequest, limit: LimitQuery = 50, cursor: CursorQuery = None
) -> response_models.PageResponse[response_models.NamespaceItem]:
    """The namespaces that the token opens, in a fixed order."""
    place = decode_cursor("namespaces", cursor, str)
    after = None if place is None else parse_namespace(str(place[0]))
    found = desk.engine.namespaces(desk.token_scope.namespace or (), after=after, limit=limit + 1)
    items = [
        response_models.NamespaceItem(namespace=serializers.replace_surrogates(format_namespace(one)))
        for one in found[:limit]
    ]
    more = encode_cursor("namespaces", format_namespace(found[limit - 1])) if len(found) > limit else None
    return response_models.PageResponse(items=items, next=more)


@router.get("/overview")
@run_in_thread_pool()
def get_overview(desk: CurrentRequest, namespace: NamespaceQuery = None) -> response_models.OverviewResponse:
    """What a namespace holds, by tier, and by day for 90 days."""
    there = desk.require_namespace(namespace)
    held = get_namespace_usage(there) or _EMPTY_USAGE
    return response_models.OverviewResponse(
        namespace=serializers.replace_surrogates(format_namespace(there.path)),
        sessions=held.sessions,
        messages=held.messages,
        tokens=held.tokens,
        tiers=[
            response_models.TierUsageItem(tier=tier, entries=one.entries, tokens=one.tokens)
            for tier, one in held.tiers.items()
        ],
        knowledge=held.knowledge,
        growth=[
            response_models.DailyUsageItem(day=one.day, messages=one.messages, tokens=one.tokens)
            for one in held.growth
        ],
        growth_is_whole=held.growth_is_whole,
        optimizer=serializers.serialize_optimizer_status(desk.engine.optimizer.report(there.path)),
        budget=desk.engine.config.budget.available,
    )


@router.get("/sessions")
@run_in_thread_pool()
def list_sessions(
    desk: CurrentRequest, namespace: NamespaceQuery = None, limit: LimitQuery = 50, cursor: CursorQuery = None
) -> response_models.PageResponse[response_models.SessionItem]:
    """The sessions of a namespace, newest first."""
    place = decode_cursor("sessions", cursor, str)
    page = desk.require_namespace(namespace).sessions(
        after=None if place is None else str(place[0]), limit=limit
    )
    more = None if page.next_after is None else encode_cursor("sessions", page.next_after)
    return response_models.PageResponse(
        items=[serializers.serialize_session(one) for one in page.sessions], next=more
    )


@router.get(f"/sessions/{build_path_parameter('session')}/messages")
@run_in_thread_pool()
def list_messages(
    desk: CurrentRequest,
    session: PathText,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.MessageItem]:
    """The record of a session, oldest first."""
    after, before = _decode_record_cursor("messages", cursor)
    page = desk.require_session(namespace, session).page(after, limit)
    items = [
        response_models.MessageItem(**serializers.serialize_message(one), position=position)
        for position, one in enumerate(page.messages, before + 1)
    ]
    return response_models.PageResponse(
        items=items, next=_encode_record_cursor("messages", page.next_after, before + limit)
    )


@router.get(f"/sessions/{build_path_parameter('session')}/timeline")
@run_in_thread_pool()
def list_timeline(  # noqa: PLR0913, PLR0917 - each is a parameter of the address
    desk: CurrentRequest,
    session: PathText,
    namespace: NamespaceQuery = None,
    question: Annotated[str | None, Query(max_length=MAX_QUESTION_CHARACTERS)] = None,
    budget: BudgetQuery = None,
    order: Literal["oldest", "newest"] = "oldest",
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.TimelineItem]:
    """The record of a session, and what would become of each message in a context.

    Without a question nothing is recalled for it.
    """
    listing = f"timeline {order}"
    place, before = _decode_record_cursor(listing, cursor)
    there = desk.require_session(namespace, session)
    verdicts = desk.app_state.preview_cache.get_verdicts(
        there, question, desk.build_budget(there, budget), is_first=cursor is None
    )
    page = there.page(place, limit) if order == "oldest" else there.page_back(place, limit)
    items = [
        response_models.TimelineItem(
            **serializers.serialize_message(one),
            position=position if order == "oldest" else None,
            state=verdicts.state_of(one),
            reason=serializers.replace_surrogates(verdicts.reason_of(one)),
        )
        for position, one in enumerate(page.messages, before + 1)
    ]
    return response_models.PageResponse(
        items=items, next=_encode_record_cursor(listing, page.next_after, before + limit)
    )


@router.get(f"/entries/{build_path_parameter('id')}")
@run_in_thread_pool()
def get_entry(
    desk: CurrentRequest,
    id: PathText,  # noqa: A002 - as in the path
    namespace: NamespaceQuery = None,
    session: SessionQuery = None,
) -> response_models.EntryResponse:
    """A memory, whole: a message as it was said, an entry, an episode, a chunk, something known."""
    return serializers.serialize_entry(desk.require_namespace(namespace).entry(id, session=session))


@router.get("/knowledge")
@run_in_thread_pool()
def list_knowledge(
    desk: CurrentRequest,
    namespace: NamespaceQuery = None,
    query: Annotated[str | None, Query(max_length=MAX_QUESTION_CHARACTERS)] = None,
    category: str | None = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.KnowledgeItem]:
    """What is known across sessions, by category and key; with a query what answers it, best first, on one page."""
    place = decode_cursor("knowledge", cursor, str, str)
    known = desk.require_namespace(namespace).knowledge
    if query:
        hits = known.recall(query, category=category, limit=limit, use=False)
        return response_models.PageResponse(
            items=[serializers.serialize_knowledge(hit.knowledge) for hit in hits]
        )
    after = None if place is None else (str(place[0]), str(place[1]))
    found = known.page(category, after=after, limit=limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    more = None if last is None else encode_cursor("knowledge", last.category, last.key)
    return response_models.PageResponse(
        items=[serializers.serialize_knowledge(one) for one in found[:limit]], next=more
    )


@router.get("/tasks")
@run_in_thread_pool()
def list_tasks(
    desk: CurrentRequest, namespace: NamespaceQuery = None, limit: LimitQuery = 50, cursor: CursorQuery = None
) -> response_models.PageResponse[response_models.TaskItem]:
    """Recorded runs of agents, newest first; a page may hold fewer than were asked for, and still have a next."""
    place = decode_cursor("tasks", cursor, int)
    before = None if place is None else int(place[0])
    page = desk.require_namespace(namespace).tasks(before=before, limit=limit)
    more = None if page.next_before is None else encode_cursor("tasks", page.next_before)
    return response_models.PageResponse(
        items=[serializers.serialize_task(one) for one in page.tasks], next=more
    )


@router.get(f"/tasks/{build_path_parameter('task')}/cycles")
@run_in_thread_pool()
def list_cycles(
    desk: CurrentRequest,
    task: PathText,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.CycleItem]:
    """The steps of a run, oldest first, each with the loop that it is part of, if it is."""
    place = CyclePlace()
    if (told := decode_cursor("cycles", cursor, str, int, int)) is not None:
        place = CyclePlace(str(told[0]) or None, int(told[1]), int(told[2]))
    page = desk.require_namespace(namespace).task_cycles(task, place=place, limit=limit)
    rest = page.next_place
    more = (
        None if rest is None else encode_cursor("cycles", rest.after or "", rest.lookback_steps, rest.number)
    )
    return response_models.PageResponse(
        items=[serializers.serialize_cycle(one) for one in page.cycles], next=more
    )


def _decode_record_cursor(listing: str, cursor: str | None) -> tuple[str | None, int]:
    # The message before the page, and how many there are up to it.
    place = decode_cursor(listing, cursor, str, int)
    return (None, 0) if place is None else (str(place[0]), int(place[1]))


def _encode_record_cursor(listing: str, after: str | None, count: int) -> str | None:
    return None if after is None else encode_cursor(listing, after, count)
