"""What a session shows, as LangChain messages."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from langchain_core.messages import BaseMessage, SystemMessage

from langmem_tiers.common.prompt_fences import neutralize_fence_tags, wrap_in_fence
from langmem_tiers_langchain.convert import to_message
from langmem_tiers_langchain.message_source import SOURCE, SOURCE_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.models import Context


def to_record_messages(messages: Iterable[Message]) -> list[BaseMessage]:
    """Messages as they were said; summaries that the engine wrote between them are none."""
    return [
        to_message(message)
        for message in messages
        if not (message.is_summary and message.payload_json is None)
    ]


def to_context_messages(context: Context) -> list[BaseMessage]:
    """A context as LangChain messages.

    The summary and all that was recalled are one system message. It stands at the front, right after
    the system messages that the conversation itself begins with: several providers refuse one that
    stands among other messages.
    """
    said = {*context.full, *context.compressed}
    talk = [to_message(message) for message in context.messages if message.id in said]
    told = [_fence_summary(message) for message in context.messages if message.id not in said]
    if not told:
        return talk
    leading = len(list(itertools.takewhile(lambda message: isinstance(message, SystemMessage), talk)))
    memory = SystemMessage("\n\n".join(told), additional_kwargs=dict(SOURCE_METADATA))
    return [*talk[:leading], memory, *talk[leading:]]


def is_from_memory(message: BaseMessage) -> bool:
    """Whether it is the system message of a context, and so nothing that anybody said."""
    return isinstance(message, SystemMessage) and message.additional_kwargs.get("lc_source") == SOURCE


def _fence_summary(message: Message) -> str:
    # What was recalled is fenced already. A summary tells what users and tools said: data, no instruction.
    return wrap_in_fence([neutralize_fence_tags(message.content)]) if message.is_summary else message.content
