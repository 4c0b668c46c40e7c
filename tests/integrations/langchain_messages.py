"""Hypothesis strategies for LangChain messages of every type."""

from __future__ import annotations

import math
from datetime import UTC
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

text = st.text(max_size=40) | st.sampled_from(["$lmt", "\0", "\ud83d", "{}", "data:image/png;base64,AAAA"])
_zones = st.none() | st.just(UTC) | st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("America/Lima")])
_keys = text | st.sampled_from(["$lmt", "value", "type", "lc"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**4400, max_value=10**4401)
    | st.floats(allow_nan=False)
    | text
    | st.binary(max_size=9)
    | st.binary(max_size=9).map(bytearray)
    | st.datetimes(timezones=_zones)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | text.filter(lambda value: "\0" not in value).map(PurePosixPath)
    | text.filter(lambda value: "\0" not in value).map(PureWindowsPath)
)
_hashable = st.integers() | text | st.binary(max_size=4) | st.dates() | st.tuples(st.integers(), text)
values: SearchStrategy[Any] = st.recursive(
    scalars | st.frozensets(_hashable, max_size=3) | st.sets(_hashable, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_keys, inner, max_size=3)
        | st.dictionaries(_hashable, inner, max_size=3)
        | st.builds(Document, page_content=text, metadata=st.dictionaries(_keys, inner, max_size=2))
        | st.builds(HumanMessage, text, additional_kwargs=st.dictionaries(_keys, inner, max_size=2))
    ),
    max_leaves=8,
)
_plain = st.dictionaries(_keys, values, max_size=3)
_blocks = st.sampled_from(
    [
        {"type": "text", "text": "Look at this."},
        {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file_id": "file-1"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A page."}},
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
        {"type": "reasoning", "reasoning": "Hm."},
        {"type": "of tomorrow", "value": [1, {"a": None}]},
    ]
)
_content = text | st.lists(text | _blocks | st.dictionaries(_keys, values, max_size=2), max_size=4)
_common: dict[str, Any] = {
    "content": _content,
    "id": st.none() | st.uuids().map(str),
    "name": st.none() | text,
    "additional_kwargs": st.just({}) | _plain,
    "response_metadata": st.just({}) | _plain,
    "example": st.booleans(),
}
_call = st.fixed_dictionaries(
    {"name": text, "args": st.dictionaries(text, values, max_size=2), "id": st.none() | text}
)
_json_call = st.fixed_dictionaries(
    {"name": text, "args": st.dictionaries(text, st.integers(), max_size=2), "id": st.none() | text}
)
_invalid = st.fixed_dictionaries({key: st.none() | text for key in ("name", "args", "id", "error")})
_chunk = st.fixed_dictionaries(
    {
        "name": st.none() | text,
        "args": st.sampled_from(["", '{"a": 1', '{"a": 1}', "[1]", "no"]),
        "id": st.none() | text,
        "index": st.none() | st.integers(0, 3),
    }
)
_usage = st.none() | st.builds(
    lambda given, made: {"input_tokens": given, "output_tokens": made, "total_tokens": given + made},
    st.integers(0, 9000),
    st.integers(0, 9000),
)
_ai: dict[str, Any] = {
    **_common,
    "usage_metadata": _usage,
    "invalid_tool_calls": st.lists(_invalid, max_size=2),
}
_tool: dict[str, Any] = {
    **_common,
    "tool_call_id": text,
    "artifact": values,
    "status": st.sampled_from(["success", "error"]),
}
_named = {**_common, "name": text}
_spoken = {**_common, "role": text | st.sampled_from(["user", "developer", "assistant", "critic"])}


def _build(kind: type[BaseMessage], **fields: Any) -> SearchStrategy[BaseMessage]:
    return st.builds(kind, **fields)


messages: SearchStrategy[BaseMessage] = st.one_of(
    _build(HumanMessage, **_common),
    _build(SystemMessage, **_common),
    _build(AIMessage, **_ai, tool_calls=st.lists(_call, max_size=2)),
    _build(ToolMessage, **_tool),
    _build(ChatMessage, **_spoken),
    _build(FunctionMessage, **_named),
    _build(HumanMessageChunk, **_common),
    _build(SystemMessageChunk, **_common),
    _build(AIMessageChunk, **_ai, tool_calls=st.lists(_json_call, max_size=2)),
    _build(AIMessageChunk, **_common, tool_call_chunks=st.lists(_chunk, max_size=2), usage_metadata=_usage),
    _build(ToolMessageChunk, **_tool),
    _build(ChatMessageChunk, **_spoken),
    _build(FunctionMessageChunk, **_named),
)


def same(left: object, right: object) -> bool:
    """Return whether two values and all nested values are equal and of equal types."""
    if (
        isinstance(left, float)
        and isinstance(right, float)
        and math.copysign(1, left) != math.copysign(1, right)
    ):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left == right and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool | int | float | bytes | bytearray | str | set | frozenset):
        return type(left) is type(right) and left == right
    return left == right
