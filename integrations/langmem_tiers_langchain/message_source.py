"""Marker of messages that memory adds to a prompt, in the format of LangChain's own middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

SOURCE = "langmem_tiers"
SOURCE_METADATA = {"lc_source": SOURCE}
"""Value for the ``additional_kwargs`` of a message or the metadata of a model call."""


def is_added_by_middleware(message: BaseMessage) -> bool:
    """Return True if a middleware added the message, such as a summary of older messages."""
    return bool(message.additional_kwargs.get("lc_source"))
