"""Every setting is checked when its configuration is built."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from langmem_tiers import (
    CacheConfig,
    EmbeddingConfig,
    EngineConfig,
    InvalidConfigError,
    LearningConfig,
    MaintenanceConfig,
    OptimizerConfig,
    PostgresConfig,
    RecallConfig,
    RedisConfig,
    SummaryConfig,
    WorkingConfig,
)
from langmem_tiers.config import Durability, SummaryStrategy

Config = type[Any]
WHOLE: dict[tuple[Config, str], tuple[int, int]] = {
    (CacheConfig, "max_characters"): (0, 2**40),
    (CacheConfig, "window"): (1, 1_000_000),
    (SummaryConfig, "target_tokens"): (16, 2**40),
    (SummaryConfig, "chunk_messages"): (2, 2**40),
    (OptimizerConfig, "snapshots"): (1, 1_000_000),
    (EmbeddingConfig, "batch_size"): (1, 10_000),
    (EmbeddingConfig, "cache_entries"): (1, 2**40),
    (RecallConfig, "limit"): (1, 100),
    (RecallConfig, "max_limit"): (1, 1_000_000),
    (RecallConfig, "index_megabytes"): (1, 2**40),
    (LearningConfig, "chunk_messages"): (1, 1_000_000),
    (LearningConfig, "recent_messages"): (1, 1_000_000),
    (LearningConfig, "max_chunks"): (2, 1_000_000),
    (LearningConfig, "chunk_tokens"): (16, 2**40),
    (LearningConfig, "max_episodes"): (1, 1_000_000),
    (EngineConfig, "pool_size"): (1, 2**40),
    (WorkingConfig, "max_agents"): (1, 2**40),
    (WorkingConfig, "max_megabytes"): (1, 2**40),
    (WorkingConfig, "flush_tokens"): (1, 2**40),
    (RedisConfig, "ttl_seconds"): (1, 10**9),
    (RedisConfig, "window"): (1, 10_000),
    (RedisConfig, "max_window_bytes"): (1, 2**40),
    (PostgresConfig, "pool_size"): (1, 10_000),
    (PostgresConfig, "max_overflow"): (0, 10_000),
    (PostgresConfig, "ef_search"): (1, 1000),
    (PostgresConfig, "exact_numbers"): (0, 2**40),
    (PostgresConfig, "max_scan_tuples"): (1, 2**31 - 1),
}
"""Settings that are whole numbers, with the smallest and the largest value."""
POSITIVE: dict[tuple[Config, str], int] = {
    (CacheConfig, "ttl_seconds"): 10**9,
    (SummaryConfig, "time_limit_seconds"): 10**9,
    (OptimizerConfig, "interval_seconds"): 10**9,
    (OptimizerConfig, "lease_seconds"): 10**9,
    (EmbeddingConfig, "time_limit_seconds"): 10**9,
    (EmbeddingConfig, "retry_seconds"): 10**9,
    (EmbeddingConfig, "inline_seconds"): 10**9,
    (EmbeddingConfig, "cache_hours"): 10**9,
    (LearningConfig, "half_life_days"): 10**9,
    (LearningConfig, "archive_after_days"): 10**9,
    (MaintenanceConfig, "retention_days"): 1_000_000,
    (EngineConfig, "busy_timeout_seconds"): 86_400,
    (EngineConfig, "connect_timeout_seconds"): 86_400,
    (WorkingConfig, "ttl_seconds"): 10**9,
    (RedisConfig, "timeout_seconds"): 3600,
    (RedisConfig, "retry_seconds"): 86_400,
    (PostgresConfig, "pool_timeout_seconds"): 86_400,
    (PostgresConfig, "ping_after_seconds"): 86_400,
    (PostgresConfig, "reconnect_seconds"): 86_400,
}
"""Settings that are numbers above 0, with the largest value."""
FRACTIONS: list[tuple[Config, str]] = [
    (RecallConfig, "relevance_threshold"),
    (LearningConfig, "promotion_threshold"),
    (LearningConfig, "archive_below"),
    (EngineConfig, "redundancy_threshold"),
]
"""Settings from 0 to 1."""
ZERO_IS_VALID = {"reconnect_seconds"}
ZERO_IS_REFUSED = {"redundancy_threshold"}
PARTS: dict[str, Config] = {
    "postgres": PostgresConfig,
    "cache": CacheConfig,
    "summary": SummaryConfig,
    "optimizer": OptimizerConfig,
    "embedding": EmbeddingConfig,
    "recall": RecallConfig,
    "learning": LearningConfig,
    "maintenance": MaintenanceConfig,
    "working": WorkingConfig,
}


def name_of(value: object) -> str | None:
    return value.__name__ if isinstance(value, type) else None


def build(config: Config, name: str, value: object) -> object:
    """Return the setting as a new configuration holds it."""
    others = {"limit": 1} if name == "max_limit" else {}  # the default limit must not exceed it
    return getattr(config(**{name: value}, **others), name)


def check_refused(config: Config, name: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(InvalidConfigError, match=rf"^{name} must .*got"):
            build(config, name, value)


@pytest.mark.parametrize(("config", "name"), WHOLE, ids=name_of)
def test_a_whole_number_must_be_between_its_limits(config: Config, name: str) -> None:
    least, most = WHOLE[config, name]
    assert [build(config, name, value) for value in (least, most)] == [least, most]
    check_refused(config, name, [least - 1, most + 1, least + 0.5, True, "7"])


@pytest.mark.parametrize(("config", "name"), POSITIVE, ids=name_of)
def test_a_positive_number_must_be_above_0_and_at_most_its_limit(config: Config, name: str) -> None:
    most = POSITIVE[config, name]
    assert [build(config, name, value) for value in (1e-9, most)] == [1e-9, most]
    check_refused(config, name, [-1e-9, most + 1, math.nan, math.inf, True, False, "7"])
    if name in ZERO_IS_VALID:
        assert build(config, name, 0) == 0
    else:
        check_refused(config, name, [0])


@pytest.mark.parametrize(("config", "name"), FRACTIONS, ids=name_of)
def test_a_fraction_must_be_from_0_to_1(config: Config, name: str) -> None:
    assert [build(config, name, value) for value in (1e-9, 1)] == [1e-9, 1]
    check_refused(config, name, [-1e-9, 1.001, math.nan, True, "0.5"])
    if name in ZERO_IS_REFUSED:
        check_refused(config, name, [0])
    else:
        assert build(config, name, 0) == 0


def test_every_number_among_the_settings_has_a_limit_here() -> None:
    numbers = {
        (config, field.name)
        for config in (*PARTS.values(), EngineConfig, RedisConfig)
        for field in fields(config)
        if {"int", "float"} & set(str(field.type).split(" | "))
    }
    assert numbers == {*WHOLE, *POSITIVE, *FRACTIONS}


def test_a_component_of_another_type_is_refused_with_the_expected_type() -> None:
    parts = {field.name for field in fields(EngineConfig) if str(field.type).endswith(("Config", "Budget"))}
    assert parts == {*PARTS, "budget"}
    for name in sorted(parts):
        with pytest.raises(InvalidConfigError, match=rf"^{name} must be an? \w+(Config|Budget), got "):
            build(EngineConfig, name, {})


def test_enum_settings_accept_names_and_members() -> None:
    assert EngineConfig(durability="normal").durability is Durability.NORMAL  # type: ignore[arg-type]
    assert SummaryConfig(strategy="simple").strategy is SummaryStrategy.SIMPLE  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="unknown durability 'fast': use 'full' or 'normal'"):
        build(EngineConfig, "durability", "fast")
    with pytest.raises(InvalidConfigError, match="unknown strategy 'fast': use one of simple, hierarchical"):
        build(SummaryConfig, "strategy", "fast")
