"""Lossless JSON codec for LlamaIndex messages and their contents.

Stored messages are decoded without their validators. They can therefore be read even if referenced files no longer
exist, or if images are in the format of older releases.
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

from langmem_tiers import InvalidMessageError
from langmem_tiers.integration_kit import ValueCodec, describe_unstored, tag

if TYPE_CHECKING:
    from langmem_tiers.integration_kit import JsonValue

PAYLOAD_KEY = "chat_message"
"""Key of a payload that contains a LlamaIndex message."""
LEGACY_IMAGES = "images"
"""Key of images in older releases; validators copy them to blocks, so they are not stored twice."""
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
    """Encode all fields of a message; a plain message is encoded as its role only.

    Args:
        message: The message.
        text: Content of the stored message, which is not repeated in the payload.

    Raises:
        InvalidMessageError: The role or one of the blocks is invalid.
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
    """Decode a payload; None if it is not a LlamaIndex message."""
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
    """Return the role of a message.

    Raises:
        InvalidMessageError: The role is unknown.
    """
    role: object = message.role  # anything, if the message was built without its validators
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidMessageError(f"unknown role {role!r:.60}: use one of {', '.join(_ROLES)}")
    return _ROLES[role]


def dump_tool_arguments(block: ToolCallBlock) -> str:
    """Return the arguments of a tool call as JSON; storing and restoring the call does not change them."""
    arguments = block.tool_kwargs
    return (
        arguments
        if isinstance(arguments, str)
        else json.dumps(_codec.encode(arguments, 4), ensure_ascii=False)
    )


def _get_plain_text(block: object) -> str | None:
    return block.text if type(block) is TextBlock and isinstance(block.text, str) else None


def build_text_block(text: str) -> TextBlock:
    """Build a text block without the cost of validation."""
    return _build_unchecked(TextBlock, {"block_type": "text", "text": text})


def build_chat_message(role: MessageRole, blocks: list[Any], kwargs: dict[str, Any]) -> ChatMessage:
    """Build a message from valid parts without the cost of validation."""
    return _build_unchecked(ChatMessage, {"role": role, "additional_kwargs": kwargs, "blocks": blocks})


def _build_unchecked(kind: type[_Model], fields: dict[str, Any]) -> _Model:
    # Like model_construct() with all fields, but five times faster, because a view has hundreds of messages.
    model = kind.__new__(kind)
    _set_attribute(model, "__dict__", fields)
    _set_attribute(model, "__pydantic_fields_set__", set(fields))
    _set_attribute(model, "__pydantic_extra__", None)
    _set_attribute(model, "__pydantic_private__", None)
    return model


@cache
def _describe_block_type(kind: type[BaseContentBlock]) -> tuple[str, dict[str, object]]:
    base = next((parent for parent in kind.__mro__ if parent in _BLOCK_NAMES), None)
    if base is None:
        raise InvalidMessageError(
            f"expected a LlamaIndex content block, got {kind.__name__}: use {', '.join(sorted(_BLOCK_TYPES))} blocks"
        )
    return _BLOCK_NAMES[base], {
        name: field.get_default(call_default_factory=True)
        for name, field in base.model_fields.items()
        if not field.is_required()
    }


def _encode_block(block: object, depth: int = 2) -> JsonValue:
    if not isinstance(block, BaseContentBlock):
        raise InvalidMessageError(
            f"expected a LlamaIndex content block, got {type(block).__name__}: use TextBlock(text=...) or another "
            "block"
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
        position = stream.tell()
        stream.seek(0)
        data: object = stream.read()
        stream.seek(position)
    except (OSError, ValueError):  # closed, or not seekable: leave it for the model to read
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
