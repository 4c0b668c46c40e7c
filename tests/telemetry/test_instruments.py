"""Instruments without metrics and tracer cost next to nothing."""

from __future__ import annotations

from langmem_tiers import MemoryEngine
from langmem_tiers.recall.embedders.embedding import _RefusedError
from langmem_tiers.telemetry.instruments import SILENT, Verb, name_of
from tests.counting import function_calls


def test_an_operation_without_metrics_or_tracer_takes_four_more_calls() -> None:
    def watched() -> None:
        for _ in range(100):
            with SILENT.watch(Verb.ADD) as watch:
                watch.note(messages=1, duplicates=0)

    assert function_calls(watched) <= 4 * 100 + 3  # the three are of the measurement itself


def test_an_engine_that_is_handed_nothing_is_silent() -> None:
    with MemoryEngine() as engine:
        instruments = engine.parts.instruments
        assert instruments.watch(Verb.ADD) is instruments.watch(Verb.RECALL)


def test_an_error_is_named_by_a_class_that_callers_know() -> None:
    assert name_of(_RefusedError) == "EmbeddingError"
    assert name_of(KeyError) == "other"
