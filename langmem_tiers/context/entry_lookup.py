"""Look up one memory of any kind by its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.common.namespaces import check_entry_id, check_name
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, SessionNotFoundError
from langmem_tiers.knowledge.models import name_from_id
from langmem_tiers.sessions.analysis import build_subject

if TYPE_CHECKING:
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import EngineServices


@dataclass(frozen=True, slots=True)
class FoundEntry(Displayable):
    """A memory as an entry, together with its original message if it is a message."""

    entry: Entry
    message: Message | None = None


def find_entry(
    services: EngineServices, namespace: NamespacePath, entry_id: str, session: str | None
) -> FoundEntry:
    """Find a message, an entry, an episode, a chunk or a knowledge value by its id.

    Args:
        services: Services of the engine.
        namespace: The namespace.
        entry_id: Id of the memory.
        session: Session of a message. With None, all kinds of memories and all sessions are searched.

    Raises:
        NotFoundError: No memory has this id.
        InvalidInputError: Several sessions have a message with this id.
    """
    check_entry_id(entry_id)
    if session is not None:
        return _find_message(services, namespace, entry_id, check_name(session))
    found = _find_memory(services, namespace, entry_id) or _find_knowledge(services, namespace, entry_id)
    if found is not None:
        return found
    # Message ids are unique within a session only. Two matches are enough to know that the id is ambiguous.
    located = services.entries.list_by_message_id(namespace, entry_id, limit=2)
    if len(located) > 1:
        raise InvalidInputError(f"several sessions have a message {entry_id!r}: pass the session")
    if not located:
        raise EntryNotFoundError(f"no entry {entry_id!r}: use an id returned by recall or a listing")
    return _build_found_message(services, namespace, located[0].session, located[0].item)


def build_message_entry(
    services: EngineServices, namespace: NamespacePath, session: str, item: ViewItem
) -> Entry:
    """Build the entry of a message in its current state, for example compressed."""
    now, analyzer, shown = services.now(), services.analyzer, item.get_overridden_message()
    return Entry(
        id=item.message.id,
        namespace=namespace,
        session=session,
        tier=item.tier,
        state=item.state,
        kind="message",
        role=item.message.role,
        content=shown.content,
        created_at=item.message.created_at,
        relevance=analyzer.score(item, now).value,
        importance=analyzer.importance.score(build_subject(item.message, now)).value,
        token_count=shown.token_count,
        reason="" if item.override is None else item.override.reason,
    )


def _find_message(
    services: EngineServices, namespace: NamespacePath, message_id: str, session: str
) -> FoundEntry:
    info = services.short_term.sessions.get(namespace, session)
    if info is None:
        raise SessionNotFoundError(f"no session {session!r}: use a name returned by sessions()")
    item = services.entries.get(info.key, message_id)
    if item is None:
        raise EntryNotFoundError(
            f"session {session!r} has no entry {message_id!r}: use an id returned by the session"
        )
    return _build_found_message(services, namespace, session, item)


def _build_found_message(
    services: EngineServices, namespace: NamespacePath, session: str, item: ViewItem
) -> FoundEntry:
    return FoundEntry(build_message_entry(services, namespace, session, item), item.message)


def _find_memory(services: EngineServices, namespace: NamespacePath, entry_id: str) -> FoundEntry | None:
    stored = services.long_term.store.get(namespace, [entry_id]).get(entry_id)
    return (
        None
        if stored is None
        else FoundEntry(services.long_term.access_counter.with_pending_accesses(stored).entry)
    )


def _find_knowledge(services: EngineServices, namespace: NamespacePath, entry_id: str) -> FoundEntry | None:
    name = name_from_id(entry_id)
    knowledge = None if name is None else services.get_knowledge(namespace).get(*name, use=False)
    if knowledge is None:
        return None
    entry = Entry(
        id=knowledge.id,
        namespace=namespace,
        tier=Tier.KNOWLEDGE,
        kind="knowledge",
        content=knowledge.text,
        created_at=knowledge.created_at,
        relevance=knowledge.confidence,
        token_count=services.counter.count(knowledge.text),
        category=knowledge.category,
        source=knowledge.source,
        access_count=knowledge.use_count,
    )
    return FoundEntry(entry)
