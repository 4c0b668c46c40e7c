"""Endpoints that change what is remembered. None of them answers to GET."""

from __future__ import annotations

from fastapi import APIRouter

from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.messages import MessageDraft
from langmem_tiers.server import forget_requests, response_models, serializers
from langmem_tiers.server.dependencies import AtDesk, in_thread
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.path_names import any_name
from langmem_tiers.server.request_models import AskAdd, AskEntry, AskForget, AskKnow, InPath  # noqa: TC001 - read at run time
from langmem_tiers.server.thread_pools import Pace

router = APIRouter()


@router.post(f"/sessions/{any_name('session')}/messages")
@in_thread(writes=True)
def add(desk: AtDesk, session: InPath, asked: AskAdd) -> response_models.Added:
    """Store messages in a session, which is made if it is not there: all of them or none."""
    drafts = [MessageDraft(one.role, one.content, id=one.id, name=one.name) for one in asked.messages]
    report = desk.made(asked.namespace).session(session).add_many(drafts)
    return response_models.Added(
        ids=[serializers.clean(one.id) for one in report.stored],
        known=[serializers.clean(one.id) for one in report.duplicates],
        echoes=len(report.echoes),
    )


@router.post(f"/entries/{any_name('id')}/promote")
@in_thread(writes=True)
def promote(desk: AtDesk, id: InPath, asked: AskEntry) -> response_models.EntryAnswer:  # noqa: A002 - as in the path
    """Move a message into the long-term tier."""
    there = desk.there(asked.namespace)
    found = there.entry(id, session=asked.session)
    if found.message is None or found.entry.session is None:
        raise InvalidInputError(f"{id!r} is no message: it is in the {found.entry.tier.value} tier already")
    if found.message.is_summary:
        raise InvalidInputError(f"{id!r} is a summary: promote one of the messages that it stands for")
    desk.session(asked.namespace, found.entry.session).promote(found.message)
    return serializers.entry_of(there.entry(id, session=found.entry.session))


@router.post("/knowledge")
@in_thread(writes=True)
def know(desk: AtDesk, asked: AskKnow) -> response_models.KnowledgeItem:
    """Remember a value under a category and a key; another value than before supersedes it."""
    known = desk.made(asked.namespace).knowledge
    report = known.store(
        asked.category, asked.key, asked.value, confidence=asked.confidence, source=asked.source
    )
    return serializers.knowledge_item(report.knowledge)


@router.post("/forget")
@in_thread(Pace.LONG, writes=True)
def forget(desk: AtDesk, asked: AskForget) -> response_models.Erasure:
    """Erase something everywhere, with what was made of it; without `confirm`, say what that would be."""
    target = forget_requests.target_of(desk, asked)
    if not asked.confirm:
        raise Problem(
            409, "not_confirmed", f"this would erase {target.told} for good: send confirm: true to do it"
        )
    receipt = desk.engine.forget(
        namespace=target.namespace, session=target.session, message=target.message, entry=target.entry
    )
    return serializers.erasure_of(receipt)
