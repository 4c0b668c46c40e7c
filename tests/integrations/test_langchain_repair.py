"""Repair of tool calls in a view: each call is directly followed by one result."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_tiers.integration_kit import NO_RESULT_TEXT
from langmem_tiers_langchain.convert import SOURCE_METADATA
from langmem_tiers_langchain.tool_call_repair import list_unique_calls, repair_tool_calls
from tests.integrations.langchain_agents import check_tool_call_order

CALLS = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)


def call(name: str) -> dict[str, object]:
    return {"name": f"tool {name}", "args": {}, "id": name, "type": "tool_call"}


@st.composite
def threads(draw: st.DrawFn) -> list[BaseMessage]:
    """Generate calls, results and texts in any order: late, duplicate, missing or without a call."""
    messages: list[BaseMessage] = []
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["human", "ai", "calls", "invalid", "result"]))
        if kind == "human":
            messages.append(HumanMessage(f"q{number}", id=f"m{number}"))
        elif kind == "result":
            messages.append(
                ToolMessage(f"r{number}", tool_call_id=draw(st.sampled_from("abcd")), id=f"m{number}")
            )
        else:
            names = draw(CALLS) if kind != "ai" else []
            bad = [{**call(n), "args": "{", "error": None} for n in names] if kind == "invalid" else []
            good = [call(n) for n in names] if kind == "calls" else []
            messages.append(AIMessage(f"a{number}", id=f"m{number}", tool_calls=good, invalid_tool_calls=bad))
    return messages


@given(threads())
def test_a_result_follows_each_call(messages: list[BaseMessage]) -> None:
    before = [message.model_copy(deep=True) for message in messages]
    whole = repair_tool_calls(messages)
    check_tool_call_order([HumanMessage("first"), *whole])
    assert repair_tool_calls(whole) == whole
    assert messages == before  # what was handed in is as it was
    assert [m for m in whole if not isinstance(m, ToolMessage)] == [
        m for m in messages if not isinstance(m, ToolMessage)
    ]


@given(threads())
def test_a_placeholder_result_is_added_only_for_a_call_without_a_result(messages: list[BaseMessage]) -> None:
    whole = repair_tool_calls(messages)
    given_results = [message for message in messages if isinstance(message, ToolMessage)]
    kept = [
        message
        for message in whole
        if isinstance(message, ToolMessage) and message.additional_kwargs != SOURCE_METADATA
    ]
    assert all(any(message is result for result in given_results) for message in kept)
    calls = sum(len(list_unique_calls(message)) for message in messages)
    made_up = sum(message.additional_kwargs == SOURCE_METADATA for message in whole)
    assert len(kept) + made_up == calls


def test_a_late_result_moves_to_its_call() -> None:
    messages: list[BaseMessage] = [
        HumanMessage("q", id="1"),
        AIMessage("", id="2", tool_calls=[call("a"), call("b")]),
        ToolMessage("rb", tool_call_id="b", id="3"),
        HumanMessage("still there?", id="4"),
        ToolMessage("ra", tool_call_id="a", id="5"),
    ]
    assert [message.id for message in repair_tool_calls(messages)] == ["1", "2", "5", "3", "4"]


def test_a_call_without_a_result_gets_an_error_result() -> None:
    message = AIMessage("", id="2", tool_calls=[call("a")])
    placeholder = repair_tool_calls([SystemMessage("s", id="0"), HumanMessage("q", id="1"), message])[-1]
    assert isinstance(placeholder, ToolMessage)
    assert (placeholder.content, placeholder.status, placeholder.tool_call_id, placeholder.name) == (
        NO_RESULT_TEXT,
        "error",
        "a",
        "tool a",
    )


def test_a_call_without_an_id_gets_one() -> None:
    message = AIMessage("", id="2", tool_calls=[{"name": "x", "args": {}, "id": None, "type": "tool_call"}])
    whole = repair_tool_calls([HumanMessage("q", id="1"), message])
    check_tool_call_order(whole)
    assert message.tool_calls[0]["id"] is None
