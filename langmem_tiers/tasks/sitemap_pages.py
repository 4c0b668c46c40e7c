"""Data classes of site maps (limits, pages, reports), and the parser for links."""

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
    """Position of a link in a page, most prominent first. Other strings are allowed and rank as `UNKNOWN`."""

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
    """Limits of an exploration."""

    max_depth: int = 2
    """Maximum number of links from the homepage to a visited page."""
    max_pages: int = 50
    """Maximum number of visited pages."""
    max_links_per_page: int = 500
    """Maximum number of links that are stored per page."""
    max_known_pages: int = 50_000
    """Maximum number of stored pages, visited or not."""
    stay_on_site: bool = True
    """True if pages of other sites are not visited."""

    def __post_init__(self) -> None:
        check_whole(self.max_depth, 0, "max_depth", 1000)
        for name in ("max_pages", "max_links_per_page", "max_known_pages"):
            check_whole(getattr(self, name), 1, name, 10**7)
        stays: object = self.stay_on_site
        if not isinstance(stays, bool):
            raise InvalidConfigError(
                f"stay_on_site must be True or False, got {format_value_for_error(stays)}: use a bool"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SitemapPage(Displayable):
    """Snapshot of a page in a site map."""

    url: str
    """Normalized address."""
    title: str = ""
    summary: str = ""
    depth: int = 0
    """Number of links on the shortest path from the homepage, at most ``max_depth + 1``."""
    link_type: str = LinkType.UNKNOWN
    """Type of the most prominent link to the page."""
    link_text: str = ""
    parent: str | None = None
    """Address of the previous page on the shortest path; None for the homepage."""
    is_visited: bool = False
    section_count: int = 0
    visited_at: float | None = None
    """Seconds since 1970."""
    order: int = 0
    """Order of discovery, from 0 for the homepage."""
    failure: str = ""
    """Reason why the page could not be visited; empty if it did not fail."""

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
    """Result of adding links."""

    added: int = 0
    """Number of new pages."""
    known: int = 0
    """Number of links to pages that were already known."""
    refused: tuple[tuple[str, str], ...] = ()
    """Address and reason of each refused link."""


@dataclass(frozen=True, slots=True)
class FoundLink:
    """A parsed link; ``problem`` is set if it cannot be used."""

    url: str
    text: str = ""
    link_type: str | None = None
    problem: str = ""


def get_link_rank(link_type: str) -> int:
    """Return the rank of a link type; pages with rank 0 are visited first."""
    return _LINK_TYPE_RANKS.get(link_type, _LINK_TYPE_RANKS[LinkType.UNKNOWN])


def to_link_type(value: object) -> str:
    """Convert a value to a link type; ``unknown`` for values that are not strings."""
    text = clean_page_text(value.lower(), MAX_LINK_TYPE_CHARACTERS) if isinstance(value, str) else ""
    return text or LinkType.UNKNOWN.value


def clean_page_text(value: object, most: int) -> str:
    """Return text from a page as one line of valid UTF-8, truncated; empty if it is not a string."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value[: most * 2].split())[:most].rstrip()
    return line.encode("utf-8", "replace").decode("utf-8")


def format_value_for_error(value: object) -> str:
    """Return a short text of a value for an error message."""
    if isinstance(value, str):
        return repr(clean_page_text(value, MAX_QUOTED_VALUE_CHARACTERS))
    # repr() of other values may be very long, or fail for an integer with thousands of digits.
    is_small = value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if is_small else f"a {type(value).__name__}"


def parse_links(links: object, most: int) -> Iterator[FoundLink]:
    """Yield a link for each value. Values that cannot be read get a ``problem``; nothing raises.

    Args:
        links: Addresses, or mappings with ``url`` (or ``href``) and ``text`` (or ``label``).
        most: Maximum number of values that are read, because an iterator may be infinite.
    """
    if isinstance(links, str | Mapping):
        links = [links]
    if not isinstance(links, Iterable):
        yield FoundLink(format_value_for_error(links), problem="is not a list of links")
        return
    try:
        iterator = iter(links)
        for entry in islice(iterator, most):
            yield _parse_link(entry)
        if next(iterator, None) is not None:
            yield FoundLink("...", problem=f"came after {most} other links: the rest was not read")
    except Exception as error:  # noqa: BLE001 - an iterator of the caller may raise anything; keep the other links
        yield FoundLink("...", problem=f"reading the links failed with {type(error).__name__}")


def _parse_link(entry: object) -> FoundLink:
    if isinstance(entry, str):
        return FoundLink(entry)
    if not isinstance(entry, Mapping):
        return FoundLink(
            format_value_for_error(entry), problem="is neither a string nor a mapping with 'url'"
        )
    try:
        url, text = entry.get("url") or entry.get("href"), entry.get("text") or entry.get("label")
        kind = entry.get("link_type")
    except Exception as error:  # noqa: BLE001 - as above
        return FoundLink(format_value_for_error(entry), problem=f"cannot be read: {type(error).__name__}")
    if not isinstance(url, str):
        return FoundLink(
            clean_page_text(text, MAX_QUOTED_VALUE_CHARACTERS), problem="has no string under 'url'"
        )
    return FoundLink(
        url, clean_page_text(text, MAX_LINK_TEXT_CHARACTERS), None if kind is None else to_link_type(kind)
    )
