"""What of a LangChain message is not text, and what it takes of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.integration_kit.media_token_costs import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
)
from langmem_tiers.text.token_counting import ContentAwareCounter

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_IMAGE_TYPES = frozenset(("image", "image_url", "input_image", "image_file"))
_AUDIO_TYPES = frozenset(("audio", "input_audio", "audio_url"))
_VIDEO_TYPES = frozenset(("video", "video_url", "input_video"))
_FILE_TYPES = frozenset(("file", "input_file", "document"))
_MEDIA_TYPES = _IMAGE_TYPES | _AUDIO_TYPES | _VIDEO_TYPES | _FILE_TYPES
# Told elsewhere: as the message's text or its tool calls; what was thought is not sent again.
_UNCOUNTED_TYPES = frozenset(
    (
        "text", "output_text", "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call",
        "input_json_delta", "reasoning", "reasoning_content", "thinking", "redacted_thinking",
    )
)  # fmt: skip
_MAX_WORD_CHARACTERS = 200  # characters; what is longer and has no space is data
_MAX_DEPTH = 50


def part_tokens(message: BaseMessage) -> int:
    """Tokens of what is not text in a message: images, audio, video, files; 0 for plain text."""
    content = message.content
    if not isinstance(content, list):
        return 0
    return sum(_count_block_tokens(block) for block in content if isinstance(block, dict))


def _find_kind(block: dict[Any, Any]) -> str:
    kind = block.get("type")
    if kind == "media":  # Google names it by its type of data
        kind = str(block.get("mime_type", "")).partition("/")[0]
        return kind if kind in {"image", "audio", "video"} else "file"
    if isinstance(kind, str):
        return kind
    # Bedrock names a block by its only key.
    return next((key for key in ("image", "video", "audio", "document") if key in block), "")


def _count_block_tokens(block: dict[Any, Any], depth: int = 0) -> int:
    kind = _find_kind(block)
    if kind in _UNCOUNTED_TYPES:
        return 0
    if kind in _IMAGE_TYPES:
        return SMALL_IMAGE_TOKENS if _is_small(block) else IMAGE_TOKENS
    if kind in _AUDIO_TYPES:
        return AUDIO_TOKENS
    if kind in _VIDEO_TYPES:
        return VIDEO_TOKENS
    return FILE_TOKENS if kind in _FILE_TYPES and not _is_text(block) else _count_text_tokens(block, depth)


def _is_small(block: dict[Any, Any]) -> bool:
    inside = block.get("image_url")
    return "low" in (block.get("detail"), inside.get("detail") if isinstance(inside, dict) else None)


def _is_text(block: dict[Any, Any]) -> bool:
    source = block.get("source")
    return isinstance(source, dict) and source.get("type") in ("text", "content")


def _count_text_tokens(value: object, depth: int) -> int:
    # A block of another kind takes what its words take, and what the blocks inside it do.
    if isinstance(value, str):
        is_data = (
            len(value) > _MAX_WORD_CHARACTERS
            and value.isascii()
            and " " not in value[: 4 * _MAX_WORD_CHARACTERS]
        )
        return 0 if is_data or value.startswith("data:") else ContentAwareCounter().count(value)
    if depth > _MAX_DEPTH:
        return 0
    if isinstance(value, list):
        return sum(_count_nested_tokens(part, depth + 1) for part in value)
    if isinstance(value, dict):
        return sum(_count_nested_tokens(part, depth + 1) for key, part in value.items() if key != "type")
    return 0


def _count_nested_tokens(value: object, depth: int) -> int:
    if isinstance(value, dict) and _find_kind(value) in _MEDIA_TYPES:
        return _count_block_tokens(value, depth)
    return _count_text_tokens(value, depth)
