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
class Stored:
    """What became of some messages."""

    added: int
    echoes: frozenset[str]
    """Ids of those that are nothing but injected memory, and so stay out of the record."""
    edited: frozenset[str] = frozenset()
    """Ids under which the record has other words: what they say now is stored under another id."""


def store(session: Session, drafts: Sequence[MessageDraft]) -> Stored:
    """Store the messages in one transaction.

    An id may come again with other words, from a model that gives each answer the same one or because a
    message was edited. Both were said, so the later one is stored under an id of its own.
    """
    if not drafts:
        return Stored(0, frozenset())
    try:
        report = session.add_many(drafts, expect_new=True)
        return Stored(len(report.stored), frozenset(message.id for message in report.echoes))
    except MessageConflictError:
        return _one_by_one(session, drafts)


def renamed(draft: MessageDraft) -> MessageDraft:
    """The draft under another id, the same one for the same message: it may be handed in again."""
    said = f"{draft.content}\0{draft.payload_json}".encode("utf-8", "surrogatepass")
    return draft.under(f"{(draft.id or '')[:100]}-{hashlib.blake2b(said, digest_size=8).hexdigest()}")


def _one_by_one(session: Session, drafts: Sequence[MessageDraft]) -> Stored:
    added, echoes, edited = 0, set[str](), set[str]()
    for draft in drafts:
        try:
            report = session.add(draft)
        except MessageConflictError:
            report = session.add(renamed(draft))
            edited.add(draft.id or "")
        added += len(report.stored)
        echoes.update(draft.id or "" for _ in report.echoes)
    return Stored(added, frozenset(echoes), frozenset(edited))
