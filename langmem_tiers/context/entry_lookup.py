"""One memory by its id, whatever it is."""

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
    """A memory as it was said or stored, and the message that it is, if it is one."""

    entry: Entry
    message: Message | None = None


def find_entry(
    parts: EngineServices, namespace: NamespacePath, entry_id: str, session: str | None
) -> FoundEntry:
    """A message, an entry, an episode, a chunk or something known.

    Args:
        parts: The stores and workers.
        namespace: Whose.
        entry_id: Its id.
        session: The one that a message is of. Left out, all are looked through, each by one look-up.

    Raises:
        NotFoundError: There is none.
        InvalidInputError: Several sessions have such a message.
    """
    check_entry_id(entry_id)
    if session is not None:
        return _find_message(parts, namespace, entry_id, check_name(session))
    found = _find_memory(parts, namespace, entry_id) or _find_knowledge(parts, namespace, entry_id)
    if found is not None:
        return found
    there = parts.entries.list_by_message_id(namespace, entry_id, limit=2)
    if len(there) > 1:
        raise InvalidInputError(f"several sessions have a message {entry_id!r}: name the session")
    if not there:
        raise EntryNotFoundError(f"there is no entry {entry_id!r}: use an id that recall or a list gave")
    return _build_found_message(parts, namespace, there[0].session, there[0].item)


def build_message_entry(
    parts: EngineServices, namespace: NamespacePath, session: str, item: ViewItem
) -> Entry:
    """A message of a session as the entry that it is now: compressed, if it is."""
    now, analyzer, shown = parts.now(), parts.analyzer, item.get_overridden_message()
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
    parts: EngineServices, namespace: NamespacePath, message_id: str, session: str
) -> FoundEntry:
    info = parts.short_term.sessions.get(namespace, session)
    if info is None:
        raise SessionNotFoundError(f"there is no session {session!r}: use a name that sessions() gave")
    item = parts.entries.get(info.key, message_id)
    if item is None:
        raise EntryNotFoundError(f"session {session!r} holds no entry {message_id!r}: use an id that it gave")
    return _build_found_message(parts, namespace, session, item)


def _build_found_message(
    parts: EngineServices, namespace: NamespacePath, session: str, item: ViewItem
) -> FoundEntry:
    return FoundEntry(build_message_entry(parts, namespace, session, item), item.message)


def _find_memory(parts: EngineServices, namespace: NamespacePath, entry_id: str) -> FoundEntry | None:
    kept = parts.long_term.store.get(namespace, [entry_id]).get(entry_id)
    return (
        None if kept is None else FoundEntry(parts.long_term.access_counter.with_pending_accesses(kept).entry)
    )


def _find_knowledge(parts: EngineServices, namespace: NamespacePath, entry_id: str) -> FoundEntry | None:
    name = name_from_id(entry_id)
    known = None if name is None else parts.get_knowledge(namespace).get(*name, use=False)
    if known is None:
        return None
    entry = Entry(
        id=known.id,
        namespace=namespace,
        tier=Tier.KNOWLEDGE,
        kind="knowledge",
        content=known.text,
        created_at=known.created_at,
        relevance=known.confidence,
        token_count=parts.counter.count(known.text),
        category=known.category,
        source=known.source,
        access_count=known.use_count,
    )
    return FoundEntry(entry)
