"""Helpers of both suites."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
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

if TYPE_CHECKING:
    from collections.abc import Iterable

HOSTILE_KEYS = (
    "a", "A", "a%", "a_", "a*", "a?", "[a]", "a'", 'a"', "a:", "a/b", "a.b", "a\\", "a ", " a", "a\n", "å",
    "a\u030a", "%25", "😀", "a;--", "null", "a (1)", "ab",
)  # fmt: skip
"""Names that a store must tell apart."""

_ASSISTANT = MessageRole.ASSISTANT
_CALL = ToolCallBlock(
    tool_call_id="call-1", tool_name="weather", tool_kwargs={"city": "Zürich", "days": [1, 2]}
)
MESSAGES: dict[str, ChatMessage] = {
    **{f"role {role.value}": ChatMessage(role=role, content="Hello.") for role in MessageRole},
    "no text": ChatMessage(role="user", content=""),
    "nothing": ChatMessage(role=_ASSISTANT, blocks=[]),
    "spaces": ChatMessage(role="user", content="  \n\ttext\r\n "),
    "scripts": ChatMessage(role="user", content="naïve 😀 中文 שלום 'quoted' \"double\" \\ {query_str} %s"),
    "long": ChatMessage(role="user", content="word " * 5000),
    "two texts": ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text="two\n")]),
    "image": ChatMessage(
        role="user",
        blocks=[
            TextBlock(text="Look:"),
            ImageBlock(image=b"\x89PNG\r\n\x1a\n", image_mimetype="image/png", detail="low"),
            ImageBlock(url="https://example.org/cat.png?size=1"),
        ],
    ),
    "audio": ChatMessage(role="user", blocks=[AudioBlock(audio=b"RIFF\x00", format="wav")]),
    "video": ChatMessage(role="user", blocks=[VideoBlock(url="https://example.org/cat.mp4", fps=2)]),
    "document": ChatMessage(
        role="user",
        blocks=[DocumentBlock(data=b"%PDF-1.4", title="A book", document_mimetype="application/pdf")],
    ),
    "cache point": ChatMessage(
        role="system",
        blocks=[TextBlock(text="Be kind."), CachePoint(cache_control=CacheControl(type="ephemeral"))],
    ),
    "citation": ChatMessage(
        role=_ASSISTANT,
        blocks=[
            CitableBlock(title="A book", source="shelf 3", content=[TextBlock(text="It rained.")]),
            CitationBlock(
                cited_content=TextBlock(text="It rained."),
                source="shelf 3",
                title="A book",
                additional_location_info={"page": 7},
            ),
        ],
    ),
    "thoughts": ChatMessage(
        role=_ASSISTANT,
        blocks=[
            ThinkingBlock(content="Hm.", num_tokens=2, additional_information={"signature": "abc="}),
            TextBlock(text="Yes."),
        ],
    ),
    "tool calls": ChatMessage(
        role=_ASSISTANT, blocks=[_CALL, _CALL.model_copy(update={"tool_call_id": "2"})]
    ),
    "tool call in words": ChatMessage(
        role=_ASSISTANT,
        blocks=[ToolCallBlock(tool_call_id="call-1", tool_name="weather", tool_kwargs='{"city": "Bern"}')],
    ),
    "tool result": ChatMessage(
        role=MessageRole.TOOL,
        content="Rain.",
        additional_kwargs={"tool_call_id": "call-1", "name": "weather"},
    ),
    "kwargs": ChatMessage(
        role=_ASSISTANT,
        content="Yes.",
        additional_kwargs={"deep": {"list": [1, [2.5, {"x": None}], {}], "yes": True}, "key with. $ %": ""},
    ),
}
"""Messages of all kinds, by what they are there for."""


class Conformance:
    """The fixtures."""

    @pytest.fixture
    def key(self) -> str:
        """A key that nobody else uses, and that no other one begins with."""
        return f"conformance-{uuid.uuid4().hex}-"


def said(*texts: object) -> list[ChatMessage]:
    """Messages of a user and an assistant in turn."""
    roles = (MessageRole.USER, _ASSISTANT)
    return [ChatMessage(role=roles[place % 2], content=str(text)) for place, text in enumerate(texts)]


def texts(messages: Iterable[ChatMessage] | None) -> list[str | None]:
    """What messages say."""
    return [message.content for message in messages or ()]


def text(message: ChatMessage | None) -> str | None:
    """What a message says, if there is one."""
    return None if message is None else message.content


def modify_messages(messages: list[ChatMessage]) -> None:
    """Change messages and their list in every way there is."""
    for message in messages:
        for block in message.blocks:
            if isinstance(block, TextBlock):
                block.text = "spoiled"
        message.blocks.append(TextBlock(text="spoiled"))
        message.additional_kwargs["spoiled"] = True
        for value in message.additional_kwargs.values():
            if isinstance(value, dict):
                value["spoiled"] = True
        message.role = MessageRole.SYSTEM
    messages.append(ChatMessage(role="user", content="spoiled"))
