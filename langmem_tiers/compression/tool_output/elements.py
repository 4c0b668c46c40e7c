"""The parts of a tool's result: links, buttons, fields, selectors and the text around them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langmem_tiers.compression.tool_output.detection import INPUT_TYPES, is_form_field, keys_of
from langmem_tiers.compression.tool_output.pages import LABEL_CHARACTERS, Gathered, read_text
from langmem_tiers.compression.tool_output.urls import (
    is_url_key,
    parsed_json,
    safe_text,
    url_value,
)
from langmem_tiers.text.sentences import shortened

HEAD_CHARACTERS, TAIL_CHARACTERS = 160_000, 40_000
"""What is read of a longer text for its facts; its addresses are looked for in all of it."""
MAX_NODES = 100_000
"""Values of nested data that are read."""
_MAX_DEPTH = 50
_MAX_BITS = 10_000
_LABELS = (
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
_SNIPPETS = ("snippet", "description", "summary", "content", "excerpt", "abstract", "body", "text")
_SELECTORS = (
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
_KINDS = ("role", "tag", "tagname", "type", "element", "kind")
_BUTTONS = frozenset(
    {"button", "submit", "tab", "menuitem", "switch", "checkbox", "radio", "option", "reset"}
)


@dataclass(frozen=True, slots=True)
class Material:
    """A tool's result as text, and as data where it is such."""

    text: str
    value: Any
    """Mappings and lists, of limited size and without cycles; None for a text."""
    is_cut: bool = False
    """Whether not all of it is read for facts."""
    source: Any = None
    """What its addresses are looked for in: all of it."""


def material_of(data: object) -> Material:
    """The result of a tool, whatever it is, in a form that can be read."""
    if isinstance(data, bytes | bytearray):
        data = bytes(data).decode("utf-8", "replace")
    if isinstance(data, BaseException):
        data = {"error": {"type": type(data).__name__, "message": safe_text(data)}}
    text = "" if data is None else data if isinstance(data, str) else None
    value = data if text is None else parsed_json(text)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        text = safe_text(data) if text is None else text
        return Material(text, None, len(text) > HEAD_CHARACTERS + TAIL_CHARACTERS, text)
    left = [3 * MAX_NODES]
    try:
        plain = _plain(value, left, ())
    except Exception:  # noqa: BLE001 - a mapping of the caller's may raise anything as it is read
        text = safe_text(data)
        return Material(text, None, len(text) > HEAD_CHARACTERS + TAIL_CHARACTERS, text)
    text = json.dumps(plain, ensure_ascii=False) if text is None else text
    return Material(text, plain, left[0] <= 0, value)


def head_and_tail_of(text: str) -> str:
    """The text, or its first and last parts."""
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    return f"{text[:HEAD_CHARACTERS]}\n{text[-TAIL_CHARACTERS:]}"


def gather(material: Material) -> Gathered:
    """The parts of a result."""
    found = Gathered()
    if material.value is None:
        read_text(head_and_tail_of(material.text), found)
    else:
        _read_value(material.value, found)
    return found


def _plain(value: object, left: list[int], path: tuple[int, ...]) -> Any:  # noqa: ANN401 - any JSON value
    left[0] -= 1
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return safe_text(value)  # Python refuses to write it
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return safe_text(value)
    if left[0] <= 0 or id(value) in path or len(path) >= _MAX_DEPTH:
        return "..."
    inner = (*path, id(value))
    if isinstance(value, Mapping):
        return {safe_text(key): _plain(one, left, inner) for key, one in value.items() if left[0] > 0}
    return [_plain(one, left, inner) for one in value if left[0] > 0]


def _read_value(value: object, found: Gathered) -> None:
    stack: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_NODES):
        if not stack:
            return
        key, one = stack.pop()
        if isinstance(one, Mapping):
            _read_mapping(key, one, found)
            stack += reversed([(safe_text(name).lower(), part) for name, part in one.items()])
        elif isinstance(one, list):
            stack += reversed([(key, part) for part in one])
        elif isinstance(one, str):
            _read_string(key, one, found)


def _read_string(key: str, text: str, found: Gathered) -> None:
    if key in _SELECTORS and 0 < len(text) <= 300:
        found.selectors.append(" ".join(text.split()))
    elif key in ("title", "page_title", "pagetitle") and not found.title:
        found.title = shortened(text, LABEL_CHARACTERS)
    elif len(text) > 40 and not url_value(key, text):
        read_text(head_and_tail_of(text), found)


def _read_mapping(key: str, one: Mapping[str, Any], found: Gathered) -> None:
    keys = keys_of(one)
    label = shortened(_first(keys, _LABELS), LABEL_CHARACTERS)
    selector = " ".join(_first(keys, _SELECTORS).split())[:300] or _by_id(keys)
    kind = _first(keys, _KINDS).lower()
    url = next((url for name in keys if is_url_key(name) and (url := _url(name, keys[name]))), "")
    if url:
        if label:
            found.links.append((label, url))
        if snippet := _first(keys, _SNIPPETS):
            found.snippets.setdefault(url, snippet)
    elif is_form_field(one) and kind not in ("submit", "reset"):
        name = _first(keys, ("name", "id", "label", "placeholder", "selector"))
        found.fields.append(
            {"name": shortened(name, LABEL_CHARACTERS), "type": _field_type(keys)}
            | ({"selector": selector} if selector else {})
        )
    elif kind in _BUTTONS or key in ("buttons", "button"):
        found.buttons.append((label or kind, selector))
    if selector and kind and not _first(keys, _SELECTORS):
        found.selectors.append(selector)


def _field_type(keys: Mapping[str, Any]) -> str:
    for name in ("type", "input_type", "role", "tag"):
        kind = safe_text(keys.get(name, "")).lower()
        if kind in INPUT_TYPES:
            return kind
    return "text"


def _by_id(keys: Mapping[str, Any]) -> str:
    name = keys.get("id")
    is_element = any(kind in keys for kind in ("tag", "tagname", "role", "element", "type"))
    return (
        f"#{name}" if is_element and isinstance(name, str) and re.fullmatch(r"[A-Za-z_][\w-]*", name) else ""
    )


def _url(key: str, value: object) -> str:
    return url_value(key, value) if isinstance(value, str) else ""


def _first(keys: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := keys.get(name), str) and value.strip()), "")
