"""Extraction of all URLs in text or data: absolute and relative, in HTML, JSON, Markdown and prose.

Excluded are ``javascript:``, ``data:``, ``blob:`` and ``about:blank``, which mean nothing outside the page.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_URLS = 10_000
"""Maximum number of distinct URLs that are kept; the rest is counted."""
MAX_URL_CHARACTERS = 8_192
"""Maximum length of a URL; longer ones are counted as left out."""
_MAX_LABEL_CHARACTERS = 300  # characters before a link target that are searched for the start of its label
_MAX_DEPTH = 6  # of JSON in strings of JSON

_ABSOLUTE = re.compile(
    r"(?<![a-zA-Z0-9])(?:[a-zA-Z][a-zA-Z0-9+.-]{1,20}://|(?i:www)\.(?=[^\s.]))[^\s<>\"`\\^|]++"
)
_URL_SEPARATOR = re.compile(r"[,;](?=[a-zA-Z][a-zA-Z0-9+.-]{1,20}://)")
_WIDE_MARKS = (
    "\u3000-\u3004\u3008-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff3d\uff5b-\uff65\u201c\u201d\u00ab\u00bb"
)
# East Asian and typographic punctuation ends a URL; East Asian letters do not.
_WIDE_MARK = re.compile(f"[{_WIDE_MARKS}]")
# A URL without any special character, which needs no trimming: the common case.
_SIMPLE_URL = re.compile(r"https?://[\w.:@]+(?:/[\w/?&=%#+~@:.-]*)?(?<=[\w/])", re.ASCII)
_BRACKET = re.compile(r"[()\[\]{}]")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_APOSTROPHE = re.compile(r"'(?!\w)")
_TRAILING_MARKS = ".,;:!?*'…"

_ATTRIBUTE_NAMES = (
    r"(?:xlink:)?href|src|(?:form)?action|poster|cite|background|longdesc|manifest|ping|data"
    r"|data-(?:[\w-]{0,30}-)?(?:href|url|uri|src|link)|url|uri"
)
# Only single characters are repeated possessively: possessive repetition of a group is broken in Python 3.11.0 to
# 3.11.4.
_ATTRIBUTE = re.compile(
    rf"(?<![\w-])(?:{_ATTRIBUTE_NAMES})\s{{0,5}}=\s{{0,5}}(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'<>]++))",
    re.IGNORECASE,
)
_SRCSET = re.compile(r"(?<![\w-])srcset\s{0,5}=\s{0,5}(?:\"([^\"]*+)\"|'([^']*+)')", re.IGNORECASE)
_SCRIPT_URL = re.compile(
    r"\blocation(?:\.href)?\s{0,3}=\s{0,3}[\"']([^\"'\n]++)[\"']|\burl\(\s{0,3}[\"']?([^\"'()\s]++)",
    re.IGNORECASE,
)
_LABELED_LINE = re.compile(r"(?<![\w-])/?(?:url|href|src|link):\s{1,3}[\"']?([^\s\"'<>,]++)", re.IGNORECASE)
_LINE_LABELS = ("url", "href", "src", "link")
_MARKDOWN = re.compile(
    r"\]\(\s{0,3}(?:<([^<>\n]++)>|((?:[^\s()<>]++|\((?:[^\s()<>]++|\([^\s()<>]*+\))*\))+))"
)
_REFERENCE = re.compile(r"^[ \t]{0,3}\[[^\]\n]{1,200}\]:[ \t]{1,4}<?([^\s<>]++)", re.MULTILINE)
_JSON_MEMBER = re.compile(
    r"\"([\w-]{0,40}(?:url|uri|href|src|link)s?)\"\s{0,5}:\s{0,5}\"([^\"\\]*+(?:\\.[^\"\\]*+)*)\"",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")

_TAG = re.compile(r"<[a-zA-Z!/][^<>]{0,2000}>")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,20}:")
_WHOLE_URL = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s<>\"]+|\.{0,2}/[^\s<>\"]*|[?#][^\s<>\"]+)\Z")
# As above, without fragments and queries: "#go" alone is a selector.
_PATH_URL = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s<>\"]+|\.{0,2}/[^\s<>\"]*)\Z")
_URL_KEY = re.compile(r"(?:^|[_\-.]|(?<=[a-z])(?=[UHS]))(?:urls?|uris?|hrefs?|src)$", re.IGNORECASE)
_LIKELY_URL_KEY = re.compile(r"(?:link|permalink|canonical|endpoint)s?$", re.IGNORECASE)
_DEAD_PREFIXES = ("javascript:", "data:", "blob:", "about:blank")
_PLACEHOLDERS = frozenset({"", "-", "n/a", "none", "null", "undefined", "true", "false"})
_LINE_BREAKS = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class ExtractedUrls:
    """Distinct URLs in the order of the input, and the number of URLs left out."""

    urls: tuple[str, ...]
    left_out_count: int = 0


def extract_all_urls(data: object, max_urls: int = MAX_URLS) -> ExtractedUrls:
    """Extract the distinct URLs of a text or of nested data.

    Args:
        data: Text, JSON text, HTML, bytes, or nested mappings and lists. Cycles are allowed.
        max_urls: Maximum number of URLs. Default: 10,000.
    """
    found = dict.fromkeys(_iterate_urls(data))
    kept = [url for url in found if len(url) <= MAX_URL_CHARACTERS][:max_urls]
    return ExtractedUrls(tuple(kept), len(found) - len(kept))


def clean_url(value: str) -> str:
    """Remove surrounding space and line breaks from a URL, as browsers do. Return "" if it is not a usable URL."""
    url = _LINE_BREAKS.sub("", value.strip())
    if (
        not url
        or url.lower() in _PLACEHOLDERS
        or url.lower().startswith(_DEAD_PREFIXES)
        or "<" in url
        or ">" in url
    ):
        return ""
    return url


def is_url_key(key: str) -> bool:
    """Return True if values of this key are usually URLs."""
    return _URL_KEY.search(key) is not None or _LIKELY_URL_KEY.search(key) is not None


def parse_url_value(key: str, value: str) -> str:
    """Return the URL if the whole value of this key is one, otherwise ""."""
    text = value.strip()
    # Under a key such as "href", any value is a URL, also "item?id=1". Under others it must look like one.
    if _URL_KEY.search(key) and len(text) <= 2 * MAX_URL_CHARACTERS:
        return clean_url(text) if "\n" not in text or _WHOLE_URL.match(_LINE_BREAKS.sub("", text)) else ""
    if (_PATH_URL.match(text) and not _URL_SEPARATOR.search(text)) or (
        _LIKELY_URL_KEY.search(key) and text and not re.search(r"[\s{}]", text)
    ):
        return clean_url(text)
    return ""


def _iterate_urls(data: object) -> Iterator[str]:
    # No recursion: data may be nested deeply, and may contain itself.
    seen: dict[int, Any] = {}  # with the values, to keep them alive: the id of a deleted object may be reused
    stack: list[tuple[str, Any, int]] = [("", data, 0)]
    while stack:
        key, value, depth = stack.pop()
        if isinstance(value, bytes | bytearray):
            value = bytes(value).decode("utf-8", "replace")
        if isinstance(value, str):
            yield from _find_in_string(key, value, depth, stack)
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            if id(value) not in seen:
                seen[id(value)] = value
                stack += reversed(list(_iterate_children(key, value, depth)))
        elif value is not None and not isinstance(value, bool | int | float):
            yield from _find_in_string(key, to_safe_text(value), depth, stack)


def _iterate_children(key: str, value: Any, depth: int) -> Iterator[tuple[str, Any, int]]:  # noqa: ANN401 - any data
    if not isinstance(value, Mapping):
        yield from ((key, item, depth) for item in value)
        return
    for name, member in value.items():
        text = to_safe_text(name)
        if "/" in text or "www." in text:  # a mapping by URL
            yield "", text, depth
        yield text, member, depth


def _find_in_string(key: str, text: str, depth: int, stack: list[tuple[str, Any, int]]) -> Iterable[str]:
    if not text:
        return ()
    if url := parse_url_value(key, text):
        return (url,)
    if depth < _MAX_DEPTH and (value := parse_json_container(text)) is not None:
        stack.append(("", value, depth + 1))
        return ()
    return find_urls_in_text(text)


def parse_json_container(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a text that is a JSON list or object as a whole. Return None for any other text."""
    # Check both ends before parsing: the text may be megabytes of prose.
    start = text[:200].lstrip()[:1]
    if (start, text[-200:].rstrip()[-1:]) not in {("{", "}"), ("[", "]")}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def to_safe_text(value: object) -> str:
    """Convert any object to text, even if its ``__str__`` raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object of the caller may raise anything
        return f"<{type(value).__name__}>"


def find_urls_in_text(text: str) -> list[str]:
    """Find the URLs of a text in order, with duplicates."""
    if "\\/" in text or "\\u" in text:  # JSON inside of another format
        text = _ESCAPED.sub(lambda match: _decode_character(match[1]), text).replace("\\/", "/")
    # The substring checks skip the slow patterns for most texts.
    found = list(_find_absolute(text))
    if "=" in text or ":" in text:
        found += _find_in_attributes(text)
        found += _find_labeled_urls(text)
    if "](" in text or "]:" in text:
        found += _find_in_markdown(text)
    found.sort(key=lambda item: item[0])
    return [url for _, url in found if url]


def _decode_character(code: str) -> str:
    # Quotes, control characters and halves of surrogate pairs stay escaped: they would end strings or URLs.
    character = chr(int(code, 16))
    is_plain = character >= " " and character not in '"\\' and not "\ud800" <= character <= "\udfff"
    return character if is_plain else f"\\u{code}"


def _find_absolute(text: str) -> Iterator[tuple[int, str]]:
    if "://" not in text and "www." not in text.lower():
        return
    is_html = "&" in text and _TAG.search(text) is not None
    read = html.unescape(text) if is_html else text
    for match in _ABSOLUTE.finditer(read):
        start, whole = match.start(), match[0]
        is_quoted = start > 0 and read[start - 1] == "'"
        for part in _URL_SEPARATOR.split(whole) if "," in whole or ";" in whole else (whole,):
            yield start, _trim(part, is_quoted=is_quoted)


def _trim(url: str, *, is_quoted: bool) -> str:
    if _SIMPLE_URL.fullmatch(url):
        return url
    # An apostrophe inside of a word belongs to the URL, unless the URL itself is in single quotes.
    if "'" in url:
        end = url.find("'") if is_quoted else getattr(_APOSTROPHE.search(url), "start", lambda: -1)()
        url = url if end < 0 else url[:end]
    if not url.isascii() and (wide_mark := _WIDE_MARK.search(url)):
        url = url[: wide_mark.start()]
    url = _cut_at_unopened_bracket(url).rstrip(_TRAILING_MARKS)
    scheme, _, rest = url.partition("://")
    if scheme.lower().endswith((".http", ".https")):  # a period without a space after it: "page.https://..."
        url = url[scheme.rfind(".") + 1 :]
    return "" if (not rest and not scheme.lower().startswith("www.")) else clean_url(url)


def _cut_at_unopened_bracket(url: str) -> str:
    # A closing bracket without an opening one in the URL encloses the URL: "(see https://a.com/b)".
    opened: list[str] = []
    for match in _BRACKET.finditer(url):
        mark = match[0]
        if mark in "([{":
            opened.append(mark)
        elif opened and opened[-1] == _PAIRS[mark]:
            opened.pop()
        else:
            return url[: match.start()]
    return url


def _find_in_attributes(text: str) -> Iterator[tuple[int, str]]:
    if "=" not in text:
        return
    for match in _ATTRIBUTE.finditer(text):
        value = match[1] if match[1] is not None else match[2] if match[2] is not None else match[3]
        is_bare = match[3] is not None
        # In prose, "url = fast" is not a link: an unquoted value must look like a URL or be inside of a tag.
        if not is_bare or _WHOLE_URL.match(value) or "." in value or _is_in_tag(text, match.start()):
            yield match.start(), _clean_attribute(value, is_bare=is_bare)
    for match in _SRCSET.finditer(text) if "srcset" in text.lower() else ():
        for candidate in re.split(r",\s+|,(?=[a-z]+://)", html.unescape(match[1] or match[2] or "")):
            yield match.start(), clean_url(candidate.strip().partition(" ")[0])


def _is_in_tag(text: str, position: int) -> bool:
    start = max(0, position - _MAX_LABEL_CHARACTERS)
    return text.rfind("<", start, position) > text.rfind(">", start, position)


def _clean_attribute(value: str, *, is_bare: bool) -> str:
    url = clean_url(html.unescape(value))
    if is_bare:
        url = _cut_at_unopened_bracket(url).rstrip(_TRAILING_MARKS)
    return url


def _find_labeled_urls(text: str) -> Iterator[tuple[int, str]]:
    lowered = text.lower()  # substring checks are much faster than the patterns
    for match in _SCRIPT_URL.finditer(text) if "location" in lowered or "url(" in lowered else ():
        yield match.start(), clean_url(html.unescape(match[1] or match[2]))
    for match in _LABELED_LINE.finditer(text) if any(f"{name}:" in lowered for name in _LINE_LABELS) else ():
        if _WHOLE_URL.match(match[1]) or match[0].startswith("/"):
            yield match.start(), _cut_at_unopened_bracket(clean_url(match[1]))
    is_json = any(f'{name}"' in lowered or f'{name}s"' in lowered for name in (*_LINE_LABELS, "uri"))
    for match in _JSON_MEMBER.finditer(text) if is_json else ():
        try:
            value = json.loads(f'"{match[2]}"', strict=False)
        except ValueError:
            continue
        yield match.start(), parse_url_value(match[1], value)


def _find_in_markdown(text: str) -> Iterator[tuple[int, str]]:
    for match in _MARKDOWN.finditer(text):
        target = match[1] or match[2]
        if _SCHEME.match(target) and "://" in target and not match[1]:
            continue  # an absolute URL, found anyway
        label = text.rfind("[", max(0, match.start() - _MAX_LABEL_CHARACTERS), match.start())
        if label < 1 or not text[label - 1].isalnum():  # a[0](x) is code, not a link
            yield match.start(), clean_url(target)
    for match in _REFERENCE.finditer(text):
        if "/" in match[1] or "." in match[1] or match[1].startswith(("#", "?")):
            yield match.start(), clean_url(match[1])
