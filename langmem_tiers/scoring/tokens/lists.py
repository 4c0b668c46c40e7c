"""Counts of whole messages: names, tool calls, tool schemas and the frame around each message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.json_values import to_json
from langmem_tiers.core.messages import COUNTED_BY_CALLER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.core.messages import Message, MessageDraft
    from langmem_tiers.core.ports import TokenCounter

FRAME_TOKENS = 4
"""Per message in a list: its role and the marks that set it apart from the next."""
REPLY_TOKENS = 3
"""Per list: the opening of the answer."""
NAME_TOKENS = 1
"""Per name, beside the name itself."""
CALL_TOKENS = 3
"""Per tool call, beside its name, id and arguments."""


def count_draft(counter: TokenCounter, message: MessageDraft | Message) -> int:
    """Tokens of one message without its frame: text, name, tool calls, the call it answers."""
    tokens = counter.count(message.content)
    if message.name is not None:
        tokens += counter.count(message.name) + NAME_TOKENS
    for call in message.tool_calls:
        tokens += (
            counter.count(call.name) + counter.count(call.id) + counter.count(call.arguments) + CALL_TOKENS
        )
    if message.tool_call_id is not None:
        tokens += counter.count(message.tool_call_id)
    return tokens


def count_messages(counter: TokenCounter, messages: Iterable[Message], tools: Iterable[object] = ()) -> int:
    """Tokens of a prompt: messages with their frames, tool schemas, the opening of the answer.

    A count that the same counter stored, or that the caller gave, is used as it is.
    """
    tokens = REPLY_TOKENS + sum(count_framed(counter, message) for message in messages)
    return tokens + count_tools(counter, tools)


def count_framed(counter: TokenCounter, message: Message) -> int:
    """Tokens of one message in a prompt, with its frame."""
    is_counted = message.token_counter in (counter.name, COUNTED_BY_CALLER)
    return (message.token_count if is_counted else count_draft(counter, message)) + FRAME_TOKENS


def count_tools(counter: TokenCounter, tools: Iterable[object]) -> int:
    """Tokens of tool schemas, given as JSON values."""
    return sum(counter.count(to_json(tool, "tool schema")) + FRAME_TOKENS for tool in tools)
