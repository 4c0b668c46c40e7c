"""LlamaIndex's tokenizers for the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sized
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

import llama_index.core
from llama_index.core.utils import get_tokenizer
from tiktoken import Encoding

from langmem_tiers.errors import InvalidConfigError, InvalidInputError, LangmemTiersError
from langmem_tiers.text.token_counting import TiktokenCounter

Tokenizer: TypeAlias = Callable[..., Any]
"""From a text to its tokens, as LlamaIndex has it."""

_NAME_ATTRIBUTES = ("name", "name_or_path")  # of tiktoken and of Hugging Face
_NAME_PATTERN = re.compile(r"[\w.+-]+")
_MAX_NAME_CHARACTERS = 60
# Texts that tokenizers cut differently: what they make of these tells apart what is called alike.
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
    """A LlamaIndex tokenizer as the ``TokenCounter`` of an engine. Nothing is downloaded.

    Args:
        tokenizer: From a text to its tokens, or an object with such an ``encode``; the one that LlamaIndex
            uses at this moment, if left out.
        name: Stored beside each count: counts of two names are never mixed. Found in the tokenizer, and in
            how it cuts some texts, if left out.

    Raises:
        InvalidInputError: It is no tokenizer.
        InvalidConfigError: The name cannot be used, or LlamaIndex's own vocabulary is not on this machine.
        LangmemTiersError: The tokenizer failed.
    """

    def __init__(self, tokenizer: object = None, *, name: str | None = None) -> None:
        self._tokenize = _allow_special_tokens(
            _get_global_tokenizer() if tokenizer is None else _to_function(tokenizer)
        )
        counts = [self.count(sample) for sample in _SAMPLE_TEXTS]  # refuses now what would fail in mid-write
        self._name = _build_name(self._tokenize, counts) if name is None else _check_name(name)

    def __repr__(self) -> str:
        return f"LlamaIndexCounter(name={self._name!r})"

    @property
    def name(self) -> str:
        """Names the tokenizer."""
        return self._name

    def count(self, text: str) -> int:
        """Tokens of the text; 0 only for the empty one.

        Raises:
            InvalidInputError: What the tokenizer gave cannot be counted.
            LangmemTiersError: The tokenizer failed.
        """
        if not text:
            return 0  # some tokenizers mark where even an empty text begins and ends
        readable = text.encode("utf-8", "replace").decode()  # lone surrogates, which not all can read
        try:
            tokens = self._tokenize(readable)
        except Exception as error:
            raise LangmemTiersError(
                f"the tokenizer {_find_label(self._tokenize)!r} failed ({type(error).__name__}): "
                "pass one that takes any text"
            ) from error
        if isinstance(tokens, str | bytes | Mapping) or not isinstance(tokens, Sized):
            raise InvalidInputError(
                f"the tokenizer {_find_label(self._tokenize)!r} gave a {type(tokens).__name__}: "
                "pass a function from a text to the list of its tokens"
            )
        return max(1, len(tokens))


def _get_global_tokenizer() -> Tokenizer:
    if llama_index.core.global_tokenizer is None:
        # Loads the vocabulary from this machine, or says that it is not there. Without it get_tokenizer()
        # would download it where TIKTOKEN_CACHE_DIR names a folder that does not hold it.
        TiktokenCounter("cl100k_base")
    return get_tokenizer()


def _to_function(tokenizer: object) -> Tokenizer:
    encode: Tokenizer | None = getattr(tokenizer, "encode", None)
    if callable(encode):
        if isinstance(tokenizer, type):
            raise InvalidInputError(f"{tokenizer.__name__} is a class: give an object of it")
        if not isinstance(tokenizer, str):
            return encode
    if not callable(tokenizer):
        raise InvalidInputError(
            f"a {type(tokenizer).__name__} is no tokenizer: pass a function from a text to the list of its "
            "tokens, such as tiktoken.get_encoding('o200k_base').encode"
        )
    return tokenizer


def _allow_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    if getattr(_unwrap(tokenizer), "__func__", None) is Encoding.encode:
        # By default it raises where somebody wrote "<|endoftext|>", and anybody may.
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
        # The end of a path or an address: the rest may name a person or hold a key.
        if isinstance(value, str) and (plain := _NAME_PATTERN.match(value.rstrip("/").rpartition("/")[2])):
            return plain[0][:_MAX_NAME_CHARACTERS]
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))[-_MAX_NAME_CHARACTERS:]


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidConfigError(f"name must be a printable name, got {name!r}: use e.g. 'llama-3'")
    return name.strip()
