"""Plain text of messages and tool calls, without text injected by the memory itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import strip_fences

if TYPE_CHECKING:
    from langmem_tiers.common.messages import MessageToolCall

SPEAKER_LABELS = {Role.USER: "User", Role.ASSISTANT: "Agent", Role.SYSTEM: "System", Role.TOOL: "Tool"}


def message_to_text(message: Message) -> str:
    """Return the text of a message, followed by its tool calls with one line per argument.

    Injected memory is left out: otherwise it would be stored again as new information.
    """
    texts = (message.content, *(tool_call_to_text(call) for call in message.tool_calls))
    return "\n".join(filter(None, map(strip_fences, texts)))


def tool_call_to_text(call: MessageToolCall) -> str:
    """Return a tool call as text: its name, then one line per argument, without JSON escapes."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name} {call.arguments}"
    return "\n".join([call.name, *(f"{key}: {_value_to_text(value)}" for key, value in arguments.items())])


def _value_to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
