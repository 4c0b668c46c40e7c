"""The parts of a tool's result: links, buttons, fields, selectors and the text around them."""

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

MAX_HEAD_CHARACTERS, MAX_TAIL_CHARACTERS = 160_000, 40_000
"""What is read of a longer text for its facts; its addresses are looked for in all of it."""
MAX_NODES = 100_000
"""Values of nested data that are read."""
_MAX_DEPTH = 50
_MAX_INTEGER_BITS = 10_000
_LABEL_KEYS = (
    "title",
    "text",
    "label",
    "name",
    "aria-label",
    "aria_label",
    "headline",
    "alt",
    "placeholder",
    "value",
)
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
    """A tool's result as text, and as data where it is such."""

    text: str
    value: Any
    """Mappings and lists, of limited size and without cycles; None for a text."""
    is_truncated: bool = False
    """Whether not all of it is read for facts."""
    source: Any = None
    """What its addresses are looked for in: all of it."""


def to_output_content(data: object) -> ToolOutputContent:
    """The result of a tool, whatever it is, in a form that can be read."""
    if isinstance(data, bytes | bytearray):
        data = bytes(data).decode("utf-8", "replace")
    if isinstance(data, BaseException):
        data = {"error": {"type": type(data).__name__, "message": to_safe_text(data)}}
    text = "" if data is None else data if isinstance(data, str) else None
    value = data if text is None else parse_json_container(text)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        text = to_safe_text(data) if text is None else text
        return ToolOutputContent(text, None, len(text) > MAX_HEAD_CHARACTERS + MAX_TAIL_CHARACTERS, text)
    left = [3 * MAX_NODES]
    try:
        plain = _to_plain(value, left, ())
    except Exception:  # noqa: BLE001 - a mapping of the caller's may raise anything as it is read
        text = to_safe_text(data)
        return ToolOutputContent(text, None, len(text) > MAX_HEAD_CHARACTERS + MAX_TAIL_CHARACTERS, text)
    text = json.dumps(plain, ensure_ascii=False) if text is None else text
    return ToolOutputContent(text, plain, left[0] <= 0, value)


def limit_read_text(text: str) -> str:
    """The text, or its first and last parts."""
    if len(text) <= MAX_HEAD_CHARACTERS + MAX_TAIL_CHARACTERS:
        return text
    return f"{text[:MAX_HEAD_CHARACTERS]}\n{text[-MAX_TAIL_CHARACTERS:]}"


def extract_elements(material: ToolOutputContent) -> ExtractedElements:
    """The parts of a result."""
    found = ExtractedElements()
    if material.value is None:
        extract_text_elements(limit_read_text(material.text), found)
    else:
        _read_value(material.value, found)
    return found


def _to_plain(value: object, left: list[int], path: tuple[int, ...]) -> Any:  # noqa: ANN401 - any JSON value
    left[0] -= 1
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return to_safe_text(value)  # Python refuses to write it
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return to_safe_text(value)
    if left[0] <= 0 or id(value) in path or len(path) >= _MAX_DEPTH:
        return "..."
    inner = (*path, id(value))
    if isinstance(value, Mapping):
        return {to_safe_text(key): _to_plain(one, left, inner) for key, one in value.items() if left[0] > 0}
    return [_to_plain(one, left, inner) for one in value if left[0] > 0]


def _read_value(value: object, found: ExtractedElements) -> None:
    stack: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_NODES):
        if not stack:
            return
        key, one = stack.pop()
        if isinstance(one, Mapping):
            _read_mapping(key, one, found)
            stack += reversed([(to_safe_text(name).lower(), part) for name, part in one.items()])
        elif isinstance(one, list):
            stack += reversed([(key, part) for part in one])
        elif isinstance(one, str):
            _read_string(key, one, found)


def _read_string(key: str, text: str, found: ExtractedElements) -> None:
    if key in _SELECTOR_KEYS and 0 < len(text) <= 300:
        found.selectors.append(" ".join(text.split()))
    elif key in ("title", "page_title", "pagetitle") and not found.title:
        found.title = shorten_text(text, MAX_ELEMENT_LABEL_CHARACTERS)
    elif len(text) > 40 and not parse_url_value(key, text):
        extract_text_elements(limit_read_text(text), found)


def _read_mapping(key: str, one: Mapping[str, Any], found: ExtractedElements) -> None:
    keys = lowercase_keys(one)
    label = shorten_text(_get_first_text(keys, _LABEL_KEYS), MAX_ELEMENT_LABEL_CHARACTERS)
    selector = " ".join(_get_first_text(keys, _SELECTOR_KEYS).split())[:300] or _build_id_selector(keys)
    kind = _get_first_text(keys, _KIND_KEYS).lower()
    url = next((url for name in keys if is_url_key(name) and (url := _parse_url(name, keys[name]))), "")
    if url:
        if label:
            found.links.append((label, url))
        if snippet := _get_first_text(keys, _SNIPPET_KEYS):
            found.snippets.setdefault(url, snippet)
    elif is_form_field(one) and kind not in ("submit", "reset"):
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
