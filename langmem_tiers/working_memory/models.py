"""Working memory and its reports."""

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
    """Snapshot of the working memory of one conversation."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    """Messages, oldest first. Saved messages are removed, except from the first tool call without a result on."""
    tool_results: Mapping[str, Message]
    """Tool results among the messages, by the id of their call."""
    scratchpad: str
    """Notes of the agent."""
    token_count: int
    """Number of tokens of the messages."""
    unsaved: int
    """Number of messages that are not in the session yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingReport(Displayable):
    """Result of appending a message to a working memory."""

    message: Message
    is_new: bool
    """False if the memory contained a message with this id already."""
    flushed: int
    """Number of messages that were saved to the session because there were too many tokens."""
    token_count: int
    """Number of tokens of the working memory after the call."""
    problem: str | None = None
    """Reason why messages could not be saved. They remain in memory and are saved later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport(Displayable):
    """Result of saving working memories."""

    messages: int
    """Number of messages that were saved to their sessions."""
    agents: int
    """Number of working memories that these messages came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingStatus(Displayable):
    """Contents and size of all working memories."""

    agents: int
    """Number of working memories."""
    megabytes: float
    """Measured size in memory."""
    unsaved: int
    """Number of messages that are not in a session yet."""
