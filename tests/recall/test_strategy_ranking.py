"""The strategies rank by their formulas, computed by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from langmem_tiers.common.recall_strategy import HybridWeights, TfIdfWeights
from langmem_tiers.recall.positions import MessagePositions
from langmem_tiers.recall.ranking import (
    CANDIDATES_PER_RESULT,
    compute_recency,
    rank_by_importance,
    rank_by_recency,
    rank_by_score,
    rank_hybrid,
    rank_tf_idf,
)
from tests.recall.test_positions import KERNELS, build_positions, index_rows

if TYPE_CHECKING:
    from langmem_tiers.recall.ranking import RankedRows

DAY = 86_400 * 10**6


def build_positions_at(*times: int) -> MessagePositions:
    return build_positions(index_rows([1] * len(times), times=times))


def rows(ranked: RankedRows) -> list[int]:
    numbers: list[int] = ranked.rows.tolist()
    return numbers


def test_recency_ranks_the_newest_first_and_scores_by_rank() -> None:
    ranked = rank_by_recency(build_positions_at(30, 10, 40, 20), None, 6)
    assert rows(ranked) == [2, 0, 3, 1]
    assert ranked.scores == pytest.approx([1, 5 / 6, 4 / 6, 3 / 6])
    assert ranked.signals["recency"] == pytest.approx(ranked.scores)


def test_messages_of_the_same_time_are_sorted_by_descending_key() -> None:
    assert rows(rank_by_recency(build_positions_at(10, 20, 10, 20), None, 4)) == [3, 1, 2, 0]


def test_only_allowed_rows_are_ranked() -> None:
    places, allowed = build_positions_at(1, 2, 3, 4), np.array([True, False, True, False])
    ranked = rank_by_recency(places, allowed, 2)
    assert rows(ranked) == [2, 0]
    assert ranked.scores == pytest.approx([1, 0.5])
    assert rows(rank_by_importance(places, np.array([0.1, 0.9, 0.2, 0.9]), allowed, 4)) == [2, 0]
    assert rows(rank_by_recency(places, np.zeros(4, np.bool_), 2)) == []


def test_a_ranking_respects_its_limit() -> None:
    places = build_positions_at(1, 2, 3, 4)
    assert rows(rank_by_recency(places, None, 2)) == [3, 2]
    assert rows(rank_by_importance(places, np.array([0.4, 0.3, 0.2, 0.1]), None, 2)) == [0, 1]
    assert rows(rank_by_score("words", np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]), 2)) == [3, 2]


def test_importance_ranks_by_importance_then_by_recency() -> None:
    importance = np.array([0.5, 0.9, 0.5, 0.5, 0.9])
    ranked = rank_by_importance(build_positions_at(10, 20, 30, 10, 20), importance, None, 9)
    assert rows(ranked) == [4, 1, 2, 3, 0]
    assert ranked.scores == pytest.approx([0.9, 0.9, 0.5, 0.5, 0.5])


def test_scores_rank_descending_then_by_later_key() -> None:
    ranked = rank_by_score("similarity", np.array([2, 5, 7, 9]), np.array([0.5, 0.8, 0.5, 0.1]), 9)
    assert rows(ranked) == [5, 7, 2, 9]
    assert ranked.scores == pytest.approx([0.8, 0.5, 0.5, 0.1])
    assert list(ranked.signals) == ["similarity"]


def test_hybrid_adds_three_tenths_five_tenths_and_two_tenths() -> None:
    limit, places = 2, build_positions_at(1, 2, 3, 4, 5, 6, 7, 8)
    candidates = CANDIDATES_PER_RESULT * limit
    recent = rank_by_recency(places, None, candidates)
    similar = rank_by_score("similarity", np.array([0, 6, 3]), np.array([0.9, 0.6, 0.3]), candidates)
    important = rank_by_importance(
        places, np.array([0.1, 0.95, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]), None, candidates
    )
    ranked = rank_hybrid(recent, similar, important, 9, HybridWeights())
    expected = {
        0: 0.5 * 0.9,
        1: 0.2 * 0.95,
        2: 0.3 * (1 - 5 / 6),
        3: 0.3 * (1 - 4 / 6) + 0.5 * 0.3 + 0.2 * 0.3,
        4: 0.3 * (1 - 3 / 6) + 0.2 * 0.4,
        5: 0.3 * (1 - 2 / 6) + 0.2 * 0.5,
        6: 0.3 * (1 - 1 / 6) + 0.5 * 0.6 + 0.2 * 0.6,
        7: 0.3 + 0.2 * 0.7,
    }
    assert dict(zip(rows(ranked), ranked.scores, strict=True)) == pytest.approx(expected)
    assert rows(ranked) == sorted(expected, key=lambda row: -expected[row])
    assert rows(rank_hybrid(recent, similar, important, limit, HybridWeights())) == rows(ranked)[:limit]


def test_the_signals_of_hybrid_add_up_to_its_scores() -> None:
    places = build_positions_at(1, 2, 3)
    similar = rank_by_score("similarity", np.array([0]), np.array([0.7]), 3)
    important = rank_by_importance(places, np.array([0.1, 0.2, 0.3]), None, 3)
    ranked = rank_hybrid(rank_by_recency(places, None, 3), similar, important, 3, HybridWeights())
    assert set(ranked.signals) == {"recency", "similarity", "importance"}
    assert sum(ranked.signals.values(), np.zeros(3)) == pytest.approx(ranked.scores)


def test_equal_hybrid_scores_are_sorted_by_descending_key() -> None:
    places = build_positions_at(1, 1, 1, 1)
    nothing = rank_by_score("similarity", np.array([], np.int64), np.array([]), 9)
    important = rank_by_importance(places, np.array([0.5, 0.5, 0.5, 0.5]), None, 9)
    weights = HybridWeights(recency=0, similarity=0.5, importance=0.5)
    assert rows(rank_hybrid(rank_by_recency(places, None, 9), nothing, important, 9, weights)) == [3, 2, 1, 0]


TEXTS = (
    ["narwhal", "tusk", "narwhal", "sea"],
    ["sea", "sea", "sea", "tusk"],
    ["tea"],
    ["narwhal", "tea", "tea", "tea"],
)
HOLDING = {"narwhal": 2, "tusk": 2, "unicorn": 0}


def five(weights: TfIdfWeights, limit: int = 9) -> RankedRows:
    others = {
        "recency": np.array([0.1, 0.2, 0.3, 0.4]),
        "importance": np.array([0.9, 0.8, 0.7, 0.6]),
        "access": np.array([0.0, 0.5, 1.0, 0.0]),
    }
    places = build_positions_at(1, 2, 3, 4)
    return rank_tf_idf(places, np.arange(4), TEXTS, HOLDING, others, limit, weights)


def test_tf_idf_is_the_weighted_mean_of_five_signals() -> None:
    idf = math.log(4 / 2)
    semantic = [(1 * idf + 1 / 2 * idf) / (2 * idf), 1 / 3 * idf / (2 * idf), 0, 1 / 3 * idf / (2 * idf)]
    keyword = [2 / 3, 1 / 3, 0, 1 / 3]
    recency, importance = [0.1, 0.2, 0.3, 0.4], [0.9, 0.8, 0.7, 0.6]
    expected = {
        row: 0.4 * semantic[row] + 0.3 * keyword[row] + 0.2 * recency[row] + 0.1 * importance[row]
        for row in range(4)
    }
    ranked = five(TfIdfWeights())
    assert dict(zip(rows(ranked), ranked.scores, strict=True)) == pytest.approx(expected)
    assert rows(ranked) == sorted(expected, key=lambda row: -expected[row])
    assert rows(five(TfIdfWeights(), limit=2)) == rows(ranked)[:2]


def test_weights_of_tf_idf_that_do_not_add_up_to_one_make_a_mean_too() -> None:
    ranked = five(TfIdfWeights(semantic=0, keyword=0, recency=1, importance=0, access=1))
    expected = {0: 0.1 / 2, 1: 0.7 / 2, 2: 1.3 / 2, 3: 0.4 / 2}
    assert dict(zip(rows(ranked), ranked.scores, strict=True)) == pytest.approx(expected)


def test_a_word_in_all_messages_does_not_count_in_tf_idf() -> None:
    texts = [["sea", "sea"], ["sea", "tea"]]
    weights = TfIdfWeights(semantic=1, keyword=0, recency=0, importance=0)
    ranked = rank_tf_idf(build_positions_at(1, 2), np.arange(2), texts, {"sea": 2, "tea": 1}, {}, 9, weights)
    assert rows(ranked) == [1, 0]
    assert ranked.scores == pytest.approx([1, 0])


@pytest.mark.parametrize("holding", [{}, {"unicorn": 0}, {"sea": 2}], ids=["none", "nowhere", "everywhere"])
def test_uninformative_words_leave_the_later_key_first(holding: dict[str, int]) -> None:
    weights = TfIdfWeights(semantic=1, keyword=0, recency=0, importance=0)
    ranked = rank_tf_idf(build_positions_at(1, 2), np.arange(2), [["sea"], ["sea"]], holding, {}, 9, weights)
    assert rows(ranked) == [1, 0]
    assert not ranked.scores.any()


def test_a_message_without_terms_scores_by_the_other_signals() -> None:
    others = {"recency": np.array([1.0]), "importance": np.array([0.5]), "access": np.array([0.0])}
    ranked = rank_tf_idf(build_positions_at(1), np.arange(1), [[]], {"sea": 1}, others, 9, TfIdfWeights())
    assert ranked.scores == pytest.approx([0.2 * 1.0 + 0.1 * 0.5])


def test_recency_halves_each_thirty_days() -> None:
    now = 20_000 * DAY
    places = build_positions_at(now, now - 30 * DAY, now - 60 * DAY, now - 15 * DAY, now - 365 * DAY)
    recency = compute_recency(places, np.arange(5), now)
    assert recency == pytest.approx([1, 0.5, 0.25, 0.5**0.5, 0.5 ** (365 / 30)])
    assert compute_recency(places, np.array([2]), now) == pytest.approx([0.25])


def test_a_future_message_is_as_recent_as_now() -> None:
    assert compute_recency(build_positions_at(DAY, 10**9 * DAY // 1000), np.arange(2), 0) == pytest.approx(
        [1, 1]
    )


def test_no_messages_give_an_empty_ranking() -> None:
    empty = MessagePositions(KERNELS)
    recent, important = rank_by_recency(empty, None, 3), rank_by_importance(empty, np.zeros(0), None, 3)
    similar = rank_by_score("similarity", np.zeros(0, np.int64), np.zeros(0), 3)
    assert rows(rank_hybrid(recent, similar, important, 3, HybridWeights())) == []
    assert rows(rank_tf_idf(empty, np.zeros(0, np.int64), [], {"sea": 0}, {}, 3, TfIdfWeights())) == []
