from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.common.tool_call_groups import find_safe_cut, find_window_start, group_tool_calls
from tests.common.test_tool_call_groups import history


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        ("", []),
        ("u", [(0, 1)]),
        ("u a u a", [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ("u A1 1 a", [(0, 1), (1, 3), (3, 4)]),
        ("u A12 1 2 a", [(0, 1), (1, 4), (4, 5)]),
        ("u A1 1 A1 1 a", [(0, 1), (1, 3), (3, 5), (5, 6)]),  # ids may be used again
        ("A1 A1 1 u", [(0, 1), (1, 3), (3, 4)]),  # the result belongs to the latest call
        ("u A1", [(0, 1), (1, 2)]),  # a range ends with the list, though the call still waits
        ("u A1 a", [(0, 1), (1, 3)]),
        ("u A12 1", [(0, 1), (1, 3)]),
        ("u A1 u a", [(0, 1), (1, 2), (2, 3), (3, 4)]),  # given up: the user spoke again
        ("u A1 u 1 a", [(0, 1), (1, 4), (4, 5)]),  # late, but its result
        ("A1 A2 1 2 a", [(0, 4), (4, 5)]),  # interleaved
        ("A1 A2 2 1 a", [(0, 4), (4, 5)]),  # one inside the other
        ("A1 u A2 2 1 a", [(0, 5), (5, 6)]),
        ("A1 1 A2 2", [(0, 2), (2, 4)]),  # side by side
        ("1 u 2", [(0, 1), (1, 2), (2, 3)]),  # orphans stand alone
    ],
)
def test_a_call_with_its_results_is_one_group_and_other_messages_are_single(
    pattern: str, groups: list[tuple[int, int]]
) -> None:
    assert group_tool_calls(history(pattern)) == groups


@pytest.mark.parametrize(
    ("pattern", "window", "start"),
    [
        ("", 3, 0),
        ("u a u a", 4, 0),
        ("u a u a", 9, 0),
        ("u a u a", 2, 2),
        ("u a u a", 1, 3),
        ("u a u a", 0, 4),
        ("u A12 1 2 a", 1, 4),
        ("u A12 1 2 a", 2, 1),  # would begin at a result
        ("u A12 1 2 a", 3, 1),
        ("u A12 1 2 a", 4, 1),
        ("u A12 1 2 a", 5, 0),
        ("A1 A2 1 2", 1, 0),  # out of one group into another, and out of that
        ("u A1 a", 1, 1),  # the call still waits
        ("u 1 a", 2, 1),  # an orphan holds nothing back
    ],
)
def test_a_window_starts_at_a_group(pattern: str, window: int, start: int) -> None:
    assert find_window_start(group_tool_calls(history(pattern)), window) == start


words = st.lists(st.sampled_from(["u", "a", "A1", "A2", "A12", "A34", "1", "2", "3", "4"]), max_size=25)


@given(words)
def test_groups_cover_the_list_without_gaps(pattern: list[str]) -> None:
    groups = group_tool_calls(history(" ".join(pattern)))
    assert [index for start, end in groups for index in range(start, end)] == list(range(len(pattern)))
    assert all(start < end for start, end in groups)


@given(words)
def test_each_result_is_grouped_with_the_latest_call_of_its_id(pattern: list[str]) -> None:
    messages = history(" ".join(pattern))
    group_at = {i: number for number, (a, b) in enumerate(group_tool_calls(messages)) for i in range(a, b)}
    opened: dict[str, int] = {}
    for index, message in enumerate(messages):
        opened.update((call.id, index) for call in message.tool_calls)
        if message.tool_call_id in opened:
            assert group_at[opened[message.tool_call_id]] == group_at[index]


@given(words)
def test_a_list_can_be_cut_before_each_group(pattern: list[str]) -> None:
    messages = history(" ".join(pattern))
    assert all(find_safe_cut(messages, start) == start for start, _ in group_tool_calls(messages))


@given(words, st.integers(0, 30))
def test_a_window_is_the_shortest_run_of_whole_groups_of_its_size(pattern: list[str], window: int) -> None:
    messages = history(" ".join(pattern))
    start = find_window_start(group_tool_calls(messages), window)
    starts = [begin for begin, _ in group_tool_calls(messages)] + [len(messages)]
    long_enough = [begin for begin in starts if len(messages) - begin >= window]
    assert start == max(long_enough, default=0)
