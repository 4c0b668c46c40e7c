from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import Message, MessageToolCall, Role
from langmem_tiers.common.tool_call_groups import find_safe_cut, find_tool_spans, remove_orphans

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def history(pattern: str) -> list[Message]:
    """u = user, a = assistant, A(ids) = assistant calling tools, digits = the result of that call.

    ``"u A12 1 2 a"`` is a user turn, a call of tools 1 and 2, both results and an answer.
    """
    return [_message(word) for word in pattern.split()]


def _message(word: str) -> Message:
    calls = tuple(MessageToolCall(digit, "tool") for digit in word[1:])
    role = {"u": Role.USER, "a": Role.ASSISTANT, "A": Role.ASSISTANT}.get(word[0], Role.TOOL)
    return Message(
        id=word,
        role=role,
        content=word,
        created_at=NOW,
        token_count=1,
        token_counter="test",
        tool_calls=calls,
        tool_call_id=word if role is Role.TOOL else None,
    )


@pytest.mark.parametrize(
    ("pattern", "spans"),
    [
        ("u a u a", []),
        ("u A1 1 a", [(1, 3)]),
        ("u A123 1 2 3 a", [(1, 5)]),
        ("u A1 1 A1 1 a", [(1, 3), (3, 5)]),  # ids may be used again
        ("u A1", [(1, 3)]),  # still waiting: no cut behind it either
        ("u A12 1", [(1, 4)]),
        ("u A1 u a", [(1, 2)]),  # given up: the user spoke again
        ("u A1 u 1", [(1, 4)]),  # late, but its result
        ("A1 A2 1 2", [(0, 3), (1, 4)]),  # interleaved
        ("1 u", []),  # an orphan opens nothing
        ("A12 a", [(0, 3)]),  # no result yet: the assistant may speak while it waits
        ("A12 1 a", [(0, 2)]),  # given up: the assistant went on after a result
        ("A1 A2 2 a", [(0, 1), (1, 3)]),  # so is an earlier call
        ("A12 1 A3", [(0, 2), (2, 4)]),  # a later call still waits
        ("A12 1 A3 2", [(0, 4), (2, 5)]),
        ("A12 1 a 2", [(0, 4)]),
        ("A1 1 a A2 a", [(0, 2), (3, 6)]),
    ],
)
def test_a_call_and_its_results_are_one_span(pattern: str, spans: list[tuple[int, int]]) -> None:
    assert find_tool_spans(history(pattern)) == spans


@pytest.mark.parametrize(
    ("pattern", "cut", "safe"),
    [
        ("u A12 1 2 a", 1, 1),
        ("u A12 1 2 a", 2, 1),
        ("u A12 1 2 a", 3, 1),
        ("u A12 1 2 a", 4, 4),
        ("u A1", 2, 1),
        ("A1 A2 1 2", 3, 0),  # out of one group into another, and out of that
        ("u a", 0, 0),
    ],
)
def test_a_cut_inside_a_group_moves_before_it(pattern: str, cut: int, safe: int) -> None:
    assert find_safe_cut(history(pattern), cut) == safe


words = st.lists(st.sampled_from(["u", "a", "A1", "A2", "A12", "A34", "1", "2", "3", "4"]), max_size=25)


@given(words, st.integers(0, 25))
def test_no_safe_cut_separates_a_call_from_its_result(pattern: list[str], cut: int) -> None:
    messages = history(" ".join(pattern))
    place = find_safe_cut(messages, min(cut, len(messages)))
    opened: dict[str, int] = {}
    for index, message in enumerate(messages):
        opened.update((call.id, index) for call in message.tool_calls)
        if message.tool_call_id in opened:
            assert (opened[message.tool_call_id] < place) == (index < place)
    assert find_safe_cut(messages, place) == place


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("u A1 1 a", "u A1 1 a"),
        ("1 u a", "u a"),
        ("1 A1 u", "A1 u"),  # a result before its call
        ("A12 1 u 2", "A12 1 u 2"),
        ("A1 1 1 2", "A1 1"),  # a second result, and one of another call
        ("A1 1 A1 1", "A1 1 A1 1"),
    ],
)
def test_results_without_a_call_and_second_results_are_dropped(pattern: str, kept: str) -> None:
    assert list(remove_orphans(history(pattern))) == history(kept)


@given(words)
def test_every_remaining_result_has_its_call(pattern: list[str]) -> None:
    messages = history(" ".join(pattern))
    kept = remove_orphans(messages)
    calls: set[str] = set()
    for message in kept:
        calls.update(call.id for call in message.tool_calls)
        assert message.tool_call_id is None or message.tool_call_id in calls
    assert [m for m in messages if m.role is not Role.TOOL] == [m for m in kept if m.role is not Role.TOOL]
