"""Endpoints that look: what is there. Lists are read by key, page by page, never through."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from langmem_tiers.common.namespaces import path_of, shown
from langmem_tiers.maintenance.models import Holdings
from langmem_tiers.server import response_models, serializers
from langmem_tiers.server.dependencies import AtDesk, any_name, in_thread
from langmem_tiers.server.namespace_listing import holdings_of
from langmem_tiers.server.pagination import cursor_of, place_of
from langmem_tiers.server.request_models import (
    MOST_CHARACTERS,
    Budget,
    Cursor,
    InNamespace,
    InPath,
    InSession,
    Limit,
)
from langmem_tiers.tasks.history import CyclePlace

router = APIRouter()
_NOTHING = Holdings(sessions=0, messages=0, tokens=0, tiers={}, knowledge=0, growth=(), growth_is_whole=True)


@router.get("/namespaces")
@in_thread()
def namespaces(
    desk: AtDesk, limit: Limit = 50, cursor: Cursor = None
) -> response_models.Page[response_models.NamespaceItem]:
    """The namespaces that the token opens, in a fixed order."""
    place = place_of("namespaces", cursor, str)
    after = None if place is None else path_of(str(place[0]))
    found = desk.engine.namespaces(desk.reach.namespace or (), after=after, limit=limit + 1)
    items = [response_models.NamespaceItem(namespace=serializers.clean(shown(one))) for one in found[:limit]]
    more = cursor_of("namespaces", shown(found[limit - 1])) if len(found) > limit else None
    return response_models.Page(items=items, next=more)


@router.get("/overview")
@in_thread()
def overview(desk: AtDesk, namespace: InNamespace = None) -> response_models.Overview:
    """What a namespace holds, by tier, and by day for 90 days."""
    there = desk.there(namespace)
    held = holdings_of(there) or _NOTHING
    return response_models.Overview(
        namespace=serializers.clean(shown(there.path)),
        sessions=held.sessions,
        messages=held.messages,
        tokens=held.tokens,
        tiers=[
            response_models.TierItem(tier=tier, entries=one.entries, tokens=one.tokens)
            for tier, one in held.tiers.items()
        ],
        knowledge=held.knowledge,
        growth=[
            response_models.DayItem(day=one.day, messages=one.messages, tokens=one.tokens)
            for one in held.growth
        ],
        growth_is_whole=held.growth_is_whole,
        optimizer=serializers.status_of(desk.engine.optimizer.report(there.path)),
        budget=desk.engine.config.budget.available,
    )


@router.get("/sessions")
@in_thread()
def sessions(
    desk: AtDesk, namespace: InNamespace = None, limit: Limit = 50, cursor: Cursor = None
) -> response_models.Page[response_models.SessionItem]:
    """The sessions of a namespace, newest first."""
    place = place_of("sessions", cursor, str)
    page = desk.there(namespace).sessions(after=None if place is None else str(place[0]), limit=limit)
    more = None if page.next_after is None else cursor_of("sessions", page.next_after)
    return response_models.Page(items=[serializers.session_item(one) for one in page.sessions], next=more)


@router.get(f"/sessions/{any_name('session')}/messages")
@in_thread()
def messages(
    desk: AtDesk, session: InPath, namespace: InNamespace = None, limit: Limit = 50, cursor: Cursor = None
) -> response_models.Page[response_models.MessageItem]:
    """The record of a session, oldest first."""
    after, before = _place_in_record("messages", cursor)
    page = desk.session(namespace, session).page(after, limit)
    items = [
        response_models.MessageItem(**serializers.said(one), position=position)
        for position, one in enumerate(page.messages, before + 1)
    ]
    return response_models.Page(
        items=items, next=_next_in_record("messages", page.next_after, before + limit)
    )


@router.get(f"/sessions/{any_name('session')}/timeline")
@in_thread()
def timeline(  # noqa: PLR0913, PLR0917 - each is a parameter of the address
    desk: AtDesk,
    session: InPath,
    namespace: InNamespace = None,
    question: Annotated[str | None, Query(max_length=MOST_CHARACTERS)] = None,
    budget: Budget = None,
    order: Literal["oldest", "newest"] = "oldest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> response_models.Page[response_models.TimelineItem]:
    """The record of a session, and what would become of each message in a context.

    Without a question nothing is recalled for it.
    """
    listing = f"timeline {order}"
    place, before = _place_in_record(listing, cursor)
    there = desk.session(namespace, session)
    verdicts = desk.served.timelines.verdicts(
        there, question, desk.budget(there, budget), is_first=cursor is None
    )
    page = there.page(place, limit) if order == "oldest" else there.page_back(place, limit)
    items = [
        response_models.TimelineItem(
            **serializers.said(one),
            position=position if order == "oldest" else None,
            state=verdicts.state_of(one),
            reason=serializers.clean(verdicts.reason_of(one)),
        )
        for position, one in enumerate(page.messages, before + 1)
    ]
    return response_models.Page(items=items, next=_next_in_record(listing, page.next_after, before + limit))


@router.get(f"/entries/{any_name('id')}")
@in_thread()
def entry(
    desk: AtDesk,
    id: InPath,  # noqa: A002 - as in the path
    namespace: InNamespace = None,
    session: InSession = None,
) -> response_models.EntryAnswer:
    """A memory, whole: a message as it was said, an entry, an episode, a chunk, something known."""
    return serializers.entry_of(desk.there(namespace).entry(id, session=session))


@router.get("/knowledge")
@in_thread()
def knowledge(
    desk: AtDesk,
    namespace: InNamespace = None,
    query: Annotated[str | None, Query(max_length=MOST_CHARACTERS)] = None,
    category: str | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> response_models.Page[response_models.KnowledgeItem]:
    """What is known across sessions, by category and key; with a query what answers it, best first, on one page."""
    place = place_of("knowledge", cursor, str, str)
    known = desk.there(namespace).knowledge
    if query:
        hits = known.recall(query, category=category, limit=limit, use=False)
        return response_models.Page(items=[serializers.knowledge_item(hit.knowledge) for hit in hits])
    after = None if place is None else (str(place[0]), str(place[1]))
    found = known.page(category, after=after, limit=limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    more = None if last is None else cursor_of("knowledge", last.category, last.key)
    return response_models.Page(items=[serializers.knowledge_item(one) for one in found[:limit]], next=more)


@router.get("/tasks")
@in_thread()
def tasks(
    desk: AtDesk, namespace: InNamespace = None, limit: Limit = 50, cursor: Cursor = None
) -> response_models.Page[response_models.TaskItem]:
    """Recorded runs of agents, newest first; a page may hold fewer than were asked for, and still have a next."""
    place = place_of("tasks", cursor, int)
    before = None if place is None else int(place[0])
    page = desk.there(namespace).tasks(before=before, limit=limit)
    more = None if page.next_before is None else cursor_of("tasks", page.next_before)
    return response_models.Page(items=[serializers.task_item(one) for one in page.tasks], next=more)


@router.get(f"/tasks/{any_name('task')}/cycles")
@in_thread()
def cycles(
    desk: AtDesk, task: InPath, namespace: InNamespace = None, limit: Limit = 50, cursor: Cursor = None
) -> response_models.Page[response_models.CycleItem]:
    """The steps of a run, oldest first, each with the loop that it is part of, if it is."""
    place = CyclePlace()
    if (told := place_of("cycles", cursor, str, int, int)) is not None:
        place = CyclePlace(str(told[0]) or None, int(told[1]), int(told[2]))
    page = desk.there(namespace).task_cycles(task, place=place, limit=limit)
    rest = page.next_place
    more = None if rest is None else cursor_of("cycles", rest.after or "", rest.passed, rest.number)
    return response_models.Page(items=[serializers.cycle_item(one) for one in page.cycles], next=more)


def _place_in_record(listing: str, cursor: str | None) -> tuple[str | None, int]:
    # The message before the page, and how many there are up to it.
    place = place_of(listing, cursor, str, int)
    return (None, 0) if place is None else (str(place[0]), int(place[1]))


def _next_in_record(listing: str, after: str | None, count: int) -> str | None:
    return None if after is None else cursor_of(listing, after, count)
