"""Parsing of pages: title, text, links, buttons, form fields and selectors.

HTML is read in a single pass without backtracking, so every page takes linear time. Unclosed tags, unclosed quotes and
stray marks are skipped.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from langmem_tiers.compression.tool_output.urls import clean_url, find_urls_in_text
from langmem_tiers.text.sentences import shorten_text
from langmem_tiers.text.word_lists import load_words

MAX_ELEMENT_LABEL_CHARACTERS = 120
"""Maximum length of the label of a link, button or field."""
_TAG_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_ATTRIBUTE = re.compile(
    r"\s*+([^\s=<>\"'/]{1,100})(?:\s{0,20}=\s{0,20}(?:\"([^\"]{0,8192})\"|'([^']{0,8192})'|([^\s\"'<>]{1,8192})))?"
)
_SKIPPED_TAGS = ("script", "style", "template", "svg", "noscript")
_BLOCK_TAGS = frozenset(load_words(__name__, "page_words", "block tags"))
_BUTTON_TYPES = frozenset({"submit", "button", "reset", "image"})
_BUTTON_ROLES = frozenset({"button", "tab", "menuitem", "switch", "checkbox", "radio", "option", "combobox"})
_WIDGET_TAGS = frozenset({"button", "input", "select", "textarea", "form", "summary"})


@dataclass(slots=True)
class HtmlPage:
    """Elements of a page in document order."""

    title: str = ""
    text: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    """Label and URL of each link."""
    buttons: list[tuple[str, str]] = field(default_factory=list)
    """Label and selector of each button."""
    fields: list[dict[str, str]] = field(default_factory=list)
    selectors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenElement:
    tag: str
    attributes: dict[str, str]
    text: list[str] = field(default_factory=list)


class _PageReader:
    def __init__(self) -> None:
        self.page = HtmlPage()
        self._line: list[str] = []
        # True if the current line has text outside of links and buttons. Lines without it, such as menus, are not
        # text: their links and buttons are listed separately.
        self._has_own_text = False
        # Links, buttons, titles and summaries whose text is being read.
        self._open_elements: list[_OpenElement] = []

    def add_text(self, raw: str) -> None:
        words = " ".join(html.unescape(raw).split())
        if not words:
            return
        for element in self._open_elements:
            element.text.append(words)
        if not self._open_elements or self._open_elements[-1].tag != "title":
            self._line.append(words)
            self._has_own_text = self._has_own_text or not self._open_elements

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _BLOCK_TAGS:
            self.end_line()
        role = attributes.get("role", "").lower()
        is_button = tag == "button" or role in _BUTTON_ROLES
        if tag in ("input", "select", "textarea"):
            self._add_field(tag, attributes)
        elif tag in ("a", "title", "summary") or is_button:
            self.end_tag(tag)  # these tags cannot be nested, so an open one lacks its end tag
            self._open_elements.append(_OpenElement(tag, attributes))
        is_interactive = (
            tag in _WIDGET_TAGS or is_button or "onclick" in attributes or (tag == "a" and "id" in attributes)
        )
        if is_interactive and (selector := build_selector(tag, attributes)):
            self.page.selectors.append(selector)

    def end_tag(self, tag: str) -> None:
        if tag in _BLOCK_TAGS:
            self.end_line()
        for element in [element for element in self._open_elements if element.tag == tag]:
            self._open_elements.remove(element)
            self._close_element(element)

    def _close_element(self, element: _OpenElement) -> None:
        # The visible text is the label; for icons, an attribute.
        text = " ".join(element.text) or next(
            (
                element.attributes[name]
                for name in ("aria-label", "title", "alt")
                if element.attributes.get(name)
            ),
            "",
        )
        label = shorten_text(text, MAX_ELEMENT_LABEL_CHARACTERS)
        if element.tag == "title":
            self.page.title = self.page.title or label
        elif element.tag == "a":
            # A link without a usable URL, such as "javascript:...", acts as a button.
            if url := clean_url(element.attributes.get("href", "")):
                self.page.links.append((label, url))
            elif label:
                self.page.buttons.append((label, build_selector("a", element.attributes)))
        elif label or build_selector(element.tag, element.attributes):
            self.page.buttons.append((label, build_selector(element.tag, element.attributes)))

    def _add_field(self, tag: str, attributes: dict[str, str]) -> None:
        kind = attributes.get("type", "text").lower() if tag == "input" else tag
        selector = build_selector(tag, attributes)
        if kind in _BUTTON_TYPES:
            label = attributes.get("value") or attributes.get("alt") or kind
            self.page.buttons.append((shorten_text(label, MAX_ELEMENT_LABEL_CHARACTERS), selector))
            return
        named = (attributes.get(key) for key in ("name", "id", "aria-label", "placeholder"))
        form_field = {"name": next((name for name in named if name), kind), "type": kind}
        self.page.fields.append(form_field | ({"selector": selector} if selector else {}))

    def end_line(self) -> None:
        if self._has_own_text:
            self.page.text.append(" ".join(self._line))
        self._line, self._has_own_text = [], False

    def finish(self) -> HtmlPage:
        self.end_line()
        for element in self._open_elements:
            self._close_element(element)
        return self.page


def read_page(text: str) -> HtmlPage:
    """Parse an HTML text."""
    reader = _PageReader()
    position = 0
    while position < len(text):
        opening = text.find("<", position)
        if opening < 0:
            opening = len(text)
        if opening > position:
            reader.add_text(text[position:opening])
        position = _read_tag(text, opening, reader) if opening < len(text) else opening
    return reader.finish()


def build_selector(tag: str, attributes: dict[str, str]) -> str:
    """Build a CSS selector from the most specific attribute of an element. Return "" if there is none."""
    if (name := attributes.get("id", "")) and re.fullmatch(r"[A-Za-z_][\w-]*", name):
        return f"#{name}"
    for key in ("id", "data-testid", "data-test", "name", "aria-label"):
        if (value := attributes.get(key, "")) and len(value) <= 200:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'{tag}[{key}="{" ".join(quoted.split())}"]'
    classes = [name for name in attributes.get("class", "").split() if re.fullmatch(r"[A-Za-z_][\w-]*", name)]
    return f"{tag}.{'.'.join(classes[:3])}" if classes else ""


def _read_tag(text: str, position: int, reader: _PageReader) -> int:
    # Reads the tag or comment at `position` and returns the position after it. The result is always greater than
    # `position`, so that the loop in `read_page` ends.
    if text.startswith("<!--", position):
        end = text.find("-->", position + 4)
        return len(text) if end < 0 else end + 3
    name = _TAG_NAME.match(text, position)
    if name is None:
        end = text.find(">", position) if text[position + 1 : position + 2] in ("!", "?") else -1
        return end + 1 if end >= 0 else position + 1
    tag, end = name[1].lower(), name.end()
    attributes, end = _read_attributes(text, end)
    if text[position + 1] == "/":
        reader.end_tag(tag)
        return end
    if tag in _SKIPPED_TAGS:
        closing = re.compile(f"</{tag}", re.IGNORECASE).search(text, end)
        return len(text) if closing is None else closing.start()
    reader.start_tag(tag, attributes)
    return end


def _read_attributes(text: str, position: int) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    # A "<" ends the tag too: its ">" is missing.
    while position < len(text) and text[position] not in "<>":
        match = _ATTRIBUTE.match(text, position)
        if match is None:
            position += 1
            continue
        value = next((group for group in match.groups()[1:] if group is not None), "")
        found.setdefault(
            match[1].lower(), html.unescape(value)
        )  # the first of duplicates counts, as in browsers
        position = match.end()
    return found, position + (text[position : position + 1] == ">")


_ANY_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9-]*[^<>]{0,500}>")
_TREE_LINE = re.compile(
    r"^[ \t]*+(?:[-*•][ \t]*+)?(\[[\w-]{1,12}\]|\d{1,6}|uid=\S{1,20})?[ \t]*+"
    rf"({'|'.join(load_words(__name__, 'page_words', 'controls'))})\b"
    r"[ \t]*+(?:\"([^\"\n]*)\"|'([^'\n]*)')?([^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
_TREE_URL = re.compile(r"(?:/?url|href)\s{0,2}[:=]\s{0,2}[\"']?([^\s\"',]+)", re.IGNORECASE)
_TREE_FIELDS = frozenset({"textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton", "slider"})
_REF = re.compile(r"\[(?:ref=)?[\w-]{1,12}\]")
_MARKDOWN = re.compile(
    r"(!?)\[([^\[\]\n]{1,300})\]\(\s{0,3}<?((?:[^\s()<>]++|\((?:[^\s()<>]++|\([^\s()<>]*+\))*\))+)"
)


_URL = re.compile(r"https?://[^\s<>\"]+")
_LINE_PREFIX = re.compile(r"^(?:\d{1,3}[.)]|\[\d{1,3}\]|#{1,4}|[-*•]|(?i:title|url|link)\s?:)\s*")
_MAX_SNIPPET_CHARACTERS = 400


@dataclass(slots=True)
class ExtractedElements:
    """Elements of a tool result, in order."""

    title: str = ""
    text: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    snippets: dict[str, str] = field(default_factory=dict)
    """Snippet of each search result, by URL."""
    buttons: list[tuple[str, str]] = field(default_factory=list)
    fields: list[dict[str, str]] = field(default_factory=list)
    selectors: list[str] = field(default_factory=list)

    def add_page(self, page: HtmlPage) -> None:
        """Add the elements of a page."""
        self.title = self.title or page.title
        self.text += page.text
        self.links += page.links
        self.buttons += page.buttons
        self.fields += page.fields
        self.selectors += page.selectors


def extract_text_elements(text: str, found: ExtractedElements) -> None:
    """Add the elements of a text: an HTML page, an accessibility tree, Markdown links or search results."""
    if len(_ANY_TAG.findall(text[:20_000])) >= 2:
        found.add_page(read_page(text))
        return
    if _TREE_LINE.search(text):
        _read_tree(text, found)
    for match in _MARKDOWN.finditer(text) if "](" in text else ():
        if not match[1] and not text[max(0, match.start() - 1) : match.start()].isalnum():
            found.links.append((shorten_text(match[2], MAX_ELEMENT_LABEL_CHARACTERS), match[3]))
    if "://" in text:
        _read_search_results(text, found)
    found.text.append(text)


def _read_search_results(text: str, found: ExtractedElements) -> None:
    # A search result has a title, a URL and a snippet, each on its own line or all on one.
    title, url = "", ""
    for raw in text.splitlines():
        line = raw.strip()
        match = _URL.search(line)
        if match is None:
            if url and line and len(found.snippets.get(url, "")) < _MAX_SNIPPET_CHARACTERS:
                found.snippets[url] = f"{found.snippets.get(url, '')} {line}".strip()
            title = line or title
            continue
        inline_title = _LINE_PREFIX.sub("", line[: match.start()]).strip(" -:|()[]<>\u2013\u2014")
        has_inline_title = len(inline_title) > 2 and inline_title.lower() not in ("url", "link")
        # Without a title on the line of the URL, the line before is the title. It was added to the snippet of the
        # previous result: remove it there.
        if url and title and not has_inline_title:
            found.snippets[url] = found.snippets.get(url, "").removesuffix(title).strip()
        url = next(iter(find_urls_in_text(match[0])), "")
        label = inline_title if has_inline_title else _LINE_PREFIX.sub("", title)
        if url and label and "](" not in line:
            found.links.append((shorten_text(label, MAX_ELEMENT_LABEL_CHARACTERS), url))
        title = ""


def _read_tree(text: str, found: ExtractedElements) -> None:
    for match in _TREE_LINE.finditer(text):
        handle, role, rest = match[1] or "", match[2].lower(), match[5]
        name = match[3] if match[3] is not None else match[4]
        if name is None and not handle:
            continue  # prose that begins with a role name, such as "Link to ..."
        ref = handle or getattr(_REF.search(rest), "group", lambda: "")()
        # The URL of a link is on the same line, or on the next one as "/url: ...".
        following = text[match.end() : match.end() + 500].lstrip("\n").partition("\n")[0]
        url = _TREE_URL.search(rest) or (_TREE_URL.search(following) if "/url:" in following else None)
        if role in _TREE_FIELDS:
            form_field = {"name": shorten_text(name or role, MAX_ELEMENT_LABEL_CHARACTERS), "type": role}
            found.fields.append(form_field | ({"selector": ref} if ref else {}))
        elif role == "link" and url:
            label = f"{ref} {name or role}".strip()
            found.links.append((shorten_text(label, MAX_ELEMENT_LABEL_CHARACTERS), url[1]))
        else:
            label = name or role if role == "button" else f"{role} {name or ''}".strip()
            found.buttons.append((shorten_text(label, MAX_ELEMENT_LABEL_CHARACTERS), ref))
        if ref:
            found.selectors.append(ref)
