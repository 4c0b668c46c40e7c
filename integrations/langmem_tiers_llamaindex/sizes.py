"""What messages take, by the tokenizer of LlamaIndex; a text that was counted is not counted again."""

from __future__ import annotations

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
        self._known: LRUCache[tuple[int, int], int] = LRUCache(_HELD)
        self._stored: LRUCache[tuple[str, int], int] = LRUCache(_HELD)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        if not text:
            return 0
        key = (hash(text), len(text))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(text)
        return known

    def message(self, message: ChatMessage) -> int:
        """Tokens of a message."""
        return message_tokens(message, self.text)

    def stored(self, stored: Message, shown: ChatMessage) -> int:
        """Tokens of a stored message as it is shown; looked at once, for it does not change."""
        key = (stored.id, stored.token_count)
        known = self._stored.get(key)
        if known is None:
            known = self._stored[key] = self.message(shown)
        return known

    def messages(self, messages: Iterable[ChatMessage]) -> int:
        """Tokens of a list, without what a provider puts around each message, as LlamaIndex counts."""
        return sum(self.message(message) for message in messages)
