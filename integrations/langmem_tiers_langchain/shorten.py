"""Messages in other words: shorter, or with a text in front. What was handed in is never changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from langmem_tiers import Message
    from langmem_tiers.core.messages import ToolCall


def shortened(message: BaseMessage, shown: Message) -> BaseMessage:
    """The message as the engine shows it in fewer words, still with its id, its calls and its name."""
    changes: dict[str, Any] = {"content": shown.content}
    if isinstance(message, AIMessage) and message.tool_calls:
        texts = {call.id: call for call in shown.tool_calls}
        changes["tool_calls"] = [
            _with_arguments(call, texts.get(call["id"] or "")) for call in message.tool_calls
        ]
    return message.model_copy(update=changes)


def prefixed(message: BaseMessage, text: str) -> BaseMessage:
    """The message with a text in front of its own."""
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": f"{text}\n\n{content}"})
    return message.model_copy(update={"content": [{"type": "text", "text": text}, *content]})


def _with_arguments(call: Any, shown: ToolCall | None) -> Any:  # noqa: ANN401 - LangChain's ToolCall is a dict
    if shown is None:
        return call
    try:
        arguments = json.loads(shown.arguments)
    except ValueError:
        return call
    return {**call, "args": arguments} if isinstance(arguments, dict) else call
