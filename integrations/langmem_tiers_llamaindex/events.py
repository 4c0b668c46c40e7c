"""What memory tells those who watch: events and spans through LlamaIndex's dispatcher."""

from __future__ import annotations

from llama_index.core.instrumentation.events import BaseEvent
from llama_index_instrumentation import get_dispatcher

dispatcher = get_dispatcher("langmem_tiers.llamaindex")


class MemoryRetrievedEvent(BaseEvent):
    """A view of a conversation was made for a model."""

    namespace: list[str]
    session_id: str
    query: str | None
    """What memory was asked for; the newest message of the user, if None."""
    messages: int
    """How many the model is shown."""
    tokens: int
    token_limit: int
    recalled: list[str]
    """Ids of what was recalled, best first."""
    dropped: int
    """How many messages of the conversation had no room."""
    is_from_turn: bool
    """Whether what was recalled is that of an earlier call in the same turn."""

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "MemoryRetrievedEvent"


class MemoryStoredEvent(BaseEvent):
    """Messages were stored."""

    namespace: list[str]
    session_id: str
    messages: int
    tokens: int

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "MemoryStoredEvent"


class MemoryFailedEvent(BaseEvent):
    """The store failed, and the turn goes on without it; what was not stored waits."""

    namespace: list[str]
    session_id: str
    error: str
    """The name of the error. Its words may name what a log should not hold."""
    waiting: int
    """How many messages wait to be stored."""

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "MemoryFailedEvent"
