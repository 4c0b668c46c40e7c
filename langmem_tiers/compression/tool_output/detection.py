"""Detection of the content type of a tool result by its structure; the tool name decides ambiguous cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from langmem_tiers.compression.tool_output.models import CompressionContentType
from langmem_tiers.compression.tool_output.urls import is_url_key, parse_json_container, to_safe_text
from langmem_tiers.text.token_counting import ContentType, detect_content
from langmem_tiers.text.word_lists import load_words

INPUT_TYPES = frozenset(load_words(__name__, "page_words", "input types"))
"""Values of the ``type`` of a form field."""
_SAMPLE_CHARACTERS = 20_000
_Kind = CompressionContentType
_TITLE_KEYS = ("title", "name", "headline")
_ROLES = "|".join(load_words(__name__, "page_words", "roles"))
_TREE_LINE = re.compile(
    rf"^[ \t]*(?:[-*•][ \t]*)?(?:\[[\w-]{{1,12}}\][ \t]*|\d{{1,6}}[ \t]+|uid=\S{{1,20}}[ \t]+)?(?:{_ROLES})\b"
    r"[ \t]*(?:['\"\[:]|$)",
    re.IGNORECASE | re.MULTILINE,
)
_STACK_TRACE = re.compile(
    r"Traceback \(most recent call last\)|^\s+at [\w$.<>]{1,200} ?\([^\n)]{1,200}\)|^Caused by: "
    r"|^\s{0,8}File \"[^\"\n]{1,300}\", line \d",
    re.MULTILINE,
)
_ERROR_START = re.compile(
    r"\s*(?:\W{0,3}(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception)\b\s?[:(\[]"
    r"|(?i:\[?error\]?\s?[:\-]|fatal\s?:|failed to )"
    r"|(?i:HTTP(?:/\d\S*)?\s(?:error\s)?[45]\d\d\b)|[45]\d\d (?:[A-Z][a-z]+ ?){1,4}$)"
)
_MAX_ERROR_CHARACTERS = 4_000  # a longer text that merely begins with an error is text content
_RESULT_LINE = re.compile(
    r"^\s*(?:\d{1,3}[.)]|\[\d{1,3}\]|#{1,4}|[-*•]|Title:|URL:|Link:)\s*\S", re.MULTILINE
)
_URL = re.compile(r"https?://[^\s<>\"]+")
_FORM_TAG = re.compile(r"<(?:form|input|select|textarea)\b", re.IGNORECASE)
_LINK_TAG = re.compile(r"<a\s", re.IGNORECASE)
_INTERACTIVE_TAG = re.compile(r"<(?:a|button|html|body|nav|form|input|select|textarea)\b", re.IGNORECASE)
_WHOLE_PAGE = re.compile(r"<(?:html|body)\b", re.IGNORECASE)
_PAGE_KEYS = frozenset(load_words(__name__, "page_words", "page keys"))
_FORM_KEYS = frozenset({"fields", "form_fields", "formfields", "inputs", "forms", "form"})
_ERROR_KEYS = ("error", "exception", "traceback", "error_message", "errormessage", "stack_trace")
_TEXT_KEYS = ("text", "content", "html", "markdown", "body", "output", "result", "data", "page_content")


def detect_content_type(data: object, tool_name: str = "") -> CompressionContentType:
    """Detect the content type of a tool result.

    Args:
        data: Text, JSON text, HTML, bytes, mappings, lists, or any other object, which is converted to text.
        tool_name: Name of the tool, which decides ambiguous cases.
    """
    if isinstance(data, bytes | bytearray):
        data = bytes(data).decode("utf-8", "replace")
    value = parse_json_container(data) if isinstance(data, str) else data
    if isinstance(value, Mapping):
        return _detect_mapping(value, tool_name)
    if isinstance(value, list | tuple):
        return _detect_list(value, tool_name)
    if isinstance(data, BaseException):
        return _Kind.ERROR_INFO
    return _detect_text(data if isinstance(data, str) else to_safe_text(data), tool_name)


def find_records(value: object) -> list[Mapping[Any, Any]]:
    """Return the mappings in a list, or in the first list of mappings inside a mapping."""
    if isinstance(value, list | tuple):
        return [item for item in value if isinstance(item, Mapping)]
    if isinstance(value, Mapping):
        for member in value.values():
            if isinstance(member, list | tuple) and any(isinstance(item, Mapping) for item in member):
                return find_records(member)
    return []


def lowercase_keys(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of a mapping with its keys as lower-case text."""
    return {to_safe_text(key).strip().lower(): value for key, value in mapping.items()}


def is_form_field(mapping: Mapping[Any, Any]) -> bool:
    """Return True if a mapping describes a form field."""
    keys = lowercase_keys(mapping)
    kind = to_safe_text(keys.get("type", keys.get("input_type", ""))).lower()
    has_name = any(keys.get(key) for key in ("name", "id", "selector", "label", "placeholder"))
    return kind in INPUT_TYPES and has_name and not any(is_url_key(key) for key in keys)


