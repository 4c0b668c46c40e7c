"""What each verb gives back: small frozen reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.showing import Told

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.names import NamespacePath


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo(Told):
    """A session as it stands: the record's size and what of it is shown in full."""

    namespace: NamespacePath
    name: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    token_count: int
    compressed_count: int
    key: int
    """The storage's own handle; means nothing outside this database."""
    revision: int
    """Grows with every change of the session, whoever made it."""

    def _row(self) -> dict[str, object]:
        return {
            "session": self.name,
            "messages": self.message_count,
            "compressed": self.compressed_count,
            "tokens": self.token_count,
            "updated": self.updated_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReport(Told):
    """What became of the messages that were handed in, all of them in order."""

    stored: tuple[Message, ...]
    """New and durable."""
    duplicates: tuple[Message, ...]
    """Known by their id already; kept as first stored."""
    echoes: tuple[Message, ...] = ()
    """What a context had injected from memory; not stored again."""

    @property
    def tokens(self) -> int:
        """The tokens that were added."""
        return sum(message.token_count for message in self.stored)

    @property
    def message(self) -> Message:
        """The one message, where one was handed in."""
        messages = self.stored + self.duplicates + self.echoes
        if len(messages) != 1:
            raise InvalidInputError(f"the report holds {len(messages)} messages: read stored and duplicates")
        return messages[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage(Told):
    """A page of a session's record: oldest first from ``page()``, newest first from ``page_back()``."""

    messages: tuple[Message, ...]
    next_after: str | None
    """Pass it as ``after``, or as ``before`` going back, to get the next page; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(Told):
    """A page of a namespace's sessions, newest first."""

    sessions: tuple[SessionInfo, ...]
    next_after: str | None
    """Pass it as ``after`` to get the next page; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressReport(Told):
    """What a compression put behind a summary."""

    summary: Message | None
    """The ``[CONTEXT SUMMARY]`` message; None where there was nothing to compress."""
    compressed: int
    """How many messages it stands for that were shown before."""
    tokens_before: int
    """Tokens of those messages."""
    tokens_after: int
    """Tokens of the summary."""
    boundary: str | None
    """Id of the first message still shown: the one asked for, or the start of its tool group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport(Told):
    """What was erased."""

    sessions: int
    messages: int
