"""Messages of any framework are read by their shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from llama_index.core.llms import ChatMessage as LlamaMessage
from llama_index.core.llms import MessageRole

from langmem_tiers import InvalidMessageError, Message, MessageDraft, MessageToolCall, Role
from langmem_tiers.common.message_adapter import read_messages
from tests.messages import message

CALL = {"name": "look_up", "args": {"city": "Zürich"}, "id": "c1", "type": "tool_call"}
READ_CALL = MessageToolCall(id="c1", name="look_up", arguments='{"city": "Zürich"}')


def read(one: object) -> Message | MessageDraft:
    (only,) = read_messages([one])
    return only


@pytest.mark.parametrize(
    ("given", "role"),
    [
        (HumanMessage("hi"), Role.USER),
        (AIMessage("hi"), Role.ASSISTANT),
        (AIMessageChunk(content="hi"), Role.ASSISTANT),
        (SystemMessage("hi"), Role.SYSTEM),
        (ToolMessage("hi", tool_call_id="c1"), Role.TOOL),
        (FunctionMessage(content="hi", name="f"), Role.TOOL),
        (ChatMessage(content="hi", role="assistant"), Role.ASSISTANT),
        (LlamaMessage("hi", role=MessageRole.USER), Role.USER),
        (LlamaMessage("hi", role=MessageRole.CHATBOT), Role.ASSISTANT),
        ({"role": "developer", "content": "hi"}, Role.SYSTEM),
        ({"type": "human", "content": "hi"}, Role.USER),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_role_and_the_text_are_read(given: object, role: Role) -> None:
    one = read(given)
    assert (one.role, one.content) == (role, "hi")


def test_own_messages_are_unchanged() -> None:
    ours, draft = message("hello"), MessageDraft("user", "hi")
    assert read_messages((ours, draft)) == [ours, draft]


@dataclass
class Spoken:
    """A message of nobody's framework."""

    role: str
    text: str
    tool_calls: list[dict[str, Any]] = field(default_factory=list)


@pytest.mark.parametrize(
    "given",
    [
        AIMessage("", tool_calls=[CALL]),
        Spoken("assistant", "", [CALL]),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": READ_CALL.arguments},
                }
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look_up", "input": {"city": "Zürich"}}],
        },
        LlamaMessage(
            role="assistant",
            additional_kwargs={
                "tool_calls": [
                    {"id": "c1", "function": {"name": "look_up", "arguments": READ_CALL.arguments}}
                ]
            },
        ),
    ],
    ids=["langchain", "attributes", "mapping", "openai", "anthropic", "llama-index"],
)
def test_a_tool_call_is_read_in_every_format(given: object) -> None:
    one = read(given)
    assert (one.content, one.tool_calls) == ("", (READ_CALL,))


def test_a_call_that_is_also_in_the_content_is_read_once() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"city": "Zürich"}}
    one = read(AIMessage([{"type": "text", "text": "Let me see."}, block], tool_calls=[CALL]))
    assert (one.content, one.tool_calls) == ("Let me see.", (READ_CALL,))


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def holding_itself() -> dict[str, Any]:
    arguments: dict[str, Any] = {"city": "Zürich"}
    arguments["again"] = arguments
    return arguments


def very_deep() -> list[Any]:
    arguments: list[Any] = []
    for _ in range(100_000):
        arguments = [arguments]
    return arguments


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (None, "{}"),
        ({"city": "Zürich", "at": date(2026, 3, 1)}, '{"city": "Zürich", "at": "2026-03-01"}'),
        ({(1, 2): "Zürich"}, '{"(1, 2)": "Zürich"}'),
        (holding_itself(), '{"city": "Zürich", "again": "..."}'),
        (very_deep(), f'{"[" * 50}"..."{"]" * 50}'),
        ({"city": "Zürich", "n": 1 << 20_000}, '{"city": "Zürich", "n": "<a number of 20001 bits>"}'),
        ({"city": "Zürich", "map": Unprintable()}, '{"city": "Zürich", "map": "<Unprintable>"}'),
    ],
    ids=["none", "date", "tuple as key", "cycle", "deep", "large number", "unprintable"],
)
def test_non_json_arguments_are_converted_to_json(arguments: object, written: str) -> None:
    given = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "args": arguments}]}
    assert read(given).tool_calls == (MessageToolCall(id="c1", name="look_up", arguments=written),)


def test_a_call_can_have_other_field_names_or_lack_fields() -> None:
    calls = [
        {"tool_id": 7, "tool_name": "look_up", "tool_kwargs": {}},
        {"tool_call_id": "c2", "name": "go", "input": {"n": 0}},
        {},
        READ_CALL,
    ]
    assert read({"role": "assistant", "content": "", "tool_calls": calls}).tool_calls == (
        MessageToolCall(id="7", name="look_up", arguments="{}"),
        MessageToolCall(id="c2", name="go", arguments='{"n": 0}'),
        MessageToolCall(id="", name="tool", arguments="{}"),
        READ_CALL,
    )


def test_a_result_names_the_call_that_it_answers() -> None:
    assert read(ToolMessage("sunny", tool_call_id="c1")).tool_call_id == "c1"
    assert read(LlamaMessage("x", role="tool", additional_kwargs={"tool_call_id": "c2"})).tool_call_id == "c2"


def test_text_blocks_are_kept_and_images_dropped() -> None:
    picture = {"type": "image", "base64": "iVBORw0KGgo", "mime_type": "image/png"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "12 °C"}]}
    one = read({"role": "user", "content": ["Look:", picture, {"type": "text", "text": "a cat"}, result]})
    assert one.content == "Look:\na cat\n12 °C"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("hello", "messages must be a list, got str"),
        ({"role": "user", "content": "x"}, "messages must be a list, got dict"),
        (MessageDraft("user", "x"), "messages must be a list, got MessageDraft"),
        (None, "messages must be a list, got NoneType"),
        (["hello"], "message 0 is a str"),
        ([("user", "hello")], "message 0 is a tuple"),
        ([{"content": "x"}], "message 0 is a dict without a role"),
        ([HumanMessage("x"), 7], "message 1 is a int without a role"),
        ([{"role": "pirate", "content": "x"}], "unknown role 'pirate': use one of"),
        ([{"role": "secret text " * 9, "content": "x"}], "unknown role of type str"),
        ([RemoveMessage(id="1")], "unknown role 'remove'"),
        ([{"role": "user", "content": 7}], "message 0 has no text (content is a int)"),
        ([{"role": "user"}], "message 0 has no text"),
    ],
)
def test_an_invalid_message_is_refused_with_its_position(given: object, says: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        read_messages(given)
    assert says in str(caught.value)
    assert "MessageDraft" in str(caught.value) or "use one of" in str(caught.value)


@given(
    text=st.text(),
    blocks=st.lists(
        st.text() | st.dictionaries(st.text(), st.integers() | st.text(), max_size=3), max_size=4
    ),
    arguments=st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.binary(), max_size=3),
)
def test_any_text_and_any_arguments_can_be_read(text: str, blocks: list[Any], arguments: Any) -> None:
    said: list[BaseMessage] = [HumanMessage(text), AIMessage(blocks)]
    first, second = read_messages(said)
    assert first.content == text
    assert all(block in second.content for block in blocks if isinstance(block, str))
    called = read({"role": "assistant", "content": "", "tool_calls": [{**CALL, "args": arguments}]})
    assert [call.name for call in called.tool_calls] == ["look_up"]
