"""The mark on what memory puts into a prompt, as LangChain's own middleware marks what it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

SOURCE = "langmem_tiers"
SOURCE_METADATA = {"lc_source": SOURCE}
"""In the ``additional_kwargs`` of a message, or in the metadata of a call."""


def is_added_by_middleware(message: BaseMessage) -> bool:
    """Whether some middleware wrote it, such as a summary in place of older messages: nobody said it."""
    return bool(message.additional_kwargs.get("lc_source"))
