"""Working memories and the reports about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemory:
    """What an agent has at hand in one conversation, as of one moment."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    """Oldest first; those that were stored to the session have left, but for calls that wait for a result."""
    tool_results: Mapping[str, Message]
    """Results of tools among them, by the id of their call."""
    scratchpad: str
    token_count: int
    """Of the messages."""
    unsaved: int
    """How many of the messages are not in the session yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingReport(Displayable):
    """What became of a message that was put into a working memory."""

    message: Message
    is_new: bool
    """False if the memory held it already, by its id."""
    flushed: int
    """How many messages were stored to the session because there were too many tokens."""
    token_count: int
    """Of the working memory, after it."""
    problem: str | None = None
    """Why they could not be stored; they are held and stored later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport(Displayable):
    """What was stored out of working memories."""

    messages: int
    """Newly in their sessions."""
    agents: int
    """From how many working memories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingStatus(Displayable):
    """What working memories take."""

    agents: int
    megabytes: float
    """Measured."""
    unsaved: int
    """Messages that are in no session yet."""
