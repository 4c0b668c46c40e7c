"""The four steps of the design document, with a budget of 100 by default."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from langmem_tiers import Message, MessageToolCall, Role, TokenBudget
from langmem_tiers.sessions import Partition, partition_messages
from langmem_tiers.sessions.budget_partition import GroupSize, partition_groups

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def budget_of(window: int, tokens: int = 100) -> TokenBudget:
    return TokenBudget(context_tokens=tokens, system_tokens=0, response_tokens=0, full_message_window=window)


def singles(*tokens: int) -> list[GroupSize]:
    """Messages that stand alone, oldest first."""
    return [GroupSize(1, count) for count in tokens]


def test_no_groups_give_an_empty_partition() -> None:
    assert partition_groups([], budget_of(30)) == Partition((), (), (), 0)


@pytest.mark.parametrize(
    ("window", "tokens", "used"),
    [
        (1, [10], 10),
        (3, [10, 10, 10], 30),
        (2, [50, 40], 90),  # over 85 %
        (2, [50, 46], 96),  # over 95 %
        (2, [50, 50], 100),  # all there is
        (1, [100], 100),
    ],
)
def test_step_1_the_window_stays_full(window: int, tokens: list[int], used: int) -> None:
    parts = partition_groups(singles(*tokens), budget_of(window))
    assert parts == Partition(tuple(range(len(tokens))), (), (), used)


@pytest.mark.parametrize(
    ("tokens", "parts"),
    [
        ([34, 50], Partition((0, 1), (), (), 84)),
        ([35, 50], Partition((0, 1), (), (), 85)),  # exactly 85 %
        ([36, 50], Partition((1,), (0,), (), 58)),  # 86 %: 20 % of 36 are 7.2
        ([5, 10, 20, 50], Partition((0, 1, 2, 3), (), (), 85)),
        ([6, 10, 20, 50], Partition((1, 2, 3), (0,), (), 82)),
    ],
)
def test_step_2_older_messages_stay_full_up_to_85_percent(tokens: list[int], parts: Partition) -> None:
    assert partition_groups(singles(*tokens), budget_of(1)) == parts


@pytest.mark.parametrize(
    ("tokens", "parts"),
    [
        ([50, 84], Partition((1,), (0,), (), 94)),
        ([50, 85], Partition((1,), (0,), (), 95)),  # exactly 95 %
        ([51, 85], Partition((1,), (), (0,), 85)),  # 96 %
        ([50, 86], Partition((1,), (), (0,), 86)),
    ],
)
def test_step_3_others_are_compressed_up_to_95_percent(tokens: list[int], parts: Partition) -> None:
    assert partition_groups(singles(*tokens), budget_of(1)) == parts


@pytest.mark.parametrize(
    ("tokens", "size"), [(60, 12), (61, 13), (64, 13), (65, 13), (66, 14), (99, 20), (100, 20), (101, 21)]
)
def test_a_compressed_message_takes_20_percent_rounded_up(tokens: int, size: int) -> None:
    assert partition_groups(singles(tokens, 30), budget_of(1)) == Partition((1,), (0,), (), 30 + size)


def test_the_smallest_message_takes_one_token_when_compressed() -> None:
    assert partition_groups(singles(1, 94), budget_of(1)) == Partition((1,), (0,), (), 95)
    assert partition_groups(singles(1, 95), budget_of(1)) == Partition((1,), (), (0,), 95)


@pytest.mark.parametrize(
    ("tokens", "parts"),
    [
        ([60, 85], Partition((1,), (), (0,), 85)),
        ([500, 500, 50], Partition((2,), (), (0, 1), 50)),
        ([1, 100], Partition((1,), (), (0,), 100)),  # the window took everything
    ],
)
def test_step_4_messages_that_do_not_fit_compressed_are_dropped(tokens: list[int], parts: Partition) -> None:
    assert partition_groups(singles(*tokens), budget_of(1)) == parts


def test_an_older_message_can_be_full_before_a_compressed_one() -> None:
    # 50, then 90 > 85: 58, then 78
    assert partition_groups(singles(20, 40, 50), budget_of(1)) == Partition((0, 2), (1,), (), 78)


def test_an_older_message_can_be_compressed_before_a_dropped_one() -> None:
    # 85, then 97 > 95, then 93
    assert partition_groups(singles(40, 60, 85), budget_of(1)) == Partition((2,), (0,), (1,), 93)


def test_all_four_steps_in_one_conversation() -> None:
    # From the newest: 20 + 20 (window), 40 (80), 30 (86), 60 (98: dropped), 45 (95), 1 (96: dropped)
    parts = partition_groups(singles(1, 45, 60, 30, 40, 20, 20), budget_of(2))
    assert parts == Partition((4, 5, 6), (1, 3), (0, 2), 95)


def test_a_message_without_tokens_stays_full_as_long_as_others_do() -> None:
    assert partition_groups(singles(0, 85), budget_of(1)) == Partition((0, 1), (), (), 85)


@pytest.mark.parametrize(
    ("window", "parts"),
    [
        (1, Partition((0, 2), (1,), (), 68)),  # the group lies outside: 90 > 85
        (2, Partition((1, 2), (0,), (), 92)),  # the window cuts the group, so all of it is in
        (3, Partition((1, 2), (0,), (), 92)),
        (4, Partition((1, 2), (0,), (), 92)),  # 1 + 3 messages fill it
        (5, Partition((0, 1, 2), (), (), 100)),
    ],
)
def test_the_window_is_counted_in_messages_and_extended_to_groups(window: int, parts: Partition) -> None:
    groups = [GroupSize(1, 10), GroupSize(3, 40), GroupSize(1, 50)]
    assert partition_groups(groups, budget_of(window)) == parts


@pytest.mark.parametrize(
    ("tokens", "parts"),
    [
        ([30, 30, 30, 30, 30], Partition((2, 3, 4), (), (0, 1), 90)),  # 96 compressed
        ([25, 25, 25, 25, 25], Partition((1, 2, 3, 4), (), (0,), 100)),
        ([10, 40, 40, 40], Partition((0, 2, 3), (1,), (), 98)),  # 120 > 100: 88, then 98 in the window
    ],
)
def test_a_window_larger_than_the_budget_drops_its_oldest_messages(
    tokens: list[int], parts: Partition
) -> None:
    assert partition_groups(singles(*tokens), budget_of(30)) == parts


@pytest.mark.parametrize(
    ("tokens", "parts"),
    [
        (100, Partition((0,), (), (), 100)),
        (101, Partition((), (0,), (), 21)),
        (475, Partition((), (0,), (), 95)),
        (476, Partition((), (), (0,), 0)),
        (10**9, Partition((), (), (0,), 0)),
    ],
)
def test_a_message_larger_than_the_budget_is_compressed_or_dropped(tokens: int, parts: Partition) -> None:
    assert partition_groups(singles(tokens), budget_of(1)) == parts


def test_a_message_larger_than_the_budget_does_not_displace_its_neighbors() -> None:
    assert partition_groups(singles(10, 5_000, 10), budget_of(3)) == Partition((0, 2), (), (1,), 20)


@pytest.mark.parametrize(
    ("pinned", "tokens", "parts"),
    [
        (80, [20], Partition((0,), (), (), 100)),
        (81, [20], Partition((), (0,), (), 85)),
        (94, [7], Partition((), (), (0,), 94)),
        (100, [1, 1], Partition((), (), (0, 1), 100)),
    ],
)
def test_pinned_tokens_are_counted_first(pinned: int, tokens: list[int], parts: Partition) -> None:
    assert partition_groups(singles(*tokens), budget_of(1), pinned_tokens=pinned) == parts


def test_compressed_sizes_can_be_given() -> None:
    sizes = {0: 5, 1: 9}
    parts = partition_groups(singles(80, 80, 80), budget_of(1), compressed_tokens=sizes.__getitem__)
    assert parts == Partition((2,), (0, 1), (), 94)
    assert partition_groups(singles(80, 80, 80), budget_of(1)) == Partition((2,), (), (0, 1), 80)


def test_the_shares_are_those_of_the_budget() -> None:
    budget = TokenBudget(
        context_tokens=100,
        system_tokens=0,
        response_tokens=0,
        full_message_window=1,
        full_share=0.5,
        compressed_share=0.6,
        compressed_ratio=0.5,
    )
    # 40, then 50 at full, then 51 > 50: 50 + 1, then 50 + 10 > 60: 61
    assert partition_groups(singles(18, 1, 10, 40), budget) == Partition((2, 3), (0, 1), (), 60)
    assert partition_groups(singles(20, 1, 10, 40), budget) == Partition((2, 3), (1,), (0,), 51)


def test_the_default_budget_is_divided_at_its_own_numbers() -> None:
    # 190,904 available: 85 % are 162,268, 95 % are 181,358
    window = singles(*[5_000] * 30)
    assert partition_groups([GroupSize(1, 12_268), *window], TokenBudget()).tokens == 162_268
    assert partition_groups([GroupSize(1, 12_269), *window], TokenBudget()).compressed == (0,)
    assert partition_groups([GroupSize(1, 156_790), *window], TokenBudget()).tokens == 181_358
    assert partition_groups([GroupSize(1, 156_791), *window], TokenBudget()).dropped == (0,)


def message(name: str, tokens: int, *, calls: str = "", answers: str | None = None) -> Message:
    return Message(
        id=name,
        role=Role.TOOL if answers else Role.ASSISTANT if calls else Role.USER,
        content=name,
        created_at=NOW,
        token_count=tokens,
        token_counter="test",
        tool_calls=tuple(MessageToolCall(call, "tool") for call in calls),
        tool_call_id=answers,
    )


def names(parts: tuple[tuple[Message, ...], ...]) -> list[list[str]]:
    return [[m.id for m in part] for part in parts]


def test_no_messages_give_an_empty_partition() -> None:
    assert partition_messages([], TokenBudget()) == ((), (), ())


def test_partitioned_messages_are_unchanged_and_oldest_first() -> None:
    messages = [message("a", 45), message("b", 60), message("c", 10), message("d", 75)]
    # 75, then 85, then 97: dropped, then 94
    assert partition_messages(messages, budget_of(1)) == (
        (messages[2], messages[3]),
        (messages[0],),
        (messages[1],),
    )


def test_a_call_and_its_results_are_measured_and_moved_together() -> None:
    messages = [
        message("question", 5),
        message("call", 10, calls="xy"),
        message("x", 40, answers="x"),
        message("y", 11, answers="y"),
        message("thanks", 30),
    ]
    # The group takes 61 tokens: 91 in full, 30 + 13 compressed; each alone would have been full.
    assert names(partition_messages(messages, budget_of(1))) == [
        ["question", "thanks"],
        ["call", "x", "y"],
        [],
    ]


def test_a_group_cut_by_the_window_stays_full() -> None:
    messages = [
        message("question", 20),
        message("call", 10, calls="x"),
        message("x", 60, answers="x"),
        message("thanks", 20),
    ]
    assert names(partition_messages(messages, budget_of(2))) == [["call", "x", "thanks"], ["question"], []]


def test_a_group_that_does_not_fit_is_dropped_completely() -> None:
    messages = [message("call", 1, calls="x"), message("x", 900, answers="x"), message("thanks", 20)]
    assert names(partition_messages(messages, budget_of(30))) == [["thanks"], [], ["call", "x"]]
