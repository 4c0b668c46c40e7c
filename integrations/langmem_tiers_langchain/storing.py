"""Storing messages whose ids a framework gave: one may come again with other words."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.errors import MessageConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import MessageDraft
    from langmem_tiers.session import Session


@dataclass(frozen=True, slots=True)
class MessageStoreResult:
    """What became of some messages."""

    added: int
    echo_ids: frozenset[str]
    """Ids of those that are nothing but injected memory, and so stay out of the record."""
    edited_ids: frozenset[str] = frozenset()
    """Ids under which the record has other words: what they say now is stored under another id."""


def store_messages(session: Session, drafts: Sequence[MessageDraft]) -> MessageStoreResult:
    """Store the messages in one transaction.

    An id may come again with other words, from a model that gives each answer the same one or because a
    message was edited. Both were said, so the later one is stored under an id of its own.
    """
    if not drafts:
        return MessageStoreResult(0, frozenset())
    try:
        report = session.add_many(drafts, expect_new=True)
        return MessageStoreResult(len(report.stored), frozenset(message.id for message in report.echoes))
    except MessageConflictError:
        return _store_one_by_one(session, drafts)


def assign_content_id(draft: MessageDraft) -> MessageDraft:
    """The draft under another id, the same one for the same message: it may be handed in again."""
    said = f"{draft.content}\0{draft.payload_json}".encode("utf-8", "surrogatepass")
    return draft.with_id(f"{(draft.id or '')[:100]}-{hashlib.blake2b(said, digest_size=8).hexdigest()}")


def _store_one_by_one(session: Session, drafts: Sequence[MessageDraft]) -> MessageStoreResult:
    added, echoes, edited = 0, set[str](), set[str]()
    for draft in drafts:
        try:
            report = session.add(draft)
        except MessageConflictError:
            report = session.add(assign_content_id(draft))
            edited.add(draft.id or "")
        added += len(report.stored)
        echoes.update(draft.id or "" for _ in report.echoes)
    return MessageStoreResult(added, frozenset(echoes), frozenset(edited))
