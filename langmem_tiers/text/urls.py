"""Normalization of web addresses, so that a page has a single URL."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

from langmem_tiers.text.word_lists import load_words

MAX_URL_CHARACTERS = 8000
"""Maximum length of a URL; longer ones are not considered links to pages."""
# Whitespace that browsers strip around a URL.
_BLANKS = " \t\r\n\f"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_URL_PATTERN = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):)?(?://(?P<authority>[^/?#]*))?"
    r"(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Leading zeros are allowed: ":0080" is port 80.
_PORT = re.compile(r"0*([0-9]{1,5})")
# At most 253 characters, labels of at most 63; the underscore is not a valid host name, but occurs in practice.
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
# A host that ends in a number must be an IPv4 address, as in browsers.
_NUMBER_AT_END = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# An existing escape, or a character that must be escaped.
_TO_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()+*,;=:@/?]")
_PATH_SESSION = re.compile(r";jsessionid=[^/;]*", re.IGNORECASE)
_FOLDER_END = re.compile(r"[/\\]$|(?:^|[/\\])\.\.?$")
_BEFORE_QUERY = re.compile(r"[^?#]*")

_TRACKING_PREFIXES = ("utm_", "aspsessionid")
_TRACKING_PARAMETERS = frozenset(
    # Two pages under one URL would lose one of them; one page under two URLs is only visited twice. So parameters
    # that often select the page are not in the list.
    load_words(__name__, "urls", "tracking parameters")
)
_DOCUMENT_EXTENSIONS = frozenset(load_words(__name__, "urls", "document extensions"))


class _UrlParts(NamedTuple):
    scheme: str
    authority: str | None
    path: str
    query: str | None
    fragment: str


def normalize_url(url: str, base: str = "") -> str | None:
    """Return the absolute http(s) URL in normal form, or None if it is not a web page.

    Scheme and host become lower-case ASCII. User names, default ports, tracking parameters, session
    ids, trailing slashes and fragments (except routes such as ``#/x`` and ``#!/x``) are removed. Escapes
    are written uniformly, dot segments are resolved and parameters are sorted by name.

    Args:
        url: URL as written in a page: absolute, without its scheme (``//host/x``) or relative.
        base: Absolute URL of that page. Without it, the result for relative URLs is None.
    """
    parts = _split_url(url)
    whole = _resolve_url(parts, base) if parts is not None else None
    if whole is None or not whole.authority:
        return None
    try:
        authority = _normalize_authority(whole.scheme, whole.authority)
        text = f"{whole.scheme}://{authority}{_normalize_path(whole.path)}{_normalize_query(whole.query)}{_normalize_route(whole.fragment)}"
    except ValueError:  # lone surrogates, hosts that cannot be encoded in ASCII
        return None
    return text if authority and len(text) <= MAX_URL_CHARACTERS else None


def get_url_host(address: str) -> str:
    """Return the host of a normalized URL without ``www.``; an IPv6 address keeps its brackets."""
    host = address.partition("://")[2].partition("/")[0]
    host = re.sub(r":[0-9]+$", "", host)
    rest = host.removeprefix("www.")
    return rest if "." in rest else host


def get_domain(url: str) -> str:
    """Return the host of an absolute URL without ``www.``; empty if the URL is invalid."""
    address = normalize_url(url)
    return get_url_host(address) if address is not None else ""


def is_same_site(a: str, b: str) -> bool:
    """Return True if two URLs have the same host, or one host is a subdomain of the other."""
    return is_same_host(get_domain(a), get_domain(b))


def is_same_host(a: str, b: str) -> bool:
    """Return True if two hosts from ``get_url_host()`` are equal, or one is a subdomain of the other."""
    if a == b:
        return a != ""
    shorter, longer = sorted((a, b), key=len)
    return "." in shorter and longer.endswith("." + shorter)


def is_document(url: str) -> bool:
    """Return True if the URL ends like a file to download (pdf, zip, images ...), not like a page."""
    parts = _split_url(url)
    if parts is None:
        return False
    name, _, extension = parts.path.rpartition("/")[2].rpartition(".")
    # A wiki page about a file is named File:Name.jpg. Extensions of scripts are not in the list, because
    # a page about Node.js would match.
    return bool(name) and ":" not in name and extension.lower() in _DOCUMENT_EXTENSIONS


def is_folder(url: str) -> bool:
    """Return True if the path as written ends with a slash, so that relative URLs are resolved inside it."""
    head = url.strip(_BLANKS).partition("?")[0].partition("#")[0]
    return head.endswith(("/", "\\", ".")) and _FOLDER_END.search(head) is not None


def to_folder_url(address: str) -> str:
    """Return a normalized URL with a slash at the end of its path, as a base for relative URLs."""
    head = _BEFORE_QUERY.match(address)
    end = head.end() if head is not None else 0
    return address if address[:end].endswith("/") else f"{address[:end]}/{address[end:]}"


def _split_url(url: object) -> _UrlParts | None:
    if not isinstance(url, str):
        return None
    text = url.strip(_BLANKS)
    if not text or len(text) > MAX_URL_CHARACTERS or _CONTROLS.search(text):
        return None
    # Browsers treat backslashes as slashes. Otherwise https://good.example\@bad.example would have another host here.
    if "\\" in text:
        text = _BEFORE_QUERY.sub(lambda head: head[0].replace("\\", "/"), text, count=1)
    found = _URL_PATTERN.fullmatch(text)
    if found is None:
        return None
    scheme, authority, path, query, fragment = found.groups()
    return _UrlParts((scheme or "").lower(), authority, path, query, fragment or "")


def _resolve_url(parts: _UrlParts, base: str) -> _UrlParts | None:
    # RFC 3986, section 5.2: the reference replaces scheme, authority, path or query of the base, and all after it.
    if parts.scheme:
        return parts if parts.scheme in _DEFAULT_PORTS else None
    under = _split_url(base)
    if under is None or under.scheme not in _DEFAULT_PORTS or not under.authority:
        return None
    if parts.authority is not None:
        return parts._replace(scheme=under.scheme)
    if not parts.path:
        query = under.query if parts.query is None else parts.query
        return under._replace(query=query, fragment=parts.fragment)
    path = parts.path if parts.path.startswith("/") else f"{under.path.rpartition('/')[0]}/{parts.path}"
    return _UrlParts(under.scheme, under.authority, path, parts.query, parts.fragment)


def _normalize_authority(scheme: str, text: str) -> str:
    """Return host and port; empty if malformed."""
    # The last "@" ends the user name, as in browsers: "https://good.example@bad.example" leads to bad.example.
    text = text.rpartition("@")[2]
    host, colon, port = text.rpartition(":")
    # The colon was part of an IPv6 address, not the start of a port.
    if not colon or port.endswith("]"):
        host, port = text, ""
    number = _PORT.fullmatch(port) if port else None
    if port and (number is None or int(number[1]) > 65535):
        return ""
    host = _normalize_host(host)
    is_default = number is None or int(number[1]) == _DEFAULT_PORTS[scheme]
    return host if is_default or number is None or not host else f"{host}:{int(number[1])}"


@lru_cache(maxsize=256)
def _normalize_host(text: str) -> str:
    if text.startswith("["):
        return f"[{ipaddress.IPv6Address(text[1:-1])}]" if text.endswith("]") and "%" not in text else ""
    if not text.isascii():
        text = text.encode("idna").decode("ascii")
    host = text.lower().removesuffix(".")
    if not _HOST.fullmatch(host):
        return ""
    return str(ipaddress.IPv4Address(host)) if _NUMBER_AT_END.search(host) else host


def _normalize_path(text: str) -> str:
    path = _escape_text(text)
    if ";" in path:
        path = _PATH_SESSION.sub("", path)
    if "/." in path:
        path = _remove_dot_segments(path)
    return path.rstrip("/") or "/"


def _remove_dot_segments(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)


def _normalize_query(text: str | None) -> str:
    if not text:
        return ""
    named = [(piece.partition("=")[0], piece) for piece in _escape_text(text).split("&") if piece]
    # Sorted by name only: the order of repeated parameters may matter, and sorting is stable.
    kept = sorted((pair for pair in named if not _is_tracking(pair[0].lower())), key=lambda pair: pair[0])
    return "?" + "&".join(piece for _, piece in kept) if kept else ""


def _is_tracking(name: str) -> bool:
    return name in _TRACKING_PARAMETERS or name.startswith(_TRACKING_PREFIXES)


def _normalize_route(fragment: str) -> str:
    """Return the fragment if it is a client-side route; other fragments are positions within the page."""
    if not fragment.startswith(("/", "!")) or not fragment.strip("!/"):
        return ""
    return "#" + _escape_text(fragment)


def _escape_text(text: str) -> str:
    return _TO_ESCAPE.sub(_escape_match, text)


def _escape_match(found: re.Match[str]) -> str:
    text = found[0]
    if len(text) == 1:
        return "".join(f"%{byte:02X}" for byte in text.encode("utf-8"))
    # %7E and ~ are the same; %2F and / are not, so only unreserved characters are decoded.
    plain = chr(int(text[1:], 16))
    return plain if plain in _UNRESERVED else text.upper()
