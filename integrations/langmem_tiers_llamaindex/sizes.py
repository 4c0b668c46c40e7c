"""What messages take, by the tokenizer of LlamaIndex; a text that was counted is not counted again."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.counters import LlamaIndexCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers.core.messages import Message

_HELD = 50_000


class Sizes:
    """Counts by a tokenizer.

    Args:
        tokenizer: From a text to its tokens.
    """

    def __init__(self, tokenizer: Callable[[str], Any]) -> None:
        self._count = LlamaIndexCounter(tokenizer).count  # which takes any text, whatever the tokenizer does
        self._lock = threading.Lock()
        self._known: LRUCache[object, int] = LRUCache(_HELD)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return self._once((hash(text), len(text)), lambda: self._count(text)) if text else 0

    def message(self, message: ChatMessage) -> int:
        """Tokens of a message."""
        return message_tokens(message, self.text)

    def stored(self, stored: Message, shown: ChatMessage) -> int:
        """Tokens of a stored message as it is shown; looked at once, for it does not change."""
        key = (stored.id, stored.token_count, len(stored.content))
        return self._once(key, lambda: self.message(shown))

    def _once(self, key: object, count: Callable[[], int]) -> int:
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = count()
            with self._lock:
                self._known[key] = known
        return known

    def messages(self, messages: Iterable[ChatMessage]) -> int:
        """Tokens of a list, without what a provider puts around each message, as LlamaIndex counts."""
        return sum(self.message(message) for message in messages)


def sizes_of(tokenizer: Callable[[str], Any]) -> Sizes:
    """What counts by a tokenizer: the same for all memories that have it, so that nothing is counted anew."""
    try:
        return _sizes_of(tokenizer)
    except TypeError:  # no key of anything
        return Sizes(tokenizer)


@lru_cache(maxsize=8)
def _sizes_of(tokenizer: Callable[[str], Any]) -> Sizes:
    return Sizes(tokenizer)