def _detect_mapping(value: Mapping[Any, Any], tool_name: str) -> CompressionContentType:
    keys = lowercase_keys(value)
    if any(keys.get(key) for key in _ERROR_KEYS) or (
        keys.get("success") is False and (keys.get("message") or keys.get("reason"))
    ):
        return _Kind.ERROR_INFO
    if _PAGE_KEYS & set(keys) or ("role" in keys and "children" in keys):
        return _Kind.PAGE_STATE
    if any(_is_form(keys[key]) for key in _FORM_KEYS & set(keys)) or is_form_field(value):
        return _Kind.FORM_DATA
    if _are_search_results(find_records(value)):
        return _Kind.SEARCH_RESULTS
    # A wrapper such as {"url": ..., "text": ...}: if most of it is one text, the type of this text counts.
    texts = [keys[key] for key in _TEXT_KEYS if isinstance(keys.get(key), str)]
    longest = max(texts, key=len, default="")
    if len(longest) > 200 and 2 * len(longest) > sum(
        len(to_safe_text(member)) for member in keys.values() if _is_scalar(member)
    ):
        return detect_content_type(longest, tool_name)
    return _detect_by_tool_name(tool_name, _Kind.STRUCTURED_DATA)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _detect_list(value: Sequence[Any], tool_name: str) -> CompressionContentType:
    records = find_records(value)
    if records:
        # More than half of the first 50 records must be of one type.
        sample = records[:50]
        if sum(map(is_form_field, sample)) * 2 > len(sample):
            return _Kind.FORM_DATA
        if _are_search_results(records):
            return _Kind.SEARCH_RESULTS
        if sum(_is_element(lowercase_keys(record)) for record in sample) * 2 > len(sample):
            return _Kind.PAGE_STATE
        return _detect_by_tool_name(tool_name, _Kind.STRUCTURED_DATA)
    if value and all(isinstance(item, str) for item in value) and max(len(item) for item in value) > 200:
        return _detect_text("\n".join(value), tool_name)
    return _detect_by_tool_name(tool_name, _Kind.STRUCTURED_DATA)


def _is_form(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(
            _is_form(member) for member in list(value.values())[:20] if isinstance(member, list | Mapping)
        ) or all(isinstance(member, Mapping) and "type" in member for member in value.values())
    return any(
        is_form_field(record) or _is_form(lowercase_keys(record).get("fields"))
        for record in find_records(value)[:20]
    )


def _are_search_results(records: Sequence[Mapping[Any, Any]]) -> bool:
    sample = [lowercase_keys(record) for record in records[:50]]
    return bool(sample) and 2 * sum(map(_is_search_result, sample)) > len(sample)


def _is_search_result(keys: Mapping[str, Any]) -> bool:
    has_url = any(is_url_key(key) and isinstance(value, str) for key, value in keys.items())
    return has_url and any(isinstance(keys.get(key), str) for key in _TITLE_KEYS) and "role" not in keys


def _is_element(keys: Mapping[str, Any]) -> bool:
    if "role" in keys or "tag" in keys or "selector" in keys or "xpath" in keys or "tagname" in keys:
        return True
    return any(is_url_key(key) for key in keys) and any(key in keys for key in ("text", "label"))


def _detect_text(text: str, tool_name: str) -> CompressionContentType:
    sample = text[:_SAMPLE_CHARACTERS]
    kind, _ = detect_content(sample) if sample else (ContentType.TEXT, 1.0)
    if kind is ContentType.HTML:
        return _detect_html(sample)
    is_short = len(text) <= _MAX_ERROR_CHARACTERS
    if _STACK_TRACE.search(sample[:2_000]) or (is_short and _ERROR_START.match(sample)):
        return _Kind.ERROR_INFO
    lines = sum(1 for line in sample.splitlines() if line.strip())
    # An accessibility tree: at least a third of the lines are elements.
    if (tree := len(_TREE_LINE.findall(sample))) >= 3 and 3 * tree >= lines:
        return _Kind.PAGE_STATE
    # Search results: at least one URL per six lines on average, and enough lines that look like list items.
    urls = len(_URL.findall(sample))
    if (
        urls >= 3
        and 6 * urls >= lines
        and len(_RESULT_LINE.findall(sample)) >= urls // 2
        and lines <= 12 * urls
    ):
        return _Kind.SEARCH_RESULTS
    return _detect_by_tool_name(
        tool_name, _Kind.STRUCTURED_DATA if kind is ContentType.JSON else _Kind.TEXT_CONTENT
    )


def _detect_html(sample: str) -> CompressionContentType:
    fields, links = len(_FORM_TAG.findall(sample)), len(_LINK_TAG.findall(sample))
    # A complete page with a form stays a page state: as form data it would lose its links.
    is_whole_page = _WHOLE_PAGE.search(sample) is not None
    if fields >= 2 and fields > links and not (is_whole_page and links):
        return _Kind.FORM_DATA
    return _Kind.PAGE_STATE if _INTERACTIVE_TAG.search(sample) else _Kind.TEXT_CONTENT


def _detect_by_tool_name(tool_name: str, otherwise: CompressionContentType) -> CompressionContentType:
    name = to_safe_text(tool_name).lower()
    if name.startswith("search") or name.endswith("_search"):
        return _Kind.SEARCH_RESULTS
    if "page_state" in name or "snapshot" in name or "accessibility" in name:
        return _Kind.PAGE_STATE
    return _Kind.FORM_DATA if "form" in re.split(r"[\W_]+", name) else otherwise
