"""Instruments without metrics and tracer add almost no cost."""

from __future__ import annotations

from langmem_tiers import MemoryEngine
from langmem_tiers.recall.embedders.embedding import _RefusedError
from langmem_tiers.telemetry.instruments import SILENT_INSTRUMENTS, Operation, get_error_name
from tests.work_counters import count_function_calls


def test_an_operation_without_metrics_or_tracer_takes_four_more_calls() -> None:
    def watched() -> None:
        for _ in range(100):
            with SILENT_INSTRUMENTS.measure(Operation.ADD) as watch:
                watch.record(messages=1, duplicates=0)

    assert count_function_calls(watched) <= 4 * 100 + 3  # the three are of the measurement itself


def test_an_engine_without_instruments_is_silent() -> None:
    with MemoryEngine() as engine:
        instruments = engine.services.instruments
        assert instruments.measure(Operation.ADD) is instruments.measure(Operation.RECALL)


def test_an_error_is_labeled_by_a_public_class() -> None:
    assert get_error_name(_RefusedError) == "EmbeddingError"
    assert get_error_name(KeyError) == "other"
