"""One memory by its id, whatever it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.common.namespaces import check_entry_id, check_name
from langmem_tiers.display.displayable import Told
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, SessionNotFoundError
from langmem_tiers.knowledge.models import name_from_id
from langmem_tiers.sessions.analysis import subject_of

if TYPE_CHECKING:
    from langmem_tiers.common.entries import Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import MemoryParts


@dataclass(frozen=True, slots=True)
class FoundEntry(Told):
    """A memory as it was said or stored, and the message that it is, if it is one."""

    entry: Entry
    message: Message | None = None


def find_entry(
    parts: MemoryParts, namespace: NamespacePath, entry_id: str, session: str | None
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
        return _said(parts, namespace, entry_id, check_name(session))
    found = _lasting(parts, namespace, entry_id) or _known(parts, namespace, entry_id)
    if found is not None:
        return found
    there = parts.entries.anywhere(namespace, entry_id, limit=2)
    if len(there) > 1:
        raise InvalidInputError(f"several sessions have a message {entry_id!r}: name the session")
    if not there:
        raise EntryNotFoundError(f"there is no entry {entry_id!r}: use an id that recall or a list gave")
    return _of_session(parts, namespace, there[0].session, there[0].shown)


def entry_from(parts: MemoryParts, namespace: NamespacePath, session: str, item: Shown) -> Entry:
    """A message of a session as the entry that it is now: compressed, if it is."""
    now, analyzer, shown = parts.now(), parts.analyzer, item.as_marked()
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
        importance=analyzer.importance.score(subject_of(item.message, now)).value,
        token_count=shown.token_count,
        reason="" if item.mark is None else item.mark.reason,
    )


def _said(parts: MemoryParts, namespace: NamespacePath, message_id: str, session: str) -> FoundEntry:
    info = parts.short_term.sessions.find(namespace, session)
    if info is None:
        raise SessionNotFoundError(f"there is no session {session!r}: use a name that sessions() gave")
    item = parts.entries.find(info.key, message_id)
    if item is None:
        raise EntryNotFoundError(f"session {session!r} holds no entry {message_id!r}: use an id that it gave")
    return _of_session(parts, namespace, session, item)


def _of_session(parts: MemoryParts, namespace: NamespacePath, session: str, item: Shown) -> FoundEntry:
    return FoundEntry(entry_from(parts, namespace, session, item), item.message)


def _lasting(parts: MemoryParts, namespace: NamespacePath, entry_id: str) -> FoundEntry | None:
    kept = parts.lasting.store.get(namespace, [entry_id]).get(entry_id)
    return None if kept is None else FoundEntry(parts.lasting.uses.seen(kept).entry)


def _known(parts: MemoryParts, namespace: NamespacePath, entry_id: str) -> FoundEntry | None:
    name = name_from_id(entry_id)
    known = None if name is None else parts.knowledge_of(namespace).get(*name, use=False)
    if known is None:
        return None
    entry = Entry(
        id=known.id,
        namespace=namespace,
        tier=Tier.KNOWLEDGE,
        kind="knowledge",
        content=known.told,
        created_at=known.created_at,
        relevance=known.confidence,
        token_count=parts.counter.count(known.told),
        category=known.category,
        source=known.source,
        access_count=known.use_count,
    )
    return FoundEntry(entry)
