"""Lossless conversion between LlamaIndex messages and stored messages, and texts that templates leave alone."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import (
    AudioBlock,
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

from langmem_tiers import (
    ContentAwareCounter,
    InvalidMessageError,
    Message,
    MessageDraft,
    MessageToolCall,
    Role,
)
from langmem_tiers.integration_kit import (
    AUDIO_TOKENS,
    FENCE_CLOSING,
    FENCE_OPENING,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
    count_draft,
    is_only_fenced,
    read_extra_tool_calls,
    strip_fences,
    to_json,
)
from langmem_tiers_llamaindex.message_codec import (
    PAYLOAD_KEY,
    build_chat_message,
    build_text_block,
    decode_chat_message,
    dump_tool_arguments,
    encode_chat_message,
    get_chat_role,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers import TokenCounter


__all__ = [
    "PLACEHOLDER_NAMES",
    "get_answered_call_id",
    "get_call_ids",
    "get_tool_calls",
    "map_text",
    "message_tokens",
    "protect_placeholders",
    "remove_memory",
    "restore_placeholders",
    "to_draft",
    "to_message",
]

_ROLES = {
    MessageRole.SYSTEM: Role.SYSTEM,
    MessageRole.DEVELOPER: Role.SYSTEM,
    MessageRole.USER: Role.USER,
    MessageRole.ASSISTANT: Role.ASSISTANT,
    MessageRole.CHATBOT: Role.ASSISTANT,
    MessageRole.MODEL: Role.ASSISTANT,
    MessageRole.FUNCTION: Role.TOOL,
    MessageRole.TOOL: Role.TOOL,
}
_CHAT_ROLES = {
    Role.SYSTEM: MessageRole.SYSTEM,
    Role.USER: MessageRole.USER,
    Role.ASSISTANT: MessageRole.ASSISTANT,
    Role.TOOL: MessageRole.TOOL,
}
_INJECTABLE_ROLES = (Role.SYSTEM, Role.USER)
"""Roles of messages into which memory is inserted."""
_PLAIN_PAYLOADS = {to_json({PAYLOAD_KEY: role.value}, "payload"): role for role in MessageRole}
"""Stored payloads of plain messages, which consist of a role and a text."""
_STEP_LABEL = re.compile(r"^(Thought|Action|Action Input|Observation|Answer): ?", re.MULTILINE)
_ANSWER_LABEL = "\nAnswer:"
_MAX_THOUGHT_TOKENS = 1_000_000
"""Maximum plausible size of one thought; larger reported numbers are ignored."""
_MEDIA_TOKENS: dict[type, int] = {
    ImageBlock: IMAGE_TOKENS,
    AudioBlock: AUDIO_TOKENS,
    VideoBlock: VIDEO_TOKENS,
}
PLACEHOLDER_NAMES = ("query_str", "context_str", "context_msg", "existing_answer")
"""Placeholders that LlamaIndex's chat engines fill in, also in the history, which they use in templates."""
# An invisible character inside ``{query_str}`` prevents that. It is removed again when the text is stored.
_JOINER = "\N{WORD JOINER}"
_NAME = rf"(?=(?:{'|'.join(PLACEHOLDER_NAMES)})\}})"
_PLACEHOLDER = re.compile(rf"\{{{_NAME}")
_PROTECTED = re.compile(rf"\{{{_JOINER}{_NAME}")


def to_draft(
    message: ChatMessage,
    counter: TokenCounter | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the name that frameworks use
    answers: str | None = None,
) -> MessageDraft:
    """Convert a LlamaIndex message to a draft for the engine; the payload has the whole message.

    Text that memory injected into the message is removed. The content of a ``ReActAgent`` trace is limited to
    observations and the answer; the payload has the whole trace.

    Args:
        message: The message.
        counter: Token counter for the text next to images, audio and files. Pass ``engine.counter``.
        id: Id of the stored message. Default: a new id.
        answers: Id of the answered tool call, if the message itself does not have it.

    Raises:
        InvalidMessageError: The object is not a message, or its role or one of its blocks is invalid.
    """
    if not isinstance(message, ChatMessage):
        raise InvalidMessageError(
            f"expected a LlamaIndex message, got {type(message).__name__}: use ChatMessage(role='user', "
            "content='...')"
        )
    _check_message(message)
    message = remove_memory(message) or message
    role = _ROLES[get_chat_role(message)]
    full_text = _get_text(message)
    text = _strip_reasoning(full_text) if role is Role.ASSISTANT else full_text
    if role is Role.TOOL and is_only_fenced(full_text):
        text = ""  # keep the result of a memory tool for its call, but do not store recalled memories again
    fields: dict[str, Any] = {
        "tool_calls": get_tool_calls(message),
        "tool_call_id": answers or get_answered_call_id(message),
    }
    payload = encode_chat_message(message, text)
    tokens = None
    counter = ContentAwareCounter() if counter is None else counter
    if (parts := _count_part_tokens(message.blocks, counter.count)) or text is not full_text:
        # The model sees the whole message, so its tokens are counted, not those of the shortened content.
        tokens = count_draft(counter, MessageDraft(role, full_text, **fields)) + parts
    return MessageDraft(role, text, id=id, payload=payload, token_count=tokens, **fields)


