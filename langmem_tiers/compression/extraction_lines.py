"""Reading texts for what they offer: pages, accessibility trees, markdown and lists of search results."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from langmem_tiers.compression.extraction_html import LABEL_CHARACTERS, Page, read_page
from langmem_tiers.compression.extraction_urls import urls_in_text
from langmem_tiers.scoring.sentences import shortened

_TAGGED = re.compile(r"</?[a-zA-Z][a-zA-Z0-9-]*[^<>]{0,500}>")
_TREE = re.compile(
    r"^[ \t]*+(?:[-*•][ \t]*+)?(\[[\w-]{1,12}\]|\d{1,6}|uid=\S{1,20})?[ \t]*+"
    r"(link|button|tab|menuitem|switch|option|textbox|searchbox|combobox|checkbox|radio|spinbutton|slider)\b"
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
_MARK = re.compile(r"^(?:\d{1,3}[.)]|\[\d{1,3}\]|#{1,4}|[-*•]|(?i:title|url|link)\s?:)\s*")
_SNIPPET_CHARACTERS = 400


@dataclass(slots=True)
class Gathered:
    """Everything that was found, in its order."""

    title: str = ""
    text: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    snippets: dict[str, str] = field(default_factory=dict)
    """By address."""
    buttons: list[tuple[str, str]] = field(default_factory=list)
    fields: list[dict[str, str]] = field(default_factory=list)
    selectors: list[str] = field(default_factory=list)

    def add(self, page: Page) -> None:
        """What a page offers."""
        self.title = self.title or page.title
        self.text += page.text
        self.links += page.links
        self.buttons += page.buttons
        self.fields += page.fields
        self.selectors += page.selectors


def read_text(text: str, found: Gathered) -> None:
    """Adds what a text offers: a page, the lines of an accessibility tree, links in markdown, search results."""
    if len(_TAGGED.findall(text[:20_000])) >= 2:
        found.add(read_page(text))
        return
    if _TREE.search(text):
        _read_tree(text, found)
    for match in _MARKDOWN.finditer(text) if "](" in text else ():
        if not match[1] and not text[max(0, match.start() - 1) : match.start()].isalnum():
            found.links.append((shortened(match[2], LABEL_CHARACTERS), match[3]))
    if "://" in text:
        _read_results(text, found)
    found.text.append(text)


def _read_results(text: str, found: Gathered) -> None:
    # A title, an address and some words about it, on lines of their own or on one.
    title, url = "", ""
    for raw in text.splitlines():
        line = raw.strip()
        match = _URL.search(line)
        if match is None:
            if url and line and len(found.snippets.get(url, "")) < _SNIPPET_CHARACTERS:
                found.snippets[url] = f"{found.snippets.get(url, '')} {line}".strip()
            title = line or title
            continue
        own = _MARK.sub("", line[: match.start()]).strip(" -:|()[]<>\u2013\u2014")
        is_own = len(own) > 2 and own.lower() not in ("url", "link")
        if (
            url and title and not is_own
        ):  # the line before is this one's title and no words about the last one
            found.snippets[url] = found.snippets.get(url, "").removesuffix(title).strip()
        url = next(iter(urls_in_text(match[0])), "")
        label = own if is_own else _MARK.sub("", title)
        if url and label and "](" not in line:
            found.links.append((shortened(label, LABEL_CHARACTERS), url))
        title = ""


def _read_tree(text: str, found: Gathered) -> None:
    for match in _TREE.finditer(text):
        handle, role, rest = match[1] or "", match[2].lower(), match[5]
        name = match[3] if match[3] is not None else match[4]
        if name is None and not handle:
            continue  # a line of prose that begins with the word
        ref = handle or getattr(_REF.search(rest), "group", lambda: "")()
        following = text[match.end() : match.end() + 500].lstrip("\n").partition("\n")[0]
        url = _TREE_URL.search(rest) or (_TREE_URL.search(following) if "/url:" in following else None)
        if role in _TREE_FIELDS:
            one = {"name": shortened(name or role, LABEL_CHARACTERS), "type": role}
            found.fields.append(one | ({"selector": ref} if ref else {}))
        elif role == "link" and url:
            label = f"{ref} {name or role}".strip()
            found.links.append((shortened(label, LABEL_CHARACTERS), url[1]))
        else:
            label = name or role if role == "button" else f"{role} {name or ''}".strip()
            found.buttons.append((shortened(label, LABEL_CHARACTERS), ref))
        if ref:
            found.selectors.append(ref)
