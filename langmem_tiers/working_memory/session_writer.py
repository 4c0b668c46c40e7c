"""Saving of working memories to their sessions, each message once."""

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
    """Saves messages and scratchpads of working memories."""

    def __init__(self, dependencies: SessionDependencies) -> None:
        self._dependencies = dependencies

    def save_messages(self, address: SessionAddress, messages: Sequence[Message]) -> int:
        """Store messages in their session, which is created if necessary. Return the number of new messages."""
        # The session may be deleted after it was opened and before the write. Then create it again.
        with suppress(SessionNotFoundError):
            return self._add_messages(self._open_session(address), messages)
        return self._add_messages(self._open_session(address), messages)

    def load_scratchpad(self, address: SessionAddress) -> str:
        """Return the stored scratchpad of a session, or an empty text."""
        found = self._dependencies.sessions.get(address[0], get_scratchpad_name(address[1]))
        newest = () if found is None else SessionRecord(self._dependencies, found).latest(1)
        payload = newest[0].payload if newest else None
        return str(payload.get(_SCRATCHPAD_FIELD, "")) if isinstance(payload, dict) else ""

    def save_scratchpad(self, address: SessionAddress, text: str) -> None:
        """Store the scratchpad in a separate session, which recall does not find."""
        # The text is in the payload of an empty message, because only content is indexed.
        note = MessageDraft(Role.SYSTEM, "", payload={_SCRATCHPAD_FIELD: text})
        self._open_session((address[0], get_scratchpad_name(address[1]))).add(note)

    def delete_scratchpad(self, address: SessionAddress) -> None:
        """Delete the stored scratchpad of a session."""
        scratchpad = self._dependencies.sessions.get(address[0], get_scratchpad_name(address[1]))
        if scratchpad is not None:
            self._dependencies.sessions.delete(scratchpad.key)

    def _add_messages(self, session: SessionRecord, messages: Sequence[Message]) -> int:
        try:
            return len(session.add_messages(messages).stored)
        except MessageConflictError:
            # One message conflicts, and nothing was stored. Store them one by one to handle the conflict.
            return sum(self._add_message(session, message) for message in messages)

    def _add_message(self, session: SessionRecord, message: Message) -> int:
        try:
            return len(session.add_messages([message]).stored)
        except MessageConflictError:
            # The session has another message with this id. Store this one under a derived id, so that neither is lost.
            renamed = replace(message, id=_derive_id(message))
            _log.warning(
                "%r contains another message with id %r: stored as %r", session, message.id, renamed.id
            )
            return len(session.add_messages([renamed]).stored)

    def _open_session(self, address: SessionAddress) -> SessionRecord:
        return SessionRecord(
            self._dependencies,
            self._dependencies.sessions.get_or_create(address[0], address[1], self._dependencies.now()),
        )


def _derive_id(message: Message) -> str:
    # Derived from the content, so that a retry does not store the message twice.
    content = f"{message.id}\0{message.role}\0{message.content}\0{message.payload_json}"
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def get_scratchpad_name(session: str) -> str:
    """Return the name of the session that contains the scratchpad of a session."""
    return f"{session}: scratchpad"