def to_message(message: Message) -> ChatMessage:
    """Convert a stored message to the original LlamaIndex message.

    A compressed message, or one that was not stored by this adapter, becomes the LlamaIndex message of its role.
    """
    form = message.payload_json
    if form is None:
        return _build_message(message)
    if (role := _PLAIN_PAYLOADS.get(form)) is not None:  # most messages: skip parsing the payload
        return build_chat_message(role, [build_text_block(message.content)], {})
    return decode_chat_message(message.payload, message.content) or _build_message(message)


def message_tokens(message: ChatMessage, count: Callable[[str], int]) -> int:
    """Return the tokens of a message: text, thoughts and tool calls, with estimates for images and other media.

    Args:
        message: The message.
        count: Function that counts the tokens of a text.
    """
    calls = _list_calls(message)
    tokens = count(_get_text(message)) + _count_part_tokens(message.blocks, count)
    return tokens + sum(count(f"{call.name} {call.arguments}") for call in calls)


def remove_memory(message: ChatMessage) -> ChatMessage | None:
    """Return the message without injected memory; None if nothing is left."""
    is_injectable = _ROLES.get(message.role) in _INJECTABLE_ROLES
    cleaned = [_remove_injected_text(block, is_injectable=is_injectable) for block in message.blocks]
    remaining = [block for block in cleaned if block is not None]
    if message.blocks and not remaining:
        return None
    if all(new is old for new, old in zip(cleaned, message.blocks, strict=True)):
        return message
    return message.model_copy(update={"blocks": remaining})


def get_tool_calls(message: ChatMessage) -> tuple[MessageToolCall, ...]:
    """Return the tool calls of a message, each with an id."""
    return _list_calls(message) if _ROLES.get(message.role) is Role.ASSISTANT else ()


def get_call_ids(message: ChatMessage) -> set[str]:
    """Return the ids of the tool calls of a message."""
    return {call.id for call in get_tool_calls(message)}


def get_answered_call_id(message: ChatMessage) -> str | None:
    """Return the id of the tool call that a message answers, if the message has it."""
    call_id = message.additional_kwargs.get("tool_call_id")
    return call_id if call_id and isinstance(call_id, str) and _ROLES.get(message.role) is Role.TOOL else None


def _check_message(message: ChatMessage) -> None:
    # A message that was built without its validators may contain anything.
    get_chat_role(message)
    blocks: object = message.blocks
    kwargs: object = message.additional_kwargs
    if not isinstance(blocks, list) or not isinstance(kwargs, dict):
        raise InvalidMessageError(
            f"invalid message: expected blocks to be a list and additional_kwargs to be a dict, got "
            f"{type(blocks).__name__} and {type(kwargs).__name__}: use ChatMessage(role='user', content='...')"
        )


def _remove_injected_text(block: Any, *, is_injectable: bool) -> Any:  # noqa: ANN401 - any block, or None for one of ours
    text = block.text if type(block) is TextBlock else None
    if is_injectable and isinstance(text, str):
        if is_only_fenced(text):
            return None
        # If an agent joined the blocks into one text, memory is at its beginning or at its end.
        if text.startswith(FENCE_OPENING) or text.endswith(FENCE_CLOSING):
            block = build_text_block(strip_fences(text))
    return map_text(block, restore_placeholders)


def _get_text(message: ChatMessage) -> str:
    return "\n".join(text for block in message.blocks for text in _list_texts(block))


def _list_texts(block: object) -> Iterable[str]:
    if isinstance(block, TextBlock):
        text: object = block.text  # anything, if the block was built without its validators
        return [text] if isinstance(text, str) else ()
    return [text for part in _list_nested_blocks(block) for text in _list_texts(part)]


