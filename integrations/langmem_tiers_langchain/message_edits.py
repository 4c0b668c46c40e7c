"""Shortened messages and messages with a prefix. The functions return copies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.messages import BaseMessage

    from langmem_tiers import Message, MessageToolCall

_REDUNDANT_TYPES = {"text", "tool_use", "tool_call", "input_json_delta"}
"""Types of blocks that duplicate the text or the tool calls of a message."""
_THOUGHT_TYPES = {"thinking", "redacted_thinking", "reasoning", "reasoning_content"}


def shorten_message(message: BaseMessage, shown: Message, *, with_parts: bool) -> BaseMessage:
    """Return the message with compressed text; id, tool calls and name are kept.

    Args:
        message: Original message.
        shown: Compressed message of the engine.
        with_parts: True to keep images and other parts; False to replace them by a note.
    """
    short = replace_text(message, shown.content, with_parts=with_parts)
    if not isinstance(message, AIMessage) or not message.tool_calls:
        return short
    # Arguments may be compressed as well.
    texts = {call.id: call for call in shown.tool_calls}
    calls = [_replace_arguments(call, texts.get(call["id"] or "")) for call in message.tool_calls]
    return short.model_copy(update={"tool_calls": calls})


def replace_text(message: BaseMessage, text: str, *, with_parts: bool) -> BaseMessage:
    """Return the message with its text replaced."""
    parts = [block for block in _list_blocks(message) if block.get("type") not in _REDUNDANT_TYPES]
    if with_parts and parts:
        blocks = [{"type": "text", "text": text}] if text else []
        return message.model_copy(
            update={"content": [*_filter_thoughts(parts), *blocks, *_filter_non_thoughts(parts)]}
        )
    notes = [f"[{block.get('type')} not shown]" for block in _filter_non_thoughts(parts)]
    return message.model_copy(update={"content": "\n".join([text, *notes])})


def prepend_text(message: BaseMessage, text: str) -> BaseMessage:
    """Return the message with a text before its content."""
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": f"{text}\n\n{content}"})
    return message.model_copy(update={"content": [{"type": "text", "text": text}, *content]})


def _list_blocks(message: BaseMessage) -> list[Mapping[str, Any]]:
    return [] if isinstance(message.content, str) else [b for b in message.content if isinstance(b, dict)]


def _filter_thoughts(parts: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    # Providers require reasoning blocks before all other blocks.
    return [block for block in parts if block.get("type") in _THOUGHT_TYPES]


def _filter_non_thoughts(parts: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [block for block in parts if block.get("type") not in _THOUGHT_TYPES]


def _replace_arguments(call: Any, shown: MessageToolCall | None) -> Any:  # noqa: ANN401 - LangChain's ToolCall is a dict
    if shown is None:
        return call
    try:
        arguments = json.loads(shown.arguments)
    except ValueError:  # compressed arguments are not always JSON: keep the originals
        return call
    return {**call, "args": arguments} if isinstance(arguments, dict) else call
