"""What messages take, by the tokenizer of LlamaIndex; a text that was counted is not counted again."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.counters import LlamaIndexCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers.common.messages import Message

_HELD = 200_000
"""Counts, of about 200 bytes each."""


class Sizes:
    """Counts by a tokenizer.

    Args:
        tokenizer: From a text to its tokens.
    """

    def __init__(self, tokenizer: Callable[[str], Any]) -> None:
        self._count = LlamaIndexCounter(tokenizer).count  # which takes any text, whatever the tokenizer does
        self._known: dict[object, int] = {}

    def text(self, text: str) -> int:
        """Tokens of a text."""
        if not text:
            return 0
        known = self._known.get(key := (hash(text), len(text)))
        return self._hold(key, self._count(text)) if known is None else known

    def message(self, message: ChatMessage) -> int:
        """Tokens of a message."""
        return message_tokens(message, self.text)

    def stored(self, stored: Message, shown: ChatMessage) -> int:
        """Tokens of a stored message as it is shown; looked at once, for it does not change."""
        known = self._known.get(key := (stored.id, stored.token_count, len(stored.content)))
        return self._hold(key, self.message(shown)) if known is None else known

    def _hold(self, key: object, tokens: int) -> int:
        if len(self._known) >= _HELD:
            self._known = {}  # others may be reading the one before: it is let go, not changed
        self._known[key] = tokens
        return tokens

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
