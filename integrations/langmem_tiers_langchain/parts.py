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

_IMAGES = frozenset(("image", "image_url", "input_image", "image_file"))
_SOUNDS = frozenset(("audio", "input_audio", "audio_url"))
_VIDEOS = frozenset(("video", "video_url", "input_video"))
_FILES = frozenset(("file", "input_file", "document"))
_PARTS = _IMAGES | _SOUNDS | _VIDEOS | _FILES
# Told elsewhere: as the message's text or its tool calls; what was thought is not sent again.
_NOTHING = frozenset(
    (
        "text", "output_text", "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call",
        "input_json_delta", "reasoning", "reasoning_content", "thinking", "redacted_thinking",
    )
)  # fmt: skip
_LONGEST_WORD = 200  # characters; what is longer and has no space is data
_DEEPEST = 50


def part_tokens(message: BaseMessage) -> int:
    """Tokens of what is not text in a message: images, audio, video, files; 0 for plain text."""
    content = message.content
    if not isinstance(content, list):
        return 0
    return sum(_tokens(block) for block in content if isinstance(block, dict))


def _kind(block: dict[Any, Any]) -> str:
    kind = block.get("type")
    if kind == "media":  # Google names it by its type of data
        kind = str(block.get("mime_type", "")).partition("/")[0]
        return kind if kind in {"image", "audio", "video"} else "file"
    if isinstance(kind, str):
        return kind
    # Bedrock names a block by its only key.
    return next((key for key in ("image", "video", "audio", "document") if key in block), "")


def _tokens(block: dict[Any, Any], depth: int = 0) -> int:
    kind = _kind(block)
    if kind in _NOTHING:
        return 0
    if kind in _IMAGES:
        return SMALL_IMAGE_TOKENS if _is_small(block) else IMAGE_TOKENS
    if kind in _SOUNDS:
        return AUDIO_TOKENS
    if kind in _VIDEOS:
        return VIDEO_TOKENS
    return FILE_TOKENS if kind in _FILES and not _is_text(block) else _written(block, depth)


def _is_small(block: dict[Any, Any]) -> bool:
    inside = block.get("image_url")
    return "low" in (block.get("detail"), inside.get("detail") if isinstance(inside, dict) else None)


def _is_text(block: dict[Any, Any]) -> bool:
    source = block.get("source")
    return isinstance(source, dict) and source.get("type") in ("text", "content")


def _written(value: object, depth: int) -> int:
    # A block of another kind takes what its words take, and what the blocks inside it do.
    if isinstance(value, str):
        is_data = len(value) > _LONGEST_WORD and value.isascii() and " " not in value[: 4 * _LONGEST_WORD]
        return 0 if is_data or value.startswith("data:") else ContentAwareCounter().count(value)
    if depth > _DEEPEST:
        return 0
    if isinstance(value, list):
        return sum(_inside(part, depth + 1) for part in value)
    if isinstance(value, dict):
        return sum(_inside(part, depth + 1) for key, part in value.items() if key != "type")
    return 0


def _inside(value: object, depth: int) -> int:
    if isinstance(value, dict) and _kind(value) in _PARTS:
        return _tokens(value, depth)
    return _written(value, depth)
