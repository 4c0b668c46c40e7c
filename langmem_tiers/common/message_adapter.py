"""Read messages of any framework by their attributes, without importing the framework."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from langmem_tiers.common.json_values import to_plain_value
from langmem_tiers.common.messages import Message, MessageDraft, MessageToolCall, Role
from langmem_tiers.errors import InvalidMessageError

_ROLES = {
    "ai": Role.ASSISTANT,
    "assistant": Role.ASSISTANT,
    "chatbot": Role.ASSISTANT,
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    "human": Role.USER,
    "model": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
    "user": Role.USER,
}
_STREAM_CHUNK_SUFFIX = "MessageChunk"  # the types of LangChain's stream chunks are AIMessageChunk and so on
_MAX_ROLE_CHARACTERS = 20  # longer values are assumed not to be role names
_TYPES_WITH_ROLE = {"chat", "ChatMessageChunk"}  # message types whose author is in a separate role attribute
_CALL_BLOCK_TYPES = {"tool_call", "tool_use", "function_call"}
_ARGUMENT_KEYS = ("args", "arguments", "input", "tool_kwargs")
_USAGE_HINT = "pass Message, MessageDraft, {'role': ..., 'content': ...} or a framework's messages"


def read_messages(messages: object) -> list[Message | MessageDraft]:
    """Convert the messages of any framework to drafts.

    Args:
        messages: Messages and drafts of this library, mappings with ``role`` (or ``type``) and ``content``, or
            objects with attributes of these names, such as those of LangChain and LlamaIndex.

    Raises:
        InvalidMessageError: ``messages`` is not a list, or a message has no role or no text.
    """
    if isinstance(messages, str | bytes | Mapping | Message | MessageDraft) or not isinstance(
        messages, Iterable
    ):
        raise InvalidMessageError(f"messages must be a list, got {type(messages).__name__}: {_USAGE_HINT}")
    return [_read_message(message, f"message {index}") for index, message in enumerate(messages)]


def read_extra_tool_calls(message: object) -> list[MessageToolCall]:
    """Return the tool calls in a message's ``additional_kwargs``."""
    calls = _get_extra(message, "tool_calls")
    return [_read_tool_call(call) for call in calls] if isinstance(calls, list | tuple) else []


def _read_message(message: object, what: str) -> Message | MessageDraft:
    if isinstance(message, Message | MessageDraft):
        return message
    if isinstance(message, str | bytes | tuple | list) or message is None:
        raise InvalidMessageError(f"{what} is a {type(message).__name__}: {_USAGE_HINT}")
    name = _get(message, "name")
    call_id = _get(message, "tool_call_id") or _get_extra(message, "tool_call_id")
    return MessageDraft(
        _read_role(message, what),
        _read_text(message, what),
        name=name if isinstance(name, str) else None,
        tool_calls=_read_tool_calls(message),
        tool_call_id=call_id if isinstance(call_id, str) else None,
    )


def _read_role(message: object, what: str) -> Role:
    # LangChain's messages name their author in "type", the others in "role".
    kind, role = _get(message, "type"), _get(message, "role")
    found = role if kind is None or kind in _TYPES_WITH_ROLE else kind
    if (
        isinstance(found, str)
        and (known := _ROLES.get(found.removesuffix(_STREAM_CHUNK_SUFFIX).lower())) is not None
    ):
        return known
    if found is None:
        raise InvalidMessageError(f"{what} is a {type(message).__name__} without a role: {_USAGE_HINT}")
    # A long value may be message text, which must not appear in errors.
    is_short = isinstance(found, str) and len(found) <= _MAX_ROLE_CHARACTERS
    shown = repr(str(found)) if is_short else f"of type {type(found).__name__}"
    raise InvalidMessageError(f"{what} has the unknown role {shown}: use one of {', '.join(_ROLES)}")


def _read_text(message: object, what: str) -> str:
    content = _get(message, "content")
    if content is None:
        content = _get(message, "text")
    if isinstance(content, str):
        return str(content)
    # A message that only calls tools may have content None.
    if content is None and (_read_tool_calls(message) or _has(message, "content")):
        return ""
    if isinstance(content, list | tuple):
        return "\n".join(filter(None, map(_read_block_text, content)))
    raise InvalidMessageError(f"{what} has no text (content is a {type(content).__name__}): {_USAGE_HINT}")


def _read_block_text(block: object) -> str:
    # Image, audio and reasoning blocks have no text to store. _read_tool_calls() reads the tool calls.
    if isinstance(block, str):
        return block
    text = _get(block, "text")
    inside = _get(block, "content") if text is None else text  # Anthropic's tool results
    if isinstance(inside, list | tuple):
        return "\n".join(filter(None, map(_read_block_text, inside)))
    return inside if isinstance(inside, str) else ""


def _read_tool_calls(message: object) -> list[MessageToolCall]:
    calls = _get(message, "tool_calls") or _get_extra(message, "tool_calls")
    if not calls:
        # LlamaIndex and Anthropic put tool calls among the content blocks.
        blocks = _get(message, "blocks") or _get(message, "content")
        calls = (
            [block for block in blocks if _is_tool_call_block(block)]
            if isinstance(blocks, list | tuple)
            else None
        )
    return [_read_tool_call(call) for call in calls] if isinstance(calls, list | tuple) else []


def _is_tool_call_block(block: object) -> bool:
    return (_get(block, "type") or _get(block, "block_type")) in _CALL_BLOCK_TYPES


def _read_tool_call(call: object) -> MessageToolCall:
    if isinstance(call, MessageToolCall):
        return call
    function = _get(call, "function") or call  # OpenAI nests name and arguments in "function"
    name, arguments = _get_first(function, "name", "tool_name"), _get_first(function, *_ARGUMENT_KEYS)
    return MessageToolCall(
        id=str(_get_first(call, "id", "tool_call_id", "tool_id") or ""),
        name=str(name or "tool"),
        arguments=arguments if isinstance(arguments, str) else _to_json_text(arguments),
    )


def _to_json_text(value: object) -> str:
    try:
        return json.dumps({} if value is None else value, ensure_ascii=False, default=str)
    except Exception:  # noqa: BLE001 - str() of a foreign object may raise anything
        return json.dumps(to_plain_value(value), ensure_ascii=False)


def _get_first(source: object, *names: str) -> object:
    return next((found for name in names if (found := _get(source, name)) is not None), None)


def _get_extra(message: object, name: str) -> object:
    extra = _get(message, "additional_kwargs")
    return _get(extra, name) if isinstance(extra, Mapping) else None


def _get(source: object, name: str) -> object:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _has(source: object, name: str) -> bool:
    return name in source if isinstance(source, Mapping) else hasattr(source, name)
