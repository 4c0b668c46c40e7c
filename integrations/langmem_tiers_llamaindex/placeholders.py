"""Placeholders in what was said: chat engines make templates of the history and would fill them in.

An invisible character keeps ``{query_str}`` from being one; it is taken out again where such a text comes back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import CitableBlock, CitationBlock, TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable

PLACEHOLDER_NAMES = ("query_str", "context_str", "context_msg", "existing_answer")
"""What the chat engines of LlamaIndex fill in."""
_JOINER = "\N{WORD JOINER}"
_NAME = rf"(?=(?:{'|'.join(PLACEHOLDER_NAMES)})\}})"
_PLACEHOLDER = re.compile(rf"\{{{_NAME}")
_PROTECTED = re.compile(rf"\{{{_JOINER}{_NAME}")


def protect_placeholders(text: str) -> str:
    """The text with no placeholder in it."""
    return _PLACEHOLDER.sub("{" + _JOINER, text) if "{" in text else text


def restore_placeholders(text: str) -> str:
    """The text as it was before it was protected."""
    return _PROTECTED.sub("{", text) if _JOINER in text else text


def map_text(block: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any block
    """The block with its text changed, and that of blocks within it; the same object, if nothing changes."""
    if isinstance(block, TextBlock):
        text: object = block.text
        if not isinstance(text, str) or (changed := change(text)) == text:
            return block
        return block.model_copy(update={"text": changed})
    if isinstance(block, CitableBlock):
        within: object = block.content
        parts = within if isinstance(within, list) else []
        new = [map_text(part, change) for part in parts]
        is_same = all(one is other for one, other in zip(new, parts, strict=True))
        return block if is_same else block.model_copy(update={"content": new})
    if isinstance(block, CitationBlock):
        cited = map_text(block.cited_content, change)
        return block if cited is block.cited_content else block.model_copy(update={"cited_content": cited})
    return block
