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
from langmem_tiers.sessions.service import ShortTerm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import Message
    from langmem_tiers.sessions.service import ShortTermParts

Place: TypeAlias = tuple[NamespacePath, str]

_log = logging.getLogger("langmem_tiers")
_SCRATCHPAD = "scratchpad"


class WorkingStore:
    """Stores what working memories hold."""

    def __init__(self, parts: ShortTermParts) -> None:
        self._parts = parts

    def keep(self, place: Place, messages: Sequence[Message]) -> int:
        """Store messages to their session, which is made if need be; how many were new."""
        with suppress(SessionNotFoundError):  # deleted between our look and our write: make it anew
            return self._kept(self._open(place), messages)
        return self._kept(self._open(place), messages)

    def scratchpad(self, place: Place) -> str:
        """What an agent had noted when its memory left."""
        found = self._parts.sessions.find(place[0], scratchpad_name(place[1]))
        newest = () if found is None else ShortTerm(self._parts, found).latest(1)
        payload = newest[0].payload if newest else None
        return str(payload.get(_SCRATCHPAD, "")) if isinstance(payload, dict) else ""

    def keep_scratchpad(self, place: Place, text: str) -> None:
        """Store it beside the session, without words that recall could find."""
        note = MessageDraft(Role.SYSTEM, "", payload={_SCRATCHPAD: text})
        self._open((place[0], scratchpad_name(place[1]))).add(note)

    def erase_scratchpad(self, place: Place) -> None:
        """Erase what was stored beside the session."""
        beside = self._parts.sessions.find(place[0], scratchpad_name(place[1]))
        if beside is not None:
            self._parts.sessions.delete(beside.key)

    def _kept(self, session: ShortTerm, messages: Sequence[Message]) -> int:
        try:
            return len(session.add_sealed(messages).stored)
        except MessageConflictError:
            return sum(self._kept_alone(session, message) for message in messages)

    def _kept_alone(self, session: ShortTerm, message: Message) -> int:
        try:
            return len(session.add_sealed([message]).stored)
        except MessageConflictError:
            # The session has another message under its id: neither may be lost.
            other = replace(message, id=_other_id(message))
            _log.warning("%r holds another message %r: stored as %r", session, message.id, other.id)
            return len(session.add_sealed([other]).stored)

    def _open(self, place: Place) -> ShortTerm:
        return ShortTerm(self._parts, self._parts.sessions.open(place[0], place[1], self._parts.now()))


def _other_id(message: Message) -> str:
    # The same each time, so that who tries again stores it once.
    said = f"{message.id}\0{message.role}\0{message.content}\0{message.payload_json}"
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def scratchpad_name(session: str) -> str:
    """The session beside a session in which its agent's notes are kept."""
    return f"{session}: scratchpad"
