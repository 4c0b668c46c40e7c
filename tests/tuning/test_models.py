"""Records of the optimizer match the specification."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.tuning import EfficiencyReport, TuningParameters, TuningSnapshot

LEARNED = TuningParameters(compression_trigger=0.62, full_message_window=26, min_relevance=0.38)
SEED_SNAPSHOT = """{
  "tokensBefore": 150000,
  "tokensAfter": 120000,
  "entriesCompressed": 8,
  "entriesDropped": 3,
  "entriesPromoted": 2,
  "compressionTriggerRatio": 0.62,
  "fullMessageWindow": 26,
  "minRelevanceScore": 0.38,
  "timestamp": "2025-01-15T10:36:00.000Z"
}"""
SEED_REPORT = """{
  "totalOptimizations": 45,
  "totalTokensSaved": 125000,
  "avgSavingsPerRun": 2778,
  "currentParameters": {
    "compressionTrigger": 0.62,
    "fullMessageWindow": 26,
    "minRelevance": 0.38,
    "targetUsageRatio": 0.65
  }
}"""


def snapshot(created_at: datetime = datetime(2025, 1, 15, 10, 36, tzinfo=UTC)) -> TuningSnapshot:
    return TuningSnapshot(
        created_at=created_at,
        tokens_before=150_000,
        tokens_after=120_000,
        entries_compressed=8,
        entries_dropped=3,
        entries_promoted=2,
        usage_before=0.785735,
        usage_after=0.628588,
        parameters=LEARNED,
        reason="over the target",
    )


def test_a_snapshot_matches_the_specification_with_four_more_fields() -> None:
    expected = json.loads(SEED_SNAPSHOT)
    assert len(expected) == 9
    assert snapshot().as_dict() == {
        **expected,
        "usageBefore": 0.785735,
        "usageAfter": 0.628588,
        "reason": "over the target",
        "isReverted": False,
    }


def test_a_snapshot_has_the_fields_of_the_specification_first_and_is_json() -> None:
    fields = json.loads(json.dumps(snapshot().as_dict()))
    assert list(fields)[:9] == list(json.loads(SEED_SNAPSHOT))
    assert fields == snapshot().as_dict()


@pytest.mark.parametrize(
    ("microsecond", "shown"), [(0, "000"), (999, "000"), (1000, "001"), (50_000, "050"), (999_999, "999")]
)
def test_a_timestamp_has_three_digits_of_a_second(microsecond: int, shown: str) -> None:
    at = datetime(2025, 1, 5, 1, 6, 9, microsecond, tzinfo=UTC)
    assert snapshot(at).as_dict()["timestamp"] == f"2025-01-05T01:06:09.{shown}Z"


@given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC)))
def test_a_timestamp_reads_back_to_the_millisecond(at: datetime) -> None:
    read = datetime.fromisoformat(snapshot(at).as_dict()["timestamp"])
    assert read == at.replace(microsecond=at.microsecond // 1000 * 1000)


def test_a_snapshot_saved_the_difference() -> None:
    assert snapshot().tokens_saved == 30_000


def test_an_efficiency_report_matches_the_specification() -> None:
    report = EfficiencyReport(total_optimizations=45, total_tokens_saved=125_000, parameters=LEARNED)
    assert report.as_dict() == json.loads(SEED_REPORT)
    assert list(report.as_dict()) == list(json.loads(SEED_REPORT))


def test_before_the_first_run_the_average_savings_are_0() -> None:
    report = EfficiencyReport(total_optimizations=0, total_tokens_saved=0, parameters=TuningParameters())
    assert report.as_dict()["avgSavingsPerRun"] == 0


def test_tuning_starts_at_the_values_of_the_specification() -> None:
    assert TuningParameters().as_dict() == {
        "compressionTrigger": 0.7,
        "fullMessageWindow": 30,
        "minRelevance": 0.3,
        "targetUsageRatio": 0.65,
    }
    assert TuningParameters().clamped() == TuningParameters()


@pytest.mark.parametrize(
    ("given", "clamped"),
    [(0.0, 0.35), (0.349999, 0.35), (0.35, 0.35), (0.36, 0.36), (0.85, 0.85), (0.850001, 0.85), (9.0, 0.85)],
)
def test_the_compression_trigger_stays_between_35_and_85_percent(given: float, clamped: float) -> None:
    assert TuningParameters(compression_trigger=given).clamped() == TuningParameters(
        compression_trigger=clamped
    )


@pytest.mark.parametrize(
    ("given", "clamped"), [(-5, 10), (9, 10), (10, 10), (11, 11), (49, 49), (50, 50), (51, 50), (999, 50)]
)
def test_the_window_stays_between_10_and_50(given: int, clamped: int) -> None:
    assert TuningParameters(full_message_window=given).clamped() == TuningParameters(
        full_message_window=clamped
    )


@pytest.mark.parametrize(
    ("given", "clamped"),
    [(0.0, 0.15), (0.149999, 0.15), (0.15, 0.15), (0.16, 0.16), (0.7, 0.7), (0.700001, 0.7), (1.0, 0.7)],
)
def test_the_minimum_relevance_stays_between_15_and_70_percent(given: float, clamped: float) -> None:
    assert TuningParameters(min_relevance=given).clamped() == TuningParameters(min_relevance=clamped)


def test_the_target_is_not_tuned() -> None:
    assert TuningParameters(target_usage=0.99).clamped().target_usage == 0.99


def test_small_steps_accumulate_no_rounding_error() -> None:
    parameters = TuningParameters()
    for _ in range(7):
        parameters = TuningParameters(compression_trigger=parameters.compression_trigger - 0.05).clamped()
    assert parameters.compression_trigger == 0.35
