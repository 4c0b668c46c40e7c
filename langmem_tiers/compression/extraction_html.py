"""What a page offers: its title, text, links, buttons, fields and selectors.

Read in one pass that never goes back, so that no page takes more than linear time; tags that are left open, quotes
that do not end and marks that mean nothing are passed over.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from langmem_tiers.compression.extraction_urls import plain_url
from langmem_tiers.scoring.sentences import shortened

LABEL_CHARACTERS = 120
"""Of a link's or a button's name."""
_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_ATTRIBUTE = re.compile(
    r"\s*+([^\s=<>\"'/]{1,100})(?:\s{0,20}=\s{0,20}(?:\"([^\"]{0,8192})\"|'([^']{0,8192})'|([^\s\"'<>]{1,8192})))?"
)
_SKIPPED = ("script", "style", "template", "svg", "noscript")
_BLOCKS = frozenset(
    "p div li ul ol tr td th br hr h1 h2 h3 h4 h5 h6 section article table form main nav".split()
)
_BUTTON_TYPES = frozenset({"submit", "button", "reset", "image"})
_BUTTON_ROLES = frozenset({"button", "tab", "menuitem", "switch", "checkbox", "radio", "option", "combobox"})
_WIDGETS = frozenset({"button", "input", "select", "textarea", "form", "summary"})


@dataclass(slots=True)
class Page:
    """The parts of a page, in its order."""

    title: str = ""
    text: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    """Label and address."""
    buttons: list[tuple[str, str]] = field(default_factory=list)
    """Label and selector."""
    fields: list[dict[str, str]] = field(default_factory=list)
    selectors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    tag: str
    attributes: dict[str, str]
    text: list[str] = field(default_factory=list)


class _Reader:
    def __init__(self) -> None:
        self.page = Page()
        self._line: list[str] = []
        self._has_own = False  # whether the line says more than names of links and buttons
        self._open: list[_Open] = []  # links, buttons, titles and labels whose text is being read

    def text(self, raw: str) -> None:
        words = " ".join(html.unescape(raw).split())
        if not words:
            return
        for one in self._open:
            one.text.append(words)
        if not self._open or self._open[-1].tag != "title":
            self._line.append(words)
            self._has_own = self._has_own or not self._open

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _BLOCKS:
            self.end_line()
        role = attributes.get("role", "").lower()
        is_button = tag == "button" or role in _BUTTON_ROLES
        if tag in ("input", "select", "textarea"):
            self._field(tag, attributes)
        elif tag in ("a", "title", "summary") or is_button:
            self.end(tag)  # none of these stands in another of its kind
            self._open.append(_Open(tag, attributes))
        is_handle = (
            tag in _WIDGETS or is_button or "onclick" in attributes or (tag == "a" and "id" in attributes)
        )
        if is_handle and (selector := selector_of(tag, attributes)):
            self.page.selectors.append(selector)

    def end(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.end_line()
        for one in [one for one in self._open if one.tag == tag]:
            self._open.remove(one)
            self._close(one)

    def _close(self, one: _Open) -> None:
        said = " ".join(one.text) or next(
            (one.attributes[name] for name in ("aria-label", "title", "alt") if one.attributes.get(name)), ""
        )
        label = shortened(said, LABEL_CHARACTERS)
        if one.tag == "title":
            self.page.title = self.page.title or label
        elif one.tag == "a":
            if url := plain_url(one.attributes.get("href", "")):
                self.page.links.append((label, url))
            elif label:
                self.page.buttons.append((label, selector_of("a", one.attributes)))
        elif label or selector_of(one.tag, one.attributes):
            self.page.buttons.append((label, selector_of(one.tag, one.attributes)))

    def _field(self, tag: str, attributes: dict[str, str]) -> None:
        kind = attributes.get("type", "text").lower() if tag == "input" else tag
        selector = selector_of(tag, attributes)
        if kind in _BUTTON_TYPES:
            label = attributes.get("value") or attributes.get("alt") or kind
            self.page.buttons.append((shortened(label, LABEL_CHARACTERS), selector))
            return
        named = (attributes.get(key) for key in ("name", "id", "aria-label", "placeholder"))
        one = {"name": next((name for name in named if name), kind), "type": kind}
        self.page.fields.append(one | ({"selector": selector} if selector else {}))

    def end_line(self) -> None:
        if self._has_own:
            self.page.text.append(" ".join(self._line))
        self._line, self._has_own = [], False

    def done(self) -> Page:
        self.end_line()
        for one in self._open:
            self._close(one)
        return self.page


def read_page(text: str) -> Page:
    """The parts of an HTML text."""
    reader = _Reader()
    place = 0
    while place < len(text):
        opening = text.find("<", place)
        if opening < 0:
            opening = len(text)
        if opening > place:
            reader.text(text[place:opening])
        place = _tag(text, opening, reader) if opening < len(text) else opening
    return reader.done()


def selector_of(tag: str, attributes: dict[str, str]) -> str:
    """A CSS selector for the element, by what names it best; empty if nothing does."""
    if (name := attributes.get("id", "")) and re.fullmatch(r"[A-Za-z_][\w-]*", name):
        return f"#{name}"
    for key in ("id", "data-testid", "data-test", "name", "aria-label"):
        if (value := attributes.get(key, "")) and len(value) <= 200:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'{tag}[{key}="{" ".join(quoted.split())}"]'
    classes = [one for one in attributes.get("class", "").split() if re.fullmatch(r"[A-Za-z_][\w-]*", one)]
    return f"{tag}.{'.'.join(classes[:3])}" if classes else ""


def _tag(text: str, place: int, reader: _Reader) -> int:
    # Returns where to read on; always behind the place.
    if text.startswith("<!--", place):
        end = text.find("-->", place + 4)
        return len(text) if end < 0 else end + 3
    name = _NAME.match(text, place)
    if name is None:
        end = text.find(">", place) if text[place + 1 : place + 2] in ("!", "?") else -1
        return end + 1 if end >= 0 else place + 1
    tag, end = name[1].lower(), name.end()
    attributes, end = _attributes(text, end)
    if text[place + 1] == "/":
        reader.end(tag)
        return end
    if tag in _SKIPPED:
        closing = re.compile(f"</{tag}", re.IGNORECASE).search(text, end)
        return len(text) if closing is None else closing.start() + 1
    reader.start(tag, attributes)
    return end


def _attributes(text: str, place: int) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    while place < len(text) and text[place] not in "<>":
        match = _ATTRIBUTE.match(text, place)
        if match is None:
            place += 1
            continue
        value = next((one for one in match.groups()[1:] if one is not None), "")
        found.setdefault(match[1].lower(), html.unescape(value))
        place = match.end()
    return found, place + (text[place : place + 1] == ">")
