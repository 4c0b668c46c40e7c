"""Adapter for LlamaIndex tokenizers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sized
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import llama_index.core
from llama_index.core.utils import get_tokenizer
from tiktoken import Encoding

from langmem_tiers import InvalidConfigError, InvalidInputError, LangmemTiersError, TiktokenCounter
from langmem_tiers_llamaindex.convert import message_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llama_index.core.base.llms.types import ChatMessage

    from langmem_tiers import Message


Tokenizer: TypeAlias = Callable[..., Any]
"""Function from a text to its tokens, as in LlamaIndex."""

_NAME_ATTRIBUTES = ("name", "name_or_path")  # tiktoken and Hugging Face
_NAME_PATTERN = re.compile(r"[\w.+-]+")
_MAX_NAME_CHARACTERS = 60
# Tokenizers split these texts differently, so their token counts distinguish tokenizers with the same name.
_SAMPLE_TEXTS = (
    "The quick brown fox, uncharacteristically, jumps over 13 lazy dogs.",
    "def area(r):\n    return {'m2': 3.14159265 * r ** 2}[0x1F]\n\n",
    '{"id": 20391, "url": "https://shop.example/cart?item=7&size=XL"}',
    "Straße, œuvre, niño, žluťoučký kůň",
    "Съешь ещё этих мягких французских булок",
    "東京で寿司を食べました。 서울의 날씨는 맑음",
    "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER} \N{GRINNING FACE}",
    "<|endoftext|> <s> [CLS]",
    " \t\n   ",
)


class LlamaIndexCounter:
    """LlamaIndex tokenizer as the ``TokenCounter`` of an engine; nothing is downloaded.

    Args:
        tokenizer: Function from a text to its tokens, or an object with such a method ``encode``. Default:
            LlamaIndex's current global tokenizer.
        name: Name stored with each count; counts of different names are never mixed. Default: derived from the
            tokenizer and its counts of sample texts.

    Raises:
        InvalidInputError: The object is not a tokenizer.
        InvalidConfigError: The name is invalid, or the vocabulary of LlamaIndex's default tokenizer is not
            installed on this machine.
        LangmemTiersError: The tokenizer failed.
    """

    def __init__(self, tokenizer: object = None, *, name: str | None = None) -> None:
        self._tokenize = _allow_special_tokens(
            _get_global_tokenizer() if tokenizer is None else _to_function(tokenizer)
        )
        # Also detects an unusable tokenizer now, instead of during a write.
        counts = [self.count(sample) for sample in _SAMPLE_TEXTS]
        self._name = _build_name(self._tokenize, counts) if name is None else _check_name(name)

    def __repr__(self) -> str:
        return f"LlamaIndexCounter(name={self._name!r})"

    @property
    def name(self) -> str:
        """Name of the tokenizer."""
        return self._name

    def count(self, text: str) -> int:
        """Return the number of tokens of a text; 0 only for the empty text.

        Raises:
            InvalidInputError: The tokenizer did not return a list of tokens.
            LangmemTiersError: The tokenizer failed.
        """
        if not text:
            return 0  # some tokenizers add begin and end markers even to an empty text
        readable = text.encode("utf-8", "replace").decode()  # some tokenizers reject lone surrogates
        try:
            tokens = self._tokenize(readable)
        except Exception as error:
            raise LangmemTiersError(
                f"the tokenizer {_find_label(self._tokenize)!r} failed ({type(error).__name__}): "
                "pass one that accepts any text"
            ) from error
        if isinstance(tokens, str | bytes | Mapping) or not isinstance(tokens, Sized):
            raise InvalidInputError(
                f"the tokenizer {_find_label(self._tokenize)!r} returned {type(tokens).__name__}: "
                "pass a function from a text to the list of its tokens"
            )
        return max(1, len(tokens))


def _get_global_tokenizer() -> Tokenizer:
    if llama_index.core.global_tokenizer is None:
        # Raises an error if the vocabulary is not installed. Otherwise, get_tokenizer() would download it if the
        # folder in TIKTOKEN_CACHE_DIR does not contain it.
        TiktokenCounter("cl100k_base")
    return get_tokenizer()


def _to_function(tokenizer: object) -> Tokenizer:
    encode: Tokenizer | None = getattr(tokenizer, "encode", None)
    if callable(encode):
        if isinstance(tokenizer, type):
            raise InvalidInputError(
                f"expected a tokenizer, got the class {tokenizer.__name__}: pass an instance"
            )
        if not isinstance(tokenizer, str):
            return encode
    if not callable(tokenizer):
        raise InvalidInputError(
            f"expected a tokenizer, got {type(tokenizer).__name__}: pass a function from a text to the list of its "
            "tokens, such as tiktoken.get_encoding('o200k_base').encode"
        )
    return tokenizer


def _allow_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    if getattr(_unwrap(tokenizer), "__func__", None) is Encoding.encode:
        # By default, tiktoken raises an error for texts like "<|endoftext|>", which any user may write.
        return partial(tokenizer, disallowed_special=())
    return tokenizer


def _unwrap(tokenizer: Tokenizer) -> Tokenizer:
    while isinstance(tokenizer, partial):
        tokenizer = tokenizer.func
    return tokenizer


def _build_name(tokenizer: Tokenizer, counts: list[int]) -> str:
    return f"{_find_label(tokenizer)}-{blake2b(repr(counts).encode(), digest_size=4).hexdigest()}"


def _find_label(tokenizer: Tokenizer) -> str:
    inner = _unwrap(tokenizer)
    owner = getattr(inner, "__self__", inner)
    for attribute in _NAME_ATTRIBUTES:
        value = getattr(owner, attribute, None)
        # Only the last part of a path or URL: the rest may contain a user name or a key.
        if isinstance(value, str) and (plain := _NAME_PATTERN.match(value.rstrip("/").rpartition("/")[2])):
            return plain[0][:_MAX_NAME_CHARACTERS]
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))[-_MAX_NAME_CHARACTERS:]


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidConfigError(f"name must be a printable name, got {name!r}: use for example 'llama-3'")
    return name.strip()


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
