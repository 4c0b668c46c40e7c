"""Messages of any framework in one text, with their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.messages import Message
from langmem_tiers.core.shapes import read_messages
from langmem_tiers.tiers.short_term import seal

if TYPE_CHECKING:
    from langmem_tiers.flows.parts import MemoryParts


def summarize(parts: MemoryParts, messages: object) -> str:
    """The summary of messages, read by their shape; empty where there are none."""
    read = read_messages(messages)
    sealed = [one if isinstance(one, Message) else seal(parts.short_term, [one])[0] for one in read]
    return parts.summarizer.summarize(sealed).text if sealed else ""
