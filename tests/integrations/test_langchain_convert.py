"""Conversion of LangChain messages: roles, texts, calls, tokens, and values unknown to JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)
from pydantic import BaseModel, SecretStr

from langmem_tiers import (
    CharCounter,
    ContentAwareCounter,
    InvalidMessageError,
    MemoryEngine,
    Message,
    MessageDraft,
    MessageToolCall,
    Role,
)
from langmem_tiers.text.token_counting import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
)
from langmem_tiers_langchain import part_tokens, to_draft, to_message

DATA = "iVBORw0KGgo" * 20_000
WORDS = "Seven hits were found in the garden."
WORD_TOKENS = ContentAwareCounter().count(WORDS)


def store_draft(draft: MessageDraft) -> Message:
    with MemoryEngine(embedder=None) as engine:
        return engine.session("t", "s").add(draft).message


def round_trip(message: BaseMessage) -> BaseMessage:
    return to_message(store_draft(to_draft(message)))


class Moody(HumanMessage):
    mood: str = "fair"


class Signal(BaseMessage):
    type: str = "signal"
    strength: int = 0


@pytest.mark.parametrize(
    ("message", "role", "name"),
    [
        (HumanMessage("x"), Role.USER, None),
        (HumanMessage("x", name="Mara"), Role.USER, "Mara"),
        (HumanMessageChunk(content="x"), Role.USER, None),
        (AIMessage("x"), Role.ASSISTANT, None),
        (AIMessageChunk(content="x"), Role.ASSISTANT, None),
        (SystemMessage("x"), Role.SYSTEM, None),
        (ToolMessage("x", tool_call_id="c"), Role.TOOL, None),
        (FunctionMessage(content="x", name="search"), Role.TOOL, "search"),
        (ChatMessage(content="x", role="user"), Role.USER, None),
        (ChatMessage(content="x", role="Assistant"), Role.ASSISTANT, None),
        (ChatMessage(content="x", role="developer"), Role.SYSTEM, None),
        (ChatMessage(content="x", role="function"), Role.TOOL, None),
        (ChatMessage(content="x", role="critic"), Role.USER, "critic"),
        (ChatMessage(content="x", role="critic", name="Tom"), Role.USER, "Tom"),
        (Moody(content="x"), Role.USER, None),
        (Signal(content="x"), Role.USER, "signal"),
    ],
    ids=repr,
)
def test_each_message_has_one_of_four_roles(message: BaseMessage, role: Role, name: str | None) -> None:
    draft = to_draft(message)
    assert (draft.role, draft.name, draft.content) == (role, name, "x")


def test_the_draft_text_contains_only_the_text_blocks() -> None:
    blocks: list[Any] = [
        "So: ",
        {"type": "text", "text": "look at "},
        {"type": "image", "base64": DATA, "mime_type": "image/png"},
        {"type": "of tomorrow", "text": "hidden"},
        {"type": "text", "text": "this."},
    ]
    assert to_draft(HumanMessage(blocks)).content == "So: look at this."


def test_valid_and_invalid_calls_are_kept_and_missing_ids_are_generated() -> None:
    message = AIMessage(
        "",
        tool_calls=[{"id": "c1", "name": "add", "args": {"a": "å"}}, {"id": None, "name": "now", "args": {}}],
        invalid_tool_calls=[{"id": "c3", "name": "sub", "args": '{"a": ', "error": "cut off"}],
    )
    first, second, third = to_draft(message).tool_calls
    assert first == MessageToolCall("c1", "add", '{"a": "å"}')
    assert (second.name, second.arguments) == ("now", "{}")
    assert second.id.startswith("call-")
    assert third == MessageToolCall("c3", "sub", '{"a": ')
    assert to_draft(message).tool_calls == (first, second, third)
    assert round_trip(message) == message


def test_a_message_keeps_its_id_unless_another_is_passed() -> None:
    assert to_draft(HumanMessage("x", id="mine")).id == "mine"
    assert to_draft(HumanMessage("x", id="mine"), id="yours").id == "yours"
    assert to_draft(HumanMessage("x")).id is None
    assert round_trip(HumanMessage("x")).id is None
    assert round_trip(HumanMessage("x", id="i" * 5000)).id == "i" * 5000


def test_a_custom_message_class_comes_back_as_its_nearest_base_with_all_data() -> None:
    found = round_trip(Moody(content="x", mood="grim", id="1"))
    assert type(found) is HumanMessage
    assert (found.text, found.mood, found.id, found.type) == ("x", "grim", "1", "human")  # type: ignore[attr-defined]
    signal = round_trip(Signal(content="y", strength=3))
    assert type(signal) is BaseMessage
    assert (signal.text, signal.type, signal.strength) == ("y", "signal", 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (MessageDraft("user", "hi", id="1", name="Mara"), HumanMessage("hi", id="1", name="Mara")),
        (MessageDraft("system", "hi", id="1"), SystemMessage("hi", id="1")),
        (MessageDraft("tool", "3", id="1", tool_call_id="c"), ToolMessage("3", id="1", tool_call_id="c")),
        (MessageDraft("tool", "3", id="1"), ToolMessage("3", id="1", tool_call_id="")),
        (
            MessageDraft(
                "assistant",
                "",
                id="1",
                tool_calls=[MessageToolCall("c", "add", '{"a": 1}'), MessageToolCall("d", "add", "[1]")],
            ),
            AIMessage(
                "",
                id="1",
                tool_calls=[{"id": "c", "name": "add", "args": {"a": 1}}],
                invalid_tool_calls=[{"id": "d", "name": "add", "args": "[1]", "error": None}],
            ),
        ),
        (
            MessageDraft("user", "hi", id="1", payload={"role": "user", "blocks": []}),
            HumanMessage("hi", id="1"),
        ),
        (
            MessageDraft("user", "hi", id="1", payload={"type": "human", "data": {}}),
            HumanMessage("hi", id="1"),
        ),
        (MessageDraft("user", "hi", id="1", payload=["$lmt"]), HumanMessage("hi", id="1")),
        (
            MessageDraft("user", "hi", payload=message_to_dict(HumanMessage("hi", example=True))),
            HumanMessage("hi", example=True),
        ),
    ],
)
def test_a_message_without_a_langchain_payload_becomes_the_message_of_its_role(
    message: MessageDraft, expected: BaseMessage
) -> None:
    assert to_message(store_draft(message)) == expected


def test_a_compressed_message_keeps_its_compressed_text() -> None:
    text = "\n".join(f"Line {n} of the report, which says little." for n in range(40))
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("t", "s")
        session.add_many(
            [to_draft(HumanMessage(text, id="long")), to_draft(HumanMessage("Short.", id="new"))]
        )
        compressed = next(
            message
            for message in [engine._services.analyzer.compressor.compress_message(session.get("long"))]
            if message.content != text
        )
    shown = to_message(compressed)
    assert isinstance(shown, HumanMessage)
    assert (shown.id, shown.content) == ("long", compressed.content)


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "image", "base64": DATA, "mime_type": "image/png"}, IMAGE_TOKENS),
        ({"type": "image", "source_type": "base64", "data": DATA, "mime_type": "image/png"}, IMAGE_TOKENS),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}}, SMALL_IMAGE_TOKENS),
        ({"type": "input_image", "image_url": "https://x", "detail": "low"}, SMALL_IMAGE_TOKENS),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, AUDIO_TOKENS),
        ({"type": "audio", "base64": DATA}, AUDIO_TOKENS),
        ({"type": "media", "mime_type": "audio/mp3", "data": DATA}, AUDIO_TOKENS),
        ({"type": "media", "mime_type": "application/pdf", "data": DATA}, FILE_TOKENS),
        ({"type": "video", "url": "https://x"}, VIDEO_TOKENS),
        ({"type": "file", "file_id": "f"}, FILE_TOKENS),
        ({"type": "document", "source": {"type": "base64", "data": DATA}}, FILE_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": WORDS}}, WORD_TOKENS),
        ({"type": "text-plain", "text": WORDS}, WORD_TOKENS),
        ({"image": {"format": "png", "source": {"bytes": b"x"}}}, IMAGE_TOKENS),
        ({"type": "tool_result", "content": [{"type": "text", "text": WORDS}, {"type": "image"}]},
         WORD_TOKENS + IMAGE_TOKENS),
        ({"type": "tool_result", "content": "我" * 400}, ContentAwareCounter().count("我" * 400)),
        ({"type": "of tomorrow", "blob": DATA}, 0),
        ({"type": "text", "text": "x" * 400}, 0),
        ({"type": "tool_use", "id": "c", "name": "n", "input": {"a": "x" * 400}}, 0),
        ({"type": "thinking", "thinking": "x" * 400, "signature": DATA}, 0),
        ({"type": []}, 0),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_media_parts_count_by_published_token_costs_and_not_by_their_data(
    block: dict[str, Any], tokens: int
) -> None:
    message = HumanMessage([{"type": "text", "text": "Look at this."}, block])
    assert part_tokens(message) == tokens
    words = CharCounter().count("Look at this.")
    draft = to_draft(message, CharCounter())
    if block["type" if "type" in block else "image"] == "text":
        assert draft.token_count is None
    else:
        assert draft.token_count == (words + tokens if tokens else None)


def test_plain_text_has_no_part_tokens_and_is_counted_by_the_engine() -> None:
    assert part_tokens(HumanMessage("data:image/png;base64,AAAA")) == 0
    assert to_draft(HumanMessage("x")).token_count is None


class Colour(Enum):
    RED = 1


class Size(StrEnum):
    LARGE = "large"


@dataclass
class Point:
    x: int
    when: datetime


class Options(BaseModel):
    depth: int
    token: SecretStr


NOW = datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(1), True),
        (np.arange(3), [0, 1, 2]),
        (Size.LARGE, "large"),
        (Colour.RED, 1),
        (Point(1, NOW), {"x": 1, "when": NOW}),
        (
            Options(depth=2, token=SecretStr("s3cret")),
            {"depth": 2, "token": "[not stored: pydantic.types.SecretStr]"},
        ),
        (MappingProxyType({"a": (1,)}), {"a": (1,)}),
        (ValueError("s3cret"), "[not stored: builtins.ValueError]"),
        (len, "[not stored: builtins.builtin_function_or_method]"),
        ({frozenset({1}): 2}, {frozenset({1}): 2}),
        ({Colour: 1}, {"[not stored: enum.EnumType] 0": 1}),
        ({"$lmt": "bytes", "value": "AAAA"}, {"$lmt": "bytes", "value": "AAAA"}),
        ({"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}},) * 2,
    ],
    ids=lambda value: str(value)[:40],
)
def test_values_unknown_to_json_come_back_or_become_placeholders(value: object, expected: object) -> None:
    message = ToolMessage("done", tool_call_id="c", artifact=value)
    draft = to_draft(message)
    assert "s3cret" not in (draft.payload_json or "")
    found = to_message(store_draft(draft))
    assert isinstance(found, ToolMessage)
    assert found.artifact == expected
    assert type(found.artifact) is type(expected)


def test_nan_comes_back_as_nan() -> None:
    found = round_trip(AIMessage("x", response_metadata={"logprob": float("nan"), "n": np.float64("nan")}))
    assert all(np.isnan(value) for value in found.response_metadata.values())


def test_endlessly_nested_values_are_cut_with_a_placeholder() -> None:
    endless: list[Any] = []
    endless.append(endless)
    found = round_trip(ToolMessage("x", tool_call_id="c", artifact=endless))
    assert "nested too deeply" in json.dumps(found.artifact)  # type: ignore[attr-defined]
    deep: Any = "bottom"
    for level in range(90):
        deep = {"down": deep} if level % 2 else [deep]
    message = ToolMessage("x", tool_call_id="c", artifact=deep)
    assert round_trip(message) == message


@pytest.mark.parametrize(
    "tag",
    [
        {"$lmt": "datetime", "value": "no time"},
        {"$lmt": "datetime", "value": ["2025-01-01T00:00:00", 0, "No/Where"]},
        {"$lmt": "uuid", "value": None},
        {"$lmt": "decimal", "value": "x"},
        {"$lmt": "dict", "value": [[[], 1]]},
        {"$lmt": "document", "value": 5},
        {"$lmt": "os.system", "value": "true"},
        {"$lmt": ["x"]},
    ],
    ids=str,
)
def test_an_invalid_type_tag_comes_back_as_plain_data(tag: dict[str, Any]) -> None:
    payload = {"type": "human", "data": {"content": "x", "additional_kwargs": {"a": tag}}, "$lmt": 1}
    found = to_message(store_draft(MessageDraft("user", "x", payload=payload)))
    assert found.additional_kwargs == {"a": tag}


@pytest.mark.parametrize("value", ["text", ("human", "hi"), {"role": "user"}, None])
def test_a_value_that_is_not_a_message_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidMessageError, match="expected a LangChain message, got .*: use HumanMessage"):
        to_draft(value)


def test_a_remove_message_is_rejected() -> None:
    with pytest.raises(InvalidMessageError, match="RemoveMessage for 'm1' cannot be stored"):
        to_draft(RemoveMessage(id="m1"))
