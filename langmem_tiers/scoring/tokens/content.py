"""What kind of text it is: prose, code, JSON or HTML, and how sure we are."""

from __future__ import annotations

import json
import re
from enum import StrEnum

_SAMPLE = 4_000  # characters looked at: enough to tell, cheap for megabytes
_PARSE_UP_TO = 20_000  # JSON up to this length is parsed to be sure

_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9-]*(?:\s[^<>]*)?/?>")
_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
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
_LINE = 200  # characters of a line that are looked at


class ContentType(StrEnum):
    """Kinds of text that tokenizers cut differently."""

    TEXT = "text"
    CODE = "code"
    JSON = "json"
    HTML = "html"


def detect_content(text: str) -> tuple[ContentType, float]:
    """The kind of the text and a confidence in [0, 1]."""
    sample = text[:_SAMPLE]
    if (json_confidence := _json(text, sample)) >= 0.5:
        return ContentType.JSON, json_confidence
    if (html_confidence := _html(sample)) >= 0.5:
        return ContentType.HTML, html_confidence
    if (code_confidence := _code(sample)) >= 0.5:
        return ContentType.CODE, code_confidence
    return ContentType.TEXT, 1.0 - max(json_confidence, html_confidence, code_confidence)


def _json(text: str, sample: str) -> float:
    start, end = sample.lstrip()[:1], text[-100:].rstrip()[-1:]
    if (start, end) not in {("{", "}"), ("[", "]")}:
        return 0.0
    if len(text) <= _PARSE_UP_TO:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return 0.4
        return 1.0
    return min(0.95, 0.3 + 0.05 * len(_JSON_MEMBER.findall(sample)))


def _html(sample: str) -> float:
    if "<" not in sample or ">" not in sample:
        return 0.0
    if _PAGE.match(sample):
        return 1.0
    tags = _TAG.findall(sample)
    share = sum(map(len, tags)) / len(sample)
    return min(1.0, 3.0 * share) if len(tags) >= 2 else 0.0


def _code(sample: str) -> float:
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
        or _CODE_START.match(line[:_LINE]) is not None
        or (line.endswith(":") and line.startswith(_BLOCK_OPENERS))
        or " => " in line
        or " -> " in line
    )
