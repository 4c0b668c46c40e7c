"""Helpers of all parts of the suite."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.embeddings import Embeddings

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.store.base import BaseStore, IndexConfig, Item, SearchItem, TTLConfig

_WORD = re.compile(r"\w+")


class WordEmbeddings(Embeddings):
    """The same words, the same vector: each word is an axis, found by its hash."""

    model = "words of the conformance suite"
    dims = 256

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """One vector; no axis for a text without words."""
        vector = [0.0] * self.dims
        for word in _WORD.findall(text.lower()):
            vector[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % self.dims] += 1.0
        return vector


INDEX: IndexConfig = {"dims": WordEmbeddings.dims, "embed": WordEmbeddings(), "fields": ["text", "notes[*]"]}
"""What ``indexed_store`` must be built with."""
TTL: TTLConfig = {"default_ttl": 0.005, "refresh_on_read": False, "omit_expired": True}
"""What ``expiring_store`` must be built with: three tenths of a second, so that nobody waits long."""


class Conformance:
    """The fixtures."""

    @pytest.fixture
    def store(self) -> BaseStore:
        """Your store."""
        raise NotImplementedError("define a fixture named 'store' in your subclass")

    @pytest.fixture
    def indexed_store(self) -> BaseStore:
        """Your store, built with ``INDEX``."""
        pytest.skip("no fixture named 'indexed_store'")

    @pytest.fixture
    def expiring_store(self) -> BaseStore:
        """Your store, built with ``TTL``."""
        pytest.skip("no fixture named 'expiring_store'")

    @pytest.fixture
    def let_pass(self) -> Callable[[float], object]:
        """Lets this many seconds pass. Override it if your store takes a clock, so that no test waits."""
        return time.sleep

    @pytest.fixture
    def root(self) -> str:
        """A first label that nobody else uses."""
        return f"conformance-{uuid.uuid4().hex}"


def keys_of(found: list[SearchItem]) -> list[str]:
    """The keys of what was found, in order."""
    return [item.key for item in found]


def value_of(item: Item | None) -> dict[str, Any] | None:
    """The value, if there is one."""
    return None if item is None else item.value
