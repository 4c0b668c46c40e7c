from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from langmem_tiers.common.clock import Clock, SystemClock
from langmem_tiers.testing import FrozenClock, HashEmbedder, ScriptedLLM

if TYPE_CHECKING:
    from langmem_tiers.common.ports import Embedder, LanguageModel


def test_a_frozen_clock_moves_only_when_it_is_moved() -> None:
    clock: Clock = FrozenClock(datetime(2025, 1, 1, tzinfo=UTC))
    assert clock.now() == clock.now() == datetime(2025, 1, 1, tzinfo=UTC)
    assert isinstance(clock, FrozenClock)
    assert clock.advance(days=1, hours=2) == datetime(2025, 1, 2, 2, tzinfo=UTC)
    assert clock.monotonic() == timedelta(days=1, hours=2).total_seconds()
    clock.advance(timedelta(days=-5))
    assert clock.monotonic() == timedelta(days=1, hours=2).total_seconds()
    with pytest.raises(ValueError, match="no time zone"):
        FrozenClock(datetime(2025, 1, 1))


def test_the_system_clock_is_aware_and_runs() -> None:
    clock: Clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() <= clock.monotonic()


def test_a_scripted_model_answers_in_order_raises_and_remembers() -> None:
    model = ScriptedLLM(["one", TimeoutError("slow"), "two"])
    port: LanguageModel = model
    assert port.complete("a") == "one"
    with pytest.raises(TimeoutError):
        port.complete("b", system="s", max_tokens=5)
    assert port.complete("c") == "two"
    with pytest.raises(AssertionError, match="no answer left for 'd'"):
        port.complete("d")
    assert model.prompts == ["a", "b", "c", "d"]


def test_hashed_vectors_are_repeatable_units_that_know_shared_words() -> None:
    embedder: Embedder = HashEmbedder(128)
    vectors = embedder.embed_documents(["the cat sat", "a cat sat down", "quarterly tax report", ""])
    assert vectors.shape == (4, embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-6)
    query = embedder.embed_query("the cat sat")
    np.testing.assert_array_equal(query, vectors[0])
    assert query @ vectors[1] > query @ vectors[2]
    assert embedder.identity == "hash-128"
    assert set(np.sign(embedder.embed_query("one two three four five six seven eight nine ten"))) == {
        -1,
        0,
        1,
    }
    assert HashEmbedder(64).identity != embedder.identity
    with pytest.raises(ValueError, match="at least 1"):
        HashEmbedder(0)
