"""The vector index and the trust in an embedder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.recall.positions import MessagePositions
from langmem_tiers.recall.records import DEFAULT_TRUST_SHARE, Trust
from langmem_tiers.recall.vector_index import (
    MAX_SAMPLE_OTHERS,
    MAX_SAMPLE_PAIRS,
    MIN_FAR_MESSAGES,
    MIN_SAMPLE_PAIRS,
    VectorIndex,
    combine_neighbor_cosines,
    draw_trust_sample,
    find_trust,
    iter_sample_sizes,
    normalize_vectors,
)
from tests.recall.test_positions import build_positions, index_rows

SIZE = 32
SESSIONS, EACH = 20, 12


def vectors(count: int, seed: int = 1) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Vectors that point anywhere."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, SIZE)).astype(np.float32)


def topical(noise: float = 0.5) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """One topic for each session, and as much noise on it."""
    topics = np.repeat(vectors(SESSIONS, seed=2), EACH, axis=0)
    return (topics + noise * vectors(SESSIONS * EACH, seed=3)).astype(np.float32)


def talks() -> MessagePositions:
    """Sessions one after the other, of messages that are long enough to be tried on."""
    return build_positions(
        index_rows(np.repeat(np.arange(1, SESSIONS + 1), EACH).tolist(), lengths=[6] * SESSIONS * EACH)
    )


def words_by_topic(share: float = 0.5) -> list[list[str]]:
    """Six words for each message, so many of them of its session."""
    rng = np.random.default_rng(4)
    of_topic = round(6 * share)
    return [
        [f"t{session}w{n}" for n in rng.permutation(9)[:of_topic]]
        + [f"any{n}" for n in rng.permutation(40)[: 6 - of_topic]]
        for session in range(SESSIONS)
        for _ in range(EACH)
    ]


def trust_in(
    table: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    words: list[list[str]],
    places: MessagePositions | None = None,
) -> Trust:
    """The trust that is found in these vectors."""
    places = places or talks()
    picked = draw_trust_sample(places, places.count)
    assert picked is not None
    terms = [[words[row] for row in rows] for rows in picked.parts]
    return find_trust(places, picked, [table[rows] for rows in picked.parts], terms)


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3), min_size=1, max_size=9))
def test_a_unit_vector_has_the_length_one_and_its_direction(given: list[list[float]]) -> None:
    table = np.array(given, np.float32)
    for before, after in zip(table.astype(np.float64), normalize_vectors(table), strict=True):
        length = np.linalg.norm(before)
        if length > 1e-18:  # what is smaller is nothing, as its squares are
            assert np.linalg.norm(after) == pytest.approx(1, rel=1e-5)
            assert after == pytest.approx(before / length, abs=1e-5)


def test_a_zero_vector_stays_zero() -> None:
    assert normalize_vectors(np.zeros((2, 3), np.float32)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert normalize_vectors(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert normalize_vectors(np.array([3, 4], np.float32)).tolist() == pytest.approx([0.6, 0.8])


def test_a_message_without_neighbors_has_its_own_similarity() -> None:
    places = build_positions(index_rows([1, 2, 3]))
    cosines = np.array([0.9, -0.2, 0.4])
    assert combine_neighbor_cosines(places, 0, cosines, np.array([0, 1, 2])) == pytest.approx(cosines)
    assert combine_neighbor_cosines(places, 0, cosines, np.array([2])) == pytest.approx([0.4])


def test_near_neighbors_raise_and_far_neighbors_lower_the_similarity() -> None:
    places = build_positions(index_rows([1] * 3 + [2] * 3 + [3]))
    cosines = np.array([0.5, 0.5, 0.5, -0.5, 0.5, -0.5, 0.5])
    near, far, alone = combine_neighbor_cosines(places, 0, cosines, np.array([1, 4, 6]))
    assert near > alone > far


def test_a_pair_is_combined_by_the_weight_of_the_neighbor() -> None:
    places = build_positions(index_rows([1, 1]))
    cosines = np.array([0.8, 0.2])
    share = float(places.outgoing_weights(0)[0, 4])
    expected = (0.2 + share * 0.8) / np.sqrt(1 + share**2 + 0.5 * 2 * share)
    assert combine_neighbor_cosines(places, 0, cosines, np.array([1])) == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_random_vectors_are_hardly_trusted(seed: int) -> None:
    assert trust_in(vectors(SESSIONS * EACH, seed), words_by_topic()).share < 0.1


def test_vectors_that_separate_topics_are_trusted() -> None:
    assert trust_in(topical(), words_by_topic()).share > 0.9


def test_vectors_that_are_all_the_same_are_not_trusted() -> None:
    assert trust_in(np.ones((SESSIONS * EACH, SIZE), np.float32), words_by_topic()).share == 0


def test_less_noise_never_lowers_the_trust() -> None:
    shares = [trust_in(topical(noise), words_by_topic()).share for noise in (0.2, 1, 3, 9)]
    assert shares == sorted(shares, reverse=True)


def test_cosines_that_differ_little_are_stretched_more() -> None:
    crowded = topical() + 5 * vectors(1, seed=9)
    assert trust_in(crowded, words_by_topic()).scale > trust_in(topical(), words_by_topic()).scale


def test_the_trial_sample_does_not_depend_on_later_messages() -> None:
    few = MessagePositions(talks().kernels)
    few.extend(index_rows(np.repeat(np.arange(1, 12), EACH).tolist(), lengths=[6] * 11 * EACH))
    one, other = draw_trust_sample(talks(), 128), draw_trust_sample(few, 128)
    assert one is not None
    assert other is not None
    assert all((a == b).all() for a, b in zip(one.parts, other.parts, strict=True))


def test_a_model_is_tried_each_time_the_messages_double() -> None:
    assert [list(iter_sample_sizes(count)) for count in (0, 15, 16, 31, 32, 100)] == [
        [],
        [],
        [16],
        [16],
        [32, 16],
        [64, 32, 16],
    ]


def test_a_sample_contains_messages_with_their_predecessor_in_the_session() -> None:
    places = talks()
    picked = draw_trust_sample(places, 128)
    assert picked is not None
    assert len(picked.rows) == len(picked.before) == MAX_SAMPLE_PAIRS
    assert len(picked.other_rows) <= MAX_SAMPLE_OTHERS
    assert (picked.before == picked.rows - 1).all()
    assert (places["session"][picked.rows] == places["session"][picked.before]).all()
    assert max(rows.max() for rows in picked.parts) < 128


def test_a_model_is_not_tried_on_too_few_messages() -> None:
    assert draw_trust_sample(MessagePositions(talks().kernels), 0) is None
    for count, least in ((MIN_SAMPLE_PAIRS, None), (MIN_SAMPLE_PAIRS + 1, MIN_SAMPLE_PAIRS)):
        picked = draw_trust_sample(build_positions(index_rows([1] * count, lengths=[6] * count)), count)
        assert (None if picked is None else len(picked.rows)) == least
    assert draw_trust_sample(build_positions(index_rows([1] * 99, lengths=[3] * 99)), 99) is None
    assert VectorIndex(SIZE).trust.share == DEFAULT_TRUST_SHARE


def test_messages_without_vectors_are_skipped_and_many_of_them_postpone_the_trial() -> None:
    whole = draw_trust_sample(talks(), 128)
    assert whole is not None
    there = np.ones(SESSIONS * EACH, np.bool_)
    assert whole.restrict_to(there) is not None
    there[whole.rows[0]] = False
    some = whole.restrict_to(there)
    assert some is not None
    assert len(some.rows) < len(whole.rows)
    assert all(there[rows].all() for rows in some.parts)
    assert some.extent != whole.extent
    there[whole.other_rows[: len(whole.other_rows) // 2]] = False
    assert whole.restrict_to(there) is None


def test_a_model_is_not_tried_on_a_short_session() -> None:
    places = build_positions(index_rows([1] * MIN_FAR_MESSAGES, lengths=[6] * MIN_FAR_MESSAGES))
    assert trust_in(topical(), words_by_topic(), places) == Trust(DEFAULT_TRUST_SHARE, 1.0)


def test_a_model_is_tried_on_distant_messages_of_one_long_session() -> None:
    places = build_positions(index_rows([1] * 96, lengths=[6] * 96))
    assert trust_in(topical(), words_by_topic(), places).share > 0.9
    assert trust_in(vectors(96), words_by_topic(), places).share < 0.1


def test_a_model_is_not_tried_if_neither_words_nor_vectors_separate_messages() -> None:
    unlike = [[f"w{row}n{n}" for n in range(6)] for row in range(SESSIONS * EACH)]
    assert trust_in(vectors(SESSIONS * EACH), unlike).share == DEFAULT_TRUST_SHARE


def test_vectors_keep_their_rows_as_messages_are_added() -> None:
    places, index, table = MessagePositions(talks().kernels), VectorIndex(SIZE), vectors(100)
    for start, end in ((0, 1), (1, 3), (3, 40), (40, 100)):
        places.extend(index_rows([1] * (end - start), first_key=start + 1))
        index.put(places, places["keys"][start:], table[start:end])
        assert index.is_complete(places)
        assert index.get_vectors(np.arange(end)) == pytest.approx(normalize_vectors(table[:end]), abs=1e-6)
    assert index.compute_cosines(100, normalize_vectors(table[7])) == pytest.approx(
        normalize_vectors(table) @ normalize_vectors(table[7]), abs=1e-5
    )


def test_messages_can_be_added_without_vectors_in_memory() -> None:
    places, index = MessagePositions(talks().kernels), VectorIndex(SIZE)
    for start, end in ((0, 2), (2, 3), (3, 40), (40, 41)):
        places.extend(index_rows([1] * (end - start), first_key=start + 1))
        index.put(places, places["keys"][start : end - 1], None)
        assert index.list_missing_keys(places).tolist() == [end]
        index.put(places, places["keys"][end - 1 :], None)
        assert index.is_complete(places)
    assert not index.is_in_memory


def test_a_message_without_a_vector_has_the_average_similarity() -> None:
    places, index, table = build_positions(index_rows([1] * 5)), VectorIndex(SIZE), vectors(3)
    index.put(places, np.array([1, 2, 4]), table)
    query = normalize_vectors(vectors(1, seed=5)[0])
    cosines = normalize_vectors(table) @ query
    assert index.compute_cosines(5, query) == pytest.approx(
        [cosines[0], cosines[1], cosines.mean(), cosines[2], cosines.mean()], abs=1e-6
    )
    assert index.list_missing_keys(places).tolist() == [3, 5]
    assert not index.is_complete(places)


def test_messages_newer_than_the_loaded_vectors_have_none() -> None:
    places, index, table = build_positions(index_rows([1] * 3)), VectorIndex(SIZE), vectors(3)
    index.put(places, places["keys"], table)
    places.extend(index_rows([1] * 40, first_key=4))
    query = normalize_vectors(vectors(1, seed=5)[0])
    assert index.compute_cosines(43, query)[3:] == pytest.approx(
        [(normalize_vectors(table) @ query).mean()] * 40, abs=1e-6
    )
    index = VectorIndex(SIZE)
    index.put(build_positions(index_rows([1] * 3)), np.array([1, 2, 3]), None)
    assert index.mark_lost(np.array([2, 41])) == 1
    assert index.list_missing_keys(places).tolist() == list(range(3, 44))


def test_without_vectors_all_cosines_are_0() -> None:
    places, index = build_positions(index_rows([1] * 3)), VectorIndex(SIZE)
    assert index.list_missing_keys(places).tolist() == [1, 2, 3]
    assert index.compute_cosines(3, normalize_vectors(vectors(1)[0])).tolist() == [0, 0, 0]


def test_vectors_of_unknown_messages_are_ignored() -> None:
    places, index = build_positions(index_rows([1] * 2)), VectorIndex(SIZE)
    index.put(places, np.array([99, 2]), vectors(2))
    assert index.list_missing_keys(places).tolist() == [1]
    assert index.get_vectors(np.array([1])) == pytest.approx(normalize_vectors(vectors(2))[1:], abs=1e-6)
