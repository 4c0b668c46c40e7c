"""Page maps by address, with one-line summaries."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.context_files.checks import check_not_empty, check_object
from langmem_tiers.tasks.cycles import check_json_object, to_one_line
from langmem_tiers.text.urls import normalize_url

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PAGE_MAPS = 200
"""Maximum number of page maps per task. The one stored first is dropped first."""
_MAX_DEPTH = 30
# Maximum number of containers that are copied from one page map.
_MAX_CONTAINERS = 20_000
_MAX_SUMMARY_CHARACTERS = 300
_MAX_NAMED_SECTIONS = 8
# Attributes that are read from a page map object even if they are properties.
_PAGE_FIELDS = ("title", "summary", "sections", "elements")
_NAME_KEYS = ("name", "title", "heading", "label", "type", "id")


class PageMaps:
    """Page maps by address: each as the original object and as plain JSON."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, tuple[object, Any]] = OrderedDict()

    def __contains__(self, url: str) -> bool:
        return build_page_key(url) in self._pages

    def put(self, url: str, page_map: object) -> None:
        """Store a page map; it replaces an earlier one of the same address."""
        key = build_page_key(check_not_empty(url, "url"))
        plain = check_object(
            {"page_map": _to_plain(page_map, 0, iter(range(_MAX_CONTAINERS)))}, "the page map"
        )
        self._put(key, page_map, plain["page_map"])

    def get(self, url: str) -> Any:  # noqa: ANN401 - any object
        """Return the page map of an address, or None."""
        return self._pages.get(build_page_key(url), (None, None))[0]

    def get_all(self) -> dict[str, Any]:
        """Return all page maps by normalized address, the one stored last at the end."""
        return {key: page_map for key, (page_map, _) in self._pages.items()}

    def get_summary(self, url: str) -> str | None:
        """Return a one-line summary of a page map, or None if there is none."""
        key = build_page_key(url)
        return _build_summary(self._pages[key][1]) if key in self._pages else None

    def clear(self) -> None:
        """Remove all page maps."""
        self._pages.clear()

    def to_dict(self) -> dict[str, Any]:
        """Convert all page maps to plain JSON values by address."""
        return {key: plain for key, (_, plain) in self._pages.items()}

    @classmethod
    def from_dict(cls, value: object) -> PageMaps:
        """Restore page maps from ``to_dict``."""
        pages = cls()
        for key, plain in check_json_object(value, "page_maps").items():
            page_map = check_object({"page_map": plain}, f"page_maps[{key[:80]!r}]")["page_map"]
            pages._put(key, page_map, page_map)
        return pages

    def _put(self, key: str, page_map: object, plain: object) -> None:
        self._pages[key] = (page_map, plain)
        self._pages.move_to_end(key)
        if len(self._pages) > MAX_PAGE_MAPS:
            self._pages.popitem(last=False)


def build_page_key(url: str) -> str:
    """Return the key of a page: its normalized address, or the text without fragment and trailing slash."""
    return normalize_url(url) or str(url).strip().partition("#")[0].rstrip("/") or str(url)


def _to_plain(value: object, depth: int, containers_left: Iterator[int]) -> Any:  # noqa: ANN401 - any JSON value
    # Page objects may refer to their parents and siblings, and thus to a whole browser. Two limits bound the copy:
    # the depth, and the number of containers, counted by an iterator that all recursive calls share.
    if value is None or isinstance(value, str | int | float | Enum):
        return to_plain_value(value.value if isinstance(value, Enum) else value)
    if depth >= _MAX_DEPTH or next(containers_left, None) is None:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item, depth + 1, containers_left) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(item, depth + 1, containers_left) for item in value]
    fields = _read_fields(value)
    if not fields:
        return to_plain_value(value)
    return {name: _to_plain(item, depth + 1, containers_left) for name, item in fields.items()}


def _read_fields(value: object) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    attributes = {
        name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")
    }
    for name in _PAGE_FIELDS:
        try:
            attribute = getattr(value, name, None)
        except Exception:  # noqa: BLE001, S112 - a property of a foreign object may raise anything
            continue
        if attribute is not None and not callable(attribute):
            attributes[name] = attribute
    return attributes


def _build_summary(plain: object) -> str:
    if not isinstance(plain, dict):
        return to_one_line(str(plain), _MAX_SUMMARY_CHARACTERS)
    title, summary = (_to_line(plain.get(name)) for name in ("title", "summary"))
    counts = [text for name in ("sections", "elements") if (text := _format_count(name, plain.get(name)))]
    heading = ": ".join(filter(None, (title, summary)))
    parts = f"{heading} [{'; '.join(counts)}]".strip() if counts else heading
    # A page map without any known field is summarized by its keys.
    return to_one_line(parts or ", ".join(plain), _MAX_SUMMARY_CHARACTERS)


def _format_count(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value} {name}"
    if not isinstance(value, list | dict) or not value:
        return ""
    if name != "sections":
        return f"{len(value)} {name}"
    names = list(value) if isinstance(value, dict) else [_get_section_name(section) for section in value]
    shown_names = ", ".join(filter(None, names[:_MAX_NAMED_SECTIONS]))
    return f"{len(value)} sections: {shown_names}" if shown_names else f"{len(value)} sections"


def _get_section_name(section: object) -> str:
    if isinstance(section, dict):
        return next((text for name in _NAME_KEYS if (text := _to_line(section.get(name)))), "")
    return _to_line(section)


def _to_line(value: object) -> str:
    return to_one_line(value, _MAX_SUMMARY_CHARACTERS) if isinstance(value, str) else ""
