"""Instrumentation events of memory, sent through LlamaIndex's dispatcher."""

from __future__ import annotations

from llama_index.core.instrumentation.events import BaseEvent
from llama_index_instrumentation import get_dispatcher

dispatcher = get_dispatcher("langmem_tiers.llamaindex")


class MemoryRetrievedEvent(BaseEvent):
    """Event: a view of a conversation was built for a model."""

    namespace: list[str]
    session_id: str
    query: str | None
    """Recall query; None for the newest message of the user."""
    messages: int
    """Number of messages in the view."""
    tokens: int
    token_limit: int
    recalled: list[str]
    """Ids of recalled memories, best first."""
    dropped: int
    """Number of messages of the conversation that did not fit."""
    is_from_turn: bool
    """True if the memories were recalled by an earlier call in the same turn."""

    @classmethod
    def class_name(cls) -> str:
        """Name of the event."""
        return "MemoryRetrievedEvent"


class MemoryStoredEvent(BaseEvent):
    """Event: messages were stored."""

    namespace: list[str]
    session_id: str
    messages: int
    tokens: int

    @classmethod
    def class_name(cls) -> str:
        """Name of the event."""
        return "MemoryStoredEvent"


class MemoryFailedEvent(BaseEvent):
    """Event: the store failed, and the turn continues; unsaved messages are stored later."""

    namespace: list[str]
    session_id: str
    error: str
    """Type of the error. The message is omitted, because it may contain sensitive data."""
    waiting: int
    """Number of messages that are not stored yet."""

    @classmethod
    def class_name(cls) -> str:
        """Name of the event."""
        return "MemoryFailedEvent"
