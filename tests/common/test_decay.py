"""Decay matches the formula of the design document; its properties hold for all values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import Entry, Tier
from langmem_tiers.common.decay import (
    BOOST_PER_ACCESS,
    HALF_LIFE_DAYS,
    MAX_ACCESS_BOOST,
    compute_decay,
    compute_decay_since,
    compute_entry_decay,
)

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
DAYS = st.floats(min_value=0, max_value=100_000, allow_nan=False)
COUNTS = st.integers(min_value=0, max_value=10_000)
HALF_LIVES = st.floats(min_value=0.01, max_value=10_000, allow_nan=False)
ENTRY = Entry(
    id="e", namespace=("a",), tier=Tier.LONG_TERM, kind="fact", content="The red boat sails.", created_at=NOW
)


def test_the_numbers_are_those_of_the_design_document() -> None:
    assert (HALF_LIFE_DAYS, BOOST_PER_ACCESS, MAX_ACCESS_BOOST) == (30, 0.1, 0.5)


@pytest.mark.parametrize(
    ("days", "count", "left"),
    [
        # without use: half as much each 30 days
        (0, 0, 1.0),
        (15, 0, 0.7071067811865476),  # the root of a half
        (30, 0, 0.5),
        (60, 0, 0.25),
        (90, 0, 0.125),
        (120, 0, 0.0625),
        # fresh: capped at 1, however often it was used
        (0, 1, 1.0),
        (0, 3, 1.0),
        (0, 5, 1.0),
        (0, 9, 1.0),
        # 0.1 for each use, 0.5 at most
        (15, 1, 0.8071067811865476),
        (15, 3, 1.0),  # 1.007 without the cap
        (15, 5, 1.0),
        (15, 9, 1.0),
        (30, 1, 0.6),
        (30, 3, 0.8),
        (30, 5, 1.0),
        (30, 9, 1.0),
        (60, 1, 0.35),
        (60, 3, 0.55),
        (60, 5, 0.75),
        (60, 9, 0.75),
        (90, 1, 0.225),
        (90, 3, 0.425),
        (90, 5, 0.625),
        (90, 9, 0.625),
        (120, 1, 0.1625),
        (120, 3, 0.3625),
        (120, 5, 0.5625),
        (120, 9, 0.5625),
    ],
)
def test_the_decay_matches_the_formula(days: float, count: int, left: float) -> None:
    assert compute_decay(days, count) == pytest.approx(left, abs=1e-12)
    assert compute_decay_since(NOW - timedelta(days=days), count, NOW) == pytest.approx(left, abs=1e-12)


def test_another_half_life_halves_after_that_many_days() -> None:
    assert compute_decay(7, 0, 7) == pytest.approx(0.5)
    assert compute_decay(14, 2, 7) == pytest.approx(0.45)


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_a_clock_set_back_gives_a_decay_of_1_at_most(count: int) -> None:
    assert compute_decay(-1, count) == compute_decay(0, count) == 1.0
    assert compute_decay(-1e6, count) == 1.0
    assert compute_decay_since(NOW + timedelta(days=400), count, NOW) == 1.0


def test_parts_of_a_day_are_counted() -> None:
    assert compute_decay_since(NOW - timedelta(hours=12), 0, NOW, half_life_days=0.5) == pytest.approx(0.5)


def test_an_entry_decays_from_its_last_use_or_else_from_when_it_was_stored() -> None:
    assert compute_entry_decay(ENTRY, NOW + timedelta(days=60)) == pytest.approx(0.25)
    used = replace(ENTRY, access_count=1, last_access_at=NOW + timedelta(days=30))
    assert compute_entry_decay(used, NOW + timedelta(days=60)) == pytest.approx(0.6)
    assert compute_entry_decay(used, NOW + timedelta(days=60), half_life_days=15) == pytest.approx(0.35)


@given(DAYS, COUNTS, HALF_LIVES)
def test_the_decay_is_between_0_and_1(days: float, count: int, half_life: float) -> None:
    assert 0.0 <= compute_decay(days, count, half_life) <= 1.0
    assert 0.0 <= compute_decay(-days, count, half_life) <= 1.0


@given(DAYS, DAYS, COUNTS, HALF_LIVES)
def test_the_decay_never_increases_with_time(one: float, other: float, count: int, half_life: float) -> None:
    sooner, later = sorted((one, other))
    assert compute_decay(later, count, half_life) <= compute_decay(sooner, count, half_life)


@given(DAYS, COUNTS, COUNTS, HALF_LIVES)
def test_the_decay_never_decreases_with_use(days: float, one: int, other: int, half_life: float) -> None:
    fewer, more = sorted((one, other))
    assert compute_decay(days, fewer, half_life) <= compute_decay(days, more, half_life)


@given(st.floats(min_value=31, max_value=1000), st.integers(min_value=0, max_value=3))
def test_the_decay_is_strictly_monotonic_below_the_caps(days: float, count: int) -> None:
    assert compute_decay(days + 1, count) < compute_decay(days, count) < compute_decay(days, count + 1)


@given(DAYS)
def test_accesses_add_a_half_at_most(days: float) -> None:
    assert compute_decay(days, 10_000) - compute_decay(days, 0) <= 0.5 + 1e-12
    assert compute_decay(days, 5) == compute_decay(days, 6) == compute_decay(days, 10_000)
