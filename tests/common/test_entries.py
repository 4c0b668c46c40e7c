from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import (
    CacheConfig,
    EngineConfig,
    Entry,
    InvalidConfigError,
    InvalidInputError,
    MemoryContext,
    Tier,
)
from langmem_tiers.common import Change
from langmem_tiers.config import Durability

NOW = datetime(2025, 1, 15, tzinfo=UTC)


def entry(**fields: object) -> Entry:
    given: dict[str, object] = {
        "id": "e1",
        "namespace": ("acme",),
        "tier": Tier.LONG_TERM,
        "kind": "fact",
        "content": "x",
        "created_at": NOW,
    }
    return Entry(**{**given, **fields})  # type: ignore[arg-type] # fields are checked by the class


def test_there_are_six_tiers_and_five_changes() -> None:
    assert [tier.value for tier in Tier] == [
        "working", "short_term", "long_term", "knowledge", "episodic", "procedural",
    ]  # fmt: skip
    assert [change.value for change in Change] == ["promote", "demote", "compress", "archive", "forget"]


@given(st.floats(allow_nan=True))
def test_scores_are_between_0_and_1(score: float) -> None:
    if 0.0 <= score <= 1.0:
        assert entry(importance=score).importance == score
    else:
        with pytest.raises(InvalidInputError, match="importance"):
            entry(importance=score)
        with pytest.raises(InvalidInputError, match="relevance"):
            entry(relevance=score)


def test_validity_is_half_open() -> None:
    bounded = entry(valid_from=NOW, valid_until=NOW + timedelta(days=1))
    assert bounded.is_valid_at(NOW)
    assert not bounded.is_valid_at(NOW - timedelta(microseconds=1))
    assert not bounded.is_valid_at(NOW + timedelta(days=1))
    assert entry().is_valid_at(NOW)


def test_validity_cannot_end_before_it_starts() -> None:
    with pytest.raises(InvalidInputError, match="must be after"):
        entry(valid_from=NOW, valid_until=NOW - timedelta(microseconds=1))


def test_an_entry_ended_at_its_start_is_never_valid() -> None:
    never = entry(valid_from=NOW, valid_until=NOW)
    assert not any(never.is_valid_at(NOW + timedelta(microseconds=step)) for step in (-1, 0, 1))


def test_an_entry_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        entry().content = "y"  # type: ignore[misc] # that is the case


def test_durability_can_be_given_as_text() -> None:
    assert EngineConfig(durability="normal").durability is Durability.NORMAL  # type: ignore[arg-type] # as text


@pytest.mark.parametrize(
    "setting",
    [
        {"durability": "safe"},
        {"busy_timeout_seconds": 0},
        {"pool_size": 0},
        {"cache": 5},
        {"connect_timeout_seconds": -1},
    ],
)
def test_an_invalid_setting_is_refused_with_its_value(setting: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        EngineConfig(**setting)  # type: ignore[arg-type] # that is the case
    assert repr(next(iter(setting.values()))) in str(caught.value)


@pytest.mark.parametrize(
    "setting", [{"max_characters": -1}, {"ttl_seconds": 0}, {"window": 0}, {"window": 1.5}]
)
def test_an_invalid_cache_setting_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(setting))):
        CacheConfig(**setting)  # type: ignore[arg-type] # that is the case


@given(st.integers(-5, 20), st.integers(-5, 20))
def test_a_context_never_exceeds_its_budget(tokens: int, budget: int) -> None:
    if 0 <= tokens <= budget:
        assert MemoryContext(messages=(), token_count=tokens, token_budget=budget).token_count == tokens
    else:
        with pytest.raises(InvalidInputError, match=f"budget of {budget}"):
            MemoryContext(messages=(), token_count=tokens, token_budget=budget)
