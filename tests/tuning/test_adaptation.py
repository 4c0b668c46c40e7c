"""The documented rules of adaptation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.tuning import TuningParameters
from langmem_tiers.tuning.models import RELEVANCE_RANGE, TRIGGER_RANGE, WINDOW_RANGE
from langmem_tiers.tuning.service import TuningOutcome, adapt_parameters, explain_regression

START = TuningParameters()


def values(parameters: TuningParameters) -> tuple[float, int, float]:
    return parameters.compression_trigger, parameters.full_message_window, parameters.min_relevance


def test_tuning_starts_with_the_documented_values() -> None:
    assert values(START) == (0.7, 30, 0.3)
    assert START.target_usage == 0.65
    assert (TRIGGER_RANGE, WINDOW_RANGE, RELEVANCE_RANGE) == ((0.35, 0.85), (10, 50), (0.15, 0.70))


@pytest.mark.parametrize(
    ("usage", "savings", "expected"),
    [
        (0.76, 0.5, (0.65, 28, 0.35)),  # over: -0.05, -2, +0.05
        (2.0, 0.5, (0.65, 28, 0.35)),
        (0.75, 0.5, (0.7, 30, 0.3)),  # not over yet
        (0.50, 0.5, (0.7, 30, 0.3)),  # not under yet
        (0.49, 0.5, (0.725, 31, 0.275)),  # under: +0.025, +1, -0.025
        (0.0, 0.0, (0.725, 31, 0.275)),
        (0.66, 0.04, (0.6, 30, 0.4)),  # saved less than 5 % above target: -0.1, +0.1
        (0.66, 0.05, (0.7, 30, 0.3)),
        (0.65, 0.0, (0.7, 30, 0.3)),
        (0.80, 0.0, (0.55, 28, 0.45)),  # over, and nothing saved: both
    ],
)
def test_each_rule_changes_the_parameters_as_documented(
    usage: float, savings: float, expected: tuple[float, int, float]
) -> None:
    moved, reason = adapt_parameters(START, usage, savings)
    assert values(moved) == pytest.approx(expected)
    assert reason
    assert moved.target_usage == 0.65


@pytest.mark.parametrize(("usage", "ends"), [(2.0, (0.35, 10, 0.70)), (0.1, (0.85, 50, 0.15))])
def test_parameters_stop_at_the_ends_of_their_ranges(usage: float, ends: tuple[float, int, float]) -> None:
    parameters = START
    for _ in range(100):
        parameters, _ = adapt_parameters(parameters, usage, 0.0)
    assert values(parameters) == ends


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(-1, 1)), max_size=60))
def test_parameters_stay_in_range_for_any_history(seen: list[tuple[float, float]]) -> None:
    parameters = START
    for usage, savings in seen:
        parameters, _ = adapt_parameters(parameters, usage, savings)
        assert parameters == parameters.clamped()


@pytest.mark.parametrize(
    ("now", "before", "part"),
    [
        (TuningOutcome(0.95, 5), TuningOutcome(0.7, 5), "usage would be 95.0%, before the change 70.0%"),
        (TuningOutcome(0.30, 5), TuningOutcome(0.6, 5), "usage would be 30.0%"),
        (
            TuningOutcome(0.60, 3),
            TuningOutcome(0.7, 5),
            "2 entries with key facts would be removed from the context unnecessarily",
        ),
        (TuningOutcome(0.66, 5), TuningOutcome(0.65, 5), None),  # no difference to speak of
        (TuningOutcome(0.70, 5), TuningOutcome(0.95, 5), None),  # better
        (
            TuningOutcome(0.70, 3),
            TuningOutcome(0.95, 5),
            None,
        ),  # facts had to go: it was over the budget's band
        (TuningOutcome(0.65, 7), TuningOutcome(0.65, 5), None),
    ],
)
def test_a_change_is_worse_if_usage_deviates_or_key_facts_are_lost_unnecessarily(
    now: TuningOutcome, before: TuningOutcome, part: str | None
) -> None:
    reason = explain_regression(now, before, 0.65)
    assert reason is None if part is None else part in (reason or "")
