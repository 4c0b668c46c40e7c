"""The ranking of namespaces with many messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from langmem_tiers.recall.bm25 import WordScores
from langmem_tiers.recall.ranking import MAX_EXHAUSTIVE_MESSAGES, Evidence, Weights, rank
from langmem_tiers.recall.records import Trust
from tests.recall.test_positions import build_positions, index_rows

if TYPE_CHECKING:
    from langmem_tiers.recall.arrays import Floats, Rows
    from langmem_tiers.recall.positions import MessagePositions

MANY = 2 * MAX_EXHAUSTIVE_MESSAGES + 200
WORDS, SESSION, SPEAKER, TIME, MEANING, SECOND = (100, 200, 300, 400, 500, 600)
BEST_FIRST = [MEANING, WORDS, TIME, SECOND, SESSION, SPEAKER]


@pytest.fixture(scope="module")
def places() -> MessagePositions:
    """Many messages of the same length, each in a session of its own."""
    return build_positions(index_rows(range(1, MANY + 1)))


def only(*rows: int, value: float = 1.0) -> Floats:
    """A signal that speaks for these messages alone."""
    signal = np.zeros(MANY)
    signal[list(rows)] = value
    return signal


def evidence() -> Evidence:
    """One message for each signal. All but two share a little with the query by their words."""
    common = np.full(MANY, 0.001)
    common[[MEANING, SECOND]] = 0
    words = common + only(WORDS)
    return Evidence(
        words=WordScores(own=words, with_neighbors=(words, words), sessions=only(SESSION)),
        speaker=only(SPEAKER) > 0,
        time=only(TIME),
        trust=Trust(share=1.0, scale=1.0),
        cosines=only(MEANING),
        second_look=only(SECOND),
    )


def test_each_signal_finds_its_message_among_thousands(places: MessagePositions) -> None:
    ranked = rank(places, evidence(), None, 6, Weights())
    assert ranked.rows.tolist() == BEST_FIRST
    strongest = [
        max(set(ranked.signals) - {"form"}, key=lambda name: ranked.signals[name][at]) for at in range(6)
    ]
    assert strongest == ["meaning", "message", "time", "second look", "session", "speaker"]
    assert np.sum(list(ranked.signals.values()), axis=0) == pytest.approx(ranked.scores)


@pytest.mark.parametrize(
    "left", [MAX_EXHAUSTIVE_MESSAGES // 2, MAX_EXHAUSTIVE_MESSAGES + 100], ids=["few left", "many left"]
)
def test_only_allowed_rows_are_found_among_thousands(places: MessagePositions, left: int) -> None:
    allowed = np.arange(MANY) >= MANY - left
    allowed[BEST_FIRST[::2]] = True
    found = rank(places, evidence(), allowed, 3, Weights()).rows
    assert found.tolist() == BEST_FIRST[::2]
    assert allowed[rank(places, evidence(), allowed, left, Weights()).rows].all()


def test_the_nearest_messages_of_a_store_are_ranked_by_the_cosines_it_computes(
    places: MessagePositions,
) -> None:
    asked: list[int] = []

    def fetch(rows: Rows) -> Floats:
        asked.extend(rows.tolist())
        return only(MEANING)

    found = evidence()
    found.cosines, found.nearest, found.fetch_cosines = None, np.array([MEANING]), fetch
    assert rank(places, found, None, 6, Weights()).rows.tolist() == BEST_FIRST
    assert MEANING in asked
    assert len(asked) < MANY / 2  # the cosines of all would cost too much


def test_an_untrusted_model_adds_nothing(places: MessagePositions) -> None:
    found = evidence()
    found.trust = Trust(share=0.0)
    ranked = rank(places, found, None, 5, Weights())
    assert ranked.rows.tolist() == BEST_FIRST[1:]
    assert not ranked.signals["meaning"].any()


def test_equally_scored_messages_are_sorted_newest_first(places: MessagePositions) -> None:
    nothing = np.zeros(MANY)
    words = WordScores(own=nothing, with_neighbors=(nothing, nothing), sessions=nothing)
    found = Evidence(words=words, speaker=nothing > 0, time=only(5, 7, 9))
    assert rank(places, found, None, 3, Weights()).rows.tolist() == [9, 7, 5]
    assert rank(places, found, None, 2, Weights()).rows.tolist() == [9, 7]
