"""Lossless JSON codec for LangChain messages and their contents."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import TYPE_CHECKING

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
from pydantic import BaseModel

from langmem_tiers.integration_kit import TAG_KEY, ValueCodec, tag

if TYPE_CHECKING:
    from langmem_tiers.integration_kit import JsonValue

_TYPES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "chat": ChatMessage,
    "function": FunctionMessage,
    "base": BaseMessage,
    **{
        chunk.__name__: chunk
        for chunk in (
            AIMessageChunk,
            ChatMessageChunk,
            FunctionMessageChunk,
            HumanMessageChunk,
            SystemMessageChunk,
            ToolMessageChunk,
        )
    },
}
_TYPE_NAMES = {kind: name for name, kind in _TYPES.items()}
_FORMAT_VERSION = 1
_EMPTY_TYPES = (type(None), list, dict)


def encode_base_message(message: BaseMessage, depth: int = 0) -> dict[str, JsonValue]:
    """Encode all fields of a message, in the shape of LangChain's ``message_to_dict``.

    Empty fields that are empty by default are omitted. A user-defined class is stored as its nearest base class.
    """
    name, defaults = _describe_type(type(message))
    # "type" is redundant except for BaseMessage, where any text is possible. The exact type of an empty value is
    # compared, so that a list with a None default is kept.
    fields = {
        key: encode(value, depth + 2)
        for key, value in message.__dict__.items()
        if (type(value) not in _EMPTY_TYPES or value or type(defaults.get(key, ...)) is not type(value))
        and (key != "type" or name == "base")
    }
    extra = {key: encode(value, depth + 2) for key, value in (message.__pydantic_extra__ or {}).items()}
    return {"type": name, "data": {**fields, **extra}, TAG_KEY: _FORMAT_VERSION}


def decode_base_message(form: object) -> BaseMessage | None:
    """Decode a message in this format or in that of LangChain's ``message_to_dict``; None for other values."""
    if not isinstance(form, dict):
        return None
    name, data = form.get("type"), form.get("data")
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(data, dict):
        return None
    is_ours = form.get(TAG_KEY) == _FORMAT_VERSION
    fields = {key: decode(value) for key, value in data.items()} if is_ours else data
    try:
        message = kind(**fields)
    except (TypeError, ValueError):
        # The message existed with these fields, although they do not pass validation (anymore).
        return kind.model_construct(**fields) if is_ours else None
    return _restore_fields(message, fields) if is_ours else message


def _restore_fields(message: BaseMessage, fields: dict[str, object]) -> BaseMessage:
    # Validators change fields, for example by parsing tool calls from chunks. Restore the stored state.
    values = message.__dict__
    for key, default in _describe_type(type(message))[1].items():
        if key not in fields and values[key] != default:
            values[key] = copy(default)
    values.update((key, value) for key, value in fields.items() if key in values)
    return message


@cache
def _describe_type(kind: type[BaseMessage]) -> tuple[str, dict[str, object]]:
    base = next(parent for parent in kind.__mro__ if parent in _TYPE_NAMES)
    return _TYPE_NAMES[base], {
        name: field.get_default(call_default_factory=True)
        for name, field in base.model_fields.items()
        if not field.is_required()
    }


def _encode_model(value: BaseModel, depth: int) -> JsonValue:
    return _codec.encode_dict({**value.__dict__, **(value.__pydantic_extra__ or {})}, depth)


def _encode_document(value: Document, depth: int) -> JsonValue:
    return tag("document", _encode_model(value, depth + 1))


def _decode_document(stored: JsonValue) -> Document:
    return Document.model_construct(**decode(stored))  # without validation, to restore the exact fields


_codec = ValueCodec(
    (
        (BaseMessage, lambda value, depth: tag("message", encode_base_message(value, depth + 1))),
        (Document, _encode_document),
        (BaseModel, _encode_model),
    ),
    {"document": _decode_document, "message": decode_base_message},
)
encode, decode = _codec.encode, _codec.decode
