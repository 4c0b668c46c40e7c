"""Protection of placeholders in messages: chat engines use the history in templates and would fill them in.

An invisible character inside ``{query_str}`` prevents this. It is removed again when the text is stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import CitableBlock, CitationBlock, TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable

PLACEHOLDER_NAMES = ("query_str", "context_str", "context_msg", "existing_answer")
"""Placeholders that LlamaIndex's chat engines fill in."""
_JOINER = "\N{WORD JOINER}"
_NAME = rf"(?=(?:{'|'.join(PLACEHOLDER_NAMES)})\}})"
_PLACEHOLDER = re.compile(rf"\{{{_NAME}")
_PROTECTED = re.compile(rf"\{{{_JOINER}{_NAME}")


def protect_placeholders(text: str) -> str:
    """Return the text with protected placeholders."""
    return _PLACEHOLDER.sub("{" + _JOINER, text) if "{" in text else text


def restore_placeholders(text: str) -> str:
    """Return the original text of a protected text."""
    return _PROTECTED.sub("{", text) if _JOINER in text else text


def map_text(block: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any block
    """Return the block with changed texts, including nested blocks; the same object if nothing changes."""
    if isinstance(block, TextBlock):
        text: object = block.text
        if not isinstance(text, str) or (changed := change(text)) == text:
            return block
        return block.model_copy(update={"text": changed})
    if isinstance(block, CitableBlock):
        content: object = block.content
        parts = content if isinstance(content, list) else []
        new = [map_text(part, change) for part in parts]
        is_same = all(changed_part is part for changed_part, part in zip(new, parts, strict=True))
        return block if is_same else block.model_copy(update={"content": new})
    if isinstance(block, CitationBlock):
        cited = map_text(block.cited_content, change)
        return block if cited is block.cited_content else block.model_copy(update={"cited_content": cited})
    return block
