"""Cached token counts of messages, by a tokenizer of LlamaIndex."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers import Message

_MAX_CACHED_COUNTS = 200_000
"""Maximum number of cached counts; each takes about 200 bytes."""


class TokenCountCache:
    """Token counter with a cache.

    Args:
        tokenizer: Function from a text to its tokens.
    """

    def __init__(self, tokenizer: Callable[[str], Any]) -> None:
        self._count = LlamaIndexCounter(tokenizer).count  # accepts any text, even if the tokenizer does not
        self._cache: dict[object, int] = {}

    def count_text(self, text: str) -> int:
        """Return the tokens of a text."""
        if not text:
            return 0
        cached = self._cache.get(key := (hash(text), len(text)))  # by hash, to avoid keeping the text
        return self._put(key, self._count(text)) if cached is None else cached

    def count_message(self, message: ChatMessage) -> int:
        """Return the tokens of a message."""
        return message_tokens(message, self.count_text)

    def count_stored(self, stored: Message, shown: ChatMessage) -> int:
        """Return the tokens of a stored message; cached by its id, because it does not change."""
        # Size and length distinguish a message from its compressed version, which has the same id.
        cached = self._cache.get(key := (stored.id, stored.token_count, len(stored.content)))
        return self._put(key, self.count_message(shown)) if cached is None else cached

    def _put(self, key: object, tokens: int) -> int:
        if len(self._cache) >= _MAX_CACHED_COUNTS:
            self._cache = {}  # replaced, not cleared, because other threads may be reading the old one
        self._cache[key] = tokens
        return tokens

    def count_messages(self, messages: Iterable[ChatMessage]) -> int:
        """Return the tokens of messages, without the overhead per message, as LlamaIndex counts them."""
        return sum(self.count_message(message) for message in messages)


def get_token_count_cache(tokenizer: Callable[[str], Any]) -> TokenCountCache:
    """Return the cache for a tokenizer; memories with the same tokenizer share it."""
    try:
        return _get_shared_cache(tokenizer)
    except TypeError:  # the tokenizer is not hashable
        return TokenCountCache(tokenizer)


@lru_cache(maxsize=8)
def _get_shared_cache(tokenizer: Callable[[str], Any]) -> TokenCountCache:
    return TokenCountCache(tokenizer)
