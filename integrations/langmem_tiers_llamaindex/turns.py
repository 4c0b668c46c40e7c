"""The turn that a conversation is at: what was recalled for its question, and the question as it was handed out.

Agents ask for the history several times in one turn, and write their state into the question that they were
given. Both belong to the conversation in this process, whichever memory object is asked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers.core.context import Context
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine

_HELD = 1000
"""Conversations of an engine whose turns are held; for the others, recall is asked once more."""
_SAID = 400
"""Messages of a conversation that are held in case that the store fails."""


@dataclass(slots=True)
class Turn:
    """What is held of one conversation."""

    question: object = None
    """For what something was recalled."""
    memories: str | None = None
    """What was recalled, as it is told; None if nothing was asked yet."""
    context: Context | None = None
    """With what it was recalled."""
    live_id: str | None = None
    live_blocks: list[Any] = field(default_factory=list)
    """Of the newest message of the user, the same objects for the whole turn."""
    shown: list[ChatMessage] = field(default_factory=list)
    """What was shown last and what was stored since, if the store should fail."""
    tokenizer: Callable[[str], Any] | None = None
    """Of the memory that was made last: JSON, from which memories come back between two runs, holds none."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    writing: threading.RLock = field(default_factory=threading.RLock)
    """While it is held, what waits is neither in the record nor among what waits."""

    def over(self) -> None:
        """Forget it: the conversation is another one now."""
        with self.lock:
            self.question = self.memories = self.context = self.live_id = None
            self.live_blocks, self.shown = [], []

    def said(self, messages: list[ChatMessage]) -> None:
        """Hold what was stored. The lock is not waited for: whoever has it may be recalling."""
        self.shown = [*self.shown, *messages][-_SAID:]


class Turns:
    """The turns of the conversations of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: OrderedDict[tuple[NamespacePath, str], Turn] = OrderedDict()

    def of(self, namespace: NamespacePath, session: str) -> Turn:
        """The turn of a conversation."""
        with self._lock:
            turn = self._turns.setdefault((namespace, session), Turn())
            self._turns.move_to_end((namespace, session))
            if len(self._turns) > _HELD:
                self._turns.popitem(last=False)
            return turn


_of_engines: WeakKeyDictionary[MemoryEngine, Turns] = WeakKeyDictionary()
_lock = threading.Lock()


def turns_of(engine: MemoryEngine) -> Turns:
    """The turns of the conversations of that engine."""
    with _lock:
        return _of_engines.setdefault(engine, Turns())
