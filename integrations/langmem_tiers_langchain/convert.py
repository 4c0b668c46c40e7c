"""Conversion of messages, sessions and contexts between LangChain and the engine, without loss."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_tiers import (
    ContentAwareCounter,
    InvalidMessageError,
    InvalidNameError,
    Message,
    MessageDraft,
    MessageToolCall,
    Role,
)
from langmem_tiers.integration_kit import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
    check_name,
    count_draft,
    neutralize_fence_tags,
    wrap_in_fence,
)
from langmem_tiers_langchain.message_codec import decode_base_message, encode_base_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langmem_tiers import MemoryContext, TokenCounter

SOURCE = "langmem_tiers"
SOURCE_METADATA = {"lc_source": SOURCE}
"""Value for the ``additional_kwargs`` of a message or the metadata of a model call."""
_IMAGE_TYPES = frozenset(("image", "image_url", "input_image", "image_file"))
_AUDIO_TYPES = frozenset(("audio", "input_audio", "audio_url"))
_VIDEO_TYPES = frozenset(("video", "video_url", "input_video"))
_FILE_TYPES = frozenset(("file", "input_file", "document"))
_MEDIA_TYPES = _IMAGE_TYPES | _AUDIO_TYPES | _VIDEO_TYPES | _FILE_TYPES
# Counted as the text or the tool calls of the message, or, like reasoning, not sent to the model again.
_UNCOUNTED_TYPES = frozenset(
    (
        "text", "output_text", "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call",
        "input_json_delta", "reasoning", "reasoning_content", "thinking", "redacted_thinking",
    )
)  # fmt: skip
_MAX_WORD_CHARACTERS = 200  # a longer text without spaces is data, such as base64
_MAX_DEPTH = 50


def part_tokens(message: BaseMessage) -> int:
    """Return the tokens of images, audio, video and files in a message; 0 for plain text."""
    content = message.content
    if not isinstance(content, list):
        return 0
    return sum(_count_block_tokens(block) for block in content if isinstance(block, dict))


def _find_kind(block: dict[Any, Any]) -> str:
    kind = block.get("type")
    if kind == "media":  # Google puts the kind into the MIME type
        kind = str(block.get("mime_type", "")).partition("/")[0]
        return kind if kind in {"image", "audio", "video"} else "file"
    if isinstance(kind, str):
        return kind
    # Bedrock blocks have no type, but a single key that names the kind.
    return next((key for key in ("image", "video", "audio", "document") if key in block), "")


def _count_block_tokens(block: dict[Any, Any], depth: int = 0) -> int:
    kind = _find_kind(block)
    if kind in _UNCOUNTED_TYPES:
        return 0
    if kind in _IMAGE_TYPES:
        return SMALL_IMAGE_TOKENS if _is_small(block) else IMAGE_TOKENS
    if kind in _AUDIO_TYPES:
        return AUDIO_TOKENS
    if kind in _VIDEO_TYPES:
        return VIDEO_TOKENS
    return FILE_TOKENS if kind in _FILE_TYPES and not _is_text(block) else _count_text_tokens(block, depth)


def _is_small(block: dict[Any, Any]) -> bool:
    inside = block.get("image_url")
    return "low" in (block.get("detail"), inside.get("detail") if isinstance(inside, dict) else None)


def _is_text(block: dict[Any, Any]) -> bool:
    source = block.get("source")
    return isinstance(source, dict) and source.get("type") in ("text", "content")


def _count_text_tokens(value: object, depth: int) -> int:
    # A block of an unknown type counts as its texts and nested blocks. Only the beginning of a text is searched
    # for a space, because data may be several megabytes.
    if isinstance(value, str):
        is_data = (
            len(value) > _MAX_WORD_CHARACTERS
            and value.isascii()
            and " " not in value[: 4 * _MAX_WORD_CHARACTERS]
        )
        return 0 if is_data or value.startswith("data:") else ContentAwareCounter().count(value)
    if depth > _MAX_DEPTH:
        return 0
    if isinstance(value, list):
        return sum(_count_nested_tokens(part, depth + 1) for part in value)
    if isinstance(value, dict):
        return sum(_count_nested_tokens(part, depth + 1) for key, part in value.items() if key != "type")
    return 0


def _count_nested_tokens(value: object, depth: int) -> int:
    if isinstance(value, dict) and _find_kind(value) in _MEDIA_TYPES:
        return _count_block_tokens(value, depth)
    return _count_text_tokens(value, depth)


__all__ = ["get_stored_id", "part_tokens", "to_draft", "to_message"]

_ROLES: tuple[tuple[type[BaseMessage], Role], ...] = (
    (HumanMessage, Role.USER),
    (AIMessage, Role.ASSISTANT),
    (ToolMessage, Role.TOOL),
    (SystemMessage, Role.SYSTEM),
    (FunctionMessage, Role.TOOL),
)
_ROLES_BY_NAME = {
    **dict.fromkeys(("assistant", "ai", "model", "bot", "agent", "chatbot"), Role.ASSISTANT),
    **dict.fromkeys(("system", "developer"), Role.SYSTEM),
    **dict.fromkeys(("tool", "function", "ipython"), Role.TOOL),
    **dict.fromkeys(("user", "human"), Role.USER),
}


def to_draft(
    message: BaseMessage,
    counter: TokenCounter | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the name that frameworks use
) -> MessageDraft:
    """Convert a LangChain message to a draft for the engine; the payload has the whole message.

    Args:
        message: Message of any type except ``RemoveMessage``.
        counter: Token counter for the text next to images, audio and files. Pass ``engine.counter``.
        id: Id of the draft. Default: the id of the message.

    Raises:
        InvalidMessageError: The object is not a message, or is a ``RemoveMessage``.
    """
    _check_message(message)
    role, speaker = _find_role(message)
    fields: dict[str, Any] = {
        "name": message.name if isinstance(message.name, str) and message.name else speaker,
        "tool_calls": _list_calls(message),
        "tool_call_id": message.tool_call_id if isinstance(message, ToolMessage) else None,
    }
    text = _get_text(message)
    tokens = None
    if parts := part_tokens(message):
        counter = ContentAwareCounter() if counter is None else counter
        tokens = count_draft(counter, MessageDraft(role, text, **fields)) + parts
    return MessageDraft(
        role,
        text,
        id=id or (get_stored_id(message) if message.id else None),
        payload=encode_base_message(message),
        token_count=tokens,
        **fields,
    )


def to_message(message: Message) -> BaseMessage:
    """Convert a stored message to the original LangChain message.

    A compressed message, or one that was not stored by this adapter, becomes the LangChain message of its role.
    """
    stored = None if message.payload_json is None else decode_base_message(message.payload)
    return _build_message(message) if stored is None else stored


def _check_message(message: object) -> None:
    if isinstance(message, RemoveMessage):
        raise InvalidMessageError(
            f"the RemoveMessage for {message.id!r} cannot be stored: omit it, or erase the session to forget its "
            "messages"
        )
    if not isinstance(message, BaseMessage):
        raise InvalidMessageError(
            f"expected a LangChain message, got {type(message).__name__}: use HumanMessage(...), AIMessage(...) "
            "or convert_to_messages([...])"
        )


def _find_role(message: BaseMessage) -> tuple[Role, str | None]:
    # Return the role, and the speaker's name if the engine does not know the original role.
    for kind, role in _ROLES:
        if isinstance(message, kind):
            return role, None
    name = str(message.role if isinstance(message, ChatMessage) else message.type)
    known_role = _ROLES_BY_NAME.get(name.strip().lower())
    return (Role.USER, name or None) if known_role is None else (known_role, None)


def _get_text(message: BaseMessage) -> str:
    content: object = message.content
    if type(content) is str:
        return content
    return str.__str__(message.text) if isinstance(content, str | list) else ""


def get_stored_id(message: BaseMessage) -> str:
    """Return the id in the store for a message that has an id."""
    message_id = str(message.id)
    try:
        return check_name(message_id, "message id")
    except InvalidNameError:  # too long for a key, for example: use a hash; the payload has the full id
        return hashlib.blake2b(message_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _list_calls(message: BaseMessage) -> tuple[MessageToolCall, ...]:
    if not isinstance(message, AIMessage) or not (message.tool_calls or message.invalid_tool_calls):
        return ()
    calls: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
    return tuple(_to_tool_call(index, call) for index, call in enumerate(calls))


def _to_tool_call(index: int, call: Mapping[str, Any]) -> MessageToolCall:
    name, arguments = str(call.get("name") or ""), _dump_arguments(call.get("args"))
    return MessageToolCall(str(call.get("id") or _build_call_id(index, name, arguments)), name, arguments)


def _build_call_id(index: int, name: str, arguments: str) -> str:
    # Deterministic, so that storing the same message again is recognized as a repeat.
    content = f"{index} {name} {arguments}".encode("utf-8", "surrogatepass")
    return f"call-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def _dump_arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return "{}"
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return "{}"  # not valid JSON, for example other keys than str: the payload has the arguments


def _build_message(message: Message) -> BaseMessage:
    common: dict[str, Any] = {"content": message.content, "id": message.id, "name": message.name}
    if message.role is Role.USER:
        return HumanMessage(**common)
    if message.role is Role.SYSTEM:
        return SystemMessage(**common)
    if message.role is Role.TOOL:
        return ToolMessage(**common, tool_call_id=message.tool_call_id or "")
    valid, invalid = [], []
    for call in message.tool_calls:
        arguments = _parse_object(call.arguments)
        if arguments is None:
            invalid.append({"id": call.id, "name": call.name, "args": call.arguments, "error": None})
        else:
            valid.append({"id": call.id, "name": call.name, "args": arguments})
    return AIMessage(**common, tool_calls=valid, invalid_tool_calls=invalid)


def _parse_object(arguments: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def to_record_messages(messages: Iterable[Message]) -> list[BaseMessage]:
    """Convert stored messages, without the summaries that the engine wrote."""
    return [
        to_message(message)
        for message in messages
        if not (message.is_summary and message.payload_json is None)
    ]


def to_context_messages(context: MemoryContext) -> list[BaseMessage]:
    """Convert a context to LangChain messages.

    The summary and all recalled memories become one system message. It follows the system messages at the
    beginning of the conversation, because several providers reject system messages among other messages.
    """
    conversation_ids = {*context.full, *context.compressed}
    conversation = [to_message(message) for message in context.messages if message.id in conversation_ids]
    injected = [_fence_summary(message) for message in context.messages if message.id not in conversation_ids]
    if not injected:
        return conversation
    leading = len(list(itertools.takewhile(lambda message: isinstance(message, SystemMessage), conversation)))
    memory = SystemMessage("\n\n".join(injected), additional_kwargs=dict(SOURCE_METADATA))
    return [*conversation[:leading], memory, *conversation[leading:]]


def is_added_by_middleware(message: BaseMessage) -> bool:
    """Return True if a middleware added the message, such as a summary of older messages."""
    return bool(message.additional_kwargs.get("lc_source"))


def is_from_memory(message: BaseMessage) -> bool:
    """Return True if the message is the system message that ``to_context_messages`` added."""
    return isinstance(message, SystemMessage) and message.additional_kwargs.get("lc_source") == SOURCE


def _fence_summary(message: Message) -> str:
    # Recalled memories are already fenced. A summary contains text of users and tools: data, not instructions.
    return wrap_in_fence([neutralize_fence_tags(message.content)]) if message.is_summary else message.content
