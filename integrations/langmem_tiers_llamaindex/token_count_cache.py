"""What messages take, by the tokenizer of LlamaIndex; a text that was counted is not counted again."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers.common.messages import Message

_MAX_CACHED_COUNTS = 200_000
"""Counts, of about 200 bytes each."""


class TokenCountCache:
    """Counts by a tokenizer.

    Args:
        tokenizer: From a text to its tokens.
    """

    def __init__(self, tokenizer: Callable[[str], Any]) -> None:
        self._count = LlamaIndexCounter(tokenizer).count  # which takes any text, whatever the tokenizer does
        self._cache: dict[object, int] = {}

    def count_text(self, text: str) -> int:
        """Tokens of a text."""
        if not text:
            return 0
        known = self._cache.get(key := (hash(text), len(text)))
        return self._put(key, self._count(text)) if known is None else known

    def count_message(self, message: ChatMessage) -> int:
        """Tokens of a message."""
        return message_tokens(message, self.count_text)

    def count_stored(self, stored: Message, shown: ChatMessage) -> int:
        """Tokens of a stored message as it is shown; looked at once, for it does not change."""
        known = self._cache.get(key := (stored.id, stored.token_count, len(stored.content)))
        return self._put(key, self.count_message(shown)) if known is None else known

    def _put(self, key: object, tokens: int) -> int:
        if len(self._cache) >= _MAX_CACHED_COUNTS:
            self._cache = {}  # others may be reading the one before: it is let go, not changed
        self._cache[key] = tokens
        return tokens

    def count_messages(self, messages: Iterable[ChatMessage]) -> int:
        """Tokens of a list, without what a provider puts around each message, as LlamaIndex counts."""
        return sum(self.count_message(message) for message in messages)


def get_token_count_cache(tokenizer: Callable[[str], Any]) -> TokenCountCache:
    """What counts by a tokenizer: the same for all memories that have it, so that nothing is counted anew."""
    try:
        return _get_shared_cache(tokenizer)
    except TypeError:  # no key of anything
        return TokenCountCache(tokenizer)


@lru_cache(maxsize=8)
def _get_shared_cache(tokenizer: Callable[[str], Any]) -> TokenCountCache:
    return TokenCountCache(tokenizer)