def _list_nested_blocks(block: object) -> list[Any]:
    if isinstance(block, CitableBlock):
        parts: object = block.content
        return parts if isinstance(parts, list) else []
    return [block.cited_content] if isinstance(block, CitationBlock) else []


def _strip_reasoning(text: str) -> str:
    # The trace of a ReActAgent: keep its observations and its answer.
    if not text.startswith("Thought:") or _ANSWER_LABEL not in text:
        return text
    trace, _, answer = text.partition(_ANSWER_LABEL)
    pieces = _STEP_LABEL.split(trace)[1:]
    steps = zip(pieces[::2], pieces[1::2], strict=True)
    return "\n".join([*(text.strip() for step, text in steps if step == "Observation"), answer.strip()])


def _count_part_tokens(blocks: Iterable[object], count: Callable[[str], int]) -> int:
    return sum(_count_block_tokens(block, count) for block in blocks)


def _count_block_tokens(block: object, count: Callable[[str], int]) -> int:
    if isinstance(block, ThinkingBlock):
        reported = block.num_tokens or 0
        return reported if 0 < reported <= _MAX_THOUGHT_TOKENS else count(block.content or "")
    if isinstance(block, ImageBlock) and block.detail == "low":
        return SMALL_IMAGE_TOKENS
    if isinstance(block, CitableBlock):
        return _count_part_tokens(_list_nested_blocks(block), count) + count(f"{block.title} {block.source}")
    if isinstance(block, CitationBlock):
        return _count_part_tokens(_list_nested_blocks(block), count)
    if isinstance(block, DocumentBlock):
        return FILE_TOKENS
    return next((tokens for kind, tokens in _MEDIA_TOKENS.items() if isinstance(block, kind)), 0)


def _list_calls(message: ChatMessage) -> tuple[MessageToolCall, ...]:
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    own = [_to_tool_call(index, block) for index, block in enumerate(blocks)]
    # Older model integrations have the calls in additional_kwargs, and some have them in both places. Without ids,
    # duplicates cannot be recognized, so only the blocks are used.
    known_ids, extra = {call.id for call in own}, read_extra_tool_calls(message)
    if own and not all(call.id for call in extra):
        return tuple(own)
    new = [call for call in extra if call.id not in known_ids]
    return (*own, *(_fill_call_id(len(own) + index, call) for index, call in enumerate(new)))


def _to_tool_call(index: int, block: ToolCallBlock) -> MessageToolCall:
    return _fill_call_id(
        index, MessageToolCall(block.tool_call_id or "", str(block.tool_name), dump_tool_arguments(block))
    )


def _fill_call_id(index: int, call: MessageToolCall) -> MessageToolCall:
    if call.id:
        return call
    # Deterministic, so that storing the same message again is recognized as a repeat.
    content = f"{index} {call.name} {call.arguments}".encode("utf-8", "surrogatepass")
    return replace(call, id=f"call-{hashlib.blake2b(content, digest_size=8).hexdigest()}")


def _build_message(message: Message) -> ChatMessage:
    blocks: list[Any] = (
        [build_text_block(message.content)] if message.content or not message.tool_calls else []
    )
    blocks += [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=_parse_arguments(call.arguments))
        for call in message.tool_calls
    ]
    kwargs = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return build_chat_message(_CHAT_ROLES[message.role], blocks, kwargs)


def _parse_arguments(arguments: str) -> dict[str, Any] | str:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def protect_placeholders(text: str) -> str:
    """Return the text with protected placeholders."""
    return _PLACEHOLDER.sub("{" + _JOINER, text) if "{" in text else text


def restore_placeholders(text: str) -> str:
    """Return the original text of a protected text."""
    return _PROTECTED.sub("{", text) if _JOINER in text else text


def map_text(block: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any block
    """Return the block with changed texts, including nested blocks; the same object if nothing changes."""
    if isinstance(block, TextBlock):
        text: object = block.text
        if not isinstance(text, str) or (changed := change(text)) == text:
            return block
        return block.model_copy(update={"text": changed})
    if isinstance(block, CitableBlock):
        content: object = block.content
        parts = content if isinstance(content, list) else []
        new = [map_text(part, change) for part in parts]
        is_same = all(changed_part is part for changed_part, part in zip(new, parts, strict=True))
        return block if is_same else block.model_copy(update={"content": new})
    if isinstance(block, CitationBlock):
        cited = map_text(block.cited_content, change)
        return block if cited is block.cited_content else block.model_copy(update={"cited_content": cited})
    return block
