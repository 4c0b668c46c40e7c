"""Where working memories go when they leave: to their sessions, each message once."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.namespaces import NamespacePath
from langmem_tiers.errors import MessageConflictError, SessionNotFoundError
from langmem_tiers.sessions.service import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import Message
    from langmem_tiers.sessions.service import SessionDependencies

SessionAddress: TypeAlias = tuple[NamespacePath, str]

_log = logging.getLogger("langmem_tiers")
_SCRATCHPAD_FIELD = "scratchpad"


class WorkingMemoryWriter:
    """Stores what working memories hold."""

    def __init__(self, parts: SessionDependencies) -> None:
        self._dependencies = parts

    def save_messages(self, place: SessionAddress, messages: Sequence[Message]) -> int:
        """Store messages to their session, which is made if need be; how many were new."""
        with suppress(SessionNotFoundError):  # deleted between our look and our write: make it anew
            return self._add_messages(self._open_session(place), messages)
        return self._add_messages(self._open_session(place), messages)

    def load_scratchpad(self, place: SessionAddress) -> str:
        """What an agent had noted when its memory left."""
        found = self._dependencies.sessions.get(place[0], get_scratchpad_name(place[1]))
        newest = () if found is None else SessionRecord(self._dependencies, found).latest(1)
        payload = newest[0].payload if newest else None
        return str(payload.get(_SCRATCHPAD_FIELD, "")) if isinstance(payload, dict) else ""

    def save_scratchpad(self, place: SessionAddress, text: str) -> None:
        """Store it beside the session, without words that recall could find."""
        note = MessageDraft(Role.SYSTEM, "", payload={_SCRATCHPAD_FIELD: text})
        self._open_session((place[0], get_scratchpad_name(place[1]))).add(note)

    def delete_scratchpad(self, place: SessionAddress) -> None:
        """Erase what was stored beside the session."""
        beside = self._dependencies.sessions.get(place[0], get_scratchpad_name(place[1]))
        if beside is not None:
            self._dependencies.sessions.delete(beside.key)

    def _add_messages(self, session: SessionRecord, messages: Sequence[Message]) -> int:
        try:
            return len(session.add_messages(messages).stored)
        except MessageConflictError:
            return sum(self._add_message(session, message) for message in messages)

    def _add_message(self, session: SessionRecord, message: Message) -> int:
        try:
            return len(session.add_messages([message]).stored)
        except MessageConflictError:
            # The session has another message under its id: neither may be lost.
            other = replace(message, id=_derive_id(message))
            _log.warning("%r holds another message %r: stored as %r", session, message.id, other.id)
            return len(session.add_messages([other]).stored)

    def _open_session(self, place: SessionAddress) -> SessionRecord:
        return SessionRecord(
            self._dependencies,
            self._dependencies.sessions.get_or_create(place[0], place[1], self._dependencies.now()),
        )


def _derive_id(message: Message) -> str:
    # The same each time, so that who tries again stores it once.
    said = f"{message.id}\0{message.role}\0{message.content}\0{message.payload_json}"
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def get_scratchpad_name(session: str) -> str:
    """The session beside a session in which its agent's notes are kept."""
    return f"{session}: scratchpad"
