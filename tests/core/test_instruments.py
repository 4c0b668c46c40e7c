"""What nobody wants to know costs next to nothing."""

from __future__ import annotations

from langmem_tiers import MemoryEngine
from langmem_tiers.core.instruments import SILENT, Verb, name_of
from langmem_tiers.retrieval.embedding import _RefusedError
from tests.timing import takes_at_most


def test_a_verb_that_nobody_watches_costs_a_hundredth_of_the_cheapest_one() -> None:
    def watched() -> None:
        for _ in range(10_000):
            with SILENT.watch(Verb.ADD) as watch:
                watch.note(messages=1, duplicates=0)

    assert takes_at_most(0.02, watched)  # 2 microseconds each; an add without a disk takes 200


def test_an_engine_that_is_handed_nothing_is_silent() -> None:
    with MemoryEngine() as engine:
        instruments = engine.parts.instruments
        assert instruments.watch(Verb.ADD) is instruments.watch(Verb.RECALL)


def test_an_error_is_named_by_a_class_that_callers_know() -> None:
    assert name_of(_RefusedError) == "EmbeddingError"
    assert name_of(KeyError) == "other"
