"""What pages look like, by their addresses, and each in one line."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.plain_values import plain_value
from langmem_tiers.context_files.checks import check_filled, check_object
from langmem_tiers.tasks.cycles import object_of, one_line
from langmem_tiers.text.urls import normalized

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PAGE_MAPS = 200
"""Of one task; beyond, the one that was stored first leaves."""
_MAX_DEPTH = 30
_MAX_PARTS = 20_000  # containers of one page
_MAX_SUMMARY = 300  # characters
_MAX_SECTIONS = 8  # that are named
_FIELDS = ("title", "summary", "sections", "elements")
_NAMES = ("name", "title", "heading", "label", "type", "id")


class PageMaps:
    """Pages as they were handed in, and beside them as plain JSON."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[object, Any]] = OrderedDict()

    def __contains__(self, url: str) -> bool:
        return page_key(url) in self._held

    def store(self, url: str, page_map: object) -> None:
        """Keep a page in place of what was known of its address."""
        key = page_key(check_filled(url, "url"))
        plain = check_object({"page_map": _plain(page_map, 0, iter(range(_MAX_PARTS)))}, "the page map")
        self._hold(key, page_map, plain["page_map"])

    def get(self, url: str) -> Any:  # noqa: ANN401 - whatever was handed in
        """What the page looks like, or ``None``."""
        return self._held.get(page_key(url), (None, None))[0]

    def all(self) -> dict[str, Any]:
        """All pages by their normal addresses, the one that was stored last at the end."""
        return {key: page_map for key, (page_map, _) in self._held.items()}

    def summary(self, url: str) -> str | None:
        """What is on the page in one line, or ``None`` if it is not known."""
        key = page_key(url)
        return _summary_of(self._held[key][1]) if key in self._held else None

    def clear(self) -> None:
        """Forget all pages."""
        self._held.clear()

    def to_dict(self) -> dict[str, Any]:
        """All pages as plain JSON, by address."""
        return {key: plain for key, (_, plain) in self._held.items()}

    @classmethod
    def from_dict(cls, value: object) -> PageMaps:
        """The pages that ``to_dict`` wrote."""
        pages = cls()
        for key, plain in object_of(value, "page_maps").items():
            held = check_object({"page_map": plain}, f"page_maps[{key[:80]!r}]")["page_map"]
            pages._hold(key, held, held)
        return pages

    def _hold(self, key: str, page_map: object, plain: object) -> None:
        self._held[key] = (page_map, plain)
        self._held.move_to_end(key)
        if len(self._held) > MAX_PAGE_MAPS:
            self._held.popitem(last=False)


def page_key(url: str) -> str:
    """An address by which a page is known: in its normal form, or as it is but for fragment and last slash."""
    return normalized(url) or str(url).strip().partition("#")[0].rstrip("/") or str(url)


def _plain(value: object, depth: int, left: Iterator[int]) -> Any:  # noqa: ANN401 - any JSON value
    # Pages may be objects that know their own parents and neighbours: what is more than a page is left out.
    if value is None or isinstance(value, str | int | float | Enum):
        return plain_value(value.value if isinstance(value, Enum) else value)
    if depth >= _MAX_DEPTH or next(left, None) is None:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _plain(one, depth + 1, left) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one, depth + 1, left) for one in value]
    fields = _fields_of(value)
    if not fields:
        return plain_value(value)
    return {name: _plain(one, depth + 1, left) for name, one in fields.items()}


def _fields_of(value: object) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    found = {name: one for name, one in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    for name in _FIELDS:
        try:
            one = getattr(value, name, None)
        except Exception:  # noqa: BLE001, S112 - whatever an object of the caller's raises, its page is kept
            continue
        if one is not None and not callable(one):
            found[name] = one
    return found


def _summary_of(plain: object) -> str:
    if not isinstance(plain, dict):
        return one_line(str(plain), _MAX_SUMMARY)
    title, summary = (_text(plain.get(name)) for name in ("title", "summary"))
    counted = [told for name in ("sections", "elements") if (told := _counted(name, plain.get(name)))]
    told = ": ".join(filter(None, (title, summary)))
    parts = f"{told} [{'; '.join(counted)}]".strip() if counted else told
    return one_line(parts or ", ".join(plain), _MAX_SUMMARY)


def _counted(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value} {name}"
    if not isinstance(value, list | dict) or not value:
        return ""
    if name != "sections":
        return f"{len(value)} {name}"
    named = list(value) if isinstance(value, dict) else [_name_of(one) for one in value]
    shown = ", ".join(filter(None, named[:_MAX_SECTIONS]))
    return f"{len(value)} sections: {shown}" if shown else f"{len(value)} sections"


def _name_of(section: object) -> str:
    if isinstance(section, dict):
        return next((text for name in _NAMES if (text := _text(section.get(name)))), "")
    return _text(section)


def _text(value: object) -> str:
    return one_line(value, _MAX_SUMMARY) if isinstance(value, str) else ""
