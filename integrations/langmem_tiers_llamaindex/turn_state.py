"""The turn that a conversation is at: what was recalled for its question, and the question as it was handed out.

Agents ask for the history several times in one turn, and write their state into the question that they were
given. Both belong to the conversation in this process, whichever memory object is asked.
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

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.knowledge.models import KnowledgeHit
    from langmem_tiers.recall.models import Hit

_MAX_RECENT_TURNS = 200
"""Conversations of an engine whose turns are held although no memory of theirs is in use."""
_MAX_SHOWN_MESSAGES = 400
"""Messages of a conversation that are held in case that the store fails."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class TurnState:
    """What is held of one conversation."""

    question: object = None
    """For what something was recalled."""
    memories: str | None = None
    """What was recalled, as it is told; None if nothing was asked yet."""
    recalled_hits: tuple[Hit, ...] = ()
    """Of what it tells."""
    knowledge_hits: tuple[KnowledgeHit, ...] = ()
    """As above."""
    live_id: str | None = None
    live_blocks: list[Any] = field(default_factory=list)
    """Of the newest message of the user, the same objects for the whole turn."""
    shown_messages: list[ChatMessage] = field(default_factory=list)
    """What was shown last and what was stored since, if the store should fail."""
    tokenizer: Callable[[str], Any] | None = None
    """Of the memory that was made last: JSON, from which memories come back between two runs, holds none."""
    max_token_limit: int = 0
    """The largest limit that a memory of the conversation has."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Of several calls in one turn, the first recalls; of several writes, one comes after the other."""

    def reset(self) -> None:
        """Forget it: the conversation is another one now."""
        with self.lock:
            self.question = self.memories = self.live_id = None
            self.recalled_hits, self.knowledge_hits = (), ()
            self.live_blocks, self.shown_messages = [], []

    def add_shown(self, messages: list[ChatMessage]) -> None:
        """Hold what was stored."""
        with self.lock:
            self.shown_messages = [*self.shown_messages, *messages][-_MAX_SHOWN_MESSAGES:]


class TurnRegistry:
    """The turns of the conversations of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: OrderedDict[tuple[NamespacePath, str], TurnState] = OrderedDict()
        self._in_use: WeakValueDictionary[tuple[NamespacePath, str], TurnState] = WeakValueDictionary()

    def get_turn(self, namespace: NamespacePath, session: str) -> TurnState:
        """The turn of a conversation: one object, for as long as anybody has it."""
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
    """The turns of the conversations of that engine."""
    with _lock:
        return _registries_by_engine.setdefault(engine, TurnRegistry())
