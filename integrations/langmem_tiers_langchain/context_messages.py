"""Conversion of sessions and contexts to LangChain messages."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from langchain_core.messages import BaseMessage, SystemMessage

from langmem_tiers.integration_kit import neutralize_fence_tags, wrap_in_fence
from langmem_tiers_langchain.convert import to_message
from langmem_tiers_langchain.message_source import SOURCE, SOURCE_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers import MemoryContext, Message


def to_record_messages(messages: Iterable[Message]) -> list[BaseMessage]:
    """Convert stored messages, without the summaries that the engine wrote."""
    return [
        to_message(message)
        for message in messages
        if not (message.is_summary and message.payload_json is None)
    ]


def to_context_messages(context: MemoryContext) -> list[BaseMessage]:
    """Convert a context to LangChain messages.

    The summary and all recalled memories become one system message. It follows the system messages at the
    beginning of the conversation, because several providers reject system messages among other messages.
    """
    conversation_ids = {*context.full, *context.compressed}
    conversation = [to_message(message) for message in context.messages if message.id in conversation_ids]
    injected = [_fence_summary(message) for message in context.messages if message.id not in conversation_ids]
    if not injected:
        return conversation
    leading = len(list(itertools.takewhile(lambda message: isinstance(message, SystemMessage), conversation)))
    memory = SystemMessage("\n\n".join(injected), additional_kwargs=dict(SOURCE_METADATA))
    return [*conversation[:leading], memory, *conversation[leading:]]


def is_from_memory(message: BaseMessage) -> bool:
    """Return True if the message is the system message that ``to_context_messages`` added."""
    return isinstance(message, SystemMessage) and message.additional_kwargs.get("lc_source") == SOURCE


def _fence_summary(message: Message) -> str:
    # Recalled memories are already fenced. A summary contains text of users and tools: data, not instructions.
    return wrap_in_fence([neutralize_fence_tags(message.content)]) if message.is_summary else message.content
