"""What goes into a site map and comes out of it: limits, links as agents hand them in, pages, reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from langmem_tiers.common.checks import check_whole
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidConfigError

MAX_LINK_TEXT_CHARACTERS, MAX_PAGE_TITLE_CHARACTERS, MAX_PAGE_SUMMARY_CHARACTERS = 200, 300, 2000
MAX_LINK_TYPE_CHARACTERS, MAX_QUOTED_VALUE_CHARACTERS = 50, 200


class LinkType(StrEnum):
    """Where in a page a link stands; any other text is a type too, and ranks with `UNKNOWN`."""

    MAIN_NAV = "main_nav"
    SECTION = "section"
    CONTENT = "content"
    PAGINATION = "pagination"
    UNKNOWN = "unknown"
    FOOTER = "footer"
    EXTERNAL = "external"


_LINK_TYPE_RANKS: dict[str, int] = {kind.value: rank for rank, kind in enumerate(LinkType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SitemapLimits:
    """How far an exploration goes, and how much of a site is remembered."""

    max_depth: int = 2
    """Links from the homepage."""
    max_pages: int = 50
    """Pages visited."""
    max_links_per_page: int = 500
    max_known_pages: int = 50_000
    """Pages remembered, visited or not."""
    stay_on_site: bool = True
    """Whether pages of other sites are left alone."""

    def __post_init__(self) -> None:
        check_whole(self.max_depth, 0, "max_depth", 1000)
        for name in ("max_pages", "max_links_per_page", "max_known_pages"):
            check_whole(getattr(self, name), 1, name, 10**7)
        stays: object = self.stay_on_site
        if not isinstance(stays, bool):
            raise InvalidConfigError(
                f"stay_on_site must be True or False, got {format_value_for_error(stays)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SitemapPage(Displayable):
    """What is known of a page, as it was when it was asked for."""

    url: str
    """In normal form."""
    title: str = ""
    summary: str = ""
    depth: int = 0
    """Links from the homepage on the shortest way; one more than the limit stands for anything deeper."""
    link_type: str = LinkType.UNKNOWN
    """The most prominent of the links to it."""
    link_text: str = ""
    parent: str | None = None
    """The page before it on the shortest way; None for the homepage."""
    is_visited: bool = False
    section_count: int = 0
    visited_at: float | None = None
    """Seconds since 1970."""
    order: int = 0
    """In which it was found, from 0 for the homepage."""
    failure: str = ""
    """Why it could not be visited."""

    def _to_row(self) -> dict[str, object]:
        return {
            "visited": self.is_visited,
            "depth": self.depth,
            "title": self.title or self.link_text,
            "address": self.url,
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport(Displayable):
    """What became of links handed in."""

    added: int = 0
    """Pages not known before."""
    known: int = 0
    """Links to pages known already."""
    refused: tuple[tuple[str, str], ...] = ()
    """The text of each link left out, and why."""


@dataclass(frozen=True, slots=True)
class FoundLink:
    """A link as handed in; with a `problem` if it cannot be used."""

    url: str
    text: str = ""
    link_type: str | None = None
    problem: str = ""


def get_link_rank(link_type: str) -> int:
    """0 for what is visited first."""
    return _LINK_TYPE_RANKS.get(link_type, _LINK_TYPE_RANKS[LinkType.UNKNOWN])


def to_link_type(value: object) -> str:
    """Any text as a type of link; ``unknown`` for what is none."""
    text = clean_page_text(value.lower(), MAX_LINK_TYPE_CHARACTERS) if isinstance(value, str) else ""
    return text or LinkType.UNKNOWN.value


def clean_page_text(value: object, most: int) -> str:
    """Text of a page in one line, cut, and so that it can be written anywhere; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value[: most * 2].split())[:most].rstrip()
    return line.encode("utf-8", "replace").decode("utf-8")


def format_value_for_error(value: object) -> str:
    """A value in an error message."""
    if isinstance(value, str):
        return repr(clean_page_text(value, MAX_QUOTED_VALUE_CHARACTERS))
    is_small = value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if is_small else f"a {type(value).__name__}"


def parse_links(links: object, most: int) -> Iterator[FoundLink]:
    """Each link of what an agent handed in; what cannot be read has a problem, and nothing is raised.

    Args:
        links: A list of addresses or of mappings with ``url`` (or ``href``) and ``text`` (or ``label``).
        most: After how many no more are read, since a list may have no end.
    """
    if isinstance(links, str | Mapping):
        links = [links]
    if not isinstance(links, Iterable):
        yield FoundLink(format_value_for_error(links), problem="is no list of links")
        return
    try:
        each = iter(links)
        for entry in islice(each, most):
            yield _parse_link(entry)
        if next(each, None) is not None:
            yield FoundLink("...", problem=f"came after {most} others: the rest was not read")
    except Exception as error:  # noqa: BLE001 - whatever a list of the caller's raises, the rest is kept
        yield FoundLink("...", problem=f"the list broke off with a {type(error).__name__}")


def _parse_link(entry: object) -> FoundLink:
    if isinstance(entry, str):
        return FoundLink(entry)
    if not isinstance(entry, Mapping):
        return FoundLink(format_value_for_error(entry), problem="is neither a text nor a mapping with 'url'")
    try:
        url, text = entry.get("url") or entry.get("href"), entry.get("text") or entry.get("label")
        kind = entry.get("link_type")
    except Exception as error:  # noqa: BLE001 - as above
        return FoundLink(format_value_for_error(entry), problem=f"cannot be read: {type(error).__name__}")
    if not isinstance(url, str):
        return FoundLink(
            clean_page_text(text, MAX_QUOTED_VALUE_CHARACTERS), problem="has no 'url' that is a text"
        )
    return FoundLink(
        url, clean_page_text(text, MAX_LINK_TEXT_CHARACTERS), None if kind is None else to_link_type(kind)
    )
