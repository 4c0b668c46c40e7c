"""Helpers that read a session as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers import MessageDraft
from langmem_tiers.sessions.models import Listing

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine, Session

ACTIVE, ARCHIVED, REPLACED, REMOVED = Listing


def drafts(*texts: str) -> list[MessageDraft]:
    """Messages of a user that say these texts."""
    return [MessageDraft("user", text) for text in texts]


def list_texts(session: Session, *listings: Listing) -> list[str]:
    """The texts of the list, or of what stands so in it."""
    transcript = session.transcript
    found = transcript.messages(listings) if listings else transcript.messages()
    assert (transcript.count(listings) if listings else transcript.count()) == len(found)
    return [message.content for message in found]


def record_texts(session: Session) -> list[str]:
    """The texts of all that was ever said."""
    return [message.content for message in session.messages() if not message.is_summary]


def view_texts(session: Session) -> list[str]:
    """The texts of what is in view."""
    return [message.content for message in session.view() if not message.is_summary]


def context(session: Session) -> list[str]:
    """The texts of a context."""
    return [message.content for message in session.build_context(recall=False).messages]


def recall_texts(engine: MemoryEngine, tenant: str, query: str) -> set[str]:
    """What recall finds, which full text finds too."""
    namespace = engine.namespace(tenant)
    found = namespace.recall(query, limit=50)
    assert found.problems == ()
    texts = {hit.entry.content for hit in found}
    assert {hit.entry.content for hit in namespace.search(query, limit=50)} == texts
    return texts


def ids(session: Session, *texts: str) -> list[str]:
    """The ids of the messages that say these texts."""
    return [message.id for message in session.messages() if message.content in texts]
