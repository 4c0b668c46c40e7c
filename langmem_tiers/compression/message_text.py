"""Messages as plain text: what was said, and what was called, without what memory itself had injected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import strip_fences

if TYPE_CHECKING:
    from langmem_tiers.common.messages import ToolCall

SPEAKER_LABELS = {Role.USER: "User", Role.ASSISTANT: "Agent", Role.SYSTEM: "System", Role.TOOL: "Tool"}


def message_to_text(message: Message) -> str:
    """The text of a message, and each tool call with its arguments on lines of their own.

    What was injected from memory is left out: told again, it would come back as something new.
    """
    texts = (message.content, *(tool_call_to_text(call) for call in message.tool_calls))
    return "\n".join(filter(None, map(strip_fences, texts)))


def tool_call_to_text(call: ToolCall) -> str:
    """A tool call as text: its name, then a line for each argument, not escaped as JSON is."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name} {call.arguments}"
    return "\n".join([call.name, *(f"{key}: {_value_to_text(value)}" for key, value in arguments.items())])


def _value_to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
