"""Endpoints that change what is remembered. None of them answers to GET."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter

from langmem_tiers.common.messages import MessageDraft
from langmem_tiers.common.namespaces import shown
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.knowledge.models import id_from_name
from langmem_tiers.server import response_models, serializers
from langmem_tiers.server.dependencies import AtDesk, any_name, in_thread
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.namespace_listing import holdings_of
from langmem_tiers.server.request_models import (
    AskAdd,  # noqa: TC001 - read at run time
    AskEntry,  # noqa: TC001 - read at run time
    AskForget,
    AskKnow,  # noqa: TC001 - read at run time
    InPath,  # noqa: TC001 - read at run time
)
from langmem_tiers.server.thread_pools import Pace

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.server.dependencies import Desk
    from langmem_tiers.server.request_models import AskForget


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is to be erased, and how that is told."""

    namespace: NamespacePath
    told: str
    session: str | None = None
    message: str | None = None
    entry: str | None = None


def target_of(desk: Desk, asked: AskForget) -> Target:
    """What is meant.

    Raises:
        InvalidInputError: Nothing, or two things at once.
        NotFoundError: It is not there.
    """
    named = [asked.whole, asked.entry is not None, asked.knowledge is not None]
    if sum(named) + (asked.session is not None and asked.entry is None) != 1:
        raise InvalidInputError("name one thing to forget: an entry, a session, knowledge, or whole: true")
    path = desk.there(asked.namespace).path
    if asked.whole:
        held = holdings_of(desk.engine.namespace(path))
        what = "its items" if held is None else f"{held.sessions:,} sessions and {held.messages:,} messages"
        return Target(namespace=path, told=f"{shown(path)!r} with {what}")
    if asked.knowledge is not None:
        entry_id = id_from_name(asked.knowledge.category, asked.knowledge.key)
        return _entry(desk, path, entry_id, None)
    if asked.entry is not None:
        return _entry(desk, path, asked.entry, asked.session)
    assert asked.session is not None  # noqa: S101 - one of them was named
    info = desk.session(asked.namespace, asked.session).info()
    told = f"session {info.name!r} with {info.message_count:,} messages"
    return Target(namespace=path, session=info.name, told=told)


def _entry(desk: Desk, path: NamespacePath, entry_id: str, session: str | None) -> Target:
    found = desk.engine.namespace(path).entry(entry_id, session=session)
    if found.message is None:
        return Target(namespace=path, entry=entry_id, told=f"the {found.entry.kind} {entry_id!r}")
    of = found.entry.session
    return Target(
        namespace=path, session=of, message=entry_id, told=f"message {entry_id!r} of session {of!r}"
    )


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
    target = target_of(desk, asked)
    if not asked.confirm:
        raise Problem(
            409, "not_confirmed", f"this would erase {target.told} for good: send confirm: true to do it"
        )
    receipt = desk.engine.forget(
        namespace=target.namespace, session=target.session, message=target.message, entry=target.entry
    )
    return serializers.erasure_of(receipt)
