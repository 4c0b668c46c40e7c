"""Messages of any framework read by their shape, without importing one: who speaks, what is said, what is called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from langmem_tiers.common.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.common.plain_values import to_plain_value
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
_STREAM_CHUNK_SUFFIX = "MessageChunk"  # LangChain's pieces of a stream are called AIMessageChunk and the like
_MAX_ROLE_CHARACTERS = 20  # characters of a word that may be meant as one
_TYPES_WITH_ROLE = {"chat", "ChatMessageChunk"}  # kinds of messages that say who speaks beside it
_CALL_BLOCK_TYPES = {"tool_call", "tool_use", "function_call"}
_ARGUMENT_KEYS = ("args", "arguments", "input", "tool_kwargs")
_USAGE_HINT = "pass Message, MessageDraft, {'role': ..., 'content': ...} or a framework's messages"


def read_messages(messages: object) -> list[Message | MessageDraft]:
    """Each message of a list, whatever framework made it.

    Args:
        messages: Our own messages and drafts, mappings with ``role`` (or ``type``) and ``content``, and
            objects with attributes of these names, as those of LangChain and LlamaIndex have.

    Raises:
        InvalidMessageError: It is no list, or one of it has no role or no text.
    """
    if isinstance(messages, str | bytes | Mapping | Message | MessageDraft) or not isinstance(
        messages, Iterable
    ):
        raise InvalidMessageError(f"messages must be a list, got a {type(messages).__name__}: {_USAGE_HINT}")
    return [_read_message(one, f"message {index}") for index, one in enumerate(messages)]


def read_extra_tool_calls(one: object) -> list[ToolCall]:
    """The tool calls that a message has beside its content, in ``additional_kwargs``."""
    calls = _get_extra(one, "tool_calls")
    return [_read_tool_call(call) for call in calls] if isinstance(calls, list | tuple) else []


def _read_message(one: object, what: str) -> Message | MessageDraft:
    if isinstance(one, Message | MessageDraft):
        return one
    if isinstance(one, str | bytes | tuple | list) or one is None:
        raise InvalidMessageError(f"{what} is a {type(one).__name__}: {_USAGE_HINT}")
    name, answers = _get(one, "name"), _get(one, "tool_call_id") or _get_extra(one, "tool_call_id")
    return MessageDraft(
        _read_role(one, what),
        _read_text(one, what),
        name=name if isinstance(name, str) else None,
        tool_calls=_read_tool_calls(one),
        tool_call_id=answers if isinstance(answers, str) else None,
    )


def _read_role(one: object, what: str) -> Role:
    kind, role = _get(one, "type"), _get(one, "role")
    found = role if kind is None or kind in _TYPES_WITH_ROLE else kind
    if (
        isinstance(found, str)
        and (known := _ROLES.get(found.removesuffix(_STREAM_CHUNK_SUFFIX).lower())) is not None
    ):
        return known
    if found is None:
        raise InvalidMessageError(f"{what} is a {type(one).__name__} without a role: {_USAGE_HINT}")
    is_short = isinstance(found, str) and len(found) <= _MAX_ROLE_CHARACTERS
    shown = repr(str(found)) if is_short else f"of type {type(found).__name__}"
    raise InvalidMessageError(f"{what} has the unknown role {shown}: use one of {', '.join(_ROLES)}")


def _read_text(one: object, what: str) -> str:
    content = _get(one, "content")
    if content is None:
        content = _get(one, "text")
    if isinstance(content, str):
        return str(content)
    if content is None and (_read_tool_calls(one) or _has(one, "content")):
        return ""
    if isinstance(content, list | tuple):
        return "\n".join(filter(None, map(_read_block_text, content)))
    raise InvalidMessageError(f"{what} has no text, its content is a {type(content).__name__}: {_USAGE_HINT}")


def _read_block_text(block: object) -> str:
    # Pictures, sounds and thoughts have no text to keep; calls are read as calls.
    if isinstance(block, str):
        return block
    text = _get(block, "text")
    inside = _get(block, "content") if text is None else text  # Anthropic's results of tools
    if isinstance(inside, list | tuple):
        return "\n".join(filter(None, map(_read_block_text, inside)))
    return inside if isinstance(inside, str) else ""


def _read_tool_calls(one: object) -> list[ToolCall]:
    calls = _get(one, "tool_calls") or _get_extra(one, "tool_calls")
    if not calls:
        blocks = _get(one, "blocks") or _get(one, "content")
        calls = (
            [block for block in blocks if _is_tool_call_block(block)]
            if isinstance(blocks, list | tuple)
            else None
        )
    return [_read_tool_call(call) for call in calls] if isinstance(calls, list | tuple) else []


def _is_tool_call_block(block: object) -> bool:
    return (_get(block, "type") or _get(block, "block_type")) in _CALL_BLOCK_TYPES


def _read_tool_call(call: object) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    named = _get(call, "function") or call  # OpenAI's form, or one without a level in between
    name, arguments = _get_first(named, "name", "tool_name"), _get_first(named, *_ARGUMENT_KEYS)
    return ToolCall(
        id=str(_get_first(call, "id", "tool_call_id", "tool_id") or ""),
        name=str(name or "tool"),
        arguments=arguments if isinstance(arguments, str) else _to_json_text(arguments),
    )


def _to_json_text(value: object) -> str:
    try:
        return json.dumps({} if value is None else value, ensure_ascii=False, default=str)
    except Exception:  # noqa: BLE001 - an object in it may raise anything as it is written
        return json.dumps(to_plain_value(value), ensure_ascii=False)


def _get_first(one: object, *names: str) -> object:
    return next((found for name in names if (found := _get(one, name)) is not None), None)


def _get_extra(one: object, name: str) -> object:
    beside = _get(one, "additional_kwargs")
    return _get(beside, name) if isinstance(beside, Mapping) else None


def _get(one: object, name: str) -> object:
    return one.get(name) if isinstance(one, Mapping) else getattr(one, name, None)


def _has(one: object, name: str) -> bool:
    return name in one if isinstance(one, Mapping) else hasattr(one, name)
