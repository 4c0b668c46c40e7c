"""Extraction of the parts of a tool result: links, buttons, form fields, selectors and text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langmem_tiers.compression.tool_output.detection import INPUT_TYPES, is_form_field, lowercase_keys
from langmem_tiers.compression.tool_output.pages import (
    MAX_ELEMENT_LABEL_CHARACTERS,
    ExtractedElements,
    extract_text_elements,
)
from langmem_tiers.compression.tool_output.urls import (
    is_url_key,
    parse_json_container,
    parse_url_value,
    to_safe_text,
)
from langmem_tiers.text.sentences import shorten_text
from langmem_tiers.text.word_lists import load_words

MAX_HEAD_CHARACTERS, MAX_TAIL_CHARACTERS = 160_000, 40_000
"""Parts of a longer text that are searched for facts; URLs are searched in the whole text."""
MAX_NODES = 100_000
"""Maximum number of values read from nested data."""
_MAX_DEPTH = 50
_MAX_INTEGER_BITS = 10_000  # Python refuses to convert integers of more than 4,300 digits, about 14,000 bits
_LABEL_KEYS = load_words(__name__, "page_words", "label keys")
_SNIPPET_KEYS = ("snippet", "description", "summary", "content", "excerpt", "abstract", "body", "text")
_SELECTOR_KEYS = (
    "selector",
    "css",
    "css_selector",
    "cssselector",
    "xpath",
    "locator",
    "ref",
    "data-testid",
    "testid",
)
_KIND_KEYS = ("role", "tag", "tagname", "type", "element", "kind")
_BUTTON_KINDS = frozenset(
    {"button", "submit", "tab", "menuitem", "switch", "checkbox", "radio", "option", "reset"}
)


@dataclass(frozen=True, slots=True)
class ToolOutputContent:
    """A tool result as text and, if it is structured, as data."""

    text: str
    value: Any
    """Mappings and lists of limited size and without cycles; None for a text."""
    is_truncated: bool = False
    """True if only a part of the result is searched for facts."""
    source: Any = None
    """The complete result, which is searched for URLs."""


def to_output_content(data: object) -> ToolOutputContent:
    """Convert any tool result to text and plain data."""
    if isinstance(data, bytes | bytearray):
        data = bytes(data).decode("utf-8", "replace")
    if isinstance(data, BaseException):
        data = {"error": {"type": type(data).__name__, "message": to_safe_text(data)}}
    text = "" if data is None else data if isinstance(data, str) else None
    value = data if text is None else parse_json_container(text)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        text = to_safe_text(data) if text is None else text
        return ToolOutputContent(text, None, len(text) > MAX_HEAD_CHARACTERS + MAX_TAIL_CHARACTERS, text)
    remaining = [3 * MAX_NODES]
    try:
        plain = _to_plain(value, remaining, ())
    except Exception:  # noqa: BLE001 - reading a mapping of the caller may raise anything
        text = to_safe_text(data)
        return ToolOutputContent(text, None, len(text) > MAX_HEAD_CHARACTERS + MAX_TAIL_CHARACTERS, text)
    text = json.dumps(plain, ensure_ascii=False) if text is None else text
    return ToolOutputContent(text, plain, remaining[0] <= 0, value)


def limit_read_text(text: str) -> str:
    """Return the text, or its beginning and end if it is too long."""
    if len(text) <= MAX_HEAD_CHARACTERS + MAX_TAIL_CHARACTERS:
        return text
    return f"{text[:MAX_HEAD_CHARACTERS]}\n{text[-MAX_TAIL_CHARACTERS:]}"


def extract_elements(material: ToolOutputContent) -> ExtractedElements:
    """Extract links, buttons, form fields, selectors and text of a tool result."""
    found = ExtractedElements()
    if material.value is None:
        extract_text_elements(limit_read_text(material.text), found)
    else:
        _read_value(material.value, found)
    return found


def _to_plain(value: object, remaining: list[int], path: tuple[int, ...]) -> Any:  # noqa: ANN401 - any JSON value
    # Copies a value as JSON data. `remaining` is a list of one number, shared by the whole recursion: how many more
    # values are copied. `path` has the ids of the containers around the value, which detects cycles.
    remaining[0] -= 1
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return to_safe_text(value)  # json.dumps would raise
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return to_safe_text(value)
    if remaining[0] <= 0 or id(value) in path or len(path) >= _MAX_DEPTH:
        return "..."
    inner = (*path, id(value))
    if isinstance(value, Mapping):
        return {
            to_safe_text(key): _to_plain(member, remaining, inner)
            for key, member in value.items()
            if remaining[0] > 0
        }
    return [_to_plain(item, remaining, inner) for item in value if remaining[0] > 0]


def _read_value(value: object, found: ExtractedElements) -> None:
    # Children are pushed in reverse, so that they are read in order. Items of a list get the key of the list.
    stack: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_NODES):
        if not stack:
            return
        key, node = stack.pop()
        if isinstance(node, Mapping):
            _read_mapping(key, node, found)
            stack += reversed([(to_safe_text(name).lower(), child) for name, child in node.items()])
        elif isinstance(node, list):
            stack += reversed([(key, child) for child in node])
        elif isinstance(node, str):
            _read_string(key, node, found)


def _read_string(key: str, text: str, found: ExtractedElements) -> None:
    if key in _SELECTOR_KEYS and 0 < len(text) <= 300:
        found.selectors.append(" ".join(text.split()))
    elif key in ("title", "page_title", "pagetitle") and not found.title:
        found.title = shorten_text(text, MAX_ELEMENT_LABEL_CHARACTERS)
    elif len(text) > 40 and not parse_url_value(key, text):
        extract_text_elements(limit_read_text(text), found)


def _read_mapping(key: str, mapping: Mapping[str, Any], found: ExtractedElements) -> None:
    # A mapping with a URL is a link or search result, otherwise it may be a form field or a button.
    keys = lowercase_keys(mapping)
    label = shorten_text(_get_first_text(keys, _LABEL_KEYS), MAX_ELEMENT_LABEL_CHARACTERS)
    selector = " ".join(_get_first_text(keys, _SELECTOR_KEYS).split())[:300] or _build_id_selector(keys)
    kind = _get_first_text(keys, _KIND_KEYS).lower()
    url = next((url for name in keys if is_url_key(name) and (url := _parse_url(name, keys[name]))), "")
    if url:
        if label:
            found.links.append((label, url))
        if snippet := _get_first_text(keys, _SNIPPET_KEYS):
            found.snippets.setdefault(url, snippet)
    elif is_form_field(mapping) and kind not in ("submit", "reset"):
        name = _get_first_text(keys, ("name", "id", "label", "placeholder", "selector"))
        found.fields.append(
            {"name": shorten_text(name, MAX_ELEMENT_LABEL_CHARACTERS), "type": _get_field_type(keys)}
            | ({"selector": selector} if selector else {})
        )
    elif kind in _BUTTON_KINDS or key in ("buttons", "button"):
        found.buttons.append((label or kind, selector))
    if selector and kind and not _get_first_text(keys, _SELECTOR_KEYS):
        found.selectors.append(selector)


def _get_field_type(keys: Mapping[str, Any]) -> str:
    for name in ("type", "input_type", "role", "tag"):
        kind = to_safe_text(keys.get(name, "")).lower()
        if kind in INPUT_TYPES:
            return kind
    return "text"


def _build_id_selector(keys: Mapping[str, Any]) -> str:
    name = keys.get("id")
    is_element = any(kind in keys for kind in ("tag", "tagname", "role", "element", "type"))
    return (
        f"#{name}" if is_element and isinstance(name, str) and re.fullmatch(r"[A-Za-z_][\w-]*", name) else ""
    )


def _parse_url(key: str, value: object) -> str:
    return parse_url_value(key, value) if isinstance(value, str) else ""


def _get_first_text(keys: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := keys.get(name), str) and value.strip()), "")
