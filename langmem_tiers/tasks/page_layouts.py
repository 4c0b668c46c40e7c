"""What pages look like, by their addresses, and each in one line."""

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
"""Of one task; beyond, the one that was stored first leaves."""
_MAX_DEPTH = 30
_MAX_CONTAINERS = 20_000  # containers of one page
_MAX_SUMMARY_CHARACTERS = 300  # characters
_MAX_NAMED_SECTIONS = 8  # that are named
_PAGE_FIELDS = ("title", "summary", "sections", "elements")
_NAME_KEYS = ("name", "title", "heading", "label", "type", "id")


class PageMaps:
    """Pages as they were handed in, and beside them as plain JSON."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, tuple[object, Any]] = OrderedDict()

    def __contains__(self, url: str) -> bool:
        return build_page_key(url) in self._pages

    def put(self, url: str, page_map: object) -> None:
        """Keep a page in place of what was known of its address."""
        key = build_page_key(check_not_empty(url, "url"))
        plain = check_object(
            {"page_map": _to_plain(page_map, 0, iter(range(_MAX_CONTAINERS)))}, "the page map"
        )
        self._put(key, page_map, plain["page_map"])

    def get(self, url: str) -> Any:  # noqa: ANN401 - whatever was handed in
        """What the page looks like, or ``None``."""
        return self._pages.get(build_page_key(url), (None, None))[0]

    def get_all(self) -> dict[str, Any]:
        """All pages by their normal addresses, the one that was stored last at the end."""
        return {key: page_map for key, (page_map, _) in self._pages.items()}

    def get_summary(self, url: str) -> str | None:
        """What is on the page in one line, or ``None`` if it is not known."""
        key = build_page_key(url)
        return _build_summary(self._pages[key][1]) if key in self._pages else None

    def clear(self) -> None:
        """Forget all pages."""
        self._pages.clear()

    def to_dict(self) -> dict[str, Any]:
        """All pages as plain JSON, by address."""
        return {key: plain for key, (_, plain) in self._pages.items()}

    @classmethod
    def from_dict(cls, value: object) -> PageMaps:
        """The pages that ``to_dict`` wrote."""
        pages = cls()
        for key, plain in check_json_object(value, "page_maps").items():
            held = check_object({"page_map": plain}, f"page_maps[{key[:80]!r}]")["page_map"]
            pages._put(key, held, held)
        return pages

    def _put(self, key: str, page_map: object, plain: object) -> None:
        self._pages[key] = (page_map, plain)
        self._pages.move_to_end(key)
        if len(self._pages) > MAX_PAGE_MAPS:
            self._pages.popitem(last=False)


def build_page_key(url: str) -> str:
    """An address by which a page is known: in its normal form, or as it is but for fragment and last slash."""
    return normalize_url(url) or str(url).strip().partition("#")[0].rstrip("/") or str(url)


def _to_plain(value: object, depth: int, left: Iterator[int]) -> Any:  # noqa: ANN401 - any JSON value
    # Pages may be objects that know their own parents and neighbours: what is more than a page is left out.
    if value is None or isinstance(value, str | int | float | Enum):
        return to_plain_value(value.value if isinstance(value, Enum) else value)
    if depth >= _MAX_DEPTH or next(left, None) is None:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _to_plain(one, depth + 1, left) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(one, depth + 1, left) for one in value]
    fields = _read_fields(value)
    if not fields:
        return to_plain_value(value)
    return {name: _to_plain(one, depth + 1, left) for name, one in fields.items()}


def _read_fields(value: object) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    found = {name: one for name, one in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    for name in _PAGE_FIELDS:
        try:
            one = getattr(value, name, None)
        except Exception:  # noqa: BLE001, S112 - whatever an object of the caller's raises, its page is kept
            continue
        if one is not None and not callable(one):
            found[name] = one
    return found


def _build_summary(plain: object) -> str:
    if not isinstance(plain, dict):
        return to_one_line(str(plain), _MAX_SUMMARY_CHARACTERS)
    title, summary = (_to_line(plain.get(name)) for name in ("title", "summary"))
    counted = [told for name in ("sections", "elements") if (told := _format_count(name, plain.get(name)))]
    told = ": ".join(filter(None, (title, summary)))
    parts = f"{told} [{'; '.join(counted)}]".strip() if counted else told
    return to_one_line(parts or ", ".join(plain), _MAX_SUMMARY_CHARACTERS)


def _format_count(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value} {name}"
    if not isinstance(value, list | dict) or not value:
        return ""
    if name != "sections":
        return f"{len(value)} {name}"
    named = list(value) if isinstance(value, dict) else [_get_section_name(one) for one in value]
    shown = ", ".join(filter(None, named[:_MAX_NAMED_SECTIONS]))
    return f"{len(value)} sections: {shown}" if shown else f"{len(value)} sections"


def _get_section_name(section: object) -> str:
    if isinstance(section, dict):
        return next((text for name in _NAME_KEYS if (text := _to_line(section.get(name)))), "")
    return _to_line(section)


def _to_line(value: object) -> str:
    return to_one_line(value, _MAX_SUMMARY_CHARACTERS) if isinstance(value, str) else ""
