"""LlamaIndex's messages as the engine stores them, and back, without loss."""

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

from langmem_tiers.common.json_values import to_json
from langmem_tiers.common.message_adapter import read_extra_tool_calls
from langmem_tiers.common.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.common.prompt_fences import FENCE_CLOSING, FENCE_OPENING, is_only_fenced, strip_fences
from langmem_tiers.errors import InvalidMessageError
from langmem_tiers.integration_kit.media_token_costs import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
)
from langmem_tiers.text.token_counting import ContentAwareCounter, count_draft
from langmem_tiers_llamaindex.message_codec import (
    PAYLOAD_KEY,
    build_chat_message,
    build_text_block,
    decode_chat_message,
    dump_tool_arguments,
    encode_chat_message,
    get_chat_role,
)
from langmem_tiers_llamaindex.placeholders import map_text, restore_placeholders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.common.ports import TokenCounter

__all__ = [
    "get_answered_call_id",
    "get_call_ids",
    "get_tool_calls",
    "message_tokens",
    "remove_memory",
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
"""Whose messages memory is put into."""
_PLAIN_PAYLOADS = {to_json({PAYLOAD_KEY: role.value}, "payload"): role for role in MessageRole}
"""What is stored of messages that are a role and a text."""
_STEP_LABEL = re.compile(r"^(Thought|Action|Action Input|Observation|Answer): ?", re.MULTILINE)
_ANSWER_LABEL = "\nAnswer:"
_MAX_THOUGHT_TOKENS = 1_000_000
"""Tokens of one thought; a block that tells of more has counted something else."""
_MEDIA_TOKENS: dict[type, int] = {
    ImageBlock: IMAGE_TOKENS,
    AudioBlock: AUDIO_TOKENS,
    VideoBlock: VIDEO_TOKENS,
}


def to_draft(
    message: ChatMessage,
    counter: TokenCounter | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word that frameworks use
    answers: str | None = None,
) -> MessageDraft:
    """A LlamaIndex message on its way into the engine; the whole of it travels as the payload.

    What memory itself had put into the message is left out. Of the trace of a ``ReActAgent`` the engine reads
    observations and the answer; the payload has all of it.

    Args:
        message: The message.
        counter: Counts the words beside images, audio and files; pass ``engine.counter``.
        id: Under which it is stored; one of its own, if left out.
        answers: The id of the call whose result it is, where the message itself does not say it.

    Raises:
        InvalidMessageError: It is no message, or its role or one of its blocks is none.
    """
    if not isinstance(message, ChatMessage):
        raise InvalidMessageError(
            f"a {type(message).__name__} is no message of LlamaIndex: use ChatMessage(role='user', content='...')"
        )
    _check_message(message)
    message = remove_memory(message) or message
    role = _ROLES[get_chat_role(message)]
    said = _get_text(message)
    text = _strip_reasoning(said) if role is Role.ASSISTANT else said
    if role is Role.TOOL and is_only_fenced(said):
        text = ""  # a result stays with its call, and what memory told is nothing to remember
    fields: dict[str, Any] = {
        "tool_calls": get_tool_calls(message),
        "tool_call_id": answers or get_answered_call_id(message),
    }
    payload = encode_chat_message(message, text)
    tokens = None
    counter = ContentAwareCounter() if counter is None else counter
    if (parts := _count_part_tokens(message.blocks, counter.count)) or text is not said:
        tokens = count_draft(counter, MessageDraft(role, said, **fields)) + parts
    return MessageDraft(role, text, id=id, payload=payload, token_count=tokens, **fields)


def to_message(message: Message) -> ChatMessage:
    """The LlamaIndex message that was stored.

    One that came from elsewhere, or is shown compressed, becomes the LlamaIndex message of its role.
    """
    form = message.payload_json
    if form is None:
        return _build_message(message)
    if (role := _PLAIN_PAYLOADS.get(form)) is not None:  # as most are
        return build_chat_message(role, [build_text_block(message.content)], {})
    return decode_chat_message(message.payload, message.content) or _build_message(message)


def message_tokens(message: ChatMessage, count: Callable[[str], int]) -> int:
    """What a message takes: text, thoughts, tool calls and rough figures for pictures and the like.

    Args:
        message: The message.
        count: Tokens of a text.
    """
    calls = _list_calls(message)
    tokens = count(_get_text(message)) + _count_part_tokens(message.blocks, count)
    return tokens + sum(count(f"{call.name} {call.arguments}") for call in calls)


def remove_memory(message: ChatMessage) -> ChatMessage | None:
    """The message as it was before memory put something into it; None if nothing is left of it."""
    is_place = _ROLES.get(message.role) in _INJECTABLE_ROLES
    said = [_remove_injected_text(block, is_place=is_place) for block in message.blocks]
    left = [block for block in said if block is not None]
    if message.blocks and not left:
        return None
    if all(new is old for new, old in zip(said, message.blocks, strict=True)):
        return message
    return message.model_copy(update={"blocks": left})


def get_tool_calls(message: ChatMessage) -> tuple[ToolCall, ...]:
    """The tool calls that a message makes, each with an id."""
    return _list_calls(message) if _ROLES.get(message.role) is Role.ASSISTANT else ()


def get_call_ids(message: ChatMessage) -> set[str]:
    """Ids of the tool calls that a message makes."""
    return {call.id for call in get_tool_calls(message)}


def get_answered_call_id(message: ChatMessage) -> str | None:
    """Id of the tool call whose result a message is, as it says itself."""
    found = message.additional_kwargs.get("tool_call_id")
    return found if found and isinstance(found, str) and _ROLES.get(message.role) is Role.TOOL else None


def _check_message(message: ChatMessage) -> None:
    # Whatever a message holds that was built without its validators.
    get_chat_role(message)
    blocks: object = message.blocks
    kwargs: object = message.additional_kwargs
    if not isinstance(blocks, list) or not isinstance(kwargs, dict):
        raise InvalidMessageError(
            f"a message whose blocks are a {type(blocks).__name__} and whose additional_kwargs are a "
            f"{type(kwargs).__name__} is none: use ChatMessage(role='user', content='...')"
        )


def _remove_injected_text(block: Any, *, is_place: bool) -> Any:  # noqa: ANN401 - any block, or None for one of ours
    text = block.text if type(block) is TextBlock else None
    if is_place and isinstance(text, str):
        if is_only_fenced(text):
            return None
        # Where a message became one text, memory stands at its beginning or at its end.
        if text.startswith(FENCE_OPENING) or text.endswith(FENCE_CLOSING):
            block = build_text_block(strip_fences(text))
    return map_text(block, restore_placeholders)


def _get_text(message: ChatMessage) -> str:
    return "\n".join(text for block in message.blocks for text in _list_texts(block))


def _list_texts(block: object) -> Iterable[str]:
    if isinstance(block, TextBlock):
        said: object = block.text  # whatever a block holds that was built without its validators
        return [said] if isinstance(said, str) else ()
    return [text for part in _list_nested_blocks(block) for text in _list_texts(part)]


def _list_nested_blocks(block: object) -> list[Any]:
    if isinstance(block, CitableBlock):
        parts: object = block.content
        return parts if isinstance(parts, list) else []
    return [block.cited_content] if isinstance(block, CitationBlock) else []


def _strip_reasoning(text: str) -> str:
    # An agent that writes down its steps: what it found and what it answered is what was said.
    if not text.startswith("Thought:") or _ANSWER_LABEL not in text:
        return text
    trace, _, answer = text.partition(_ANSWER_LABEL)
    pieces = _STEP_LABEL.split(trace)[1:]
    steps = zip(pieces[::2], pieces[1::2], strict=True)
    return "\n".join([*(told.strip() for step, told in steps if step == "Observation"), answer.strip()])


def _count_part_tokens(blocks: Iterable[object], count: Callable[[str], int]) -> int:
    return sum(_count_block_tokens(block, count) for block in blocks)


def _count_block_tokens(block: object, count: Callable[[str], int]) -> int:
    if isinstance(block, ThinkingBlock):
        told = block.num_tokens or 0
        return told if 0 < told <= _MAX_THOUGHT_TOKENS else count(block.content or "")
    if isinstance(block, ImageBlock) and block.detail == "low":
        return SMALL_IMAGE_TOKENS
    if isinstance(block, CitableBlock):
        return _count_part_tokens(_list_nested_blocks(block), count) + count(f"{block.title} {block.source}")
    if isinstance(block, CitationBlock):
        return _count_part_tokens(_list_nested_blocks(block), count)
    if isinstance(block, DocumentBlock):
        return FILE_TOKENS
    return next((tokens for kind, tokens in _MEDIA_TOKENS.items() if isinstance(block, kind)), 0)


def _list_calls(message: ChatMessage) -> tuple[ToolCall, ...]:
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    own = [_to_tool_call(place, block) for place, block in enumerate(blocks)]
    # Older integrations of models have them beside the blocks, some in both places.
    known, beside = {call.id for call in own}, read_extra_tool_calls(message)
    if own and not all(call.id for call in beside):
        return tuple(own)
    new = [call for call in beside if call.id not in known]
    return (*own, *(_fill_call_id(len(own) + place, call) for place, call in enumerate(new)))


def _to_tool_call(place: int, block: ToolCallBlock) -> ToolCall:
    return _fill_call_id(
        place, ToolCall(block.tool_call_id or "", str(block.tool_name), dump_tool_arguments(block))
    )


def _fill_call_id(place: int, call: ToolCall) -> ToolCall:
    if call.id:
        return call
    said = f"{place} {call.name} {call.arguments}".encode("utf-8", "surrogatepass")
    return replace(call, id=f"call-{hashlib.blake2b(said, digest_size=8).hexdigest()}")


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
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments
