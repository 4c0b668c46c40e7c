"""Routes that change the memory. All of them require POST."""

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
    """Data to erase, with a description for the client."""

    namespace: NamespacePath
    description: str
    session: str | None = None
    message: str | None = None
    entry: str | None = None


def find_erasure_target(context: RequestContext, body: ForgetMemoryRequest) -> ErasureTarget:
    """Find the data that a request wants to erase.

    Raises:
        InvalidInputError: The request names no target, or several.
        NotFoundError: The target does not exist.
    """
    targets = [body.whole, body.entry is not None, body.knowledge is not None]
    # With an entry, the session only says where the entry is.
    if sum(targets) + (body.session is not None and body.entry is None) != 1:
        raise InvalidInputError("pass exactly one target: entry, session, knowledge, or whole: true")
    path = context.require_namespace(body.namespace).path
    if body.whole:
        usage = get_namespace_usage(context.engine.namespace(path))
        contents = (
            "its items" if usage is None else f"{usage.sessions:,} sessions and {usage.messages:,} messages"
        )
        return ErasureTarget(namespace=path, description=f"{format_namespace(path)!r} with {contents}")
    if body.knowledge is not None:
        entry_id = id_from_name(body.knowledge.category, body.knowledge.key)
        return _find_entry_target(context, path, entry_id, None)
    if body.entry is not None:
        return _find_entry_target(context, path, body.entry, body.session)
    assert body.session is not None  # noqa: S101 - the check above leaves no other case
    info = context.require_session(body.namespace, body.session).info()
    description = f"session {info.name!r} with {info.message_count:,} messages"
    return ErasureTarget(namespace=path, session=info.name, description=description)


def _find_entry_target(
    context: RequestContext, path: NamespacePath, entry_id: str, session: str | None
) -> ErasureTarget:
    found = context.engine.namespace(path).entry(entry_id, session=session)
    if found.message is None:
        return ErasureTarget(
            namespace=path, entry=entry_id, description=f"the {found.entry.kind} {entry_id!r}"
        )
    name = found.entry.session
    return ErasureTarget(
        namespace=path,
        session=name,
        message=entry_id,
        description=f"message {entry_id!r} of session {name!r}",
    )


router = APIRouter()


@router.post(f"/sessions/{build_path_parameter('session')}/messages")
@run_in_thread_pool(writes=True)
def add_messages(
    context: CurrentRequest, session: PathText, body: AddMessagesRequest
) -> response_models.AddResponse:
    """Store messages in a session: all of them or none. A session that does not exist is created."""
    drafts = [
        MessageDraft(message.role, message.content, id=message.id, name=message.name)
        for message in body.messages
    ]
    report = context.open_namespace(body.namespace).session(session).add_many(drafts)
    return response_models.AddResponse(
        ids=[serializers.replace_surrogates(message.id) for message in report.stored],
        known=[serializers.replace_surrogates(message.id) for message in report.duplicates],
        echoes=len(report.echoes),
    )


@router.post(f"/entries/{build_path_parameter('id')}/promote")
@run_in_thread_pool(writes=True)
def promote_message(
    context: CurrentRequest,
    id: PathText,  # noqa: A002 - the name in the path
    body: PromoteMessageRequest,
) -> response_models.EntryResponse:
    """Move a message into the long-term tier."""
    memory = context.require_namespace(body.namespace)
    found = memory.entry(id, session=body.session)
    if found.message is None or found.entry.session is None:
        raise InvalidInputError(
            f"{id!r} is not a message but an entry of the {found.entry.tier.value} tier: pass the id of a message"
        )
    if found.message.is_summary:
        raise InvalidInputError(f"{id!r} is a summary: promote one of the messages that it replaces")
    context.require_session(body.namespace, found.entry.session).promote(found.message)
    return serializers.serialize_entry(memory.entry(id, session=found.entry.session))


@router.post("/knowledge")
@run_in_thread_pool(writes=True)
def store_knowledge(context: CurrentRequest, body: StoreKnowledgeRequest) -> response_models.KnowledgeItem:
    """Store a value under a category and a key; it supersedes another value of the same key."""
    knowledge = context.open_namespace(body.namespace).knowledge
    report = knowledge.store(
        body.category, body.key, body.value, confidence=body.confidence, source=body.source
    )
    return serializers.serialize_knowledge(report.knowledge)


@router.post("/forget")
@run_in_thread_pool(JobClass.LONG, writes=True)
def forget_memory(context: CurrentRequest, body: ForgetMemoryRequest) -> response_models.ErasureResponse:
    """Erase data everywhere, with all data derived from it; without `confirm`, only say what would be erased."""
    target = find_erasure_target(context, body)
    if not body.confirm:
        raise Problem(
            409,
            "not_confirmed",
            f"this would erase {target.description} permanently: send confirm: true to do it",
        )
    receipt = context.engine.forget(
        namespace=target.namespace, session=target.session, message=target.message, entry=target.entry
    )
    return serializers.serialize_erasure(receipt)
