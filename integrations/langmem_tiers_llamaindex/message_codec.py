"""LlamaIndex's messages and all that they hold as JSON that comes back equal, as far as that is safe.

A stored message is made again without its validators: files that are gone since, and pictures in places where
older releases had them, do not keep it from being read.
"""

from __future__ import annotations

import json
from functools import cache
from io import IOBase
from typing import TYPE_CHECKING, Any, TypeVar

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.llms.llm import ToolSelection
from pydantic import AnyUrl, BaseModel

from langmem_tiers.errors import InvalidMessageError
from langmem_tiers.integration_kit.codecs import ValueCodec, describe_unstored, tag

if TYPE_CHECKING:
    from langmem_tiers.common.json_values import JsonValue

PAYLOAD_KEY = "chat_message"
"""The key of a payload that holds a message of LlamaIndex."""
LEGACY_IMAGES = "images"
"""Where older releases had pictures; a message that is built with them has them as blocks as well."""
_BLOCK_TYPES: dict[str, type[BaseContentBlock]] = {
    "text": TextBlock,
    "image": ImageBlock,
    "audio": AudioBlock,
    "video": VideoBlock,
    "document": DocumentBlock,
    "cache": CachePoint,
    "cache_control": CacheControl,
    "citable": CitableBlock,
    "citation": CitationBlock,
    "thinking": ThinkingBlock,
    "tool_call": ToolCallBlock,
}
_BLOCK_NAMES = {kind: name for name, kind in _BLOCK_TYPES.items()}
_ROLES = {role.value: role for role in MessageRole}
_Model = TypeVar("_Model", bound=BaseModel)
_set_attribute = object.__setattr__


def encode_chat_message(message: ChatMessage, text: str) -> JsonValue:
    """All fields of a message; short, if they say nothing beside a role and a text.

    Args:
        message: The message.
        text: What the engine keeps as its content.

    Raises:
        InvalidMessageError: Its role or one of its blocks is none.
    """
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != LEGACY_IMAGES}
    role = get_chat_role(message).value
    if not kwargs and [*map(_get_plain_text, message.blocks)] == [text]:
        return {PAYLOAD_KEY: role}
    fields: dict[str, JsonValue] = {
        "role": role,
        "blocks": [_encode_block(block) for block in message.blocks],
    }
    if kwargs:
        fields["kwargs"] = _codec.encode_dict(kwargs, 2)
    return {PAYLOAD_KEY: fields}


def decode_chat_message(form: object, text: str) -> ChatMessage | None:
    """The message, if that is the form of one."""
    fields = form.get(PAYLOAD_KEY) if isinstance(form, dict) else None
    if isinstance(fields, str):
        role = _ROLES.get(fields)
        return None if role is None else build_chat_message(role, [build_text_block(text)], {})
    if not isinstance(fields, dict):
        return None
    role, blocks = _ROLES.get(str(fields.get("role"))), fields.get("blocks")
    if role is None or not isinstance(blocks, list):
        return None
    decoded = [_decode_block(block) for block in blocks]
    if not all(isinstance(block, BaseContentBlock) for block in decoded):
        return None
    return build_chat_message(role, decoded, _codec.decode(fields.get("kwargs", {})))


def get_chat_role(message: ChatMessage) -> MessageRole:
    """Who speaks.

    Raises:
        InvalidMessageError: There is no such role.
    """
    role: object = message.role  # whatever a message holds that was built without its validators
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidMessageError(f"unknown role {role!r:.60}: use one of {', '.join(_ROLES)}")
    return _ROLES[role]


def dump_tool_arguments(block: ToolCallBlock) -> str:
    """What a tool is called with, as JSON; the same for a call that was stored and came back."""
    given = block.tool_kwargs
    return given if isinstance(given, str) else json.dumps(_codec.encode(given, 4), ensure_ascii=False)


def _get_plain_text(block: object) -> str | None:
    return block.text if type(block) is TextBlock and isinstance(block.text, str) else None


def build_text_block(text: str) -> TextBlock:
    """A block of text, without the cost of checking that it is one."""
    return _build_unchecked(TextBlock, {"block_type": "text", "text": text})


def build_chat_message(role: MessageRole, blocks: list[Any], kwargs: dict[str, Any]) -> ChatMessage:
    """A message of what is known to be right."""
    return _build_unchecked(ChatMessage, {"role": role, "additional_kwargs": kwargs, "blocks": blocks})


def _build_unchecked(kind: type[_Model], fields: dict[str, Any]) -> _Model:
    # As model_construct() does it for all fields, in a fifth of the time: a view has hundreds of messages.
    model = kind.__new__(kind)
    _set_attribute(model, "__dict__", fields)
    _set_attribute(model, "__pydantic_fields_set__", set(fields))
    _set_attribute(model, "__pydantic_extra__", None)
    _set_attribute(model, "__pydantic_private__", None)
    return model


@cache
def _describe_block_type(kind: type[BaseContentBlock]) -> tuple[str, dict[str, object]]:
    base = next((one for one in kind.__mro__ if one in _BLOCK_NAMES), None)
    if base is None:
        raise InvalidMessageError(
            f"a {kind.__name__} is no content block of LlamaIndex: use {', '.join(sorted(_BLOCK_TYPES))} blocks"
        )
    return _BLOCK_NAMES[base], {
        name: field.get_default(call_default_factory=True)
        for name, field in base.model_fields.items()
        if not field.is_required()
    }


def _encode_block(block: object, depth: int = 2) -> JsonValue:
    if not isinstance(block, BaseContentBlock):
        raise InvalidMessageError(
            f"a {type(block).__name__} is no content block of LlamaIndex: use TextBlock(text=...) and the like"
        )
    name, defaults = _describe_block_type(type(block))
    fields = {
        key: _codec.encode(_read_stream(value) if isinstance(value, IOBase) else value, depth + 2)
        for key, value in block.__dict__.items()
        if key not in defaults or value != defaults[key]
    }
    return {"block": name, **fields}


def _read_stream(stream: IOBase) -> object:
    try:
        place = stream.tell()
        stream.seek(0)
        data: object = stream.read()
        stream.seek(place)
    except (OSError, ValueError):  # closed, or one that can be read once: the model is to read it
        return describe_unstored(stream)
    return data


def _decode_block(stored: object) -> BaseContentBlock | None:
    kind = _BLOCK_TYPES.get(str(stored.get("block"))) if isinstance(stored, dict) else None
    if kind is None or not isinstance(stored, dict):
        return None
    fields = {key: _codec.decode(value) for key, value in stored.items() if key != "block"}
    return kind.model_construct(**fields)


def _encode_model(value: BaseModel, depth: int) -> JsonValue:
    return _codec.encode_dict({**value.__dict__, **(value.__pydantic_extra__ or {})}, depth)


_codec: ValueCodec = ValueCodec(
    (
        (ChatMessage, lambda value, _: tag("message", encode_chat_message(value, ""))),
        (BaseContentBlock, lambda value, depth: tag("block", _encode_block(value, depth + 1))),
        (AnyUrl, lambda value, _: tag("url", str(value))),
        (ToolSelection, lambda value, depth: tag("tool_selection", _encode_model(value, depth + 1))),
        (BaseModel, _encode_model),
    ),
    {
        "message": lambda stored: decode_chat_message(stored, ""),
        "block": _decode_block,
        "url": AnyUrl,
        "tool_selection": lambda stored: ToolSelection.model_construct(**_codec.decode(stored)),
    },
)
