"""Positions link neighbors in any order of loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.recall.positions import (
    BACKWARD_WEIGHT,
    FORWARD_WEIGHT,
    NEIGHBOR_OFFSETS,
    NEIGHBORS_PER_SIDE,
    Kernel,
    MessagePositions,
)
from langmem_tiers.recall.records import IndexRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KERNELS = (Kernel(15.0), Kernel(60.0))
BEFORE, BEHIND = NEIGHBOR_OFFSETS.index(-1), NEIGHBOR_OFFSETS.index(1)


def index_rows(
    sessions: Sequence[int],
    *,
    lengths: Sequence[float] | None = None,
    asks: Sequence[bool] | None = None,
    times: Sequence[int] | None = None,
    speakers: Sequence[str | None] | None = None,
    first_key: int = 1,
) -> IndexRows:
    """One message for each session that is named, with keys in a row."""
    count = len(sessions)
    keys = np.arange(first_key, first_key + count, dtype=np.int64)
    return IndexRows(
        keys=keys,
        sessions=np.array(sessions, np.int64),
        positions=keys * 2,
        times=keys * 10**6 if times is None else np.array(times, np.int64),
        roles=np.zeros(count, np.uint8),
        lengths=np.array([5.0] * count if lengths is None else lengths, np.float32),
        is_question=np.array([False] * count if asks is None else asks, np.bool_),
        importance=np.zeros(count, np.float32),
        accesses=np.zeros(count, np.float32),
        speakers=[None] * count if speakers is None else list(speakers),
    )


def part(rows: IndexRows, start: int, end: int) -> IndexRows:
    """Some of the rows."""
    return IndexRows(*(getattr(rows, name)[start:end] for name in IndexRows.__slots__))


def build_positions(rows: IndexRows, kernels: tuple[Kernel, ...] = KERNELS) -> MessagePositions:
    """Places with these rows."""
    places = MessagePositions(kernels)
    places.extend(rows)
    return places


def pair(between: float, kernel: Kernel) -> NDArray[np.float32]:
    """What three in a row lend, the middle one with so many terms."""
    return build_positions(index_rows([1, 1, 1], lengths=[4, between, 4]), (kernel,)).outgoing_weights(0)


@st.composite
def conversations(draw: st.DrawFn) -> IndexRows:
    """Messages of a few sessions that go on side by side."""
    count = draw(st.integers(1, 60))
    each = st.tuples(st.integers(1, 4), st.integers(0, 80), st.booleans())
    messages = draw(st.lists(each, min_size=count, max_size=count))
    sessions, lengths, asks = zip(*messages, strict=True)
    return index_rows(sessions, lengths=lengths, asks=asks)


@given(conversations(), st.data())
def test_rows_added_in_parts_are_linked_like_rows_added_in_one_call(
    rows: IndexRows, data: st.DataObject
) -> None:
    count, whole, places = len(rows.keys), build_positions(rows), MessagePositions(KERNELS)
    cuts = data.draw(st.lists(st.integers(0, count), max_size=8).map(sorted))
    for start, end in zip([0, *cuts], [*cuts, count], strict=True):
        places.extend(part(rows, start, end))
    assert places.count == whole.count == count
    for name in ("keys", "sessions", "positions", "neighbors", "follows_question", "lengths"):
        assert (places[name] == whole[name]).all(), name
    for kernel in range(len(KERNELS)):
        here = whole["neighbors"] >= 0
        assert places.outgoing_weights(kernel)[here] == pytest.approx(
            whole.outgoing_weights(kernel)[here], rel=1e-4, abs=1e-7
        )
        lengths = whole.lengths_with_neighbors(kernel)
        assert places.lengths_with_neighbors(kernel) == pytest.approx(lengths, rel=1e-4)


@given(conversations())
def test_neighbors_are_the_adjacent_messages_in_the_same_session(rows: IndexRows) -> None:
    places = build_positions(rows)
    sessions = rows.sessions.tolist()
    for row, session in enumerate(sessions):
        own = [other for other, of in enumerate(sessions) if of == session]
        at = own.index(row)
        expected = [own[at + slot] if 0 <= at + slot < len(own) else -1 for slot in NEIGHBOR_OFFSETS]
        assert places["neighbors"][row].tolist() == expected


@given(conversations())
def test_an_answer_follows_a_question_in_its_session(rows: IndexRows) -> None:
    places, asked = build_positions(rows), dict[int, bool]()
    for row, (session, asks) in enumerate(
        zip(rows.sessions.tolist(), rows.is_question.tolist(), strict=True)
    ):
        assert bool(places["follows_question"][row]) is asked.get(session, False)
        asked[session] = asks


@given(conversations())
def test_the_length_of_a_message_includes_the_weighted_terms_of_neighbors(rows: IndexRows) -> None:
    places = build_positions(rows)
    for kernel in range(len(KERNELS)):
        lengths = rows.lengths.astype(np.float64)
        for row, near in enumerate(places["neighbors"]):
            for slot, other in enumerate(near):
                if other >= 0:
                    lengths[other] += places.outgoing_weights(kernel)[row, slot] * rows.lengths[row]
        assert places.lengths_with_neighbors(kernel) == pytest.approx(lengths, rel=1e-4)


def test_a_message_reaches_a_limited_number_of_neighbors_on_either_side() -> None:
    places = build_positions(index_rows([1] * (2 * NEIGHBORS_PER_SIDE + 3)))
    middle = NEIGHBORS_PER_SIDE + 1
    expected = [middle + slot for slot in NEIGHBOR_OFFSETS]
    assert places["neighbors"][middle].tolist() == expected
    assert 0 not in expected
    assert 2 * NEIGHBORS_PER_SIDE + 2 not in expected


@pytest.mark.parametrize("kernel", KERNELS)
def test_neighbor_weights_decrease_with_the_terms_in_between(kernel: Kernel) -> None:
    first, far = NEIGHBOR_OFFSETS.index(1), NEIGHBOR_OFFSETS.index(2)
    lent = [pair(between, kernel)[0, far] for between in (0, 1, 5, 20, 100)]
    assert lent == sorted(lent, reverse=True)
    assert len(set(lent)) == len(lent)
    near = pair(5, kernel)
    assert near[0, first] == pytest.approx(FORWARD_WEIGHT * np.exp(-4.5 / kernel.reach))
    assert near[0, far] == pytest.approx(FORWARD_WEIGHT * np.exp(-9 / kernel.reach))


def test_earlier_messages_have_more_weight_than_later_ones() -> None:
    lent = build_positions(index_rows([1, 1])).outgoing_weights(0)
    assert lent[1, BEFORE] == pytest.approx(lent[0, BEHIND] * BACKWARD_WEIGHT / FORWARD_WEIGHT)
    assert lent[1, BEFORE] < lent[0, BEHIND]


def test_a_wider_kernel_has_larger_weights() -> None:
    places = build_positions(index_rows([1, 1, 1]))
    there = places["neighbors"] >= 0
    assert (places.outgoing_weights(1)[there] > places.outgoing_weights(0)[there]).all()


@given(conversations(), st.data())
def test_known_rows_change_nothing(rows: IndexRows, data: st.DataObject) -> None:
    count, whole, places = len(rows.keys), build_positions(rows), MessagePositions(KERNELS)
    seen = data.draw(st.integers(0, count))
    again = data.draw(st.integers(0, seen))
    places.extend(part(rows, 0, seen))
    places.extend(part(rows, again, count))
    places.extend(rows)
    assert places["keys"].tolist() == rows.keys.tolist()
    assert (places["neighbors"] == whole["neighbors"]).all()


def test_known_rows_keep_the_derived_arrays() -> None:
    rows = index_rows([1, 1])
    places = build_positions(rows)
    places.derived_arrays["norms"] = np.ones(2)
    places.extend(rows)
    assert "norms" in places.derived_arrays
    places.extend(index_rows([1], first_key=3))
    assert places.derived_arrays == {}


def test_empty_positions_can_be_queried() -> None:
    places = build_positions(index_rows([]))
    assert (places.count, places.session_count) == (0, 0)
    assert places.find_rows(np.array([1, 2])).tolist() == [-1, -1]
    assert places.find_speakers(["ann"])[0] == set()


def test_rows_are_found_by_their_keys() -> None:
    places = build_positions(index_rows([1, 2, 1], first_key=10))
    assert places.find_rows(np.array([12, 9, 10, 13, 11, 10**12])).tolist() == [2, -1, 0, -1, 1, -1]


def test_sessions_are_numbered_in_order_of_appearance() -> None:
    places = build_positions(index_rows([70, 70, 50]))
    places.extend(index_rows([90, 50], first_key=4))
    assert places.session_count == 3
    numbers = [places.get_session_number(key) for key in (70, 50, 90, 1)]
    assert numbers[3] is None
    assert sorted(number for number in numbers if number is not None) == [0, 1, 2]
    assert places["session"].tolist() == [numbers[0], numbers[0], numbers[1], numbers[2], numbers[1]]


def test_a_speaker_is_found_by_any_of_the_terms_of_a_name() -> None:
    places = build_positions(index_rows([1] * 4, speakers=["ann lee", None, "bob lee", "ann lee"]))
    assert _find_speaker_rows(places, "ann") == ({"ann"}, [0, 3])
    assert _find_speaker_rows(places, "lee", "paint") == ({"lee"}, [0, 2, 3])
    assert _find_speaker_rows(places, "carol") == (set(), [])
    places.extend(index_rows([1], speakers=["carol"], first_key=5))
    assert _find_speaker_rows(places, "carol", "bob") == ({"bob", "carol"}, [2, 4])


def _find_speaker_rows(places: MessagePositions, *names: str) -> tuple[set[str], list[int]]:
    known, rows = places.find_speakers(names)
    return known, np.flatnonzero(rows).tolist()
