"""Endpoints that change what is remembered. None of them answers to GET."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter

from langmem_tiers.common.messages import MessageDraft
from langmem_tiers.common.namespaces import format_namespace
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.knowledge.models import id_from_name
from langmem_tiers.server import response_models, serializers
from langmem_tiers.server.dependencies import CurrentRequest, build_path_parameter, run_in_thread_pool
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.namespace_listing import get_namespace_usage
from langmem_tiers.server.request_models import (
    AddMessagesRequest,  # noqa: TC001 - read at run time
    ForgetMemoryRequest,
    PathText,  # noqa: TC001 - read at run time
    PromoteMessageRequest,  # noqa: TC001 - read at run time
    StoreKnowledgeRequest,  # noqa: TC001 - read at run time
)
from langmem_tiers.server.thread_pools import JobClass

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.server.dependencies import RequestContext
    from langmem_tiers.server.request_models import ForgetMemoryRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureTarget:
    """What is to be erased, and how that is told."""

    namespace: NamespacePath
    description: str
    session: str | None = None
    message: str | None = None
    entry: str | None = None


def find_erasure_target(desk: RequestContext, asked: ForgetMemoryRequest) -> ErasureTarget:
    """What is meant.

    Raises:
        InvalidInputError: Nothing, or two things at once.
        NotFoundError: It is not there.
    """
    named = [asked.whole, asked.entry is not None, asked.knowledge is not None]
    if sum(named) + (asked.session is not None and asked.entry is None) != 1:
        raise InvalidInputError("name one thing to forget: an entry, a session, knowledge, or whole: true")
    path = desk.require_namespace(asked.namespace).path
    if asked.whole:
        held = get_namespace_usage(desk.engine.namespace(path))
        what = "its items" if held is None else f"{held.sessions:,} sessions and {held.messages:,} messages"
        return ErasureTarget(namespace=path, description=f"{format_namespace(path)!r} with {what}")
    if asked.knowledge is not None:
        entry_id = id_from_name(asked.knowledge.category, asked.knowledge.key)
        return _find_entry_target(desk, path, entry_id, None)
    if asked.entry is not None:
        return _find_entry_target(desk, path, asked.entry, asked.session)
    assert asked.session is not None  # noqa: S101 - one of them was named
    info = desk.require_session(asked.namespace, asked.session).info()
    told = f"session {info.name!r} with {info.message_count:,} messages"
    return ErasureTarget(namespace=path, session=info.name, description=told)


def _find_entry_target(
    desk: RequestContext, path: NamespacePath, entry_id: str, session: str | None
) -> ErasureTarget:
    found = desk.engine.namespace(path).entry(entry_id, session=session)
    if found.message is None:
        return ErasureTarget(
            namespace=path, entry=entry_id, description=f"the {found.entry.kind} {entry_id!r}"
        )
    of = found.entry.session
    return ErasureTarget(
        namespace=path, session=of, message=entry_id, description=f"message {entry_id!r} of session {of!r}"
    )


router = APIRouter()


@router.post(f"/sessions/{build_path_parameter('session')}/messages")
@run_in_thread_pool(writes=True)
def add_messages(
    desk: CurrentRequest, session: PathText, asked: AddMessagesRequest
) -> response_models.AddResponse:
    """Store messages in a session, which is made if it is not there: all of them or none."""
    drafts = [MessageDraft(one.role, one.content, id=one.id, name=one.name) for one in asked.messages]
    report = desk.open_namespace(asked.namespace).session(session).add_many(drafts)
    return response_models.AddResponse(
        ids=[serializers.replace_surrogates(one.id) for one in report.stored],
        known=[serializers.replace_surrogates(one.id) for one in report.duplicates],
        echoes=len(report.echoes),
    )


@router.post(f"/entries/{build_path_parameter('id')}/promote")
@run_in_thread_pool(writes=True)
def promote_message(
    desk: CurrentRequest,
    id: PathText,  # noqa: A002 - the name in the path
    asked: PromoteMessageRequest,
) -> response_models.EntryResponse:
    """Move a message into the long-term tier."""
    there = desk.require_namespace(asked.namespace)
    found = there.entry(id, session=asked.session)
    if found.message is None or found.entry.session is None:
        raise InvalidInputError(f"{id!r} is no message: it is in the {found.entry.tier.value} tier already")
    if found.message.is_summary:
        raise InvalidInputError(f"{id!r} is a summary: promote one of the messages that it stands for")
    desk.require_session(asked.namespace, found.entry.session).promote(found.message)
    return serializers.serialize_entry(there.entry(id, session=found.entry.session))


@router.post("/knowledge")
@run_in_thread_pool(writes=True)
def store_knowledge(desk: CurrentRequest, asked: StoreKnowledgeRequest) -> response_models.KnowledgeItem:
    """Remember a value under a category and a key; another value than before supersedes it."""
    known = desk.open_namespace(asked.namespace).knowledge
    report = known.store(
        asked.category, asked.key, asked.value, confidence=asked.confidence, source=asked.source
    )
    return serializers.serialize_knowledge(report.knowledge)


@router.post("/forget")
@run_in_thread_pool(JobClass.LONG, writes=True)
def forget_memory(desk: CurrentRequest, asked: ForgetMemoryRequest) -> response_models.ErasureResponse:
    """Erase something everywhere, with what was made of it; without `confirm`, say what that would be."""
    target = find_erasure_target(desk, asked)
    if not asked.confirm:
        raise Problem(
            409,
            "not_confirmed",
            f"this would erase {target.description} for good: send confirm: true to do it",
        )
    receipt = desk.engine.forget(
        namespace=target.namespace, session=target.session, message=target.message, entry=target.entry
    )
    return serializers.serialize_erasure(receipt)
