"""LlamaIndex's messages as the engine stores them, and back, without loss."""

from __future__ import annotations

import hashlib
import json
import re
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

from langmem_tiers.adapting.figures import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
)
from langmem_tiers.core.errors import InvalidMessageError
from langmem_tiers.core.fences import is_only_fenced
from langmem_tiers.core.json_values import to_json
from langmem_tiers.core.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.core.shapes import calls_beside
from langmem_tiers.scoring.tokens import ContentAwareCounter, count_draft
from langmem_tiers_llamaindex.placeholders import as_said
from langmem_tiers_llamaindex.values import FORM, decode_message, encode_message, made, text_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.core.ports import TokenCounter

__all__ = ["message_tokens", "to_draft", "to_message"]

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
_BUILT = {
    Role.SYSTEM: MessageRole.SYSTEM,
    Role.USER: MessageRole.USER,
    Role.ASSISTANT: MessageRole.ASSISTANT,
    Role.TOOL: MessageRole.TOOL,
}
_PLAIN = {to_json({FORM: role.value}, "payload"): role for role in MessageRole}
"""What is stored of messages that are a role and a text."""
_STEP = re.compile(r"^(Thought|Action|Action Input|Observation|Answer): ?", re.MULTILINE)
_SAID_STEPS = ("Observation", "Answer")
_PICTURES: dict[type, int] = {ImageBlock: IMAGE_TOKENS, AudioBlock: AUDIO_TOKENS, VideoBlock: VIDEO_TOKENS}


def to_draft(
    message: ChatMessage,
    counter: TokenCounter | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word that frameworks use
) -> MessageDraft:
    """A LlamaIndex message on its way into the engine; the whole of it travels as the payload.

    What memory itself had put into the message is left out. Of the trace of a ``ReActAgent`` the engine reads
    observations and the answer; the payload has all of it.

    Args:
        message: The message.
        counter: Counts the words beside images, audio and files; pass ``engine.counter``.
        id: Under which it is stored; one of its own, if left out.

    Raises:
        InvalidMessageError: It is no message, or its role or one of its blocks is none.
    """
    if not isinstance(message, ChatMessage):
        raise InvalidMessageError(
            f"a {type(message).__name__} is no message of LlamaIndex: use ChatMessage(role='user', content='...')"
        )
    message = _without_memory(message)
    role = _ROLES.get(message.role, Role.USER)  # one that there is not is refused below
    said = _text_of(message)
    text = _spoken(said) if role is Role.ASSISTANT else said
    answers = message.additional_kwargs.get("tool_call_id") if role is Role.TOOL else None
    fields: dict[str, Any] = {
        "tool_calls": _calls_of(message) if role is Role.ASSISTANT else (),
        "tool_call_id": answers if isinstance(answers, str) else None,
    }
    payload = encode_message(message, text)
    tokens = None
    counter = ContentAwareCounter() if counter is None else counter
    if (parts := _part_tokens(message.blocks, counter.count)) or text is not said:
        tokens = count_draft(counter, MessageDraft(role, said, **fields)) + parts
    return MessageDraft(role, text, id=id, payload=payload, token_count=tokens, **fields)


def to_message(message: Message) -> ChatMessage:
    """The LlamaIndex message that was stored.

    One that came from elsewhere, or is shown compressed, becomes the LlamaIndex message of its role.
    """
    form = message.payload_json
    if form is None:
        return _built(message)
    if (role := _PLAIN.get(form)) is not None:  # as most are
        return made(role, [text_block(message.content)], {})
    return decode_message(message.payload, message.content) or _built(message)


def message_tokens(message: ChatMessage, count: Callable[[str], int]) -> int:
    """What a message takes: text, thoughts, tool calls and rough figures for pictures and the like.

    Args:
        message: The message.
        count: Tokens of a text.
    """
    calls = _calls_of(message)
    tokens = count(_text_of(message)) + _part_tokens(message.blocks, count)
    return tokens + sum(count(f"{call.name} {call.arguments}") for call in calls)


def _without_memory(message: ChatMessage) -> ChatMessage:
    # What comes back from a prompt may hold what memory put there.
    said = [_said_by_somebody(block) for block in message.blocks]
    left = [block for block in said if block is not None]
    if not left or all(new is old for new, old in zip(said, message.blocks, strict=True)):
        return message
    return message.model_copy(update={"blocks": left})


def _said_by_somebody(block: Any) -> Any:  # noqa: ANN401 - any block, or None for one of ours
    if type(block) is not TextBlock or not isinstance(block.text, str):
        return block
    if is_only_fenced(block.text):
        return None
    said = as_said(block.text)
    return block if said is block.text else TextBlock(text=said)


def _text_of(message: ChatMessage) -> str:
    return "\n".join(text for block in message.blocks for text in _texts(block))


def _texts(block: object) -> Iterable[str]:
    if isinstance(block, TextBlock):
        return [block.text]
    if isinstance(block, CitableBlock):
        return [text for part in block.content for text in _texts(part)]
    return _texts(block.cited_content) if isinstance(block, CitationBlock) else ()


def _spoken(text: str) -> str:
    # An agent that writes down its steps: what it found and what it answered is what was said.
    if not text.startswith("Thought:") or "\nAnswer:" not in text:
        return text
    pieces = _STEP.split(text)[1:]
    steps = zip(pieces[::2], pieces[1::2], strict=True)
    return "\n".join(told.strip() for step, told in steps if step in _SAID_STEPS)


def _part_tokens(blocks: Iterable[object], count: Callable[[str], int]) -> int:
    return sum(_tokens_of(block, count) for block in blocks)


def _tokens_of(block: object, count: Callable[[str], int]) -> int:
    if isinstance(block, ThinkingBlock):
        return block.num_tokens or count(block.content or "")
    if isinstance(block, ImageBlock) and block.detail == "low":
        return SMALL_IMAGE_TOKENS
    if isinstance(block, CitableBlock):
        return _part_tokens(block.content, count) + count(f"{block.title} {block.source}")
    if isinstance(block, CitationBlock):
        return _tokens_of(block.cited_content, count)
    if isinstance(block, DocumentBlock):
        return FILE_TOKENS
    return next((tokens for kind, tokens in _PICTURES.items() if isinstance(block, kind)), 0)


def _calls_of(message: ChatMessage) -> tuple[ToolCall, ...]:
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    own = [_call(place, block) for place, block in enumerate(blocks)]
    # Older integrations of models have them beside the blocks, some in both places.
    beside = [call for call in calls_beside(message) if call.id not in {one.id for one in own}]
    return (*own, *beside)


def _call(place: int, block: ToolCallBlock) -> ToolCall:
    given = block.tool_kwargs
    arguments = given if isinstance(given, str) else _json(given)
    said = f"{place} {block.tool_name} {arguments}".encode("utf-8", "surrogatepass")
    made_up = f"call-{hashlib.blake2b(said, digest_size=8).hexdigest()}"
    return ToolCall(block.tool_call_id or made_up, str(block.tool_name), arguments)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return "{}"  # keys that JSON does not know: the payload holds them


def _built(message: Message) -> ChatMessage:
    blocks: list[Any] = [text_block(message.content)] if message.content or not message.tool_calls else []
    blocks += [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=_arguments(call.arguments))
        for call in message.tool_calls
    ]
    kwargs = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return made(_BUILT[message.role], blocks, kwargs)


def _arguments(arguments: str) -> dict[str, Any] | str:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments
