"""Token counting: estimates by content type, and exact counts with tiktoken without downloads.

The tiktoken vocabulary is searched on this machine only. Reading that file when the counter is created is
the only I/O; counting itself is pure.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.common.json_values import to_json
from langmem_tiers.common.messages import COUNTED_BY_CALLER
from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tiktoken

    from langmem_tiers.common.messages import Message, MessageDraft
    from langmem_tiers.common.ports import TokenCounter


IMAGE_TOKENS = 765
"""OpenAI, 1024 x 1024 pixels in high detail: four tiles of 170 tokens plus 85."""
SMALL_IMAGE_TOKENS = 85
"""OpenAI, an image in low detail."""
AUDIO_TOKENS = 960
"""Gemini, 30 seconds at 32 tokens per second."""
VIDEO_TOKENS = 2_900
"""Gemini, 10 seconds at one frame (258 tokens) per second, plus 32 tokens per second for sound."""
FILE_TOKENS = 2_250
"""Anthropic, one page of a PDF: the middle of 1,500 to 3,000 tokens."""


_MAX_SAMPLE_CHARACTERS = 4_000  # enough for detection, and cheap for texts of megabytes
_MAX_PARSED_CHARACTERS = 20_000  # JSON up to this length is parsed for certainty

_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9-]*(?:\s[^<>]*)?/?>")
_HTML_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_JSON_MEMBER = re.compile(r'"[^"\n]{0,200}"\s*:')
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Matched at the start of single stripped lines, so that the match is linear in the length of the line.
_CODE_START = re.compile(
    r"(?:async\s+)?def\s+\w+\(|class\s+\w+\s*[:({]|import\s+[\w.{*]|from\s+[\w.]+\s+import\s"
    r"|(?:export\s+)?(?:const|let|var|function)\s+\w|(?:public|private|protected|static)\s+\w"
    r"|return\b|(?:if|for|while|switch)\s*\(|else\s*[:{]|#include\s*<"
    r"|(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER)\s|@\w+(?:\(|$)|[)\]}]+[,;]?$"
    r"|[\w.\[\]\"']+\s*(?:[-+*/|&]?=|:=)\s*\S"
)
_BLOCK_OPENERS = ("if ", "elif ", "for ", "while ", "with ", "try:", "except ", "else:")
_MAX_LINE_CHARACTERS = 200  # only the start of a line is inspected


class ContentType(StrEnum):
    """Kinds of text with different numbers of characters per token."""

    TEXT = "text"
    CODE = "code"
    JSON = "json"
    HTML = "html"


def detect_content(text: str) -> tuple[ContentType, float]:
    """Return the kind of the text and a confidence in [0, 1]."""
    sample = text[:_MAX_SAMPLE_CHARACTERS]
    # JSON first, as it may contain HTML and code; HTML before code, as pages contain scripts.
    if (json_confidence := _score_json(text, sample)) >= 0.5:
        return ContentType.JSON, json_confidence
    if (html_confidence := _score_html(sample)) >= 0.5:
        return ContentType.HTML, html_confidence
    if (code_confidence := _score_code(sample)) >= 0.5:
        return ContentType.CODE, code_confidence
    return ContentType.TEXT, 1.0 - max(json_confidence, html_confidence, code_confidence)


def _score_json(text: str, sample: str) -> float:
    # A fast check of the first and last character before anything is parsed.
    start, end = sample.lstrip()[:1], text[-100:].rstrip()[-1:]
    if (start, end) not in {("{", "}"), ("[", "]")}:
        return 0.0
    if len(text) <= _MAX_PARSED_CHARACTERS:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return 0.4
        return 1.0
    return min(0.95, 0.3 + 0.05 * len(_JSON_MEMBER.findall(sample)))


def _score_html(sample: str) -> float:
    if "<" not in sample or ">" not in sample:
        return 0.0
    if _HTML_PAGE.match(sample):
        return 1.0
    tags = _TAG.findall(sample)
    # A third of the characters in tags counts as certain.
    share = sum(map(len, tags)) / len(sample)
    return min(1.0, 3.0 * share) if len(tags) >= 2 else 0.0


def _score_code(sample: str) -> float:
    if "\n" not in sample and not sample.endswith((";", "}", ")", ":")):
        return 0.0  # fast path for a single line of prose, the usual chat message
    fenced = sum(map(len, _FENCE.findall(sample))) / len(sample) if "```" in sample else 0.0
    lines = [stripped for line in sample.split("\n") if (stripped := line.strip())]
    evidence = min(1.0, 0.6 + 0.1 * len(lines))  # a single line that looks like code is weak evidence
    share = sum(map(_looks_like_code, lines)) / max(1, len(lines))
    # 80 % of lines that look like code count as certain, because code also contains comments.
    return min(1.0, max(fenced, 1.25 * evidence * share))


def _looks_like_code(line: str) -> bool:
    return (
        line.endswith((";", "{", "}"))
        or _CODE_START.match(line[:_MAX_LINE_CHARACTERS]) is not None
        or (line.endswith(":") and line.startswith(_BLOCK_OPENERS))
        or " => " in line
        or " -> " in line
    )


FRAME_TOKENS = 4
"""Tokens per message of a list for its role and delimiters."""
REPLY_TOKENS = 3
"""Tokens per list for the start of the answer."""
NAME_TOKENS = 1
"""Tokens per name, in addition to the name itself."""
CALL_TOKENS = 3
"""Tokens per tool call, in addition to its name, id and arguments."""


def count_draft(counter: TokenCounter, message: MessageDraft | Message) -> int:
    """Count the tokens of one message without its frame: text, name, tool calls and tool call id."""
    tokens = counter.count(message.content)
    if message.name is not None:
        tokens += counter.count(message.name) + NAME_TOKENS
    for call in message.tool_calls:
        tokens += (
            counter.count(call.name) + counter.count(call.id) + counter.count(call.arguments) + CALL_TOKENS
        )
    if message.tool_call_id is not None:
        tokens += counter.count(message.tool_call_id)
    return tokens


def count_messages(counter: TokenCounter, messages: Iterable[Message], tools: Iterable[object] = ()) -> int:
    """Count the tokens of a prompt: framed messages, tool schemas and the start of the answer.

    A stored count is reused if it is from the same counter or from the caller.
    """
    tokens = REPLY_TOKENS + sum(count_framed(counter, message) for message in messages)
    return tokens + count_tools(counter, tools)


def count_framed(counter: TokenCounter, message: Message) -> int:
    """Count the tokens of one message in a prompt, including its frame."""
    is_counted = message.token_counter in (counter.name, COUNTED_BY_CALLER)
    return (message.token_count if is_counted else count_draft(counter, message)) + FRAME_TOKENS


def count_tools(counter: TokenCounter, tools: Iterable[object]) -> int:
    """Count the tokens of tool schemas, given as JSON values."""
    return sum(counter.count(to_json(tool, "tool schema")) + FRAME_TOKENS for tool in tools)


CHARACTERS_PER_TOKEN = {
    ContentType.TEXT: 4.0,
    ContentType.CODE: 3.5,
    ContentType.JSON: 3.0,
    ContentType.HTML: 2.5,
}

# A non-ASCII character takes about one token, regardless of its context. There are two
# exceptions, measured with cl100k_base: the vocabulary contains Cyrillic words, and
# characters outside the basic plane, mainly emoji, are split into bytes.
_CYRILLIC = re.compile("[\u0400-\u052f]+")
_TOKENS_PER_CYRILLIC = 0.45
_TOKENS_PER_ASTRAL = 2.5


class CharCounter:
    """Counts ``ceil(len(text) / 4)`` tokens. The fastest counter, accurate only for English prose."""

    name = "chars4"

    def count(self, text: str) -> int:
        """Return the number of tokens in the text."""
        return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """A token count with the content type and confidence behind it."""

    tokens: int
    content_type: ContentType
    confidence: float


class ContentAwareCounter:
    """Estimates tokens by content type; code, JSON, HTML, CJK and emoji take more tokens than prose.

    The default counter of the engine: it works offline and gives the same counts everywhere.
    """

    name = "content1"

    def count(self, text: str) -> int:
        """Return the number of tokens in the text."""
        return self.estimate(text).tokens if text else 0

    def estimate(self, text: str, content_type: ContentType | None = None) -> TokenEstimate:
        """Estimate the tokens of a text. Default content type: detected."""
        confidence = 1.0
        if content_type is None:
            content_type, confidence = detect_content(text)
        ratio = CHARACTERS_PER_TOKEN[content_type]
        tokens = len(text) / ratio if text.isascii() else _count_mixed_tokens(text, ratio)
        return TokenEstimate(math.ceil(tokens), content_type, confidence)


def _count_mixed_tokens(text: str, ratio: float) -> float:
    # Counts by encoding, which runs in C, instead of with a regular expression per character. UTF-16 takes two units
    # for each character outside the basic plane.
    ascii_only = len(text.encode("ascii", "ignore"))
    astral = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    cyrillic = sum(map(len, _CYRILLIC.findall(text)))
    single = len(text) - ascii_only - astral - cyrillic
    return ascii_only / ratio + single + cyrillic * _TOKENS_PER_CYRILLIC + astral * _TOKENS_PER_ASTRAL


_DEFAULT_COUNTER = ContentAwareCounter()


class TokenEstimator:
    """The content-aware estimate as static methods.

    Prose takes about 4 characters per token, code 3.5, JSON 3 and HTML 2.5.
    """

    @staticmethod
    def estimate(text: str, content_type: ContentType | str | None = None) -> TokenEstimate:
        """Estimate the tokens of a text, with the content type and the confidence.

        Args:
            text: Any text.
            content_type: Kind of the text. Default: detected.
        """
        kind = None if content_type is None else ContentType(str(content_type).lower())
        return _DEFAULT_COUNTER.estimate(text, kind)

    @staticmethod
    def estimate_messages(messages: Iterable[Mapping[str, object] | object]) -> int:
        """Estimate the tokens of a prompt: framed messages and the start of the answer.

        Args:
            messages: Mappings or objects with ``content``: a text, or a list of parts with ``text``.
        """
        return REPLY_TOKENS + sum(FRAME_TOKENS + _count_message_tokens(message) for message in messages)


def _count_message_tokens(message: object) -> int:
    tokens = _DEFAULT_COUNTER.count(_to_text(_get_field(message, "content")))
    name = _get_field(message, "name")
    if isinstance(name, str) and name:
        tokens += _DEFAULT_COUNTER.count(name) + NAME_TOKENS
    calls = _get_field(message, "tool_calls")
    return tokens + (_DEFAULT_COUNTER.count(str(calls)) if calls else 0)


def _get_field(message: object, key: str) -> object:
    return message.get(key) if isinstance(message, Mapping) else getattr(message, key, None)


def _to_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(
            _to_text(_get_field(part, "text") if not isinstance(part, str) else part) for part in content
        )
    return "" if content is None else str(content)


_log = logging.getLogger(__name__)
_lock = threading.Lock()
_warned_encodings: set[str] = set()

_CACHE_VARIABLE = "TIKTOKEN_CACHE_DIR"

# tiktoken's name of each cached file, and the expected hash. Given a file with another hash,
# tiktoken deletes it and starts a download, so such a file is never passed to it.
_VOCABULARIES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}


class TiktokenCounter:
    """Exact counts for models that use one of tiktoken's vocabularies.

    Args:
        encoding: ``cl100k_base`` or ``o200k_base``.
        cache_dir: Folder of the vocabulary. Default: searched.

    Raises:
        InvalidConfigError: The vocabulary is not on this machine. Nothing is downloaded.
    """

    def __init__(
        self, encoding: str = "cl100k_base", cache_dir: str | os.PathLike[str] | None = None
    ) -> None:
        if encoding not in _VOCABULARIES:
            raise InvalidConfigError(f"unknown encoding {encoding!r}: use one of {', '.join(_VOCABULARIES)}")
        folders = [Path(cache_dir)] if cache_dir is not None else list(_iter_vocabulary_folders())
        folder = next((folder for folder in folders if _has_vocabulary(folder, encoding)), None)
        if folder is None:
            raise InvalidConfigError(
                f"no vocabulary of {encoding!r} on this machine: set {_CACHE_VARIABLE} to its folder, "
                "or pip install 'langmem-tiers[llama-index]', which includes one"
            )
        self.name = encoding
        self._encoding = _load_encoding(encoding, folder)

    def count(self, text: str) -> int:
        """Return the number of tokens in the text; text that looks like control tokens counts as plain text."""
        try:
            return len(self._encoding.encode_ordinary(text))
        except UnicodeEncodeError:  # lone surrogates, which UTF-8 cannot encode
            return len(self._encoding.encode_ordinary(text.encode("utf-8", "replace").decode()))


def tiktoken_or_estimate(encoding: str = "cl100k_base") -> TokenCounter:
    """Return a tiktoken counter if its vocabulary is available, else the content-aware one with one warning."""
    try:
        return TiktokenCounter(encoding)
    except InvalidConfigError as error:
        if encoding not in _VOCABULARIES:
            raise
        with _lock:
            if encoding not in _warned_encodings:
                _warned_encodings.add(encoding)
                _log.warning("tokens are estimated by content: %s", error)
        return ContentAwareCounter()


def _iter_vocabulary_folders() -> Iterator[Path]:
    if folder := os.environ.get(_CACHE_VARIABLE):
        yield Path(folder)
    # Found without importing llama_index, which would take seconds.
    # llama-index ships the vocabulary as package data.
    spec = importlib.util.find_spec("llama_index")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        yield Path(folder) / "core" / "_static" / "tiktoken_cache"


def _has_vocabulary(folder: Path, encoding: str) -> bool:
    file_name, expected = _VOCABULARIES[encoding]
    try:
        return hashlib.sha256((folder / file_name).read_bytes()).hexdigest() == expected
    except OSError:
        return False


def _load_encoding(encoding: str, folder: Path) -> tiktoken.Encoding:
    import tiktoken  # noqa: PLC0415 - an optional package that most programs do not need

    with _lock:
        before = os.environ.get(_CACHE_VARIABLE)
        os.environ[_CACHE_VARIABLE] = str(folder)  # the only way to pass the folder to tiktoken
        try:
            return tiktoken.get_encoding(encoding)
        finally:
            if before is None:
                del os.environ[_CACHE_VARIABLE]
            else:
                os.environ[_CACHE_VARIABLE] = before
