"""What a request to forget means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.knowledge import id_from_name
from langmem_tiers.core.paths import shown
from langmem_tiers.server.namespace_listing import holdings_of

if TYPE_CHECKING:
    from langmem_tiers.core.names import NamespacePath
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
