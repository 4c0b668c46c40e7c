"""A memory to serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.server.api_client import ApiClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def memory() -> Iterator[MemoryEngine]:
    with MemoryEngine(embedder=None, clock=FrozenClock(), ids=seeded_ids()) as engine:
        monday = engine.session(("acme", "alice"), "monday")
        monday.add("user", "My cat is called Tom.")
        monday.add("assistant", "Tom is a fine name.")
        engine.session("bob", "tuesday").add("user", "Bob's secret is tea.")
        yield engine


@pytest.fixture
def ask(memory: MemoryEngine) -> ApiClient:
    return ApiClient(memory)
