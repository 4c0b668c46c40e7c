"""A partition loses, separates and reorders nothing and respects the budget, for any messages."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from langmem_tiers import Message, MessageToolCall, Role, TokenBudget
from langmem_tiers.common.tool_call_groups import find_window_start, group_tool_calls
from langmem_tiers.sessions import partition_messages
from tests.hypothesis_settings import examples

NOW = datetime(2025, 1, 1, tzinfo=UTC)
ROLES = {"u": Role.USER, "a": Role.ASSISTANT, "A": Role.ASSISTANT, "s": Role.SYSTEM}


def conversation(turns: list[tuple[str, int]]) -> list[Message]:
    """Words as in ``tests/core/test_groups``: A12 calls the tools 1 and 2, a digit is a result."""
    return [
        Message(
            id=f"{index}",
            role=ROLES.get(word[0], Role.TOOL),
            content=word,
            created_at=NOW,
            token_count=tokens,
            token_counter="test",
            tool_calls=tuple(MessageToolCall(digit, "tool") for digit in word[1:]),
            tool_call_id=word if word[0] not in ROLES else None,
        )
        for index, (word, tokens) in enumerate(turns)
    ]


# Few ids, so that they are used again, answered late, twice, never or out of the blue.
words = st.sampled_from(["u", "a", "s", "A1", "A2", "A12", "A34", "1", "2", "3", "4"])
sizes = st.integers(0, 60) | st.integers(0, 5) | st.integers(0, 5_000)
conversations = st.lists(st.tuples(words, sizes), max_size=25).map(conversation)


@st.composite
def budgets(draw: st.DrawFn) -> TokenBudget:
    low, high = sorted((draw(st.floats(0, 1)), draw(st.floats(0, 1))))
    full_share, compressed_share = draw(st.sampled_from([(0.85, 0.95), (low, high)]))
    return TokenBudget(
        context_tokens=draw(st.integers(1, 600)) + 10,
        system_tokens=7,
        response_tokens=3,
        full_message_window=draw(st.integers(1, 30)),
        full_share=full_share,
        compressed_share=compressed_share,
    )


@examples(150)
@given(conversations, budgets())
def test_each_message_is_in_exactly_one_set(messages: list[Message], budget: TokenBudget) -> None:
    parts = partition_messages(messages, budget)
    assert sorted((m for part in parts for m in part), key=lambda m: int(m.id)) == messages


@examples(150)
@given(conversations, budgets())
def test_each_partition_set_keeps_the_order(messages: list[Message], budget: TokenBudget) -> None:
    for part in partition_messages(messages, budget):
        places = [int(m.id) for m in part]
        assert places == sorted(places)


@examples(150)
@given(conversations, budgets())
def test_no_group_is_separated(messages: list[Message], budget: TokenBudget) -> None:
    set_of = {m.id: name for name, part in enumerate(partition_messages(messages, budget)) for m in part}
    for start, end in group_tool_calls(messages):
        assert len({set_of[m.id] for m in messages[start:end]}) == 1


@examples(150)
@given(conversations, budgets())
@example(
    conversation([("A1", 9), ("A2", 9), ("1", 300), ("2", 9), ("u", 9)]),
    TokenBudget(context_tokens=100, system_tokens=0, response_tokens=0, full_message_window=2),
)
@example(
    conversation([("A1", 50), ("1", 50), ("A1", 5), ("u", 5), ("1", 5), ("1", 5)]),
    TokenBudget(context_tokens=60, system_tokens=0, response_tokens=0, full_message_window=1),
)
def test_a_result_is_in_the_same_set_as_its_call(messages: list[Message], budget: TokenBudget) -> None:
    set_of = {m.id: name for name, part in enumerate(partition_messages(messages, budget)) for m in part}
    latest_call: dict[str, str] = {}
    for message in messages:
        latest_call.update((call.id, message.id) for call in message.tool_calls)
        if message.tool_call_id in latest_call:
            assert set_of[message.id] == set_of[latest_call[message.tool_call_id]]


@examples(150)
@given(conversations, budgets())
def test_a_partition_respects_its_budget(messages: list[Message], budget: TokenBudget) -> None:
    full, compressed, _ = partition_messages(messages, budget)
    shrunk = {m.id for m in compressed}
    used = sum(m.token_count for m in full)
    for start, end in group_tool_calls(messages):
        if messages[start].id in shrunk:
            used += (sum(m.token_count for m in messages[start:end]) + 4) // 5  # 20 %, rounded up
    assert used <= budget.context_tokens - 10


@examples(150)
@given(conversations, budgets())
def test_a_window_that_fits_is_full(messages: list[Message], budget: TokenBudget) -> None:
    newest = messages[find_window_start(group_tool_calls(messages), budget.full_message_window) :]
    full, _, _ = partition_messages(messages, budget)
    if sum(m.token_count for m in newest) <= budget.available:
        assert set(newest) <= set(full)


@given(conversations, st.integers(1, 30))
def test_messages_within_85_percent_stay_full(messages: list[Message], window: int) -> None:
    tokens = sum(m.token_count for m in messages)
    budget = TokenBudget(
        context_tokens=max(1, -(-tokens * 20 // 17)),
        system_tokens=0,
        response_tokens=0,
        full_message_window=window,
    )
    assert partition_messages(messages, budget) == (tuple(messages), (), ())
