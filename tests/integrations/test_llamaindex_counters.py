"""LlamaIndex tokenizers as token counters of the engine."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from langmem_tiers import (
    InvalidConfigError,
    InvalidInputError,
    LangmemTiersError,
    MemoryEngine,
    TiktokenCounter,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    import llama_index.core
    from llama_index.core.utils import get_tokenizer, set_global_tokenizer

    from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter

if TYPE_CHECKING:
    from pathlib import Path

    from langmem_tiers import TokenCounter


@pytest.fixture(autouse=True)
def _no_global_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_index.core, "global_tokenizer", None)


def encoding(name: str) -> tiktoken.Encoding:
    TiktokenCounter(name)  # loads it from this machine
    return tiktoken.get_encoding(name)


def test_the_default_counter_counts_like_llamaindex() -> None:
    counter: TokenCounter = LlamaIndexCounter()
    tokenize = get_tokenizer()
    for text in ("The cat sleeps on the sofa.", "日本語", "<|endoftext|>", "👩‍💻", " "):
        assert counter.count(text) == len(tokenize(text))
    assert counter.name.startswith("cl100k_base-")


def test_the_global_tokenizer_at_construction_is_kept() -> None:
    set_global_tokenizer(str.split)
    counter = LlamaIndexCounter()
    set_global_tokenizer(list)
    assert counter.count("one two three") == 3
    assert LlamaIndexCounter().count("one two three") == 13


def create_word_tokenizer() -> Any:
    tokenizer = Tokenizer(WordLevel({"tea": 0, "green": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


TOKENIZERS: list[Any] = [
    str.split,
    list,
    lambda _: [],
    lambda text: ["<s>", *text.split(), "</s>"],
    encoding("cl100k_base").encode,
    encoding("cl100k_base"),
    partial(encoding("o200k_base").encode, allowed_special="all"),
    partial(encoding("o200k_base").encode, allowed_special={"<|endoftext|>"}),
    create_word_tokenizer(),
]


@given(text=st.text() | st.sampled_from(["<|endoftext|>", "<|fim_prefix|> x <|endofprompt|>", "half \ud83d"]))
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_only_the_empty_text_has_no_tokens(tokenizer: Any, text: str) -> None:
    counter = LlamaIndexCounter(tokenizer)
    assert (counter.count(text) == 0) == (text == "")
    assert counter.count(text) == counter.count(text)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_count_is_the_number_of_tokens(text: str) -> None:
    encode = encoding("o200k_base").encode
    assert LlamaIndexCounter(encode).count(text) == len(encode(text, disallowed_special=()))


def test_an_object_with_an_encode_method_works_as_a_tokenizer() -> None:
    assert LlamaIndexCounter(create_word_tokenizer()).count("green green tea") == 3
    set_global_tokenizer(create_word_tokenizer())
    assert LlamaIndexCounter().count("green green tea") == 3


class Pretrained:
    """Tokenizer like those of Hugging Face."""

    def __init__(self, name_or_path: str, marks: int = 0) -> None:
        self.name_or_path, self._marks = name_or_path, marks

    def encode(self, text: str) -> list[int]:
        return [0] * self._marks + [len(word) for word in text.split()]

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text), "attention_mask": []}


@pytest.mark.parametrize(
    ("tokenizer", "label"),
    [
        (encoding("cl100k_base"), "cl100k_base-"),
        (encoding("o200k_base").encode, "o200k_base-"),
        (partial(encoding("o200k_base").encode, allowed_special="all"), "o200k_base-"),
        (Pretrained("meta-llama/Llama-3.1-8B"), "Llama-3.1-8B-"),
        (Pretrained("/home/ada/models/bert-base/"), "bert-base-"),
        (Pretrained("https://hub.example/mine?token=hunter2"), "mine-"),
        (Pretrained(""), "Pretrained.encode-"),
        (str.split, "str.split-"),
        (list, "list-"),
    ],
    ids=lambda value: value if isinstance(value, str) else "of",
)
def test_the_name_of_a_counter_comes_from_its_tokenizer(tokenizer: Any, label: str) -> None:
    counter = LlamaIndexCounter(tokenizer)
    assert counter.name.startswith(label)
    assert len(counter.name) == len(label) + 8
    assert "hunter2" not in repr(counter)
    assert LlamaIndexCounter(tokenizer, name=" mine ").name == "mine"


def test_counters_of_different_tokenizers_have_different_names() -> None:
    tokenizers: list[Any] = [
        *TOKENIZERS[:5],
        encoding("o200k_base").encode,
        TOKENIZERS[6],
        lambda text: text.split("e"),
        Pretrained("bert"),
        Pretrained("bert", marks=2),
    ]
    names = [LlamaIndexCounter(tokenizer).name for tokenizer in tokenizers]
    assert len(set(names)) == len(tokenizers)
    assert TiktokenCounter().name not in names  # it counts control tokens as plain text
    assert [LlamaIndexCounter(tokenizer).name for tokenizer in tokenizers] == names


def test_an_engine_uses_the_counter() -> None:
    counter = LlamaIndexCounter(str.split, name="words")
    with MemoryEngine(embedder=None, counter=counter) as engine:
        session = engine.session("ada", "s")
        session.add("user", "<|endoftext|> one two three")
        (message,) = session.messages()
        assert (message.token_count, message.token_counter) == (4, "words")


@pytest.mark.parametrize("returned", [3, None, iter(()), "tokens", b"tokens", {"input_ids": [1]}], ids=type)
def test_a_tokenizer_that_returns_no_tokens_is_rejected(returned: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"returned {type(returned).__name__}: pass a function"):
        LlamaIndexCounter(lambda _: returned)


@pytest.mark.parametrize("value", ["cl100k_base", 3, object(), tiktoken.Encoding, Pretrained])
def test_a_value_that_is_not_a_tokenizer_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected a tokenizer, got .*: pass"):
        LlamaIndexCounter(value)


def test_the_error_of_a_failing_tokenizer_names_it() -> None:
    def picky(text: str) -> list[str]:
        raise KeyError(text)

    with pytest.raises(
        LangmemTiersError, match=r"picky' failed \(KeyError\): pass one that accepts any text"
    ):
        LlamaIndexCounter(picky)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", 3])
def test_an_invalid_name_is_rejected(name: Any) -> None:
    with pytest.raises(InvalidConfigError, match="name must be a printable name, got"):
        LlamaIndexCounter(str.split, name=name)


OFFLINE = """
import socket, sys, warnings
warnings.simplefilter("ignore")
def refuse(*_, **__):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter
print(LlamaIndexCounter().count("one two three"))
"""


@pytest.mark.soak
def test_nothing_is_downloaded_with_an_empty_tiktoken_cache(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)},
    )
    assert child.stdout.strip() == "3", child.stderr
    assert list(tmp_path.iterdir()) == []
