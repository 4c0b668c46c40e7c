"""tiktoken without a download: its vocabulary is looked for on this machine only.

Reading that file once, when the counter is built, is the only I/O in this layer; counting
itself is pure.
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


_MAX_SAMPLE_CHARACTERS = 4_000  # characters looked at: enough to tell, cheap for megabytes
_MAX_PARSED_CHARACTERS = 20_000  # JSON up to this length is parsed to be sure

_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9-]*(?:\s[^<>]*)?/?>")
_HTML_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_JSON_MEMBER = re.compile(r'"[^"\n]{0,200}"\s*:')
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Matched against single stripped lines, from their start: nothing in it can run over a line twice.
_CODE_START = re.compile(
    r"(?:async\s+)?def\s+\w+\(|class\s+\w+\s*[:({]|import\s+[\w.{*]|from\s+[\w.]+\s+import\s"
    r"|(?:export\s+)?(?:const|let|var|function)\s+\w|(?:public|private|protected|static)\s+\w"
    r"|return\b|(?:if|for|while|switch)\s*\(|else\s*[:{]|#include\s*<"
    r"|(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER)\s|@\w+(?:\(|$)|[)\]}]+[,;]?$"
    r"|[\w.\[\]\"']+\s*(?:[-+*/|&]?=|:=)\s*\S"
)
_BLOCK_OPENERS = ("if ", "elif ", "for ", "while ", "with ", "try:", "except ", "else:")
_MAX_LINE_CHARACTERS = 200  # characters of a line that are looked at


class ContentType(StrEnum):
    """Kinds of text that tokenizers cut differently."""

    TEXT = "text"
    CODE = "code"
    JSON = "json"
    HTML = "html"


def detect_content(text: str) -> tuple[ContentType, float]:
    """The kind of the text and a confidence in [0, 1]."""
    sample = text[:_MAX_SAMPLE_CHARACTERS]
    if (json_confidence := _score_json(text, sample)) >= 0.5:
        return ContentType.JSON, json_confidence
    if (html_confidence := _score_html(sample)) >= 0.5:
        return ContentType.HTML, html_confidence
    if (code_confidence := _score_code(sample)) >= 0.5:
        return ContentType.CODE, code_confidence
    return ContentType.TEXT, 1.0 - max(json_confidence, html_confidence, code_confidence)


def _score_json(text: str, sample: str) -> float:
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
    share = sum(map(len, tags)) / len(sample)
    return min(1.0, 3.0 * share) if len(tags) >= 2 else 0.0


def _score_code(sample: str) -> float:
    if "\n" not in sample and not sample.endswith((";", "}", ")", ":")):
        return 0.0  # a lone line of prose, the usual chat message, needs no closer look
    fenced = sum(map(len, _FENCE.findall(sample))) / len(sample) if "```" in sample else 0.0
    lines = [stripped for line in sample.split("\n") if (stripped := line.strip())]
    evidence = min(1.0, 0.6 + 0.1 * len(lines))  # one line that looks like code proves less than five
    share = sum(map(_looks_like_code, lines)) / max(1, len(lines))
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
"""Per message in a list: its role and the marks that set it apart from the next."""
REPLY_TOKENS = 3
"""Per list: the opening of the answer."""
NAME_TOKENS = 1
"""Per name, beside the name itself."""
CALL_TOKENS = 3
"""Per tool call, beside its name, id and arguments."""


def count_draft(counter: TokenCounter, message: MessageDraft | Message) -> int:
    """Tokens of one message without its frame: text, name, tool calls, the call it answers."""
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
    """Tokens of a prompt: messages with their frames, tool schemas, the opening of the answer.

    A count that the same counter stored, or that the caller gave, is used as it is.
    """
    tokens = REPLY_TOKENS + sum(count_framed(counter, message) for message in messages)
    return tokens + count_tools(counter, tools)


def count_framed(counter: TokenCounter, message: Message) -> int:
    """Tokens of one message in a prompt, with its frame."""
    is_counted = message.token_counter in (counter.name, COUNTED_BY_CALLER)
    return (message.token_count if is_counted else count_draft(counter, message)) + FRAME_TOKENS


def count_tools(counter: TokenCounter, tools: Iterable[object]) -> int:
    """Tokens of tool schemas, given as JSON values."""
    return sum(counter.count(to_json(tool, "tool schema")) + FRAME_TOKENS for tool in tools)


CHARACTERS_PER_TOKEN = {
    ContentType.TEXT: 4.0,
    ContentType.CODE: 3.5,
    ContentType.JSON: 3.0,
    ContentType.HTML: 2.5,
}

# Outside ASCII a character is about a token of its own, whatever stands around it. Two
# exceptions, measured with cl100k_base: Cyrillic has words of its own in the vocabulary,
# and what lies beyond the basic plane, emoji above all, is cut into bytes.
_CYRILLIC = re.compile("[\u0400-\u052f]+")
_TOKENS_PER_CYRILLIC = 0.45
_TOKENS_PER_ASTRAL = 2.5


class CharCounter:
    """``ceil(len(text) / 4)``: the quickest, right for English prose and for nothing else."""

    name = "chars4"

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """A count with what it rests on."""

    tokens: int
    content_type: ContentType
    confidence: float


class ContentAwareCounter:
    """Knows that code, JSON and HTML take more tokens than prose, and so do CJK and emoji.

    The same everywhere and offline, so it is the engine's default.
    """

    name = "content1"

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return self.estimate(text).tokens if text else 0

    def estimate(self, text: str, content_type: ContentType | None = None) -> TokenEstimate:
        """Tokens with the kind of text that was found, or that you say it is."""
        confidence = 1.0
        if content_type is None:
            content_type, confidence = detect_content(text)
        ratio = CHARACTERS_PER_TOKEN[content_type]
        tokens = len(text) / ratio if text.isascii() else _count_mixed_tokens(text, ratio)
        return TokenEstimate(math.ceil(tokens), content_type, confidence)


def _count_mixed_tokens(text: str, ratio: float) -> float:
    # Encoders count in C what a regular expression would collect character by character.
    ascii_only = len(text.encode("ascii", "ignore"))
    astral = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    cyrillic = sum(map(len, _CYRILLIC.findall(text)))
    single = len(text) - ascii_only - astral - cyrillic
    return ascii_only / ratio + single + cyrillic * _TOKENS_PER_CYRILLIC + astral * _TOKENS_PER_ASTRAL


_DEFAULT_COUNTER = ContentAwareCounter()


class TokenEstimator:
    """The content-aware estimate without an object to build: about 4 characters a token in prose, 3.5 in code,
    3 in JSON, 2.5 in HTML.
    """  # noqa: D205 - one sentence

    @staticmethod
    def estimate(text: str, content_type: ContentType | str | None = None) -> TokenEstimate:
        """Tokens of a text, the kind that it was taken for, and how sure that is.

        Args:
            text: Any text.
            content_type: What it is; found by itself if left out.
        """
        kind = None if content_type is None else ContentType(str(content_type).lower())
        return _DEFAULT_COUNTER.estimate(text, kind)

    @staticmethod
    def estimate_messages(messages: Iterable[Mapping[str, object] | object]) -> int:
        """Tokens of a prompt: each message with its frame, and the opening of the answer.

        Args:
            messages: Mappings with ``content`` (a text, or a list of parts with ``text``), or objects that have it.
        """
        return REPLY_TOKENS + sum(FRAME_TOKENS + _count_message_tokens(one) for one in messages)


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
            _to_text(_get_field(one, "text") if not isinstance(one, str) else one) for one in content
        )
    return "" if content is None else str(content)


_log = logging.getLogger(__name__)
_lock = threading.Lock()
_warned_encodings: set[str] = set()

_CACHE_VARIABLE = "TIKTOKEN_CACHE_DIR"

# tiktoken's own name of each cached file, and the hash it checks; a file with another hash
# would make tiktoken delete it and go to the network, so it is never offered to it.
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
    """Exact counts for models with that vocabulary.

    Args:
        encoding: ``cl100k_base`` or ``o200k_base``.
        cache_dir: Where the vocabulary lies; found by itself if left out.

    Raises:
        InvalidConfigError: The vocabulary is not on this machine. Nothing is downloaded.
    """

    def __init__(
        self, encoding: str = "cl100k_base", cache_dir: str | os.PathLike[str] | None = None
    ) -> None:
        if encoding not in _VOCABULARIES:
            raise InvalidConfigError(f"unknown encoding {encoding!r}: use one of {', '.join(_VOCABULARIES)}")
        places = [Path(cache_dir)] if cache_dir is not None else list(_iter_vocabulary_folders())
        folder = next((place for place in places if _has_vocabulary(place, encoding)), None)
        if folder is None:
            raise InvalidConfigError(
                f"no vocabulary of {encoding!r} on this machine: set {_CACHE_VARIABLE} to its folder, "
                "or pip install 'langmem-tiers[llama-index]', which brings one"
            )
        self.name = encoding
        self._encoding = _load_encoding(encoding, folder)

    def count(self, text: str) -> int:
        """Tokens of the text; words that look like control tokens count as plain text."""
        try:
            return len(self._encoding.encode_ordinary(text))
        except UnicodeEncodeError:  # lone surrogates, which no model ever sees
            return len(self._encoding.encode_ordinary(text.encode("utf-8", "replace").decode()))


def tiktoken_or_estimate(encoding: str = "cl100k_base") -> TokenCounter:
    """Tiktoken where its vocabulary is at hand, else the content-aware estimate, saying so once."""
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
    import tiktoken  # noqa: PLC0415 - the only user of it; most programs never come here

    with _lock:
        before = os.environ.get(_CACHE_VARIABLE)
        os.environ[_CACHE_VARIABLE] = str(folder)  # tiktoken takes its folder from nowhere else
        try:
            return tiktoken.get_encoding(encoding)
        finally:
            if before is None:
                del os.environ[_CACHE_VARIABLE]
            else:
                os.environ[_CACHE_VARIABLE] = before
