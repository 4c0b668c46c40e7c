"""Messages of both frameworks come back equal from the payload."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from langmem_tiers import MemoryEngine, MessageDraft

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ImageBlock,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )

LANGCHAIN: list[BaseMessage] = [
    SystemMessage("Be brief.", id="s"),
    HumanMessage(
        [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x.example"}}]
    ),
    AIMessage(
        "",
        tool_calls=[{"id": "c1", "name": "search", "args": {"q": ["å", {"n": 1.5}]}}],
        usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        response_metadata={"model": "offline", "finish_reason": "tool_calls"},
    ),
    ToolMessage("3 hits", tool_call_id="c1", artifact={"rows": [1, 2, 3]}, status="success"),
]
LLAMA_INDEX = [
    ChatMessage(role="user", content="look"),
    ChatMessage(role="user", blocks=[TextBlock(text="a"), ImageBlock(image=b"iVBORw0KGgo=")]),
    ChatMessage(
        role="assistant",
        blocks=[
            ThinkingBlock(content="hm", additional_information={"signature": "s"}),
            ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={"a": 1, "b": [2]}),
        ],
    ),
    ChatMessage(role="tool", content="3", additional_kwargs={"tool_call_id": "c1"}),
]


@pytest.mark.parametrize("message", LANGCHAIN, ids=lambda message: type(message).__name__)
def test_a_langchain_message_comes_back_equal(
    engine: MemoryEngine, tenant: str, message: BaseMessage
) -> None:
    session = engine.session(tenant, "s")
    session.add(MessageDraft("user", message.text, payload=messages_to_dict([message])[0]))
    payload: Any = session.latest(1)[0].payload
    assert messages_from_dict([payload]) == [message]


@pytest.mark.parametrize("message", LLAMA_INDEX, ids=lambda message: str(message.role.value))
def test_a_llama_index_message_comes_back_equal(
    engine: MemoryEngine, tenant: str, message: ChatMessage
) -> None:
    session = engine.session(tenant, "s")
    session.add(MessageDraft("user", message.content or "", payload=message.model_dump(mode="json")))
    assert ChatMessage.model_validate(session.latest(1)[0].payload) == message
