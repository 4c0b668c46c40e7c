"""State of the current turn of a conversation: recalled memories, and the question as returned to the agent.

Agents request the history several times per turn and write their state into the question that they received. All
memory objects of a conversation in this process therefore share this state.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers import Hit, MemoryEngine
    from langmem_tiers.integration_kit import KnowledgeHit, NamespacePath

_MAX_RECENT_TURNS = 200
"""Maximum number of turns per engine that are kept while no memory object uses them."""
_MAX_SHOWN_MESSAGES = 400
"""Maximum number of cached messages per conversation, used if the store fails."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class TurnState:
    """State of one conversation in this process."""

    question: object = None
    """Key of the question for which memories were recalled."""
    memories: str | None = None
    """Text of the recalled memories; None before the first recall."""
    recalled_hits: tuple[Hit, ...] = ()
    """Hits in ``memories``."""
    knowledge_hits: tuple[KnowledgeHit, ...] = ()
    """Knowledge in ``memories``."""
    live_id: str | None = None
    """Id of the newest message of the user."""
    live_blocks: list[Any] = field(default_factory=list)
    """Blocks of that message; the same objects for the whole turn."""
    shown_messages: list[ChatMessage] = field(default_factory=list)
    """Messages of the last view and those stored since, used if the store fails."""
    tokenizer: Callable[[str], Any] | None = None
    """Tokenizer of the newest memory object, for memories restored from JSON, which has no tokenizer."""
    max_token_limit: int = 0
    """Largest token limit of the memory objects of the conversation."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Lock that serializes writes and lets only the first of several concurrent views recall."""

    def reset(self) -> None:
        """Discard the state, because the conversation was replaced."""
        with self.lock:
            self.question = self.memories = self.live_id = None
            self.recalled_hits, self.knowledge_hits = (), ()
            self.live_blocks, self.shown_messages = [], []

    def add_shown(self, messages: list[ChatMessage]) -> None:
        """Add stored messages to the cached ones."""
        with self.lock:
            self.shown_messages = [*self.shown_messages, *messages][-_MAX_SHOWN_MESSAGES:]


class TurnRegistry:
    """Turn states of the conversations of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Strong references keep recent turns alive between two memory objects; weak ones find those in use.
        # One lock covers both.
        self._recent: OrderedDict[tuple[NamespacePath, str], TurnState] = OrderedDict()
        self._in_use: WeakValueDictionary[tuple[NamespacePath, str], TurnState] = WeakValueDictionary()

    def get_turn(self, namespace: NamespacePath, session: str) -> TurnState:
        """Return the turn of a conversation; always the same object while it is in use."""
        key = (namespace, session)
        with self._lock:
            turn = self._in_use.setdefault(key, TurnState())
            self._recent[key] = turn
            self._recent.move_to_end(key)
            if len(self._recent) > _MAX_RECENT_TURNS:
                self._recent.popitem(last=False)
            return turn


_registries_by_engine: WeakKeyDictionary[MemoryEngine, TurnRegistry] = WeakKeyDictionary()
_lock = threading.Lock()


def get_turn_registry(engine: MemoryEngine) -> TurnRegistry:
    """Return the turn registry of the engine, creating it if needed."""
    with _lock:
        return _registries_by_engine.setdefault(engine, TurnRegistry())
