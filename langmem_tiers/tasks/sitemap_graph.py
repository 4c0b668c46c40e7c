"""Graph behind a site map: pages, links, shortest paths, the visit queue, and its JSON form."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.text.urls import get_url_host, is_document, is_same_host, normalize_url

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


def clean_page_text(value: object, max_characters: int) -> str:
    """Return text from a page as one line of valid UTF-8, truncated; empty if it is not a string."""
    if not isinstance(value, str):
        return ""
    # Cut before splitting, so that a huge text costs no more than a short one. Twice the length leaves some text when
    # whitespace is collapsed.
    line = " ".join(value[: max_characters * 2].split())[:max_characters].rstrip()
    return line.encode("utf-8", "replace").decode("utf-8")


def format_value_for_error(value: object) -> str:
    """Return a short text of a value for an error message."""
    if isinstance(value, str):
        return repr(clean_page_text(value, MAX_QUOTED_VALUE_CHARACTERS))
    # repr() of other values may be very long, or fail for an integer with thousands of digits.
    is_small = value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if is_small else f"a {type(value).__name__}"


def parse_links(links: object, max_links: int) -> Iterator[FoundLink]:
    """Yield a link for each value. Values that cannot be read get a ``problem``; nothing raises.

    Args:
        links: Addresses, or mappings with ``url`` (or ``href``) and ``text`` (or ``label``).
        max_links: Maximum number of values that are read, because an iterator may be infinite.
    """
    if isinstance(links, str | Mapping):
        links = [links]
    if not isinstance(links, Iterable):
        yield FoundLink(format_value_for_error(links), problem="is not a list of links")
        return
    try:
        iterator = iter(links)
        for entry in islice(iterator, max_links):
            yield _parse_link(entry)
        # Read one more value to find out if the list exceeds the limit. It may be infinite, so it is not counted.
        if next(iterator, None) is not None:
            yield FoundLink("...", problem=f"only the first {max_links} links were read")
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


_TEXT_FIELDS = {
    "title": MAX_PAGE_TITLE_CHARACTERS,
    "summary": MAX_PAGE_SUMMARY_CHARACTERS,
    "link_type": MAX_LINK_TYPE_CHARACTERS,
    "link_text": MAX_LINK_TEXT_CHARACTERS,
    "failure": MAX_LINK_TEXT_CHARACTERS,
}
_COUNT_FIELDS = ("section_count", "depth")
_MAX_NUMBER = 2**40
_NEXT_STEP = "save the map again, or start a new one"


@dataclass(slots=True)
class PageNode:
    """A page and its links. Pages refer to each other by their order of discovery."""

    url: str
    order: int
    depth: int
    parent: int | None
    is_external: bool
    """True if the page belongs to another site."""
    is_file: bool
    link_type: str = LinkType.UNKNOWN.value
    link_text: str = ""
    title: str = ""
    summary: str = ""
    section_count: int = 0
    visited_at: float | None = None
    failure: str = ""
    is_folder: bool = False
    """True if a link to the page ended with a slash. Relative links are then resolved below its address."""
    links: dict[int, None] = field(default_factory=dict)
    linked_from: list[int] = field(default_factory=list)
    state: str = ""
    queue_key: tuple[int, int, int] | None = None
    """Present key in the queue. Queue items with another key are outdated."""


class PageGraph:
    """Pages by address and by order, with the depths of their shortest paths and the visit queue.

    Depths above ``max_depth`` are stored as ``max_depth + 1``. The depth of a page can therefore decrease only a few
    times, which bounds the cost of each link even if short paths are found late.
    """

    def __init__(self, homepage: str, limits: SitemapLimits) -> None:
        self.limits = limits
        self.nodes: list[PageNode] = []
        self.order_by_url: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._queue: list[tuple[int, int, int]] = []
        self._host = get_url_host(homepage)
        self._max_counted_depth = limits.max_depth + 1
        self.update_state(self.add_page(homepage, None))

    def add_page(self, url: str, parent: PageNode | None) -> PageNode:
        """Add an unknown page and return it. The caller adds its links and calls ``update_state``."""
        depth = 0 if parent is None else min(parent.depth + 1, self._max_counted_depth)
        parent_order = None if parent is None else parent.order
        is_external = not is_same_host(get_url_host(url), self._host)
        node = PageNode(url, len(self.nodes), depth, parent_order, is_external, is_document(url))
        if is_external and self.limits.stay_on_site:
            node.link_type = LinkType.EXTERNAL.value
        self.nodes.append(node)
        self.order_by_url[url] = node.order
        return node

    def link_page(self, parent: PageNode, url: str, link_type: str, text: str = "") -> PageNode:
        """Link a page from another and return it; an unknown page is added."""
        order = self.order_by_url.get(url)
        is_new = order is None
        node = self.add_page(url, parent) if order is None else self.nodes[order]
        if node.order not in parent.links:
            self.add_link(parent, node)
            self._shorten_paths(parent, node)
        # The most prominent link determines the type. Pages of other sites keep the type EXTERNAL.
        is_fixed = node.is_external and self.limits.stay_on_site
        if not is_fixed and (is_new or get_link_rank(link_type) < get_link_rank(node.link_type)):
            node.link_type = link_type
        node.link_text = node.link_text or text
        self.update_state(node)
        return node

    def add_link(self, parent: PageNode, node: PageNode) -> None:
        """Add a link without updating depths, types or the queue."""
        parent.links[node.order] = None
        node.linked_from.append(parent.order)

    def _shorten_paths(self, parent: PageNode, node: PageNode) -> None:
        """Use the path over ``parent`` if it is shorter, and update all pages behind ``node``."""
        # Breadth-first: pages are reached in the order of their new depth, so each is updated once. With a stack,
        # longer paths could come first, and the pages behind them would be updated repeatedly.
        pending = deque([(parent, node)])
        while pending:
            source, target = pending.popleft()
            if source.depth + 1 < target.depth:
                target.depth, target.parent = source.depth + 1, source.order
                self.update_state(target)
                pending.extend((target, self.nodes[order]) for order in target.links)

    def update_state(self, node: PageNode) -> None:
        """Update the counts by state, and queue an open page if its queue key has changed."""
        # The old queue item stays in the heap; find_first_open() skips it because its key is outdated.
        state = self._compute_state(node)
        if state != node.state:
            self.counts[node.state] -= 1
            self.counts[state] += 1
            node.state = state
        key = (node.depth, get_link_rank(node.link_type), node.order)
        if state == "open" and key != node.queue_key:
            node.queue_key = key
            heappush(self._queue, key)

    def _compute_state(self, node: PageNode) -> str:
        if node.visited_at is not None:
            return "visited"
        if node.failure:
            return "failed"
        # The homepage ignores the limits: without it nothing could be explored.
        if node.order == 0:
            return "open"
        is_ignored = self.limits.stay_on_site and (
            node.is_external or node.link_type == LinkType.EXTERNAL.value
        )
        return "closed" if is_ignored or node.is_file or node.depth > self.limits.max_depth else "open"

    def find_first_open(self) -> PageNode | None:
        """Return the next page to visit, regardless of ``max_pages``, or None."""
        while self._queue:
            node = self.nodes[self._queue[0][2]]
            if node.state == "open" and node.queue_key == self._queue[0]:
                return node
            heappop(self._queue)
        return None


def node_to_dict(node: PageNode) -> dict[str, Any]:
    """Convert a page to plain JSON values."""
    return {
        "url": node.url,
        "parent": node.parent,
        **{name: getattr(node, name) for name in (*_TEXT_FIELDS, *_COUNT_FIELDS, "visited_at", "is_folder")},
        "links": list(node.links),
    }


def parse_page_graph(homepage: str, limits: SitemapLimits, rows: list[Any]) -> PageGraph:
    """Restore a graph from the pages that ``node_to_dict`` wrote.

    Raises:
        InvalidInputError: A value is damaged; the message names its position.
    """
    site = PageGraph(homepage, limits)
    # Three passes: links may refer to later pages, and paths can be checked only when all links are known.
    for order, row in enumerate(rows):
        where = f"pages[{order}]"
        if not isinstance(row, Mapping):
            raise make_damaged_error(where, "an object", row)
        _read_page(site, order, row, where)
    for order, row in enumerate(rows):
        for other in _read_links(row, len(rows), f"pages[{order}].links"):
            site.add_link(site.nodes[order], site.nodes[other])
    _check_paths(site)
    for node in site.nodes:
        site.update_state(node)
    return site


def make_damaged_error(where: str, what: str, value: object) -> InvalidInputError:
    """Return the error for an invalid value in a stored map."""
    return InvalidInputError(
        f"{where} of the site map must be {what}, got {format_value_for_error(value)}: {_NEXT_STEP}"
    )


def _read_page(site: PageGraph, order: int, row: Mapping[str, Any], where: str) -> None:
    url = row.get("url")
    if not isinstance(url, str) or normalize_url(url) != url or (order == 0) != (url in site.order_by_url):
        expected = "the homepage" if order == 0 else "a normalized address that occurs only once"
        raise make_damaged_error(f"{where}.url", expected, url)
    node = site.nodes[0] if order == 0 else site.add_page(url, None)
    for name, max_length in _TEXT_FIELDS.items():
        value = row.get(name)
        if not isinstance(value, str) or clean_page_text(value, max_length) != value:
            raise make_damaged_error(f"{where}.{name}", f"one line of up to {max_length} characters", value)
        setattr(node, name, value)
    if to_link_type(node.link_type) != node.link_type:
        raise make_damaged_error(f"{where}.link_type", "a link type in lower case", node.link_type)
    for name in _COUNT_FIELDS:
        setattr(node, name, _check_number(row.get(name), _MAX_NUMBER, f"{where}.{name}"))
    if not isinstance(row.get("is_folder"), bool):
        raise make_damaged_error(f"{where}.is_folder", "true or false", row.get("is_folder"))
    node.is_folder = row["is_folder"]
    parent, visited_at = row.get("parent"), row.get("visited_at")
    node.parent = None if parent is None else _check_number(parent, _MAX_NUMBER, f"{where}.parent")
    node.visited_at = (
        None if visited_at is None else check_timestamp(visited_at, f"{where}.visited_at of the site map")
    )


def _read_links(row: Mapping[str, Any], pages: int, where: str) -> Iterator[int]:
    links = row.get("links")
    if not isinstance(links, list):
        raise make_damaged_error(where, "a list", links)
    orders = [_check_number(order, pages - 1, where) for order in links]
    if len(set(orders)) != len(orders):
        raise make_damaged_error(where, "a list without duplicates", links)
    return iter(orders)


def _check_paths(site: PageGraph) -> None:
    """Verify that depth and parent of each page belong to a shortest path from the homepage."""
    deepest = site.limits.max_depth + 1
    # Breadth-first search from the homepage.
    depths = {0: 0}
    pending = deque([0])
    while pending:
        order = pending.popleft()
        for linked in site.nodes[order].links:
            if linked not in depths:
                depths[linked] = min(depths[order] + 1, deepest)
                pending.append(linked)
    for node in site.nodes:
        where = f"pages[{node.order}]"
        if node.depth != depths.get(node.order):
            raise make_damaged_error(
                f"{where}.depth", f"that of its shortest path, {depths.get(node.order)}", node.depth
            )
        if not _is_shortest_parent(site, node, deepest):
            raise make_damaged_error(
                f"{where}.parent", "the page before it on its shortest path", node.parent
            )


def _is_shortest_parent(site: PageGraph, node: PageNode, deepest: int) -> bool:
    if node.order == 0 or node.parent is None or node.parent >= len(site.nodes):
        return node.order == 0 and node.parent is None
    parent = site.nodes[node.parent]
    if node.order not in parent.links:
        return False
    # Beyond the limit all depths are equal. There the parent must be an earlier page, which rules out cycles.
    return parent.depth + 1 == node.depth or (
        parent.depth == node.depth == deepest and parent.order < node.order
    )


def _check_number(value: object, max_number: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= max_number:
        raise make_damaged_error(where, f"a whole number from 0 to {max_number}", value)
    return value


def check_timestamp(value: object, where: str) -> float:
    """Return a time in seconds since 1970 that can be stored as JSON."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
        raise InvalidInputError(
            f"{where} must be in seconds since 1970, got {format_value_for_error(value)}: use a number"
        )
    return float(value)
